# SPDX-License-Identifier: Apache-2.0
"""Programs about which forms of one run once disagreed, each compared in every form (same.py), with the truth that the program knows."""
import json
import re

import pytest

import same
import viewed

KEPT = """
import npu
kept = []
"""

# ---- what is freed after the last stop() ----

FREED_AFTER_STOP = KEPT + """
npu.start()
for _ in range(12):
    kept.append(npu.alloc(5000))
    npu.step()
npu.stop()
for block in kept:
    npu.free(block)
"""


@pytest.mark.parametrize("way", ["command", "deferred", "preloaded"])
@pytest.mark.parametrize("form", ["csv", "db"])
def test_what_is_freed_after_the_last_stop_leaks_in_every_form(scripts, msmemscope, way, form):
    if way == "preloaded":
        text = FREED_AFTER_STOP.replace("npu.start()", f"import msmemscope, os\nmsmemscope.config(data_format={form!r}, output=os.environ['OUT'])\n"
                                                       "npu.start()")
        run = scripts.preloaded(text)
    else:
        run = scripts.command(FREED_AFTER_STOP, f"--format={form}", "--fail-on=leak",
                              *(["--collect-mode=deferred"] if way == "deferred" else []))
        assert run.returncode == 4, str(run)
    [place] = [place for place in msmemscope.info(run.project())["places"] if place["verdict"] == "leak"]
    assert (place["blocks"], place["bytes"], place["bytes_per_step"]) == (12, 60000, 5000)
    same.check(run, msmemscope)


# ---- labels ----

LABELLED = KEPT + """
import msmemscope.describe as describe
for _ in range(12):
    with describe.describer(owner={label!r}):
        kept.append(npu.alloc(1 << 20))
    npu.step()
"""


@pytest.mark.parametrize("label", ["my_optimizer_state_log", "weight_cache", "cache"])
def test_a_label_does_not_hide_a_leak(scripts, msmemscope, label):
    run = scripts.command(LABELLED.format(label=label), "--fail-on=leak", "--analysis=leaks,decompose")
    assert run.returncode == 4, str(run)
    same.check(run, msmemscope)


# ---- call sites with the same shown name ----

# The two frames that are shown are the same for all callers.
SAME_NAME = KEPT + """
def block(size):
    return npu.alloc(size)

def layer(size):
    return block(size)

def train():
    for turn in range(3):
        npu.free(layer(3000 + turn))
    kept.append(layer(4 << 10))

def evaluate():
    for turn in range(2):
        npu.free(layer(5000 + turn))
    kept.append(layer(8 << 10))

def other():
    kept.append(block(20 << 10))

for line in range(10):
    other()
    kept.append(layer(6 << 10)); kept.append(layer(7 << 10))
for _ in range(24):
    train()
    evaluate()
    npu.step()
"""


def test_call_sites_with_the_same_name_are_one_line_with_the_sum_of_all(scripts, msmemscope):
    run = scripts.command(SAME_NAME)
    same.check(run, msmemscope)


# ---- the end of a pool ----

# What the last step leaves is freed before the program ends.
TWO_ENDS = KEPT + """
for _ in range(12):
    block, more = npu.alloc(4096), npu.alloc(1 << 20)
    kept.append(npu.alloc(5000))
    npu.step()
    npu.free(block)
    npu.free(more)
"""


def test_a_pool_has_one_end(scripts, msmemscope):
    run = scripts.command(TWO_ENDS)
    same.check(run, msmemscope)


# ---- what people see as one line ----

def test_holders_of_a_peak_are_the_same_lines_in_every_form(program, msmemscope):
    run = msmemscope("--", *program("leaky_steps", "--steps=12")).check()
    [names] = {tuple(holder["place"] for holder in peak["places"]) for peak in msmemscope.info(run.project())["peaks"][:1]}
    assert any(name.startswith("blocks of ") for name in names), names
    assert same.screen_of(same.screens(run.stderr), run.project().path) is not None
    same.check(run, msmemscope)


# Four call sites hold the same bytes.
EQUAL = KEPT + """
def b(): kept.append(npu.alloc(1 << 20))
def d(): kept.append(npu.alloc(1 << 20))
def a(): kept.append(npu.alloc(1 << 20))
def c(): kept.append(npu.alloc(1 << 20))
for one in (c, a, d, b):
    one()
"""


def test_holders_of_equal_bytes_are_in_the_order_of_their_names(scripts, msmemscope):
    run = scripts.command(EQUAL)
    names = [holder["place"] for holder in msmemscope.info(run.project())["peaks"][0]["places"]]
    assert len(names) == 4 and names == sorted(names)
    same.check(run, msmemscope)


# ---- what nobody asked for ----

LEAK = KEPT + """
for _ in range(12):
    kept.append(npu.alloc(5000))
    kept.append(npu.alloc(3000, device=1))
    npu.step()
"""


def page_of(run):
    return viewed.answers(run.project().path / "report.html", ("summary/0/",))["summary/0///"]


def test_a_page_has_the_leaks_that_were_asked_for(scripts, msmemscope):
    run = scripts.command(LEAK, "--analysis=none")
    assert page_of(run)["leaks"] == [] and not page_of(run)["asked"]
    same.check(run, msmemscope)


