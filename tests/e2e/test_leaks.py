# SPDX-License-Identifier: Apache-2.0
"""Leaks, fluctuation and memory that is held: what the report says is computed here from what the program says it did, line by
line, in the shape that the manuals show."""
import json
import re
import signal
import sys
from dataclasses import dataclass, field

import pytest

from scripts import python_path

MIB = 1024 * 1024
NAMES = {"PTA": "Pytorch Caching memory pool", "ATB": "ATB memory pool", "MINDSPORE": "Mindspore memory pool",
         "HAL": "Hal memory"}


@dataclass
class Story:
    """What the one thread of leaky_steps did, with the step and the kernel of each block."""
    blocks: dict = field(default_factory=dict)    # id: (pool, address, size, device, step, kernel)
    freed: set = field(default_factory=set)
    used: dict = field(default_factory=dict)      # step: {(device, pool): [used after each event]}
    ended: set = field(default_factory=set)
    steps: int = 0

    def live(self):
        return [block for ident, block in self.blocks.items() if ident not in self.freed]

    def forgotten(self, size, device=0):
        """Blocks of this size that steps from the second on took and never gave back, oldest first."""
        return [block for block in self.live() if block[2:4] == (size, device) and block[4] >= 2 and block[4] in self.ended]


EACH_STEP = 16 * 1024 + 512     # what leaky_steps forgets in each step
ONCE = 96 * 1024 + 1


def story(process):
    [events] = process.threads.values()
    result, now, kernels, ranges = Story(), 0, 0, {}
    for op, ident, *rest in events:
        if op == "launch":
            kernels += 1
        elif op == "range_start" and rest[1] == "step start":
            result.steps += 1
            now = result.steps
            ranges[ident] = now
        elif op == "range_end" and ident in ranges:
            result.ended.add(ranges[ident])
            now = 0
        elif op == "malloc":
            result.blocks[ident] = "HAL", rest[0], rest[1], rest[2], result.steps, kernels
        elif op == "register":
            pool, address, size, device, used, *_ = rest
            result.blocks[ident] = pool, address, size, device, result.steps, kernels
            result.used.setdefault(now, {}).setdefault((device, pool), []).append(used)
        elif op in ("free", "unregister"):
            result.freed.add(ident)
            if op == "unregister":
                pool, _, _, device, *_ = result.blocks[ident]
                result.used.setdefault(now, {}).setdefault((device, pool), []).append(rest[0])
    return result


def direct_lines(blocks):
    """As section 6.3 of the manual has them."""
    return [f"Direct {NAMES[pool]} leak of {size / MIB:.6f} Mb(s) at 0x{address:x} in kernel_{kernel} at step {step}."
            for pool, address, size, _, step, kernel in blocks]


def section(text, device, word="ERROR: Detected"):
    """The lines between the header of a device and its summary, and the summary."""
    match = re.search(rf"^====== {word} memory leaks on device {device} ======\n(.*?)^(====== SUMMARY: [^\n]*)$", text, re.M | re.S)
    assert match, text
    return match[1].splitlines(), match[2]


def summary(blocks, verb="leaked"):
    return f"====== SUMMARY: {sum(block[2] for block in blocks) / MIB:g} Mb(s) {verb} in {len(blocks)} allocation(s) ======"


