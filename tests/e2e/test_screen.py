# SPDX-License-Identifier: Apache-2.0
"""What a person reads at the end of a run: one screen for any run, the worst first, and what to type next. `info` tells the
rest, with bounds; --summary-json tells scripts; --fail-on makes an exit status of it."""
import dataclasses
import json
import os
import pty
import re
import select
import stat
import subprocess
import time
import unicodedata
from pathlib import Path

import pytest

import schema
from harness import environment

ROWS, COLUMNS = 25, 100
SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs" / "summary.schema.json").read_text())
COPIED = ("Files: ", "More:  ", "Dumps: ", "msmemscope: ")

LEAKY = """
import sys, npu, msmemscope
msmemscope.start()
kept = []
for _ in range(int(sys.argv[1])):
    block = npu.alloc(4096)
    kept.append(npu.alloc(1 << 20))
    npu.free(block)
    msmemscope.step()
"""
HEALTHY = """
import sys, npu, msmemscope
msmemscope.start()
weights = npu.alloc(8 << 20)
for _ in range(int(sys.argv[1])):
    npu.free(npu.alloc(1 << 20))
    msmemscope.step()
"""


def columns(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in line.expandtabs(8))


def check_screen(run):
    """No more than a screen; only what a person copies may be longer than a line, and then it counts as the rows it takes."""
    rows = 0
    for line in run.stderr.splitlines():
        assert columns(line) <= COLUMNS or line.startswith(COPIED), line
        rows += max(1, -(-columns(line) // COLUMNS))
    assert rows <= ROWS, f"{rows} rows\n{run}"
    return run


def check_document(text):
    document = json.loads(text)
    assert schema.faults(SCHEMA, document) == []
    return document


@pytest.fixture
def script(scripts, out):
    """script(text, arguments...): the words that run it, on the simulated NPU."""
    def words(text, *arguments, name="train.py"):
        path = out / name
        path.write_text(text, encoding="utf-8")
        return ["python3", str(path), *map(str, arguments)]

    return words


@pytest.fixture
def launch(msmemscope, scripts, tmp_path):
    def run(*words, env=None, **options):
        changes = scripts.environment({"TRUTH": tmp_path / "truth", **(env or {})})
        return msmemscope(*words, env=changes, **options)

    return run


# ---- the screen ----

@pytest.mark.parametrize("words", [
    ("plain",), ("threads", 4, 2000), ("leaky_steps", 12), ("many_devices",), ("client_pta", "--threads=3"), ("two_acts",),
    ("crowd", 40)])
def test_any_run_fits_on_one_screen(msmemscope, program, words, out):
    check_screen(msmemscope("--", *program(*words), env={"TRUTH": out / "truth"}))


@pytest.mark.parametrize("options", [(), ("--call-stack=c,python",), ("--analysis=leaks,decompose,inefficient",)])
@pytest.mark.parametrize("name", ["train.py", "训练模型的脚本_" * 6 + ".py", "a_very_long_name_" * 10 + ".py"])
def test_long_and_chinese_names_fit(launch, script, name, options):
    run = check_screen(launch(*options, "--", *script(LEAKY, 12, name=name)).check())
    assert "====== ERROR: Detected memory leaks on device 0 ======\n" in run.stderr, run
    check_screen(launch(*options, "--", *script(HEALTHY, 1, name=name)).check())


def test_a_script_below_a_path_with_blanks_has_its_name(launch, script, out):
    (out / "my jobs").mkdir(parents=True)
    run = launch("--", *script(LEAKY, 12, name="my jobs/train it, 训练 (2).py")).check()
    assert re.search(r"^train it, 训练 \(2\)\.py \(pid \d+\): 12 steps in ", run.stderr, re.M), run
    assert json.loads((run.project().path / "findings.json").read_text())["processes"][0]["name"] == "train it, 训练 (2).py"


def test_a_leak_is_told_with_its_line_its_rate_and_what_to_type_next(launch, script):
    run = check_screen(launch("--", *script(LEAKY, 20)).check())
    lines = run.stderr.splitlines()
    head = next(line for line in lines if line.startswith("train.py (pid "))
    assert re.fullmatch(r"train\.py \(pid \d+\): \d+ steps in [\d.]+ m?s on NPU 0 \(Ascend 910B1, 64\.0 GiB\)", head), run
    assert re.search(r"^LEAK on NPU 0: (about )?\+1\.0 MiB per step, \d+\.\d MiB since step 2(; full in about [\d,]+ steps)?", run.stderr, re.M), run
    assert re.search(r"^  \+1\.0 MiB/step  train\.py:7\S*( -> .*)?   \d+ blocks, none freed$", run.stderr, re.M), run
    assert re.search(r"^  These account for 100 % of the growth\. \d+ call sites? checked; step 1 counts as warm-up\.$", run.stderr, re.M), run
    assert re.search(r"^PEAK of the driver \(HAL\): \d+\.\d MiB \(step \d+, [\d.]+ m?s\)", run.stderr, re.M), run
    assert re.search(r"^Direct Hal memory leak of 1\.000000 Mb\(s\) at 0x[0-9a-f]+ in kernel_0 at step 2\.$", run.stderr, re.M)
    assert re.search(r"^====== SUMMARY: \d+ Mb\(s\) leaked in \d+ allocation\(s\) ======$", run.stderr, re.M)
    # The lines of the original come last, and the answer first.
    order = [next(i for i, line in enumerate(lines) if line.startswith(words)) for words in
             ("train.py (pid ", "LEAK on ", "PEAK of ", "Files: ", "====== ERROR", "Direct ", "====== SUMMARY")]
    assert order == sorted(order), run
    # A path that leaves no room puts what to type next on a line of its own.
    [files, more] = [line for line in lines if line.startswith(("Files: ", "More:  "))]
    assert run.project().path.name in files and files.endswith(" (report.html)") and more.startswith("More:  msmemscope info "), run


def test_a_healthy_run_says_what_was_looked_at(launch, script):
    run = check_screen(launch("--", *script(HEALTHY, 20)).check())
    assert re.search(r"^No leak found: \d+ call sites? checked over steps 2 to \d+; memory is steady\.$", run.stderr, re.M), run
    assert re.search(r"^PEAK of the driver \(HAL\): 9\.0 MiB \(step \d+, [\d.]+ m?s\); at the end 8\.0 MiB in 1 block$", run.stderr, re.M), run
    assert re.search(r"^ +8\.0 MiB +89 %  .*train\.py:4", run.stderr, re.M), run


STOPS = """
import npu, msmemscope
msmemscope.start()
kept = []
for step in range(22):
    npu.free(npu.alloc(4096))
    if step < 19:
        kept.append(npu.alloc(1 << 20))
    msmemscope.step()
"""


def test_growth_up_to_shortly_before_the_end_is_not_called_steady(launch, script):
    run = check_screen(launch("--", *script(STOPS)).check())
    said = " ".join(run.stderr.split())
    assert re.search(r" No leak found, but the driver \(HAL\) grew by \d+\.\d MiB up to step \d+, and not in the last \d steps: "
                     r"run longer to be sure\. \d call sites? checked over steps 2 to 2\d\. ", said), run
    assert "steady" not in said, run
    report = (run.project().path / "report.txt").read_text()
    assert re.search(r"^The driver \(HAL\) on NPU 0: grew by \d+\.\d MiB up to step \d+, and not in the last \d steps; peak", report, re.M), report


MIXED = """
import npu, msmemscope
msmemscope.start()
for step in range(30):
    for is_kept in (True, False):
        block = npu.alloc(1 << 20)
        if not is_kept:
            npu.free(block)
    msmemscope.step()
"""


def test_of_blocks_that_stay_the_number_of_all_is_said(launch, script):
    run = check_screen(launch("--call-stack=python", "--", *script(MIXED)).check())
    [stayed, of] = map(int, re.search(r"^  \+1\.0 MiB/step  .* (\d+) of (\d+) blocks not freed$", run.stderr, re.M).groups())
    assert stayed < of and "others are freed" not in run.stderr, run


BY_TIME = """
import time, npu, msmemscope
msmemscope.start()
for _ in range(400):
    npu.free(npu.alloc(4096))
    npu.alloc(1 << 16)
    time.sleep(0.005)
"""


def test_a_run_without_steps_is_said_in_words_of_time(launch, script):
    """Neither a number of events nor parts of time, which are the tool's own."""
    run = check_screen(launch("--", *script(BY_TIME)).check())
    assert re.search(r"^train\.py \(pid \d+\): [\d.]+ s on NPU 0 \(.*\), no steps marked$", run.stderr, re.M), run
    assert re.search(r" call sites? checked over [\d.]+ s; no steps were marked\.", " ".join(run.stderr.split())), run
    assert not re.search(r"\d events?\b|\bparts?\b", run.stderr), run


FOUR_RANKS = """
import os, subprocess, sys
import npu, msmemscope
rank = sys.argv[2] if len(sys.argv) > 2 else None
if rank is None:
    for child in [subprocess.Popen([sys.executable, __file__, sys.argv[1], str(i)], env={**os.environ, "RANK": str(i)}) for i in range(4)]:
        child.wait()
else:
    msmemscope.start()
    kept = []
    for _ in range(int(sys.argv[1])):
        block = npu.alloc(1 << 20 if rank == "2" else 1 << 16)
        if rank in "12":
            kept.append(block)
        else:
            npu.free(block)
        msmemscope.step()
"""


def test_the_files_of_several_ranks_are_named_as_the_worst_is(launch, script):
    run = check_screen(launch("--", *script(FOUR_RANKS, 12)).check())
    [worst] = re.findall(r"^Worst: train\.py \(pid (\d+), rank 2\)", run.stderr, re.M)
    files = [line for line in run.stderr.splitlines() if line.startswith(("Files: ", "More:  "))]
    assert f"(report_{worst}_" in files[0] and f"/msmemscope_{worst}_" in files[-1], run


def test_the_steps_that_a_short_run_needs_are_said_once_and_are_enough(launch, script):
    run = check_screen(launch("--", *script(LEAKY, 5)).check())
    assert "would decide" not in run.stderr, run
    [needed] = re.findall(r"^SUSPECT on NPU 0: .*; \d steps are too few to tell: run (\d+) or more$", run.stderr, re.M)
    assert "\nLEAK on NPU 0: " in launch("--", *script(LEAKY, needed)).check().stderr


def test_the_cause_of_an_out_of_memory_has_the_figure_of_the_leak(msmemscope, dist):
    """And who held memory then comes before single blocks of the leak."""
    run = check_screen(msmemscope("--call-stack=c", "--", dist / "examples" / "leaky_npu", 800, env={"SIMNPU_HBM": 192 << 20}))
    [rate] = re.findall(r"keeps ([\d.]+ [KMG]iB) more with every step\.", " ".join(run.stderr.split()))
    assert re.search(rf"^  \+{re.escape(rate)}/step ", run.stderr, re.M), run
    assert re.search(r"^At that moment: driver \(HAL\) 192 MiB\n +64\.0 MiB +33 %  make_weights ", run.stderr, re.M), run


def test_out_of_memory_is_told_with_its_cause_what_to_try_and_what_was_held(msmemscope, program, out):
    """At once, while the program waits, and at its end; both fit the screen."""
    document = out / "summary.json"
    started = msmemscope.start("--call-stack=c", "--fail-on=oom", f"--summary-json={document}", "--",
                               *program("oom_causes", "growth", 1, "wait"), env={"SIMNPU_HBM": 1 << 30}, stdin=subprocess.PIPE)
    live = b""
    while not re.search(rb"\n  Why: (?s:.*)\.\n", live):
        piece = os.read(started.process.stderr.fileno(), 65536)
        assert piece, live
        live += piece
    run = started.finish()
    run = check_screen(dataclasses.replace(run, stderr=live.decode() + run.stderr))
    assert run.returncode == 4 and "msmemscope: --fail-on: memory ran out in oom_causes" in run.stderr, run
    told = run.stderr[run.stderr.index("\noom_causes (pid "):]
    order = [told.index(words) for words in ("OUT OF MEMORY on NPU 0", "\n  at ", "\nCause: growth. ", "\nTry: free, detach or bound what ",
                                             "\nAt that moment: ", "\nFiles: ")]
    assert order == sorted(order) and "No leak found" not in told, run
    assert re.search(r"^OUT OF MEMORY on NPU 0.*: \S+ [KMG]iB asked for, .* of 1\.0 GiB free$", told, re.M), run
    assert re.search(r"^At that moment: .*\n( {6}\S.*\n)? +[\d.]+ [KM]iB +\d+ %  \S", told, re.M), run
    [process] = check_document(document.read_text())["processes"]
    assert process["verdict"] == "oom" and process["oom"][0]["cause"] == "growth"


def test_a_leak_that_fills_no_device_is_shown_as_small(launch, script, msmemscope):
    """It is a leak in all data, and for --fail-on=leak; on the screen it has no ERROR header, and comes after a leak that matters."""
    small = LEAKY.replace("1 << 20", "16")
    run = check_screen(launch("--fail-on=leak", "--", *script(small, 20)))
    assert run.returncode == 4 and re.search(r"^SMALL LEAK on NPU 0: \+16\.0 B per step, \d+ B since step 2$", run.stderr, re.M), run
    assert "====== ERROR" not in run.stderr and "====== ERROR" in (run.project().path / "report.txt").read_text()
    [process] = check_document(msmemscope("info", "--json", run.project().path, output=False).check().stdout)["processes"]
    assert process["verdict"] == "leak" and [place["small"] for place in process["places"] if place["verdict"] == "leak"] == [True]
    both = small.replace("    npu.free(block)", "    kept.append(npu.alloc(1 << 20))\n    npu.free(block)")
    run = check_screen(launch("--", *script(both, 20)).check())
    order = [run.stderr.index(words) for words in ("\nLEAK on NPU 0: +1.0 MiB per step", "\nSMALL LEAK on NPU 0: +16.0 B", "\n====== ERROR")]
    assert order == sorted(order), run
    assert run.stderr.count("These account for") == 1 and "\nPEAK of " in run.stderr, run  # two lines for the small one, no more


def test_growth_once_an_epoch_says_so(launch, script, msmemscope):
    """A rate per step alone reads as if each step kept something: here every fifth one keeps 2 blocks of 1 MiB."""
    epochs = LEAKY.replace("for _ in range(", "for i in range(").replace("kept.append(npu.alloc(1 << 20))", "kept += [npu.alloc(1 << 20) for _ in range(0 if i % 5 else 2)]")
    assert "for _ in range(0 if i % 5 else 2)" in epochs
    run = check_screen(launch("--", *script(epochs, 41)).check())
    assert re.search(r"^  \+\d+ KiB/step  train\.py:\d+\S*( -> .*)?   16 blocks, 2 every 5 steps$", run.stderr, re.M), run
    info = msmemscope("info", run.project().path, output=False).check().stdout
    assert re.search(r", 16 blocks, 16\.0 MiB since step 6; 2\.0 MiB every 5 steps\. Nothing of it was freed\.", info), info



RANKS = """
import os, subprocess, sys
here = os.path.dirname(__file__)
ranks = [subprocess.Popen([sys.executable, os.path.join(here, "work.py"), "3" if rank == 5 else "1"],
                          env={**os.environ, sys.argv[2]: str(rank)}) for rank in range(int(sys.argv[1]))]
sys.exit(max(rank.wait() for rank in ranks))
"""
WORK = LEAKY.replace("1 << 20", "int(sys.argv[1]) << 20").replace("range(int(sys.argv[1]))", "range(12)")


@pytest.mark.parametrize("ranks, variable", [(2, "OMPI_COMM_WORLD_RANK"), (8, "RANK"), (24, "SLURM_PROCID")])
def test_ranks_are_one_table_with_the_worst_first_and_a_shared_place_once(launch, script, out, ranks, variable):
    (out / "work.py").write_text(WORK, encoding="utf-8")
    document = out / "summary.json"
    run = check_screen(launch(f"--summary-json={document}", "--", *script(RANKS, ranks, variable)).check())
    table = re.findall(r"^ +(\d+) +(\d+)  work\.py +(\S+ MiB) +(\S+ MiB)  LEAK$", run.stderr, re.M)
    worst = 5 if ranks > 5 else 0
    more = re.findall(r"^  \.\.\. (\d+) more: \d+ LEAK$", run.stderr, re.M)
    assert len(table) >= min(ranks, 10) and int(table[0][0]) == worst, run
    assert len(table) + sum(map(int, more)) == ranks, run
    assert f"\n{ranks} processes, {ranks} with a finding; worst first\n" in run.stderr
    assert len(re.findall(rf"^LEAK in {ranks} of {ranks} processes: .*work\.py:7( -> .*)?$", run.stderr, re.M)) == 1, run
    assert ranks > 8 or f"Worst: work.py (pid {table[0][1]}, rank {worst})" in run.stderr
    assert re.search(r"^LEAK on NPU 0: .* per step", run.stderr, re.M), run
    # The page of the launch is named after the worst process, as what is to be typed for more.
    assert re.search(rf"^Files: \S+ \(report_{table[0][1]}_\w+\.html\)\nMore:  msmemscope info \S+msmemscope_{table[0][1]}_\w+$", run.stderr, re.M), run
    processes = check_document(document.read_text())["processes"]
    assert [process["rank"] for process in processes] == list(range(ranks))
    assert {process["name"] for process in processes} == {"work.py"}


@pytest.mark.parametrize("option", ["-q", "--log-level=error"])
def test_quiet_hides_no_finding(launch, script, option):
    run = check_screen(launch(option, "--", *script(LEAKY, 20)).check())
    assert "====== ERROR: Detected memory leaks on device 0 ======\n" in run.stderr and "msmemscope info" not in run.stderr
    assert launch(option, "--", *script(HEALTHY, 20)).check().stderr == ""
    asked = launch(option, "--analysis=decompose", "--", *script(HEALTHY, 20)).check()
    assert re.search(r"^Memory of NPU 0 by class at the peak \(9\.0 MiB, step \d+\)\n( +\S+ [KM]iB +\d+ %  \S.*\n)+", asked.stderr, re.M), asked


def test_a_killed_run_and_a_damaged_trace_fit_and_say_so(msmemscope, program, out):
    run = msmemscope("--", *program("threads", 2, 20000)).check()
    trace = out / "cut.msc"
    trace.write_bytes((run.project().path / "trace.msc").read_bytes()[:-3000])
    done = msmemscope("info", "--json", trace, output=False)
    assert done.returncode == 3
    [process] = check_document(done.stdout)["processes"]
    assert process["damaged"]


def on_terminal(msmemscope, words, env):
    """Runs a command with a terminal as its three standard files; gives what it wrote."""
    master, slave = pty.openpty()
    process = subprocess.Popen([str(msmemscope.path), *map(str, words)], stdin=slave, stdout=slave, stderr=slave,
                               env=environment(msmemscope.dist, env), start_new_session=True)
    os.close(slave)
    text, end = b"", time.monotonic() + 60
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        elif process.poll() is not None:
            break
    assert process.wait(timeout=10) == 0, text
    os.close(master)
    return text.decode(errors="replace")


def test_a_terminal_has_no_lines_of_single_blocks(msmemscope, scripts, script, out):
    """Scripts that look for them read a pipe; a person reads the answer."""
    for text in (LEAKY, HEALTHY):
        said = on_terminal(msmemscope, ["-o", out, "--", *script(text, 12)], scripts.environment({"NO_COLOR": "1"}))
        assert ("====== ERROR: Detected memory leaks on device 0 ======" in said) == ("====== SUMMARY: " in said) == (text is LEAKY), said
        assert not re.search("Direct |Gap Analysis|MinGap", said), said
    report = next(path for path in sorted(out.glob("msmemscope_*/report.txt")) if "Direct " in path.read_text())
    assert "====== ERROR: Detected memory leaks" in report.read_text()


def test_colours_are_for_terminals_whose_user_wants_them(msmemscope, scripts, script, out):
    base = scripts.environment({"TERM": "xterm", "NO_COLOR": None})
    words = ["-o", out, "--", *script(LEAKY, 12)]
    assert "\033[1;31mLEAK on NPU 0: " in on_terminal(msmemscope, words, base)
    for change in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\033[" not in re.sub(r"\r\033\[K", "", on_terminal(msmemscope, words, {**base, **change})), change
    assert "\033[" not in msmemscope(*words, env=base, output=False).check().stderr


# ---- what was recorded, and the cure ----

TORCH = "import torch\nkept = [torch.zeros(1 << 18) for _ in range(4)]\n"


def test_nothing_was_recorded_names_the_cure(msmemscope, python, out):
    path = out / "host.py"
    path.write_text(TORCH, encoding="utf-8")
    run = msmemscope("--", *python, path).check()
    assert "nothing was recorded: the program used no device memory" in run.stderr
    assert "--device=cpu" in run.stderr, run
    cured = check_screen(msmemscope("--device=cpu", "--", *python, path).check())
    assert "nothing was recorded" not in cured.stderr and "CPU tensors" in cured.stderr
    nothing = msmemscope("--", "true").check()
    assert "although this machine has an NPU" in nothing.stderr


def test_without_a_device_cpu_tensors_are_recorded_and_it_says_so(msmemscope, python, out):
    if any(Path("/dev").glob("nvidia[0-9]*")) or any(Path("/dev").glob("davinci[0-9]*")):
        pytest.fail("this test needs a machine without an accelerator")
    path = out / "host.py"
    path.write_text(TORCH, encoding="utf-8")
    bare = {"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None}
    run = check_screen(msmemscope("--", *python, path, env=bare).check())
    assert "Recorded: CPU tensors too, because no NPU and no GPU was found here" in run.stderr, run
    assert re.search(r"^PEAK of CPU tensors: [\d.]+ MiB \(at .*\); at the end 4\.0 MiB in 4 blocks$", run.stderr, re.M), run
    nothing = msmemscope("--", "true", env=bare).check()
    assert "(no NPU and no GPU was found here)" in nothing.stderr


# ---- info and report.txt ----

MANY = """
import npu, msmemscope
msmemscope.start()
for step in range(3):
    kept = [npu.alloc(4096 << step, device=step, note=False) for _ in range(400)]
    msmemscope.step()
"""
BLOCK = re.compile(r"^ +(0x[0-9a-f]+)  ([\d.]+ [KMGT]?i?B)  step (\d+), kernel_(\d+), thread \d+$", re.M)


def test_every_held_block_is_told_by_all_and_a_hundred_of_a_place_by_the_report(launch, script, msmemscope):
    run = check_screen(launch("--", *script(MANY)).check())
    project = run.project().path
    whole = msmemscope("info", "--all", project, output=False).check().stdout
    blocks = {int(block["address"], 16): block["size"] for block in msmemscope.info(run.project())["live_blocks"]}
    assert {int(address, 16) for address, *_ in BLOCK.findall(whole)} == blocks.keys() and len(blocks) == 1200
    report = (project / "report.txt").read_text(encoding="utf-8")
    assert len(BLOCK.findall(report)) == 300 and report.count("... 300 more\n") == 3
    short = msmemscope("info", project, output=False).check().stdout
    assert BLOCK.findall(short) == [] and "Alive at the end: 10.9 MiB in 1200 blocks" in short


def test_lists_are_bounded_sorted_and_chosen(launch, script, msmemscope):
    project = launch("--", *script(MANY)).check().project().path

    def groups(*options):
        text = msmemscope("info", project, *options, output=False).check().stdout
        return re.findall(r"= (\d+) blocks of ([\d.]+ KiB)  HAL on device (\d)", text)

    assert [size for _, size, _ in groups()] == ["16.0 KiB", "8.0 KiB", "4.0 KiB"]
    assert [device for *_, device in groups("--sort=step")] == ["0", "1", "2"]
    assert len(groups("--top=1")) == 1
    assert [device for *_, device in groups("--device=npu:1")] == ["1"]
    assert [device for *_, device in groups("--steps=3")] == ["2"]
    assert "No such block was held at the end." in msmemscope("info", project, "--steps=9", output=False).stdout


def test_the_same_again_and_again_makes_no_large_report(launch, script):
    text = MANY.replace("range(400)", "range(20000)").replace("4096 << step", "512")
    run = check_screen(launch("--", *script(text)).check())
    assert (run.project().path / "report.txt").stat().st_size < 200_000


def test_info_pages_on_a_terminal(msmemscope, launch, script):
    project = launch("--", *script(HEALTHY, 4)).check().project().path
    shown = on_terminal(msmemscope, ["info", project], {"TERM": "xterm", "PAGER": "sed s/^/paged:/"})
    assert shown.startswith("paged:train.py (pid "), shown
    for pager in ("", "cat"):
        assert on_terminal(msmemscope, ["info", project], {"TERM": "xterm", "PAGER": pager}).startswith("train.py (pid ")
    assert on_terminal(msmemscope, ["info", project], {"TERM": "xterm", "PAGER": "/no/such/pager"}).count("train.py (pid ") == 1


# ---- for scripts ----

def test_the_document_of_a_launch_is_that_of_info(launch, script, msmemscope, out):
    document = out / "summary.json"
    run = launch(f"--summary-json={document}", "--call-stack=python", "--", *script(LEAKY, 20)).check()
    found = check_document(document.read_text())
    again = check_document(msmemscope("info", "--json", run.project().path, output=False).check().stdout)
    assert found == again
    assert stat.S_IMODE(document.stat().st_mode) == 0o600 and not list(out.glob("summary.json.*"))
    [process] = found["processes"]
    assert process["verdict"] == "leak" and process["rank"] is None and process["oom"] == []
    leak = process["places"][0]
    assert leak["verdict"] == "leak" and leak["pool"] == "HAL" and leak["device"] == "0"
    assert 0.9 * (1 << 20) <= leak["bytes_per_step"] <= 1.1 * (1 << 20) and leak["first_step"] == 2
    assert any(frame["function"] == "<module>" and frame["file"].endswith("train.py") and frame["line"] == 7
               for frame in leak["frames"] if "file" in frame), leak["frames"]
    assert [example["step"] for example in leak["examples"]] == [2, 3, 4]
    assert process["peak"]["places"][0]["bytes"] >= 19 << 20
    check_document(msmemscope("info", "--json", "--all", run.project().path, output=False).check().stdout)


def test_a_document_without_a_process_is_a_document(msmemscope, out):
    msmemscope(f"--summary-json={out / 'none.json'}", "--", "true").check()
    assert check_document((out / "none.json").read_text()) == {"schema": 1, "processes": []}


def test_a_document_that_cannot_be_written_is_told(msmemscope, program, out):
    run = msmemscope(f"--summary-json={out / 'no' / 'such' / 'place.json'}", "--", *program("threads", 1, 10))
    assert run.returncode == 1 and f"cannot write {out / 'no' / 'such' / 'place.json'}: No such file" in run.stderr, run


@pytest.mark.parametrize("text, condition, status", [
    (LEAKY, "leak", 4), (LEAKY, "leak:1M/step", 4), (LEAKY, "leak:1025K/step", 0), (LEAKY, "suspect,oom", 0), (LEAKY, "growth:512K/step", 4), (LEAKY, "growth:2M/step", 0),
    (LEAKY, "peak:4M", 4), (LEAKY, "peak:1G", 0), (HEALTHY, "leak,suspect,oom,growth:1K/step", 0), (HEALTHY, "peak:8M", 4),
    (LEAKY + "sys.exit(3)\n", "leak", 3), (LEAKY + "import os; os.kill(os.getpid(), 9)\n", "leak", -9)])
def test_a_condition_of_fail_on_is_exit_status_4(launch, script, msmemscope, text, condition, status):
    run = check_screen(launch(f"--fail-on={condition}", "--", *script(text, 20)))
    assert run.returncode == status, run
    assert ("msmemscope: --fail-on: " in run.stderr) == (status != 0)
    if status in (0, 4):
        again = msmemscope("info", f"--fail-on={condition}", run.project().path, output=False)
        assert again.returncode == status, again


# ---- pytest ----

SUITE = """
import pytest, torch
kept = []

@pytest.fixture
def weights():
    return torch.zeros(1 << 20)

@pytest.mark.limit_device_memory("1 MiB")
def test_small(weights): torch.zeros(1000)

@pytest.mark.limit_device_memory("1 MiB")
def test_large():
    torch.zeros(1 << 20)

@pytest.mark.no_device_leaks
def test_clean(weights): weights.clone()

@pytest.mark.no_device_leaks
def test_leaky():
    kept.append(torch.zeros(1 << 18))

@pytest.mark.no_device_leaks("1 MiB")
def test_allowed(): kept.append(torch.zeros(1 << 18))

@pytest.mark.limit_device_memory("a lot")
def test_wrong(): pass

def test_unmarked(): kept.append(torch.zeros(1 << 18))
"""
NPU_SUITE = """
import pytest, npu
kept = []

@pytest.mark.limit_device_memory("2 MiB")
@pytest.mark.no_device_leaks
def test_device():
    npu.free(npu.alloc(1 << 20))
    kept.append(npu.alloc(3 << 20))
"""


def suite(msmemscope, dist, out, python, text, more="", options=()):
    path = out / "test_suite.py"
    path.write_text(text, encoding="utf-8")
    env = {"PYTHONPATH": f"{dist / 'python'}:/usr/lib/python3/dist-packages{more}", "TRUTH": out / "truth"}
    return msmemscope.bare(*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "msmemscope.pytest_plugin", path, *options,
                           f"--basetemp={out / 'tmp'}", env=env)


def test_marks_of_pytest_limit_device_memory_and_find_leaks(msmemscope, dist, out, python):
    run = suite(msmemscope, dist, out, python, SUITE)
    assert run.returncode == 1, run
    failed = set(re.findall(r"^(?:FAILED|ERROR) \S+::(\w+)", run.stdout, re.M))
    assert failed == {"test_large", "test_leaky", "test_wrong"} and "4 passed" in run.stdout, run
    assert "the test took 4.0 MiB of HOST on cpu, the limit is 1.0 MiB. Held at the peak:" in run.stdout
    assert re.search(r"^ +4\.0 MiB  .*test_suite\.py\(14\): test_large$", run.stdout, re.M), run
    assert "1.0 MiB in 1 block that the test allocated are still there when it has ended:" in run.stdout
    assert re.search(r"^ +1\.0 MiB  HOST on cpu  .*test_suite\.py\(21\): test_leaky$", run.stdout, re.M), run
    assert re.search(r"^'a lot' is not a size; write it as .*$", run.stdout, re.M) and "pytest_plugin.py" not in run.stdout, run


PEAKS = """
import torch
kept = []
def test_small(): torch.zeros(1000)
def test_none(): pass
def test_large():
    torch.zeros(1 << 20)
    kept.append(torch.zeros(1 << 18))
""" + "".join(f"def test_{n}(): torch.zeros({n} << 10)\n" for n in range(20, 30))


def test_a_table_names_the_tests_with_the_highest_peaks(msmemscope, dist, out, python):
    """Of all tests, none of which has a mark; as JSON too."""
    run = suite(msmemscope, dist, out, [*python], PEAKS, options=["--memscope", f"--memscope-json={out / 'peaks.json'}"])
    assert run.returncode == 0 and "13 passed" in run.stdout, run
    table = re.findall(r"^ *([\d.]+ \w+)  \S+::(\w+)  \((.*)\)$", run.stdout, re.M)
    assert table[0] == ("4.0 MiB", "test_large", "HOST on cpu, 1.0 MiB left"), run
    assert [name for _, name, _ in table[1:]] == [f"test_{n}" for n in range(29, 20, -1)]
    assert re.search(r"4\.0 MiB  .*test_suite\.py\(7\): test_large$", run.stdout, re.M), run
    tests = {one["test"].split("::")[1]: one for one in json.loads((out / "peaks.json").read_text())["tests"]}
    assert len(tests) == 13 and tests["test_none"]["peak_bytes"] == 0 and tests["test_29"]["peak_bytes"] == 29 << 12
    assert tests["test_large"]["left_bytes"] == 1 << 20


def test_the_entry_point_of_pytest_imports_nothing_that_is_not_wanted(msmemscope, dist, out):
    """As pip installs it: pytest loads it in every project, and a project that does not ask for it has two modules more."""
    (out / "test_it.py").write_text("""
import sys
def test_modules():
    ours = {name for name in sys.modules if name.split(".")[0] == "msmemscope"}
    assert ours == {"msmemscope", "msmemscope._pytest_entry"}, ours
    assert "libascend_kernel_hook" not in open("/proc/self/maps").read()
""", encoding="utf-8")
    info = out / "site" / "msmemscope-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: msmemscope\nVersion: 1\n")
    (info / "entry_points.txt").write_text(re.search(r'ENTRY_POINTS = """(.*?)"""', (Path(__file__).resolve().parents[2] / "tools" / "build_wheel.py").read_text(), re.S)[1])
    env = {"PYTHONPATH": f"{out / 'site'}:{dist / 'python'}"}
    run = msmemscope.bare("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", env=env, cwd=out)
    assert run.returncode == 0 and "1 passed" in run.stdout, run
    run = msmemscope.bare("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-vv", "--memscope", "test_it.py", env=env, cwd=out)
    assert run.returncode == 1 and "memory of tests" in run.stdout and "msmemscope._control" in run.stdout, run


def test_marks_of_pytest_see_device_memory(msmemscope, dist, out):
    lib = Path(__file__).resolve().parent / "lib"
    run = suite(msmemscope, dist, out, ["/usr/bin/python3"], NPU_SUITE, more=f":{lib}")
    assert run.returncode == 1 and "the test took 3.0 MiB of HAL on device 0, the limit is 2.0 MiB" in run.stdout, run
    assert "3.0 MiB in 1 block that the test allocated are still there when it has ended:" in run.stdout, run