def test_a_page_has_the_devices_that_were_asked_for(scripts, msmemscope):
    run = scripts.command(LEAK, "--device=npu:1")
    assert {pool["device"] for pool in page_of(run)["pools"]} == {"1"} and len(page_of(run)["leaks"]) == 1
    same.check(run, msmemscope)


# ---- verdicts ----

RANKS_OF_ALL_VERDICTS = """
import os, subprocess, sys, threading
if "RANK" not in os.environ:
    ranks = [subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(rank)}) for rank in range(4)]
    sys.exit(sum(rank.wait() for rank in ranks))
import npu
rank, kept = int(os.environ["RANK"]), [npu.alloc(1 << 20)]
for step in range(12):
    if rank == 1:
        kept.append(npu.alloc(1 << 20))
    elif rank == 3 and step in (4, 11):
        kept.append(npu.alloc(1 << 20))
    npu.free(npu.alloc(4096))
    npu.step()

def is_refused():
    try:
        npu.alloc(300 << 20)
    except AssertionError:
        return True

if rank in (0, 2):
    large = npu.alloc(300 << 20)
    assert is_refused()
    if rank == 0:
        helper = threading.Thread(target=npu.free, args=(large,))
        helper.start()
        helper.join()
        assert not is_refused()
"""


def test_verdicts_and_their_order_are_the_same_on_the_screen_and_on_the_page(scripts, msmemscope):
    """A request that was refused and then granted is no out-of-memory; a leak is none either, and a suspect is worse than nothing."""
    run = scripts.command(RANKS_OF_ALL_VERDICTS, env={"SIMNPU_HBM": "512M"}).check()
    said = {process["rank"]: process["verdict"] for process in map(msmemscope.info, run.projects())}
    assert said == {0: said[0], 1: "leak", 2: "oom", 3: "suspect"} and said[0] in ("ok", "none")
    [page] = run.out.glob("*.html")
    ranks = viewed.answers(page, ("ranks/", "summary/", "processes/"))
    names = [one["name"] for one in ranks["processes////"]["processes"]]
    found = {names[one["process"]]: one for one in ranks["ranks////"]["ranks"]}
    assert {int(name.split()[1]): one["verdict"] for name, one in found.items()} == said
    assert "oom" in [marker["kind"] for marker in ranks[f"summary/{names.index('rank 0')}///"]["markers"]]
    worst = sorted(found, key=lambda name: (["none", "ok", "suspect", "leak", "oom"].index(found[name]["verdict"]), found[name]["growth"],
                                            found[name]["highest_bytes"]), reverse=True)
    table = [int(number) for number in re.findall(r"^ {2} +(\d) +\d+  script.py ", run.stderr, re.M)]
    assert table == [int(name.split()[1]) for name in worst] == [2, 1, 3, 0], str(run)
    assert [ranks[f"summary/{number}///"]["verdict"] for number in range(4)] == [said[int(name.split()[1])] for name in names]
    same.check(run, msmemscope)


SUSPECTS = KEPT + """
def deep(depth):
    return npu.alloc(30000) if depth == 0 else deep(depth - 1)
for step in range(14):
    kept.append(deep(step % 5))
    npu.free(deep(20))
    npu.step()
"""


def test_suspects_are_in_the_order_of_what_they_kept(scripts, msmemscope):
    """Blocks of the first step are not counted: a call site with more blocks in all may have kept less."""
    run = scripts.command(SUSPECTS)
    suspects = [place for place in msmemscope.info(run.project())["places"] if place["verdict"] == "suspect"]
    kept = [place["overdue_bytes"] + place["young_bytes"] for place in suspects]
    assert len(kept) == 4 and kept == sorted(kept, reverse=True) and kept != sorted(kept), str(run)
    shown = re.findall(r"^ +([\d.]+ KiB)  script.py.* grew in ", run.stderr, re.M)
    assert shown == [same.shown(size) for size in kept], str(run)
    same.check(run, msmemscope)


# ---- owners ----

def test_a_dump_alone_has_the_owners_of_its_rows(scripts, msmemscope):
    """A leak keeps its label, and what is counted by owner is the same."""
    run = scripts.command(LABELLED.format(label="cache"), "--analysis=leaks,decompose")
    [dump] = run.project().dumps()
    alone = json.loads(msmemscope("info", "--json", "--analysis=leaks,decompose", dump, output=False).check().stdout)["processes"][0]
    wanted = msmemscope.info(run.project())
    assert [place["owner"] for place in wanted["places"] if place["verdict"] == "leak"] == ["CANN@SLOG@cache"]
    assert [place["owner"] for place in alone["places"]] == [place["owner"] for place in wanted["places"]]
    assert alone["decompose"] == wanted["decompose"]
    same.check(run, msmemscope)


# ---- devices that were not asked for ----

@pytest.mark.parametrize("freed", [True, False])
def test_memory_of_devices_that_were_not_asked_for_has_no_verdict(scripts, msmemscope, freed):
    text = KEPT + f"for _ in range(12):\n    kept.append(npu.alloc(5000))\n    {'npu.free(kept.pop())' if freed else ''}\n    npu.step()\n"
    run = scripts.command(text, "--device=cpu")
    assert msmemscope.info(run.project())["verdict"] == "none", str(run)
    report = (run.project().path / "report.txt").read_text()
    assert "No leak was found" not in report and "alive at the end" not in report, report
    same.check(run, msmemscope)