def gap_text(told):
    """The tables of section 6.4, from the use after each event inside a step."""
    text = ""
    places = sorted({place for use in told.used.values() for place in use},
                    key=lambda place: (place[0], ["PTA", "ATB", "MINDSPORE"].index(place[1])))
    for place in places:
        shares = [(min(use[place]) / max(use[place]), step, min(use[place])) for step, use in sorted(told.used.items())
                  if step >= 2 and step in told.ended and place in use]
        if not shares:
            continue
        least, most = min(shares, key=lambda share: share[0]), max(shares, key=lambda share: share[0])
        text += f"======= {NAMES[place[1]]} Gap Analysis of Device {place[0]} =======\n"
        text += f"\t{'MinAlloc/MaxAlloc(%)':25}{'MinAllocMem(MB)':25}StepId\n"
        for name, (share, step, least_bytes) in (("MinGap", least), ("MaxGap", most)):
            text += f"{name}\t{100 * share:<25.4f}{least_bytes / MIB:<25.4f}{step}\n"
        shown = sorted({f"{100 * share:.0f}" for share in (least[0], most[0])}, key=int)
        text += f"{' to '.join(shown)} % of each step's peak stays allocated throughout the step.\n"
    return text


def report_of(said):
    return (said.run.project().path / "report.txt").read_text()


def test_leaks_are_reported_by_place_with_step_kernel_address_and_size(client):
    """A file has all blocks of the place, a screen the first; nothing that was freed later, however many ranges lie inside a step."""
    said = client("leaky_steps", "--steps=12")
    told = story(said.process())
    leaked = told.forgotten(EACH_STEP)
    assert [block[4] for block in leaked] == list(range(2, 13)) and leaked[-1][5] == 78
    lines, last = section(report_of(said), 0)
    assert lines[1:] == direct_lines(leaked) and last == summary(leaked), lines
    assert re.fullmatch(r"leak: PTA blocks of 16\.5 KiB on NPU 0  about 16\.5 KiB per step \(14\.\d to 18\.\d\), 11 blocks, "
                        r"182 KiB since step 2\. Nothing of it was freed\. NPU 0 is full in about [\d,]+ steps( \([^()]+\))?, at step [\d,]+ to [\d,]+\.", lines[0])
    lines, last = section(said.run.stderr, 0)
    assert [line for line in lines if line.startswith("Direct")] == direct_lines(leaked[:1]) and last == summary(leaked)
    assert "leak" not in said.run.stdout and "Gap" not in said.run.stdout, "stdout is the program's"
    found = said.info()["leaks"]
    assert found["judged"] and found["last_step"] == 12
    assert [(block["event_type"], int(block["address"], 16), block["size"], int(block["device"]), block["step"], block["kernel"])
            for block in found["blocks"] if block["verdict"] == "leak"] == leaked


def test_what_cannot_be_told_is_suspected_and_listed_under_a_warning(client):
    """Two blocks of one place, the second of them in the last step."""
    said = client("leaky_steps", "--steps=12")
    suspected = story(said.process()).forgotten(ONCE, 1)
    assert [block[4] for block in suspected] == [3, 12]
    lines, last = section(report_of(said), 1, "WARNING: Suspected")
    assert lines[0].startswith("suspect: PTA blocks of 96.0 KiB on NPU 1  grew in 2 of 10 steps, 2 blocks, 192 KiB. ")
    assert lines[1:] == direct_lines(suspected) and last == summary(suspected, "may have leaked")
    assert "Detected memory leaks on device 1" not in report_of(said)


def test_a_short_run_suspects_and_never_accuses(client):
    said = client("leaky_steps", "--steps=4")
    told = story(said.process())
    lines, _ = section(report_of(said), 0, "WARNING: Suspected")
    assert set(direct_lines(told.forgotten(EACH_STEP))) <= set(lines)
    report = report_of(said)
    assert "ERROR" not in report and "No leak was found" not in report
    missing = re.search(r"It grew every step; (\d+) more steps would decide it\.", report)
    longer = client("leaky_steps", f"--steps={4 + int(missing[1])}")
    assert "ERROR: Detected memory leaks" in longer.run.stderr


def test_a_training_without_leaks_is_told_so(client):
    said = client("leaky_steps", "--steps=12", "--no-leaks")
    assert "No leak was found in steps 2 to 12. The first step is never judged.\n" in report_of(said)
    assert "ERROR" not in said.run.stderr and said.info()["leaks"]["blocks"] == []


