# SPDX-License-Identifier: Apache-2.0
"""advise: each figure that it names is what the program needs when it is changed so. Networks are trained as they are under the tool, and again
with the real torch.utils.checkpoint by PyTorch alone, whose profiler counts the memory."""
import json
import re
from pathlib import Path

import pytest

TARGET = Path(__file__).resolve().parents[1] / "targets" / "torch_advise.py"
SHAPES = TARGET.with_name("torch_advise_shapes.py")
PROGRAMS = TARGET.with_name("torch_advise_programs.py")
HELD = TARGET.with_name("torch_held.py")
NAMED = ("transformer", "cnn", "unet", "rnn", "lstm", "room", "scaled", "hooked", "nested", "keeps")
RECORD = ("--device=cpu", "--call-stack=python", "--analysis=decompose", "--format=none")
CLOSE = 0.01
WORTH = 0.02  # what lowers the peak by more must be named


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def record(msmemscope, python, *networks):
    """network -> its project"""
    run = msmemscope(*RECORD, "--", *python, TARGET, "plain", *networks).check()
    projects = {project.pid: project for project in run.projects()}
    return {line["network"]: projects[line["pid"]] for line in lines(run.stdout)}


def advice(msmemscope, project, *options):
    [pool] = json.loads(msmemscope("advise", project.path, "--json", *options, output=False).check().stdout)["pools"]
    return pool


def is_refused(pool, what):
    return any(one.startswith(f"{what}: ") for one in pool["refused"])


def key(one):
    return one["rule"], one.get("class"), one.get("which")


