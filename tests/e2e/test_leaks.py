# SPDX-License-Identifier: Apache-2.0
"""Leaks, fluctuation and memory that is held: what the report says is computed here from what the program says it did, line by
line, in the shape that the manuals show."""
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
    late: list = field(default_factory=list)      # (block, age) freed since a step ended last, and older than its step
    uses: dict = field(default_factory=dict)      # kind: greatest age at which a step freed one
    steps: int = 0

    def live(self):
        return [block for ident, block in self.blocks.items() if ident not in self.freed]

    def leaks(self):
        """By device, sorted by step; the driver's blocks only where no pool is. A block that is no older than others of its kind
        were when a step freed them is in use; one that was freed after the last step had leaked."""
        last = max(self.ended, default=0)
        live = [block for block in self.live() if self.uses.get(kind_of(block), -1) < last - block[4]]
        live += [block for block, age in self.late if age > 0 and self.uses.get(kind_of(block), -1) < age]
        pools = {block[3] for block in self.blocks.values() if block[0] != "HAL"}
        found = {}
        for block in live:
            if block[4] >= 2 and block[4] in self.ended and (block[0] != "HAL" or block[3] not in pools):
                found.setdefault(block[3], []).append(block)
        return {device: sorted(found[device], key=lambda block: block[4]) for device in sorted(found)}


def kind_of(block):
    return block[0], block[2], block[3]


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
            for block, age in result.late:
                result.uses[kind_of(block)] = max(age, result.uses.get(kind_of(block), 0))
            result.late = []
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
            step = result.blocks[ident][4]
            if step >= 2 and step in result.ended:
                result.late.append((result.blocks[ident], max(result.ended) - step))
            if op == "unregister":
                pool, _, _, device, *_ = result.blocks[ident]
                result.used.setdefault(now, {}).setdefault((device, pool), []).append(rest[0])
    return result


def leak_text(leaks, shown=None):
    """The whole section, as section 6.3 of the manual has it; `shown` lines of each device at most."""
    lines = []
    for device, blocks in leaks.items():
        lines.append(f"====== ERROR: Detected memory leaks on device {device} ======")
        lines += [f"Direct {NAMES[pool]} leak of {size / MIB:.6f} Mb(s) at 0x{address:x} in kernel_{kernel} at step {step}."
                  for pool, address, size, _, step, kernel in blocks[:shown]]
        if shown is not None and len(blocks) > shown:
            lines.append(f"... {len(blocks) - shown} more; report.txt has all of them")
        total = sum(block[2] for block in blocks) / MIB
        lines.append(f"====== SUMMARY: {total:g} Mb(s) leaked in {len(blocks)} allocation(s) ======")
    return "".join(line + "\n" for line in lines)


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
    return text


def report_of(said):
    return (said.run.project().path / "report.txt").read_text()


def test_leaks_of_each_device_are_reported_with_step_kernel_address_and_size(client):
    """Those of every pool and of the last step; nothing that was freed later, however many ranges lie inside a step."""
    said = client("leaky_steps", "--steps=7")
    told = story(said.process())
    leaks = told.leaks()
    assert {device: len(blocks) for device, blocks in leaks.items()} == {0: 8, 1: 3, 2: 1}
    assert {block[0] for block in leaks[0]} == {"PTA", "ATB", "MINDSPORE"}
    assert {block[4] for block in leaks[0]} == {2, 3, 4, 5, 6, 7} and max(block[5] for block in leaks[0]) == 28
    for text in (said.run.stderr, report_of(said)):
        assert leak_text(leaks) in text, text
    assert "leak" not in said.run.stdout and "Gap" not in said.run.stdout, "stdout is the program's"
    found = said.info()["leaks"]
    assert found["judged"] and found["last_step"] == 7
    assert [(block["event_type"], int(block["address"], 16), block["size"], int(block["device"]), block["step"],
             block["kernel"]) for block in found["blocks"]] == [block for blocks in leaks.values() for block in blocks]


def test_a_training_without_leaks_is_told_so(client):
    said = client("leaky_steps", "--steps=5", "--no-leaks")
    assert "No leak was found in steps 2 to 5.\n" in said.run.stderr
    assert "ERROR" not in said.run.stderr and said.info()["leaks"]["blocks"] == []