def test_trends_of_pools_are_told(client):
    report = report_of(client("leaky_steps", "--steps=30"))
    assert re.search(r"^The PyTorch pool \(PTA\) on NPU 0: \+16\.5 KiB per step \(.*\), rose in 29 of 29 steps; peak \S+ MiB, end \S+ MiB\. "
                     r"The leaks account for 100 % of it\.$", report, re.M), report
    assert re.search(r"^The driver \(HAL\) on NPU 1: steady; peak 256 MiB, end 256 MiB\.$", report, re.M), report


def test_a_leak_has_its_place_below_it(client):
    said = client("leaky_steps", "--steps=12", options=["--call-stack=c"])
    assert re.search(r"^  \+\S+ KiB/step  .*forget_each_step \(.* -> take \(", said.run.stderr, re.M), said.run
    found = re.findall(r"^Direct (.*) leak .* at step (\d+)\.\n((?:    .*\n)+)", report_of(said), re.M)
    places = {(pool, step): re.findall(r"^    (\w+) \(", site, re.M) for pool, step, site in found}
    assert places[NAMES["PTA"], "2"] == ["main", "forget_each_step", "take"]
    sites = [block["site"] for block in said.info()["leaks"]["blocks"] if block["size"] == EACH_STEP]
    functions = [[frame["function"].split(".")[0] for frame in site if frame["user"]] for site in sites]
    assert len(functions) == 11 and all(names[1:3] == ["forget_each_step", "main"] for names in functions)


def test_thousands_of_leaks_are_one_line_on_the_screen_and_a_hundred_in_the_report(client):
    said = client("leaky_steps", "--steps=12", "--leaks=1000")
    leaked = story(said.process()).forgotten(EACH_STEP)
    assert len(leaked) == 11000
    for text, shown in ((said.run.stderr, 1), (report_of(said), 100)):
        lines, last = section(text, 0)
        assert [line for line in lines if line.startswith("Direct")] == direct_lines(leaked[:shown])
        assert last == summary(leaked)
    assert "... 10900 more of this place" in report_of(said)
    assert len(said.run.stderr.splitlines()) < 100


def test_what_a_pool_keeps_from_the_driver_is_no_leak_and_is_named(client):
    report = report_of(client("leaky_steps", "--steps=12"))
    assert "Not judged: 3 blocks, 768 MiB of the driver (HAL) on NPU 0; a framework's pool took it, and the pool is judged.\n" in report
    assert "Not judged: 1 block, 256 MiB of the driver (HAL) on NPU 1; a framework's pool took it, and the pool is judged.\n" in report
    assert not re.search(r"^Direct Hal memory leak .*\b256\.0", report, re.M)


def test_without_steps_nothing_is_judged_and_one_sentence_says_how_to_mark_them(client):
    """The program is too short to be judged by time."""
    said = client("leaky_steps", "--no-steps")
    assert re.search(r"^Leaks are not judged: no step was marked, and what was recorded is too short .*step start", report_of(said), re.M)
    assert "No leak was found" not in report_of(said) + said.run.stderr and not said.info()["leaks"]["judged"]


def test_one_step_is_not_judged(client):
    said = client("leaky_steps", "--steps=1")
    assert "Leaks are not judged: no step after the first has ended." in report_of(said)


def test_a_step_that_has_not_ended_is_not_judged(client):
    """The program dies inside it: what it holds there is what it needs."""
    said = client("leaky_steps", "--steps=12", "--killed", status=-signal.SIGKILL)
    told = story(said.process())
    assert told.steps == 13 and told.ended == set(range(1, 13))
    lines, last = section(report_of(said), 0)
    assert lines[1:] == direct_lines(told.forgotten(EACH_STEP)) and last == summary(told.forgotten(EACH_STEP))
    assert "Not judged: 1 block, 1.2 KiB of the PyTorch pool (PTA) on NPU 0; they were allocated after the last step ended.\n" in report_of(said)


