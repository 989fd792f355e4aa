# SPDX-License-Identifier: Apache-2.0
"""take_snapshot() and TakeSnapshot: a row SNAPSHOT for each device asked for, in the files when the call returns, whatever else is
recorded. The scripts keep count of what they hold; what they find in the files right after a call is compared with that."""
import json

import pytest

import snapshots
import windows
from scripts import python_path

KEYS = ["reserved", "max_reserved", "allocated", "max_allocated", "total", "free", "device_rate", "reserved_rate"]

# What each script begins with: snapshots() reads the files as any other process would.
BEGIN = """
import json, os, random, sys
import msmemscope, npu
from snapshots import read
def snapshots():
    return [row[:3] for row in read(os.environ["OUT"], os.getpid())]
"""
WAYS = ["preloaded", "immediate", "deferred", "db"]


@pytest.fixture
def take(scripts):
    """take(way, text): runs the script, which prints lines of JSON: said(run)."""
    def run(way, text, *options, env=None):
        text = BEGIN + text
        if way == "preloaded":
            text = text.replace("import msmemscope, npu\n", "import msmemscope, npu\nmsmemscope.config(output=os.environ['OUT'])\n")
            done = scripts.preloaded(text, env=env).check()
        else:
            words = {"immediate": [], "deferred": ["--collect-mode=deferred"], "db": ["--format=db"]}[way]
            done = scripts.command(text, *words, *options, env=env).check()
        return done
    return run


def said(run):
    return [json.loads(line) for line in run.stdout.splitlines()]


# ---- which devices ----

MASKS = """
npu.alloc(4096)
for mask in (0, 2, [0, 1], (1, 0), [1], (), [2, 2], {1}, range(2), "npu:1", "cpu", ["cpu", 1], None):
    before = len(snapshots())
    msmemscope.take_snapshot(device_mask=mask)
    print(json.dumps([name_device[:2] for name_device in snapshots()[before:]]))
msmemscope.take_snapshot()
print(json.dumps([device for _, device, _ in snapshots()[-3:]]))
"""


@pytest.mark.parametrize("way", WAYS)
def test_each_device_of_the_mask_has_a_row_when_the_call_returns(take, way):
    run = take(way, MASKS, env={"SIMNPU_DEVICES": "3"})
    devices = [["0"], ["2"], ["0", "1"], ["1", "0"], ["1"], [], ["2"], ["1"], ["0", "1"], ["1"], ["cpu"], ["cpu", "1"], ["0", "1", "2"]]
    assert said(run) == [[["Memory Snapshot", device] for device in each] for each in devices] + [["0", "1", "2"]]
    assert "take_snapshot" not in run.stderr, run
    rows = snapshots.read(run.out)
    assert len(rows) == sum(map(len, devices)) + 3
    assert [row[3] for row in rows] == sorted(row[3] for row in rows)
    if way != "db":
        assert all((row.type, row.ptr, row.python_stack, row.c_stack) == ("SNAPSHOT", None, [], []) for row in run.rows()
                   if row.event == "SNAPSHOT")


@pytest.mark.parametrize("mask, line, devices", [
    ("3", "there is no device 3: there are 3 of npu", []), ("[1, -1]", "there is no device -1", ["1"]),
    ("[0, 99, 1]", "there is no device 99", ["0", "1"]), ("'cuda:0'", "there is no device 'cuda:0'", []),
    ("[True]", "there is no device True", []), ("[0.5]", "there is no device 0.5", []),
    ("0.5", "device_mask is a device or a list of devices, not float", ["0", "1", "2"]),
    ("False", "device_mask is a device or a list of devices, not bool", ["0", "1", "2"]),
    ("object()", "device_mask is a device or a list of devices, not object", ["0", "1", "2"]),
])
def test_devices_that_do_not_exist_are_told_once_and_end_nothing(take, mask, line, devices):
    run = take("immediate", f"""
npu.alloc(4096)
for _ in range(2):
    msmemscope.take_snapshot({mask})
print(json.dumps([device for _, device, _ in snapshots()]))
""", env={"SIMNPU_DEVICES": "3"})
    assert said(run) == [devices * 2] and run.stderr.count(line) == 1, run


def test_numbers_are_those_that_the_program_has_for_its_devices(take):
    run = take("immediate", """
npu.pin(4096)  # the runtime
msmemscope.take_snapshot(device_mask=1)
msmemscope.take_snapshot()
print(json.dumps([device for _, device, _ in snapshots()]))
""", env={"ASCEND_RT_VISIBLE_DEVICES": "5,3"})
    assert said(run) == [["3", "5", "3"]]


