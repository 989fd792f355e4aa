# SPDX-License-Identifier: Apache-2.0
"""Running out of memory: two rows SNAPSHOT for each refused request, OOM_DETAIL where the analysis is asked for, and a verdict that
names the cause, while the program still runs. The programs know their cause, and say how many of their requests were refused."""
import itertools
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rows
from scripts import PYTHON, python_path

RUNS_OUT = Path(__file__).resolve().parents[1] / "targets" / "python" / "runs_out.py"
MIB = 1 << 20
WORDS = {"growth": "growth", "spike": "spike", "fragmentation": "fragmentation", "outside": "outside the pool",
         "others": "other processes", "full": "full"}
CAUSES = list(WORDS)
FIGURES = ["reserved", "max_reserved", "allocated", "max_allocated", "total", "free", "device_rate", "reserved_rate"]


def surroundings(cause, seed):
    """How large the device is, and how much of it others hold."""
    size = (512, 768, 1024, 1536, 4096)[seed * 7 // 6 % 5]
    env = {"SIMNPU_HBM": f"{size}M"}
    if cause == "others":
        env["SIMNPU_TAKEN"] = f"{size * (52 + seed * 5 % 29) // 100}M"
    return env


def snapshots(found):
    return [row for row in found if row.event == "SNAPSHOT"]


def try_one(msmemscope, program, cause, seed, out, *options):
    run = msmemscope(*options, "--", *program("oom_causes", cause, seed), env=surroundings(cause, seed), output=out)
    goes_on, expected = run.value("goes_on"), run.value("refused") + run.value("recovered")
    assert run.returncode == (0 if goes_on else -signal.SIGABRT), str(run)
    pairs = [row.name for row in snapshots(run.rows())]
    assert sorted(pairs) == ["OOM_Snapshot After"] * expected + ["OOM_Snapshot Before"] * expected, str(run)
    [verdict, *_] = msmemscope.info(run.project())["oom"]
    return verdict, run


def test_the_cause_is_named(msmemscope, program, out, ooms):
    wrong = []
    for seed in range(ooms):
        cause = CAUSES[seed % len(CAUSES)]
        verdict, run = try_one(msmemscope, program, cause, seed, out / str(seed))
        assert verdict["step"] == 0 or run.value("marked")
        # A line of the screen may be folded anywhere.
        assert f"Cause: {verdict['cause']}." in " ".join(run.stderr.split())
        assert f"Cause: {verdict['cause']}." in (run.project().path / "report.txt").read_text()
        if verdict["cause"] != WORDS[cause]:
            wrong.append((cause, seed, verdict["cause"]))
    print(f"{ooms - len(wrong)} of {ooms} causes named, wrong: {wrong}")
    assert len(wrong) * 20 <= ooms


def test_scripts_of_other_shapes_have_a_true_cause(msmemscope, dist, out, ooms):
    """Blocks of one size in a row, on one line or several, later among small work, growth with and without steps, true spikes."""
    wrong = []
    for seed in range(2 * ooms):
        env = {"SIMNPU_HBM": f"{(512, 1024, 2048, 4096)[seed % 4]}M", "TRUTH": "/dev/null", "PYTHONPATH": python_path(dist)}
        run = msmemscope("--format=none", "--", PYTHON, RUNS_OUT, "short", seed, env=env, output=out / str(seed))
        truth = json.loads(run.stdout.splitlines()[0])
        [verdict] = msmemscope.info(run.project())["oom"]
        if verdict["cause"] not in truth["causes"]:
            wrong.append((seed, truth, verdict["cause"]))
    print(f"{2 * ooms - len(wrong)} of {2 * ooms} causes are true, wrong: {wrong}")
    assert len(wrong) * 20 <= 2 * ooms, wrong


def test_growth_names_its_place(msmemscope, program, out):
    verdict, run = try_one(msmemscope, program, "growth", 48, out, "--call-stack=c")
    assert verdict["cause"] == "growth" and run.value("marked")
    functions = [frame.get("function", "") for frame in verdict["growing"]["frames"]]
    assert any("run_growth" in function for function in functions), functions
    assert verdict["growing"]["grown_bytes"] > 0 and verdict["bytes_per_step"] > 0


def test_growth_without_stacks_says_how_to_find_its_code(msmemscope, dist):
    """What keeps more is then known by its sizes alone; nobody can free "blocks of 256 KiB"."""
    run = msmemscope("--", dist / "examples" / "leaky_npu", 800, env={"SIMNPU_HBM": 192 << 20})
    assert "\nCause: growth. Memory in blocks of 256 KiB grows by 85.5 KiB with every step.\n" in run.stderr, run
    assert "\nTry: run again with --call-stack=c to see which code keeps blocks of 256 KiB.\n" in run.stderr, run
    assert "detach or bound" not in run.stderr and run.stderr.count("--call-stack") == 1, run


def test_what_is_held_adds_up(msmemscope, program, out):
    for cause, seed in (("others", 4), ("outside", 3)):
        verdict, _ = try_one(msmemscope, program, cause, seed, out / cause)
        env = surroundings(cause, seed)
        total = int(env["SIMNPU_HBM"][:-1]) * MIB
        taken = int(env.get("SIMNPU_TAKEN", "0M")[:-1]) * MIB
        assert verdict["total_bytes"] == total
        assert abs(verdict["other_processes_bytes"] - taken) < total // 100
        assert abs(verdict["free_bytes"] + verdict["process_bytes"] + taken - total) < total // 20, "pages are rounded up"


SCALES = """
import sys, npu
kind, unit, kept = sys.argv[1], 1 << 20, None

def size(step):
    return {"doubles": unit << step, "ramp": 4 * unit * (step + 1), "history": 6 * unit * (step + 1)}[kind]

def batch(step):
    return npu.alloc(size(step), note=False)

def work(each):
    for block in [npu.alloc(each, note=False) for _ in range(6)]:
        npu.free(block, note=False)

weights = npu.alloc(40 << 20, note=False)
try:
    for step in range(1000):
        used, old = batch(step), kept
        kept = used
        if old is not None:
            npu.free(old, note=False)
        work(unit if kind == "history" else size(step))
        npu.step()
except AssertionError:
    pass
"""


@pytest.mark.parametrize("stacks", ["--call-stack=python", "--call-stack=none"])
@pytest.mark.parametrize("kind", ["doubles", "ramp", "history"])
def test_a_batch_that_becomes_larger_is_no_growth(scripts, msmemscope, out, kind, stacks):
    """One block lives at the end of each step. What it is made larger for says which it is: the work of each step, or itself."""
    script = out / "scales.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(SCALES)
    run = msmemscope(stacks, "--", PYTHON, script, kind, env={"SIMNPU_HBM": "512M", "PYTHONPATH": python_path(scripts.dist), "TRUTH": "/dev/null"},
                     output=out / "o").check()
    [verdict] = msmemscope.info(run.project())["oom"]
    said = " ".join(run.stderr.split())
    if kind == "history":
        assert verdict["cause"] == "growth" and verdict["bytes_per_step"] in range(6 * MIB, 7 * MIB), run
    elif kind == "doubles" or "python" in stacks:
        assert verdict["cause"] == "spike" and "growing" not in verdict, run
        [steps] = re.findall(r"This step needs more than all steps before, and so did each of the last (\d+): its input is larger\.", said)
        assert verdict["step"] - 3 <= int(steps) <= verdict["step"] - 2, run
        assert "Try: a smaller batch or shorter sequences." in said, run


HALF_FILLED = """
import ctypes
acl, mstx = ctypes.CDLL("libascendcl.so"), ctypes.CDLL("libms_tools_ext.so")
mstx.mstxRangeStartA.restype = ctypes.c_uint64
mstx.mstxRangeEnd.argtypes = [ctypes.c_uint64]
acl.aclInit(None), acl.aclrtSetDevice(0)
def take(mib):
    block = ctypes.c_void_p()
    return block if acl.aclrtMalloc(ctypes.byref(block), ctypes.c_size_t(mib << 20), 0) == 0 else None
weights = take(100)
for _ in range(20):
    mark = mstx.mstxRangeStartA(b"step start", None)
    acl.aclrtFree(take(20))
    mstx.mstxRangeEnd(mark)
kept = []
while (block := take(2)) is not None:
    kept.append(block)
print(len(kept))
"""


def test_what_is_lost_to_pages_is_named(msmemscope, out):
    """aclrtMalloc adds 32 bytes, so 2 MiB take two pages. The program ends no step then, so no step is to blame."""
    script = out / "half_filled.py"
    script.write_text(HALF_FILLED)
    run = msmemscope("--", sys.executable, str(script), env={"SIMNPU_HBM": "256M"}, output=out / "o").check()
    [verdict] = msmemscope.info(run.project())["oom"]
    blocks = int(run.stdout)
    assert blocks == (256 - 102) // 4 and verdict["step"] == 0
    assert verdict["lost_to_pages_bytes"] == (2 * blocks + 2) * MIB - 32 * (blocks + 1) and verdict["other_processes_bytes"] == 0
    assert verdict["process_bytes"] + verdict["lost_to_pages_bytes"] + verdict["free_bytes"] == verdict["total_bytes"] == 256 * MIB
    said = " ".join(run.stderr.split())
    assert "Cause: fragmentation. 78.0 MiB are lost to pages that blocks do not fill." in said, run
    assert "At that moment: driver (HAL) 176 MiB + lost to pages 78 MiB" in said and "this step needs" not in said, run
    assert "lost to pages 78.0 MiB.\n" in (run.project().path / "report.txt").read_text()


@pytest.mark.parametrize("seed, stacks", [(48, ["--call-stack=c"]), (48, []), (12, [])])
def test_call_sites_with_the_same_name_are_one_line_with_all_their_bytes(msmemscope, program, out, seed, stacks):
    """Without stacks, blocks of nearly the same size read the same."""
    verdict, run = try_one(msmemscope, program, "growth", seed, out, *stacks)
    held = [(place["pool"], place["place"]) for place in verdict["places"]]
    assert held and len(set(held)) == len(held), held
    assert [place["bytes"] for place in verdict["places"]] == sorted((place["bytes"] for place in verdict["places"]), reverse=True)
    report = (run.project().path / "report.txt").read_text().split("Largest call sites at that moment:\n")[1].splitlines()
    lines = [line for line in itertools.takewhile(lambda line: line.startswith("    "), report)]
    assert [line.split("  ")[-1] for line in lines] == [name for _, name in held]
    assert [line.split(" in ")[1].split(" ")[0] for line in lines] == [str(place["blocks"]) for place in verdict["places"]]
    if "growing" in verdict:
        assert verdict["try"].endswith(f": {verdict['growing']['place']}"), "the advice names it as all else does"


def test_every_refusal_of_the_driver_has_two_rows_with_stacks(traced):
    """The program asks without a runtime and a pool in between, so each refusal is one."""
    result = traced("oom", env={"SIMNPU_HBM": "256M"}, options=["--quiet"]).exact()
    found = snapshots(result.run.rows())
    assert [row.name for row in found] == ["OOM_Snapshot Before", "OOM_Snapshot After"] * 124
    for row in found:
        assert (row.type, row.device, row.ptr) == ("SNAPSHOT", "0", None)
        assert list(row.attr) == FIGURES
        assert row.attr["total"] == 256 * MIB and row.attr["free"] == 0 and row.attr["device_rate"] == "100.000000"
        assert row.attr["reserved"] == row.attr["allocated"] == 256 * MIB and row.attr["reserved_rate"] == "100.000000"
        assert "oom(main+" in row.c_stack[0] and row.python_stack == []


def details(found):
    return [row for row in found if row.event == "OOM_DETAIL"]


def test_details_are_there_when_they_are_asked_for(msmemscope, program, out):
    env = {"SIMNPU_HBM": "256M", "TRUTH": "/dev/null"}
    assert not details(msmemscope("-q", "--", *program("oom"), env=env, output=out / "none").check().rows())
    result = msmemscope("-q", "--analysis=oom:3", "--", *program("oom"), env=env).check()
    found = details(result.rows())
    triggers = [row for row in found if row.type == "OOM_TRIGGER"]
    assert len(triggers) == 124
    assert {row.attr["func"] for row in triggers} == {"halMemAlloc", "halMemCreate"}
    assert {row.attr["req_size"] for row in triggers} == {16 * MIB, 1 << 41}
    assert all(row.name == "OOM_Trigger" and "oom(main+" in row.c_stack[0] for row in triggers)
    # Blocks are listed once in two seconds; the newest and the largest of those that lived.
    recent = [row for row in found if row.type == "OOM_RECENT_ALLOC"]
    top = [row for row in found if row.type == "OOM_TOP_ALLOC"]
    assert (len(recent), len(top)) == (3, 3)
    mallocs = {row.ptr: row for row in result.rows() if row.event == "MALLOC" and row.id < triggers[0].id}
    assert [row.attr["ptr"] for row in recent] == [row.ptr for row in sorted(mallocs.values(), key=lambda row: -row.id)[:3]]
    for row in recent + top:
        malloc = mallocs[row.attr["ptr"]]
        assert row.attr == {"pool": "HAL", "ptr": malloc.ptr, "size": malloc.attr["size"], "timestamp": malloc.time_ns}
        assert row.name == {"OOM_RECENT_ALLOC": "OOM_RecentAlloc", "OOM_TOP_ALLOC": "OOM_TopAlloc"}[row.type]


def wait_for(holds):
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("did not come")


def test_the_verdict_is_there_while_the_program_runs(msmemscope, program, out):
    """The program has caught the error and does nothing. Then the machine kills everything."""
    started = msmemscope.start("--", *program("oom_causes", "outside", 9, "wait"), env=surroundings("outside", 9),
                               stdin=subprocess.PIPE)
    wait_for(lambda: list(out.glob("*/report.txt")))
    [report] = out.glob("*/report.txt")
    assert "Cause: outside the pool." in report.read_text()
    wait_for(lambda: "OOM_Snapshot After" in "".join(path.read_text() for path in out.glob("*/device_0/dump/*.csv")))
    started.kill()
    run = started.finish()
    assert " ".join(run.stderr.split()).count("Cause: outside the pool.") == 1  # broken where the pid is long
    assert "Cause: outside the pool." in report.read_text()


def test_a_kill_right_behind_the_refusal_loses_nothing(msmemscope, program, out):
    started = msmemscope.start("--", *program("oom_causes", "spike", 7, "wait"), env=surroundings("spike", 7),
                               stdin=subprocess.PIPE)
    started.process.stdout.readline()
    started.kill()
    started.finish()
    msmemscope("recover", out, output=False)
    [project] = rows.projects(out)
    [verdict] = msmemscope.info(project)["oom"]
    assert verdict["cause"] == "spike"
    assert [row.name for row in snapshots(project.rows())] == ["OOM_Snapshot Before", "OOM_Snapshot After"]


@pytest.mark.parametrize("options", [["--quiet"], ["--log-level=error"]])
def test_quiet_does_not_hide_what_was_asked_for(msmemscope, program, out, options):
    silent = msmemscope(*options, "--", *program("oom_causes", "spike", 7), env=surroundings("spike", 7), output=out / "a")
    asked = msmemscope(*options, "--analysis=oom", "--", *program("oom_causes", "spike", 7, "wait"),
                       env=surroundings("spike", 7), output=out / "b")
    assert "Out of memory" not in silent.stderr
    assert "Out of memory" in asked.stderr or "Out of memory" in (asked.project().path / "report.txt").read_text()


TORCH = """
import torch
kept = [torch.ones(1 << 18) for _ in range(8)]

def ask():
    return torch.empty(1 << 60, dtype=torch.uint8)

try:
    ask()
except RuntimeError as error:
    print("caught" if "can't allocate memory" in str(error) else error)
print(torch.ones(10).sum().item())
"""


def test_pytorch_on_the_cpu(msmemscope, python):
    run = msmemscope("--device=cpu", "--", *python, "-c", TORCH).check()
    assert run.stdout == "caught\n10.0\n"
    before, after = snapshots(run.rows())
    assert (before.name, after.name, before.device) == ("OOM_Snapshot Before", "OOM_Snapshot After", "cpu")
    assert before.attr["allocated"] == 8 << 20 and list(before.attr) == FIGURES
    assert before.python_stack == after.python_stack == ["<string>(6): ask", "<string>(9): <module>"]
    assert "DefaultCPUAllocator" in before.c_stack[0]
    [verdict] = msmemscope.info(run.project())["oom"]
    assert (verdict["cause"], verdict["requested_bytes"]) == ("spike", 1 << 60)


LIMITED = """
import resource, torch
torch.ones(10)
limit = int(open("/proc/self/statm").read().split()[0]) * 4096 + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
kept = []

def step():
    x = torch.ones(4 << 20)
    kept.append(torch.ones(8 << 20))
    return (x * 2).sum()

try:
    while True:
        step()
except RuntimeError as error:
    print("caught" if "can't allocate memory" in str(error) else error)
"""


def test_pytorch_that_keeps_more_and_more(msmemscope, python):
    """The machine has enough; a limit of the process ends it."""
    run = msmemscope("--device=cpu", "--", *python, "-c", LIMITED).check()
    assert run.stdout == "caught\n"
    [verdict] = msmemscope.info(run.project())["oom"]
    assert verdict["cause"] == "growth"
    assert any("step" in str(frame) for frame in verdict["growing"]["frames"])
    assert "a limit of the process was reached" in " ".join(run.stderr.split())


WINDOW = """
import ctypes, npu, msmemscope
kept = [npu.alloc(64 << 20, note=False) for _ in range(3)]

def ask(size):
    block = ctypes.c_void_p()
    return npu._driver.halMemAlloc(ctypes.byref(block), size, npu._ON_DEVICE)

assert ask(100 << 20) == 6
msmemscope.start()
assert ask(200 << 20) == 6
msmemscope.stop()
assert ask(300 << 20) == 6
"""


def test_outside_of_windows_nothing_is_written(scripts, msmemscope):
    run = scripts.command(WINDOW, "--collect-mode=deferred", env={"SIMNPU_HBM": "256M"}).check()
    found = snapshots(run.rows())
    assert [row.name for row in found] == ["OOM_Snapshot Before", "OOM_Snapshot After"]
    assert all(": ask" in row.python_stack[0] for row in found)
    [verdict] = msmemscope.info(run.project())["oom"]
    assert verdict["requested_bytes"] == 200 << 20