@pytest.fixture(scope="module")
def seeds(networks):
    """Of random networks, none of which was looked at while the rules were written."""
    return [str(300 + seed) for seed in range(networks // 6)]


def test_each_figure_is_what_the_changed_program_needs(msmemscope, python, seeds):
    names = [*NAMED, *seeds]
    projects = record(msmemscope, python, *names)
    truths = {}
    for line in lines(msmemscope.bare(*python, TARGET, "truth", *names).check().stdout):
        truths.setdefault(line["network"], {})[key(line)] = line["peak_bytes"]
    compared = halved = 0
    for name in names:
        pool, truth = advice(msmemscope, projects[name]), truths[name]
        plain = truth.pop(("plain", None, None))
        assert pool["peak_bytes"] == plain, name
        said = {key(one): one for one in pool["advice"]}
        for rule, peak in truth.items():
            one = said.pop(rule, None)
            if one is None:
                assert peak > (1 - WORTH) * plain or rule[0] == "accumulate" and is_refused(pool, "Gradient accumulation"), (name, rule, peak, plain)
                continue
            halved += rule[0] == "accumulate"
            assert abs(one["peak_bytes"] - peak) <= CLOSE * peak, (name, rule, one["peak_bytes"], peak)
            assert one["saved_bytes"] == plain - one["peak_bytes"] > 0
            if rule[0] == "set_to_none":
                assert "zero_grad(" in TARGET.read_text().splitlines()[int(one["line"].rpartition(":")[2]) - 1], one
            compared += 1
        assert {rule for rule, _, _ in said} <= {"optimizer_state"}, (name, said)
    assert compared >= 60 and halved >= 5


def test_figures_of_other_shapes_are_those_of_the_changed_program(msmemscope, python, networks):
    """In place on a view, results inside an expression, sums of gradients in place, rows that are picked, layers that are not trained, several models,
    a graph that is kept for a second backward pass."""
    seeds = [6, 8, 10, 13, 15, 28, 1007, 1014, *range(400, 400 + networks // 8)]
    run = msmemscope(*RECORD, "--", *python, SHAPES, "plain", *map(str, seeds)).check()
    projects = {project.pid: project for project in run.projects()}
    truths, compared = {}, 0
    for line in lines(msmemscope.bare(*python, SHAPES, "truth", *map(str, seeds)).check().stdout):
        truths.setdefault(line["network"], {})[key(line)] = line["peak_bytes"]
    for line in lines(run.stdout):
        truth, pool = truths[line["network"]], advice(msmemscope, projects[line["pid"]])
        assert pool["peak_bytes"] == truth[("plain", None, None)], line
        for one in pool["advice"]:
            if key(one) in truth:
                assert abs(one["peak_bytes"] - truth[key(one)]) <= CLOSE * truth[key(one)], (line, one, truth)
                compared += 1
        named = {key(one) for one in pool["advice"]}
        missed = {rule: peak for rule, peak in truth.items() if rule[0] == "checkpoint" and rule not in named and peak < (1 - WORTH) * pool["peak_bytes"]}
        assert not missed, (line, missed)
    assert compared >= 30
    for network, why in ((10, "several models, or forward passes of one, share a backward pass"),
                         (1014, "how many rows some results have follows from values, and decides the peak")):
        pid = next(line["pid"] for line in lines(run.stdout) if line["network"] == network)
        assert f"Gradient accumulation: {why}." in advice(msmemscope, projects[pid])["refused"]


def test_results_that_are_held_through_the_backward_pass_can_be_freed(msmemscope, python, networks):
    """However they are held; of a program that holds none nothing is said. The line is where the program gets the result."""
    numbers = [str(40 + number) for number in range(max(7, networks // 6))]
    run = msmemscope(*RECORD, "--events=alloc,free,access", "--", *python, HELD, "plain", *numbers).check()
    projects = {project.pid: project for project in run.projects()}
    truths = {line["seed"]: line for line in lines(msmemscope.bare(*python, HELD, "truth", *numbers).check().stdout)}
    source, named = HELD.read_text().splitlines(), 0
    for line in lines(run.stdout):
        pool, truth = advice(msmemscope, projects[line["pid"]]), truths[line["seed"]]
        said = [one for one in pool["advice"] if one["rule"] == "free_earlier"]
        assert pool["peak_bytes"] == truth["peak_bytes"]
        if line["how"] == "nothing":
            assert not said and truth["freed_bytes"] == truth["peak_bytes"], said
            continue
        [one] = said or [{"peak_bytes": pool["peak_bytes"], "line": None}]
        assert abs(one["peak_bytes"] - truth["freed_bytes"]) <= CLOSE * truth["freed_bytes"], (line, truth, one)
        if one["line"] is not None:
            assert one["cost"] == "no cost" and "model(tokens)" in source[int(one["line"].rpartition(":")[2]) - 1] or line["how"] == "caller", one
            named += 1
    assert named >= 4


def test_nothing_that_the_graph_holds_is_called_free(msmemscope, python):
    run = msmemscope(*RECORD, "--events=alloc,free,access", "--", *python, TARGET, "plain", "transformer", "unet", "rnn", "lstm", "room", "again", "compiled").check()
    projects = {project.pid: project for project in run.projects()}
    for line in lines(run.stdout):
        pool = advice(msmemscope, projects[line["pid"]])
        assert any("what its code uses is not seen" in one for one in pool["refused"]) == (line["network"] == "compiled")
        assert [one for one in pool["advice"] if one["rule"] == "free_earlier"] == [], line
        assert line["network"] in ("again", "compiled") or any(one["rule"] == "checkpoint" for one in pool["advice"]), "a run with accesses has the other advice, too"


def test_the_screen_has_the_best_lines_with_cost_and_source(msmemscope, python):
    project = record(msmemscope, python, "transformer")["transformer"]
    pool = advice(msmemscope, project)
    text = msmemscope("advise", project.path, output=False).check().stdout.splitlines()
    said = re.fullmatch(r"Advice for the CPU \(peak [\d.]+ MiB, step (\d)\)", text[0])
    peak = next(one for one in json.loads((project.path / "findings.json").read_text())["processes"][0]["peaks"] if one["device"] == "cpu")
    assert (pool["device"], pool["peak_bytes"], pool["step"]) == ("cpu", peak["bytes"], peak["step"]) and int(said[1]) == peak["step"]
    assert len(text) <= 9
    assert text[-3:] == ["Not tried:", "  Freeing results earlier: the run has no accesses; record it with --events=alloc,free,access as well.",
                         "Seconds are those of the recorded run, which is slower than one by itself."]
    text = text[:-3]
    found = [re.fullmatch(r"  -([\d.]+) MiB +(.*?)  +(\+.* per step \(\+\d+ %\)|less precision|no cost|two smaller passes)(?:  +(\S+:\d+)(?: and others)?)?", line) for line in text[1:]]
    assert all(found), text
    sizes = [float(one[1]) for one in found]
    assert sizes == sorted(sizes, reverse=True) and found[0][2] == "checkpoint Block (6 of them)"
    number = int(found[0][4].rpartition(":")[2])
    assert TARGET.read_text().splitlines()[number - 1].strip() == "x = block(x)"
    # The cheapest one under a limit: nothing that is cheaper is under it, and without a limit less was tried.
    limit = (pool["peak_bytes"] + pool["advice"][0]["peak_bytes"]) // 2
    limited = advice(msmemscope, project, f"--limit={limit}")
    cheapest = limited["cheapest"]
    assert cheapest["peak_bytes"] <= limit and len(limited["advice"]) > len(pool["advice"])
    assert all(one["seconds_per_step"] >= cheapest["seconds_per_step"]
               for one in limited["advice"] if one["peak_bytes"] <= limit and "seconds_per_step" in one)
    said = msmemscope("advise", project.path, f"--limit={limit}", output=False).check().stdout
    assert f": {cheapest['what']}, " in said and "Cheapest below " in said
    assert "No change that was tried brings the peak below 1.0 MiB by itself.\n" in \
        msmemscope("advise", project.path, "--limit=1M", output=False).check().stdout
    assert "without a change" in msmemscope("advise", project.path, "--limit=1G", output=False).check().stdout


def test_what_cannot_be_known_is_refused_with_the_reason(msmemscope, python):
    projects = record(msmemscope, python, "compiled", "again")
    pool = advice(msmemscope, projects["again"])
    assert "Attention: its forward pass already runs again in the backward pass." in pool["refused"]
    assert not [one for one in pool["advice"] if one.get("class") == "Block"]
    pool = advice(msmemscope, projects["compiled"])
    assert any("torch.compile" in one for one in pool["refused"])
    run = msmemscope("--device=cpu", "--format=none", "--", *python, TARGET, "plain", "keeps").check()
    [plain] = [project for project in run.projects() if project.pid == lines(run.stdout)[0]["pid"]]
    for options in ((), ("--json",)):
        answer = msmemscope("advise", plain.path, *options, output=False)
        assert answer.returncode == 1 and answer.stdout == ""
        assert re.search(r"has no advice: it has no calls of modules; record it with --call-stack=python --analysis=decompose\n", answer.stderr)
    answer = msmemscope("advise", plain.path, "--limit=80%", output=False)
    assert answer.returncode == 2 and "--limit is a size, such as 8G" in answer.stderr
    answer = msmemscope("advise", plain.path, "--bandwidth=80%", output=False)
    assert answer.returncode == 2 and "--bandwidth is bytes per second, such as 24G" in answer.stderr


@pytest.mark.parametrize("name, rule, change", [
    ("result", "accumulate", "halves"), ("history", "accumulate", "halves"),  # a result goes when the next one is there, or never
    ("autocast", "accumulate", "halves"), ("autocast", "checkpoint", "checkpoint"),  # copies of weights are as large for half the batch
    ("partly", "checkpoint", "checkpoint")])
def test_a_program_needs_what_advise_says_of_its_change(msmemscope, python, name, rule, change):
    [project] = msmemscope(*RECORD, "--", *python, PROGRAMS, "plain", name).check().projects()
    [truth] = lines(msmemscope.bare(*python, PROGRAMS, "truth", name, change).check().stdout)
    pool = advice(msmemscope, project)
    [said] = [one for one in pool["advice"] if one["rule"] == rule and one.get("which") in (None, "all", "others")]
    assert abs(said["peak_bytes"] - truth["peak_bytes"]) <= CLOSE * truth["peak_bytes"], (said, truth)
    if name == "partly":
        assert said["what"] == "checkpoint Block (others, 3 of 6)"
        assert "Block: the forward passes of 3 of 6 already run again in the backward pass." in pool["refused"]


def test_the_same_program_needs_the_same_each_time(msmemscope, python, program, out):
    """The peak of requested bytes and the number of allocations, which a budget may be about."""
    run = msmemscope(*RECORD, "--", *python, TARGET, "plain", *["rnn"] * 4).check()
    figures = [[(pool["pool"], pool["peak_bytes"], pool["allocations"]) for pool in msmemscope.info(project)["pools"]]
               for project in run.projects() if project.pid in [line["pid"] for line in lines(run.stdout)]]
    for number in range(6):
        run = msmemscope("--format=none", "--", *program("client_pta", "--threads=1", "--rounds=40"), output=out / str(number)).check()
        figures.append([(pool["pool"], pool["peak_bytes"], pool["allocations"]) for pool in msmemscope.info(run.project())["pools"]])
    assert len(figures) == 10 and figures[0] != figures[4]
    assert figures[:4] == figures[:1] * 4 and figures[4:] == figures[4:5] * 6, figures


def test_the_page_draws_the_memory_after_each_change(msmemscope, python, view, browser):
    """In `view` and in a report: what advise names, each with a curve that reaches its peak; the recorded one reaches that of the run."""
    project = record(msmemscope, python, "transformer")["transformer"]
    pool = advice(msmemscope, project)
    opened = view(project.path)
    summary = opened.ask("summary", process=0)
    [index] = [one["index"] for one in summary["pools"] if one["pool"] == "HOST"]
    answer = opened.ask("advise", process=0, pool=index, width=700, **{"from": 0, "to": summary["to_ns"]})
    assert max(answer["used"]) == answer["peak_bytes"] == pool["peak_bytes"] and len(answer["used"]) == 700
    best = {}
    for one in pool["advice"]:
        best.setdefault((one["rule"], one.get("class")), one)
    names = [one["what"] for one in best.values()][:5]
    assert [one["what"] for one in answer["advice"]] == names and len(names) >= 3
    for one, said in zip(answer["advice"], best.values()):
        assert max(one["used"]) == one["peak_bytes"] == said["peak_bytes"] and one["saved_bytes"] == said["saved_bytes"] and one["line"] == said["line"]
        assert sum(now < was for now, was in zip(one["used"], answer["used"])) > 20
        assert one["used"][-1] == answer["used"][-1] or one["what"] == "keep optimizer state in bfloat16"
    for address in (opened.address, (project.path / "report.html").as_uri()):
        page = browser()
        page.open(f"{address}#tab=timeline&pool={index}")
        page.press("#tools button", "one => one.textContent === 'advice'")
        page.wait("(document.getElementById('main').dataset.advice ?? '') !== ''")
        assert page.run("document.getElementById('main').dataset.advice") == names[0]
        texts = page.run("[...document.querySelectorAll('#advise option')].map(one => one.textContent)")
        assert [text.split(":")[0] for text in texts] == ["advice", *names] and ", torch_advise.py:" in texts[1]
        assert page.errors == []