def test_without_a_device_the_host_is_the_only_one(scripts):
    run = scripts.command((BEGIN + """
for mask in (None, 0, [0], "cpu", 1):
    msmemscope.take_snapshot(mask)
    print(json.dumps([device for _, device, _ in snapshots()]))
""").replace("msmemscope, npu", "msmemscope")).check()
    assert [len(json.loads(line)) for line in run.stdout.splitlines()] == [1, 2, 3, 4, 4]
    assert "there is no device 1: the host is the only one" in run.stderr
    assert run.project().path.name.endswith("_cpu") and {row.device for row in run.rows()} == {"cpu"}
    memory = dict(line.split()[:2] for line in open("/proc/meminfo", encoding="ascii"))
    for row in run.rows():
        assert row.attr["total"] == int(memory["MemTotal:"]) << 10 and 0 < row.attr["free"] <= row.attr["total"]


# ---- what the rows say ----

RANDOM = """
random.seed({seed})
MIB = 1 << 20
live, now, peak = [], [0] * 3, [0] * 3
for turn in range(60):
    device = random.randrange(3)
    if live and random.random() < 0.4:
        block, size, device = live.pop(random.randrange(len(live)))
        npu.free(block)
        now[device] -= size
    elif random.random() < 0.5:
        size = random.randrange(1, 1000) * 4096
        live.append((npu.alloc(size, device), size, device))
        now[device] += size
        peak[device] = max(peak[device], now[device])
    elif random.random() < 0.5:
        if not windows:
            pass
        elif random.random() < 0.5:
            npu.start()
        else:
            npu.stop()
    else:
        chosen = random.choice([None, device, [device], list(range(3)), (2, 0)])
        msmemscope.take_snapshot(chosen, name=f"turn {{turn}}")
        of = range(3) if chosen is None else [chosen] if isinstance(chosen, int) else chosen
        print(json.dumps([[f"turn {{turn}}", str(each), now[each], peak[each]] for each in of]))
print(json.dumps(snapshots()))
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_figures_are_what_the_program_holds_at_that_moment(take, way, seed):
    """Of the driver's memory, in a program without a pool: what is held, the most of it, and what the device has left."""
    text = "windows = %r\n" % (seed % 2 == 1) + RANDOM.format(seed=seed)
    run = take(way, text, env={"SIMNPU_DEVICES": "3", "SIMNPU_HBM": "1G"})
    *told, found = said(run)
    expected = [row for rows in told for row in rows]
    assert len(expected) > 5
    assert [[name, device] for name, device, _ in found] == [each[:2] for each in expected]
    for (_, _, now, peak), (_, _, attr) in zip(expected, found):
        assert list(attr) == KEYS
        assert (attr["allocated"], attr["reserved"]) == (now, now)
        # Before the first window of a program that is only preloaded, blocks are known and not their peak.
        assert attr["max_allocated"] == attr["max_reserved"] and now <= attr["max_allocated"] <= peak
        assert way == "preloaded" or attr["max_allocated"] == peak
        assert (attr["total"], attr["free"]) == (1 << 30, (1 << 30) - now)
        assert float(attr["device_rate"]) == pytest.approx(100 * now / (1 << 30), abs=1e-6)
        assert float(attr["reserved_rate"]) == (100 if now else 0)


def test_what_nothing_is_known_of_is_left_out(take):
    """Blocks are not recorded, so nothing knows what is held; the driver still says what is left."""
    run = take("immediate", "npu.alloc(4096)\nmsmemscope.take_snapshot(0)\nprint(json.dumps(snapshots()))", "--events=launch")
    [[[_, _, attr]]] = said(run)
    assert list(attr) == ["total", "free", "device_rate"] and attr["total"] - attr["free"] == 4096


@pytest.mark.parametrize("options, devices", [(["--device=npu:1"], ["1", "0"]), (["--steps=7"], ["0", "1", "2", "0"]),
                                              (["--analysis=none", "--events=none"], ["0", "1", "2", "0"])])
def test_no_option_hides_what_the_program_asks_for(take, options, devices):
    """Without a mask it asks for those devices that are written."""
    run = take("immediate", """
npu.alloc(4096)
msmemscope.take_snapshot()
msmemscope.take_snapshot(0, name="named")
print(json.dumps([device for _, device, _ in snapshots()]))
""", *options, env={"SIMNPU_DEVICES": "3"})
    assert said(run) == [devices]


# ---- names ----