def test_fluctuation_is_told_for_each_device_and_pool_from_the_second_step_on(client):
    said = client("leaky_steps", "--steps=7")
    told = story(said.process())
    text = gap_text(told)
    assert text.count("MinGap") == 4 and "Device 1" in text
    assert text in report_of(said)
    one = said.info()["fluctuation"][0]
    share = min(min(use[0, "PTA"]) / max(use[0, "PTA"]) for step, use in told.used.items() if step >= 2)
    assert one["event_type"] == "PTA" and one["least"]["min_bytes"] / one["least"]["max_bytes"] == share


def test_steps_that_are_not_written_are_analysed_all_the_same(client):
    """--steps chooses rows; leaks and fluctuation are those of the whole run."""
    said = client("leaky_steps", "--steps=12", options=["--steps=3"])
    told = story(said.process())
    assert section(report_of(said), 0)[1] == summary(told.forgotten(EACH_STEP)) and gap_text(told) in report_of(said)
    assert {row.attr.get("size") for row in said.rows() if row.event == "MALLOC"} >= {ONCE}
    assert not [row for row in said.rows() if row.event == "MALLOC" and row.attr["size"] == 3 * MIB]


def test_memory_that_is_held_without_growing_is_listed(client):
    """Weights, which came before the first step, and what one step made. Not what each step adds to."""
    said = client("leaky_steps", "--steps=12")
    told = story(said.process())
    wanted = [block for block in told.live() if block[4] == 0 and not (block[0] == "HAL" and block[2] == 256 * MIB)]
    assert len(wanted) == 3
    report = report_of(said)
    for pool, address, size, device, step, kernel in wanted:
        assert (f"kept: {pool} blocks of {size / MIB:.1f} MiB on NPU {device}  1 block, {size / MIB:.1f} MiB, and does not grow "
                f"after the first step.\n  {size / MIB:.1f} MiB at 0x{address:x} in kernel_{kernel} at step {step}\n") in report
    assert re.search(r"^kept: HAL blocks of 3\.0 MiB on NPU 2  1 block, 3\.0 MiB, made in step 4; nothing in the 8 steps since",
                     report, re.M)


@pytest.mark.parametrize("options", [["--analysis="], ["--analysis=none"], ["--events=launch"]])
def test_who_asks_for_no_analysis_hears_nothing_of_leaks(client, options):
    said = client("leaky_steps", options=options)
    for text in (said.run.stderr, report_of(said)):
        assert not re.search(r"Direct|Detected|Gap Analysis|Held|Alive|judged", text), text
    assert ("leak analysis is off" in said.run.stderr) == (options == ["--events=launch"])


def test_leaks_are_judged_by_default_and_once_more_from_the_trace(client, msmemscope, tmp_path):
    said = client("leaky_steps", "--steps=12")
    leaked = story(said.process()).forgotten(EACH_STEP)
    project = said.run.project().path
    assert summary(leaked) in msmemscope("info", project, output=False).check().stdout
    msmemscope("export", project, output=tmp_path / "again").check()
    [report] = (tmp_path / "again").glob("*/report.txt")
    assert section(report.read_text(), 0) == section(report_of(said), 0)
    assert gap_text(story(said.process())) in report.read_text()
    assert "Detected" not in msmemscope("info", project, "--analysis=", output=False).check().stdout


def test_frees_made_up_for_a_viewer_follow_the_choice_of_steps(client):
    """--insight-close-live with --steps: each block that is written and lived at the end gets its free, and no other."""
    said = client("leaky_steps", "--steps=5", options=["--steps=3,5", "--insight-close-live"])
    rows = said.rows()
    taken = {row.attr["allocation_id"] for row in rows if row.event == "MALLOC"}
    given = {row.attr["allocation_id"] for row in rows if row.event == "FREE" and not row.attr.get("shadow")}
    made_up = [row.attr["allocation_id"] for row in rows if row.event == "FREE" and row.attr.get("shadow")]
    told = story(said.process())
    inside = [block for block in told.live() if block[4] in (3, 5)]
    assert len(inside) >= 6
    assert len(made_up) == len(set(made_up)) and set(made_up) <= taken and not set(made_up) & given
    assert len(made_up) == len(inside)