def test_a_leak_has_its_place_below_it(client):
    said = client("leaky_steps", "--steps=4", options=["--call-stack=c"])
    for text in (said.run.stderr, report_of(said)):
        found = re.findall(r"^Direct (.*) leak .* at step (\d)\.\n((?:    .*\n)+)", text, re.M)
        places = {(pool, step): re.findall(r"^    (\w+) \(", site, re.M) for pool, step, site in found}
        assert places[NAMES["ATB"], "3"][:2] == places[NAMES["MINDSPORE"], "3"][:2] == ["take", "forget_once"]
        assert places[NAMES["HAL"], "4"][:2] == ["segment_alloc", "forget_driver_memory"]
    sites = [block["site"] for block in said.info()["leaks"]["blocks"] if block["size"] == 16 * 1024 + 512]
    functions = [[frame["function"].split(".")[0] for frame in site if frame["user"]] for site in sites]
    assert len(functions) == 3 and all(names[1:3] == ["forget_each_step", "main"] for names in functions)


def test_thousands_of_leaks_are_counted_on_the_screen_and_all_in_the_report(client):
    said = client("leaky_steps", "--steps=4", "--leaks=1000")
    leaks = story(said.process()).leaks()
    assert len(leaks[0]) == 3002
    assert leak_text(leaks, 20) in said.run.stderr
    assert len(said.run.stderr.splitlines()) < 100
    assert leak_text(leaks) in report_of(said)
    assert len(said.info()["leaks"]["blocks"]) == sum(map(len, leaks.values()))


def test_what_a_pool_keeps_from_the_driver_is_listed_and_is_no_leak(client):
    said = client("leaky_steps", "--steps=4")
    pools = [block for block in story(said.process()).live() if block[0] == "HAL" and block[3] < 2]
    for device in (0, 1):
        mine = [block for block in pools if block[3] == device]
        assert mine and all(f"Hal memory of {size / MIB:.6f} Mb(s) at 0x{address:x} in kernel_{kernel} at step {step}.\n"
                            in report_of(said) for _, address, size, _, step, kernel in mine)
        assert f"====== Driver memory alive at the end on device {device} ======\n" in said.run.stderr
    assert len(said.info()["leaks"]["driver"]) == len(pools)


def test_without_steps_nothing_is_judged_and_one_sentence_says_how_to_mark_them(client):
    said = client("leaky_steps", "--no-steps")
    [line] = [line for line in said.run.stderr.splitlines() if "leak" in line.lower() and "leaky" not in line
              and not line.startswith(("Files:", "Next:"))]
    assert line.startswith("Leaks are not judged: no step was marked.") and "step start" in line
    assert "Alive at the end" in said.run.stderr and not said.info()["leaks"]["judged"]
    said = client("leaky_steps", "--steps=1")
    assert "Leaks are not judged: no step after the first has ended." in said.run.stderr


def test_a_step_that_has_not_ended_is_not_judged(client):
    """The program dies inside it: what it holds there is what it needs."""
    said = client("leaky_steps", "--steps=4", "--killed", status=-signal.SIGKILL)
    told = story(said.process())
    assert told.steps == 5 and told.ended == {1, 2, 3, 4}
    assert leak_text(told.leaks()) in said.run.stderr


def test_fluctuation_is_told_for_each_device_and_pool_from_the_second_step_on(client):
    said = client("leaky_steps", "--steps=7")
    told = story(said.process())
    text = gap_text(told)
    assert text.count("MinGap") == 4 and "Device 1" in text
    for where in (said.run.stderr, report_of(said)):
        assert text in where, where
    one = said.info()["fluctuation"][0]
    share = min(min(use[0, "PTA"]) / max(use[0, "PTA"]) for step, use in told.used.items() if step >= 2)
    assert one["event_type"] == "PTA" and one["least"]["min_bytes"] / one["least"]["max_bytes"] == share


def test_steps_that_are_not_written_are_analysed_all_the_same(client):
    """--steps chooses rows; leaks and fluctuation are those of the whole run."""
    said = client("leaky_steps", "--steps=6", options=["--steps=3"])
    told = story(said.process())
    assert leak_text(told.leaks()) + "" in said.run.stderr and gap_text(told) in said.run.stderr
    assert {row.attr.get("size") for row in said.rows() if row.event == "MALLOC"} >= {96 * 1024 + 1}
    assert not [row for row in said.rows() if row.event == "MALLOC" and row.attr["size"] == 3 * MIB]