NAMES = ["after_forward", "a,b", 'say "hi"', "line\nbreak", "步骤 1", "=1+1", " ", "x" * 300, "{reserved:1}", "a\tb"]


@pytest.mark.parametrize("form", ["csv", "db"])
def test_a_snapshot_has_the_name_that_the_program_gives_it(take, form):
    run = take("immediate", f"""
npu.alloc(4096)
for name in {NAMES!r}:
    msmemscope.take_snapshot(device_mask=0, name=name)
msmemscope.take_snapshot(0, "by place")
msmemscope.take_snapshot(0, name=None)
print(json.dumps([name for name, _, _ in snapshots()]))
""", f"--format={form}")
    shown = [name.replace("\n", "\\n").replace("\t", "\\t") for name in NAMES]
    [found] = said(run)
    assert len(found) == len(NAMES) + 2 and found[-2:] == ["by place", "Memory Snapshot"]
    assert [found[place] in (name, shown[place]) for place, name in enumerate(NAMES)] == [True] * len(NAMES), found


def test_a_name_is_a_text(take):
    run = take("immediate", """
for call in (lambda: msmemscope.take_snapshot(0, name=3), lambda: msmemscope.TakeSnapshot(name=b"x")):
    try:
        call()
    except TypeError as error:
        print(json.dumps(str(error)))
""")
    assert said(run) == ["take_snapshot(): name is a text, not int", "take_snapshot(): name is a text, not bytes"]


# ---- around blocks and functions ----

AROUND = """
import asyncio
held = npu.alloc(1 << 20)
with msmemscope.TakeSnapshot(device_mask=0, name="with") as given:
    assert given.name == "with"
    npu.alloc(2 << 20)
@msmemscope.TakeSnapshot(0, name="def")
def function(size):
    "its text"
    return npu.alloc(size)
assert function.__name__ == "function" and function.__doc__ == "its text"
function(4 << 20); function(8 << 20)
@msmemscope.TakeSnapshot(0, name="generator")
def generator():
    yield npu.alloc(16 << 20)
made = generator()
count = len(snapshots())
list(made)
print(json.dumps([count, len(snapshots())]))
@msmemscope.TakeSnapshot(0, name="coroutine")
async def coroutine():
    await asyncio.sleep(0)
    npu.alloc(32 << 20)
asyncio.run(coroutine())
try:
    with msmemscope.TakeSnapshot(0):
        raise KeyError("mine")
except KeyError as error:
    print(json.dumps(str(error)))
print(json.dumps([[name, attr["allocated"] >> 20] for name, _, attr in snapshots()]))
"""


@pytest.mark.parametrize("way", ["preloaded", "immediate"])
def test_a_block_and_a_function_have_a_snapshot_at_each_end(take, way):
    run = take(way, AROUND)
    assert said(run) == [[6, 8], "'mine'", [
        ["with Start", 1], ["with End", 3], ["def Start", 3], ["def End", 7], ["def Start", 7], ["def End", 15],
        ["generator Start", 15], ["generator End", 31], ["coroutine Start", 31], ["coroutine End", 63],
        ["Memory Snapshot Start", 63], ["Memory Snapshot End", 63]]]


# ---- whenever ----

@pytest.mark.parametrize("way", WAYS)
def test_a_snapshot_needs_no_window_and_changes_none(take, scripts, way):
    """Before the first start(), in windows, between them and after the last; the other rows are what they are without."""
    run = take(way, """
def look():
    before = len(snapshots())
    msmemscope.take_snapshot(0, name=str(before))
    assert len(snapshots()) == before + 1
look()
first = npu.alloc(4096)
look()
npu.start(); look(); second = npu.alloc(8192); npu.free(first); npu.stop(); look()
third = npu.alloc(12288)
npu.start(); look(); npu.free(third); look(); npu.stop()
look(); look()
""")
    assert [row[0] for row in snapshots.read(run.out)] == list("01234567")
    if way != "db":
        [events] = scripts.events().values()
        others = [windows.seen(row) for row in run.rows() if row.event != "SNAPSHOT"]
        assert others == windows.wanted(events, way != "preloaded", way == "immediate")


def test_snapshots_alone_leave_snapshots_alone(take):
    run = take("preloaded", "npu.alloc(4096)\nmsmemscope.take_snapshot(device_mask=[0, 1])\n")
    assert [(row.event, row.device) for row in run.rows()] == [("SNAPSHOT", "0"), ("SNAPSHOT", "1")]