def test_the_example_shows_its_leak_and_where_it_comes_from(msmemscope, dist):
    """What `make demo` runs: every third step forgets a buffer, and one workspace stays."""
    run = msmemscope("--call-stack=c", "--", dist / "examples" / "leaky_npu").check()
    report = (run.project().path / "report.txt").read_text()
    found = re.findall(r"^Direct Hal memory leak of 0\.250000 Mb\(s\) .* at step (\d+)\.$", report, re.M)
    assert re.search(r"^Direct .* at step 3\.\n    main \(.*\n    train_step \(.*\n    compute_loss \(.*\n    device_alloc \(", report, re.M), report
    assert found == [str(step) for step in range(3, 30, 3)], "the block of step 30 may still be in use"
    assert "====== SUMMARY: 2.25 Mb(s) leaked in 9 allocation(s) ======\n" in report
    assert re.search(r"^kept: open_workspace .* -> device_alloc .*  1 block, 16\.0 MiB, and does not grow", report, re.M)


WINDOWS = """
import os, msmemscope, npu
early = npu.alloc(4096)
msmemscope.config(output=os.environ["OUT"], analysis="leaks")
npu.start()
weights = npu.alloc(1 << 20)
msmemscope.step()
freed = npu.alloc(2 << 20)
second = npu.alloc(3 << 20)
msmemscope.step()
third = npu.alloc(4 << 20)
npu.stop()
npu.free(freed)
outside = npu.alloc(5 << 20)
npu.start()
fourth = npu.alloc(6 << 20)
msmemscope.step()
last = npu.alloc(7 << 20)
npu.stop()
"""


@pytest.mark.parametrize("deferred", [False, True])
def test_windows_are_judged_by_what_they_show(scripts, deferred):
    """What is freed between two of them is no leak, nor is what was allocated outside, nor what a step needs that has not ended."""
    run = scripts.command(WINDOWS, "--collect-mode=deferred") if deferred else scripts.preloaded(WINDOWS)
    report = (run.check().project().path / "report.txt").read_text()
    found = re.findall(r"^Direct Hal memory leak of (\d+)\.000000 Mb\(s\) at 0x[0-9a-f]+ in kernel_0 at step (\d+)\.$",
                       report, re.M)
    assert sorted(found) == [("3", "2"), ("4", "3"), ("6", "3")], report
    assert "====== SUMMARY: 13 Mb(s) may have leaked in 3 allocation(s) ======\n" in report
    assert "No leak was found" not in report


SCRIPT = """
import sys
import mstx, npu
kept = []
for i in range(1, 21):
    step = mstx.range_start("step start", None)
    for address in [address for number, address in kept if number == "gradient"]:
        npu.free(address)
        kept.remove(("gradient", address))
    kept.append(("gradient", npu.alloc(4096)))       # the next step frees it
    if i % 2 == 1:
        kept.append((i, npu.alloc(1 << 20)))         # nobody does
    mstx.range_end(step)
if sys.argv[1:] == ["--clean"]:
    for _, address in kept:                          # as an interpreter that ends frees what a list holds
        npu.free(address)
"""