def test_memory_that_is_held_without_growing_is_listed(client):
    """Weights, which came before the first step. Not what each step adds to."""
    said = client("leaky_steps", "--steps=6")
    told = story(said.process())
    held = {(block["event_type"], int(block["address"], 16), block["size"], block["step"], block["kernel"])
            for block in said.info()["held"]}
    wanted = {(pool, address, size, step, kernel) for pool, address, size, _, step, kernel in told.live()
              if step == 0 and not (pool == "HAL" and size == 256 * MIB)}
    assert len(wanted) == 3 and wanted == held
    for _, address, _, step, kernel in wanted:
        assert f"at 0x{address:x} in kernel_{kernel} at step {step}\n" in report_of(said)
    assert "Held through at least half of the steps without growing" in said.run.stderr


@pytest.mark.parametrize("options", [["--analysis="], ["--analysis=none"], ["--events=launch"]])
def test_who_asks_for_no_analysis_hears_nothing_of_leaks(client, options):
    said = client("leaky_steps", options=options)
    for text in (said.run.stderr, report_of(said)):
        assert not re.search(r"Direct|Detected|Gap Analysis|Held|Alive|judged", text), text
    assert ("leak analysis is off" in said.run.stderr) == (options == ["--events=launch"])


def test_leaks_are_judged_by_default_and_once_more_from_the_trace(client, msmemscope, tmp_path):
    said = client("leaky_steps")
    text = leak_text(story(said.process()).leaks())
    project = said.run.project().path
    assert text in msmemscope("info", project, output=False).check().stdout
    again = msmemscope("export", project, output=tmp_path / "again").check()
    [report] = (tmp_path / "again").glob("*/report.txt")
    assert text in report.read_text() and gap_text(story(said.process())) in report.read_text()
    assert "Detected" not in msmemscope("info", project, "--analysis=", output=False).check().stdout
    del again


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
    found = re.findall(r"^Direct Hal memory leak of 0\.250000 Mb\(s\) .* at step (\d+)\.\n"
                       r"    device_alloc \(.*\n    compute_loss \(", run.stderr, re.M)
    assert found == ["3", "6", "9", "12"]
    assert "====== SUMMARY: 1 Mb(s) leaked in 4 allocation(s) ======\n" in run.stderr
    assert re.search(r"^Held .* 16\.0 MiB in 1 block\n.*\n.*device_alloc.*\n.*open_workspace", run.stderr, re.M)


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
    assert found == [("3", "2"), ("4", "3"), ("6", "3")], report
    assert "====== SUMMARY: 13 Mb(s) leaked in 3 allocation(s) ======\n" in report
    assert "====== SUMMARY: 13 Mb(s)" in run.stderr


SCRIPT = """
import sys
import mstx, npu
kept = []
for i in range(1, 9):
    step = mstx.range_start("step start", None)
    for address in [address for number, address in kept if number == "gradient"]:
        npu.free(address)
        kept.remove(("gradient", address))
    kept.append(("gradient", npu.alloc(4096)))       # the next step frees it
    if i in (3, 5, 8):
        kept.append((i, npu.alloc(1 << 20)))         # nobody does
    mstx.range_end(step)
if sys.argv[1:] == ["--clean"]:
    for _, address in kept:                          # as an interpreter that ends frees what a list holds
        npu.free(address)
"""


@pytest.mark.parametrize("arguments, steps, late", [([], ["3", "5", "8"], ""), (["--clean"], ["3", "5"], "2 of them were freed only after")])
def test_what_a_script_collects_is_a_leak_also_when_it_is_freed_at_the_end(msmemscope, dist, tmp_path, arguments, steps, late):
    """And what each step leaves to the next is none. The place is the script's line, without any option."""
    (tmp_path / "collects.py").write_text(SCRIPT)
    run = msmemscope("--", sys.executable, tmp_path / "collects.py", *arguments,
                     env={"PYTHONPATH": python_path(dist), "TRUTH": "/dev/null"}).check()
    found = re.findall(r"^Direct Hal memory leak of (\S+) .* at step (\d)\.\n    .*/npu.py.*\n    .*collects.py\((\d+)\): <module>$",
                       run.stderr, re.M)
    assert [(size, step) for size, step, _ in found] == [("1.000000", step) for step in steps], run.stderr
    assert late in run.stderr and ("freed only after" in run.stderr) == bool(late)
    assert ("1 younger block (4.0 KiB) is still within its usual lifetime." in run.stderr) == (not arguments)