@pytest.mark.parametrize("way", ["preloaded", "immediate"])
def test_threads_take_snapshots_at_the_same_time(take, way):
    run = take(way, """
import threading
npu.alloc(4096)
missing = []
def work(number):
    for turn in range(5):
        msmemscope.take_snapshot(number % 2, name=f"{number}.{turn}")
        if not any(name == f"{number}.{turn}" for name, _, _ in snapshots()):
            missing.append((number, turn))
threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps([missing, len(npu.engines())]))
""")
    assert said(run) == [[[], 1 if way == "preloaded" else 0]]
    run.project()
    assert sorted(row.name for row in run.rows() if row.event == "SNAPSHOT") == sorted(f"{n}.{t}" for n in range(6) for t in range(5))


@pytest.mark.parametrize("way", ["preloaded", "immediate"])
@pytest.mark.parametrize("before", ["msmemscope.take_snapshot(0)", "npu.start()", "pass"])
def test_a_forked_child_takes_snapshots_of_its_own(take, way, before):
    run = take(way, f"""
npu.alloc(4096)
{before}
sys.stdout.flush()
child = os.fork()
msmemscope.take_snapshot(0, name="child" if child == 0 else "parent")
found = [name for name, _, _ in snapshots()]
assert found[-1] == ("child" if child == 0 else "parent"), found
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
    names = [[row.name for row in project.rows() if row.event == "SNAPSHOT"][-1] for project in run.projects()]
    assert sorted(names) == ["child", "parent"], run


# ---- when nothing can be recorded ----

WITHOUT = """
import time, msmemscope
before = time.monotonic()
for _ in range(3):
    msmemscope.take_snapshot(device_mask=[0, 1], name="x")
with msmemscope.TakeSnapshot(0):
    pass
@msmemscope.TakeSnapshot()
def function():
    return 7
assert function() == 7 and time.monotonic() - before < 5
print("went on")
"""


def test_without_the_collector_one_line_is_said(scripts):
    run = scripts.without_library(WITHOUT)
    assert (run.returncode, run.stdout) == (0, "went on\n") and run.stderr.count("\n") == 1, run
    assert "nothing is recorded: start the program with" in run.stderr


def test_switched_off_nothing_is_said(scripts):
    for runner in (scripts.alone, scripts.preloaded):
        run = runner(WITHOUT, env={"MSMEMSCOPE_DISABLE": "1"})
        assert (run.returncode, run.stdout, run.stderr) == (0, "went on\n", ""), run


def test_an_engine_that_cannot_start_is_told_and_nothing_else(scripts):
    run = scripts.preloaded(WITHOUT, env={"MSMEMSCOPE_ENGINE": "/nowhere/msmemscope"})
    assert (run.returncode, run.stdout) == (0, "went on\n") and "did not start" in run.stderr and "Traceback" not in run.stderr, run


def test_a_killed_engine_loses_no_snapshot(scripts, msmemscope):
    run = scripts.preloaded(BEGIN + """
import signal, time
msmemscope.config(output=os.environ["OUT"])
npu.alloc(4096)
msmemscope.take_snapshot(0, name="before")
[engine] = npu.engines()
os.kill(engine, signal.SIGKILL)
began = time.monotonic()
for _ in range(3):
    msmemscope.take_snapshot(0, name="after")
assert time.monotonic() - began < 5
print("went on")
""")
    assert (run.returncode, run.stdout) == (0, "went on\n") and run.stderr.count("the engine is gone") == 1, run
    assert msmemscope("recover", scripts.results, output=False).returncode == 0
    assert [row.name for row in run.rows()] == ["before"] + 3 * ["after"]


# ---- frameworks ----

TORCH = """
import json, os, random, torch
import msmemscope
from snapshots import read
MIB = 1 << 20
base = torch.empty(MIB, dtype=torch.uint8)
msmemscope.take_snapshot(name="begin")
random.seed(5)
live, now, peak = [], MIB, MIB
for turn in range(40):
    if live and random.random() < 0.45:
        gone = live.pop(random.randrange(len(live)))
        now -= gone.numel()
        del gone
    else:
        live.append(torch.empty(random.randrange(1, 50) * 65536, dtype=torch.uint8))
        now += live[-1].numel()
        peak = max(peak, now)
    if turn % 8 == 7:
        msmemscope.take_snapshot(random.choice([None, 0, "cpu", torch.device("cpu"), [torch.device("cpu")]]), name=str(turn))
        print(json.dumps([now, peak]))
print(json.dumps([row[:3] for row in read(os.environ["OUT"])]))
"""


def test_tensors_of_the_host_are_the_pool_of_the_host(msmemscope, dist, python, out):
    (out / "torch_cpu.py").write_text(TORCH, encoding="utf-8")
    results = out / "results"
    run = msmemscope("--device=cpu", "--", *python, out / "torch_cpu.py", output=results,
                     env={"PYTHONPATH": python_path(dist), "OUT": results, "PYTHONWARNINGS": "ignore"}).check()
    *told, found = map(json.loads, run.stdout.splitlines())
    (_, _, first), *rest = found
    # What PyTorch itself keeps comes on top.
    more = first["allocated"] - (1 << 20)
    assert 0 <= more < 1 << 20 and len(rest) == len(told) == 5
    for (now, peak), (_, device, attr) in zip(told, rest):
        assert (device, list(attr)) == ("cpu", KEYS)
        assert (attr["allocated"], attr["reserved"]) == (now + more,) * 2
        assert (attr["max_allocated"], attr["max_reserved"]) == (peak + more,) * 2


CUDA = """
import sys, types
class Cuda:
    "torch.cuda, of three devices: 0 is set, 2 has memory, 1 is not used."
    touched, begun, fork = [], BEGUN, False
    def is_available(self): raise SystemExit("begins the driver")
    def device_count(self): return 3
    def is_initialized(self): return self.begun
    def current_device(self):
        assert self.begun, "begins a device"
        return 0
    def memory_reserved(self, index): return [6000, 0, 8000][index]
    def max_memory_reserved(self, index): return [7000, 0, 9000][index]
    def memory_allocated(self, index): return [3000, 0, 4000][index]
    def max_memory_allocated(self, index): return [5000, 0, 4500][index]
    def mem_get_info(self, index):
        self.touched.append(index)
        return 600 + index, 1000
    def _get_nvml_device_index(self, index): raise RuntimeError("no such library here")
torch = sys.modules["torch"] = types.ModuleType("torch")
torch.cuda = Cuda()
"""


@pytest.mark.parametrize("begun", [True, False])
def test_cuda_is_asked_and_no_device_is_begun_for_it(scripts, begun):
    """PyTorch's functions stand in; what is checked is which of them are called, and what becomes of their answers."""
    text = CUDA.replace("BEGUN", str(begun)) + BEGIN.replace(", npu", "") + """
msmemscope.take_snapshot()
msmemscope.take_snapshot((2, 0), name="two")
print(json.dumps([torch.cuda.touched, snapshots()]))
msmemscope.take_snapshot(["cuda", types.SimpleNamespace(type="cuda", index=None), "cuda:1", types.SimpleNamespace(type="npu", index=0)])
print(json.dumps([device for _, device, _ in snapshots()[5:]]))
"""
    run = scripts.command(text).check()
    (touched, found), more = said(run)
    assert more == ["0", "1"] and run.stderr.count("there is no device") == 1
    assert [device for _, device, _ in found] == ["0", "1", "2", "2", "0"]
    assert run.project().path.name.endswith("_cuda")
    assert touched == ([0, 2, 2, 0] if begun else [])
    if begun:
        assert found[3][2] == found[2][2] == {"reserved": 8000, "max_reserved": 9000, "allocated": 4000, "max_allocated": 4500,
                                              "total": 1000, "free": 602, "device_rate": "39.800000", "reserved_rate": "50.000000"}
        assert found[1][2]["reserved"] == 0 and "total" not in found[1][2]


# ---- files again ----

@pytest.mark.parametrize("form", ["csv", "db"])
def test_snapshots_come_through_import_unchanged(take, msmemscope, out, form):
    """From the trace, and from the files alone; some figures may be missing there."""
    run = take("immediate", f"""
random.seed(3)
for name in {NAMES!r}:
    npu.alloc(random.randrange(1, 100) * 4096, device=random.randrange(2))
    msmemscope.take_snapshot((0, 1), name=name)
msmemscope.take_snapshot("cpu")
""", f"--format={form}")
    wanted = snapshots.read(run.out)
    assert len(wanted) == 2 * len(NAMES) + 1
    project = run.project().path
    for source in (project / "trace.msc", *sorted(project.glob("device_*/dump/*"))):
        for place, to in enumerate(("csv", "db")):
            again = out / f"again-{source.parent.parent.name}-{source.suffix}-{place}"
            msmemscope("export", source, f"--format={to}", output=again).check()
            found = snapshots.read(again)
            device = source.parent.parent.name.partition("_")[2]
            assert found == [row for row in wanted if source.name == "trace.msc" or row[1] == device], source