@pytest.mark.parametrize("arguments, late", [([], ""), (["--clean"], "9 of them were freed only after the last step")])
def test_what_a_script_collects_is_a_leak_also_when_it_is_freed_at_the_end(msmemscope, dist, tmp_path, arguments, late):
    """And what each step leaves to the next is none. The place is the script's line, without any option."""
    (tmp_path / "collects.py").write_text(SCRIPT)
    run = msmemscope("--", sys.executable, tmp_path / "collects.py", *arguments,
                     env={"PYTHONPATH": python_path(dist), "TRUTH": "/dev/null"}).check()
    report = (run.project().path / "report.txt").read_text()
    found = re.findall(r"^Direct Hal memory leak of (\S+) .* at step (\d+)\.\n", report, re.M)
    assert found == [("1.000000", str(step)) for step in range(3, 21, 2)], report
    assert re.search(r"^leak: .*collects\.py:12 .*  ", report, re.M), report
    assert late in report and ("freed only after" in report) == bool(late)
    assert re.search(r"^kept: .*collects\.py:10 .*  1 block, 4\.0 KiB", report, re.M), report


FREED_AFTER_STOP = """
import os
import msmemscope, npu
msmemscope.config(output=os.environ["OUT"])
npu.start()
kept = []
for _ in range(12):
    kept.append(npu.alloc(5000))
    npu.step()
npu.stop()
for block in kept:
    npu.free(block)
"""


@pytest.mark.parametrize("way", ["command", "preloaded"])
def test_a_leak_stays_one_when_its_memory_is_freed_after_the_last_window(scripts, msmemscope, way):
    """As every interpreter frees what its globals hold. Screen, report.txt, info, csv alone and the exit status agree."""
    if way == "command":
        run = scripts.command(FREED_AFTER_STOP, "--collect-mode=deferred", "--fail-on=leak")
        assert run.returncode == 4, run
    else:
        run = scripts.preloaded(FREED_AFTER_STOP).check()
    report = (run.project().path / "report.txt").read_text()
    assert re.search(r"^leak: .*script\.py:8 .*  ", report, re.M), report
    assert "====== ERROR: Detected memory leaks on device 0 ======" in run.stderr, run
    [dump] = run.project().path.glob("device_0/dump/*.csv")
    for source in (run.project().path, dump):
        told = json.loads(msmemscope("info", source, "--json", output=False).check().stdout)["processes"][0]
        [place] = told["places"]
        assert (told["verdict"], place["verdict"], place["blocks"], place["bytes"]) == ("leak", "leak", 12, 60000), told


LABELLED = """
import msmemscope.describe as describe
import npu, sys
with describe.describer(owner=sys.argv[1]):
    for _ in range(12):
        npu.alloc(1 << 20)
        npu.step()
"""


@pytest.mark.parametrize("label", ["my_optimizer_state_log", "model@weight", "cache"])
def test_a_label_of_the_user_does_not_change_a_verdict(msmemscope, dist, tmp_path, label):
    (tmp_path / "labelled.py").write_text(LABELLED)
    run = msmemscope("--fail-on=leak", "--", sys.executable, tmp_path / "labelled.py", label,
                     env={"PYTHONPATH": python_path(dist), "TRUTH": "/dev/null"})
    assert run.returncode == 4, run
    [place] = msmemscope.info(run.project())["places"]
    assert place["verdict"] == "leak" and label in place["owner"], place


FIRST_STEP_LATE = """
import msmemscope, torch
net = torch.nn.Linear(64, 96)
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(13):
    net(torch.randn(32, 64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    msmemscope.step()
"""


def test_optimizer_state_older_than_the_programs_steps_is_judged(msmemscope, python, tmp_path):
    """Steps by the optimizer count until the program marks its own; the judgement starts anew then, with owners known."""
    (tmp_path / "train.py").write_text(FIRST_STEP_LATE)
    run = msmemscope("--analysis=leaks,decompose", "--device=npu,cpu", "--", *python, tmp_path / "train.py")
    told = msmemscope.info(run.project())
    assert told["judgement"]["unjudged"] == [] and told["judgement"]["clean"], told["judgement"]
    assert sum(place["blocks"] for place in told["places"] if place["reason"] == "owned") == 6, told["places"]
