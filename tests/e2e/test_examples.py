# SPDX-License-Identifier: Apache-2.0
"""The lines and scripts that the manuals show, typed as they are printed: names of programs and operators are filled in, devices
are the simulated NPU or the CPU, and each is judged by its effect and not by its end alone. What a feature does in all its forms is
told by the tests of that feature; here it is only what a reader of the manuals tries first."""
import csv
import json
import re
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest

import compare_model
import harness
import said as said_module
import slices
import windows
from scripts import NAMES, python_path
from watch_model import MODEL, checksum, checksums, content, expected

TARGETS = Path(__file__).resolve().parents[1] / "targets"
ATB = "atb_abi1"
COMMAS = pytest.mark.parametrize("comma", [",", "，"], ids=["comma", "full-width"])


class Shell:
    """A directory of its own in which lines are typed; `run.out` is the directory that results go to by default."""

    def __init__(self, msmemscope, dist, targets, python, out):
        self.msmemscope, self.dist, self.targets, self.out = msmemscope, dist, targets, out
        self.truth = out.with_name(out.name + "-truth")
        libraries = [dist / "simnpu" / "lib64", targets / ATB]
        self.env = {"TRUTH": self.truth, "PYTHONWARNINGS": "ignore", "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                    "P": dist,
                    # As set_env.sh has it.
                    "PYTHONPATH": python_path(dist),
                    "PATH": f"{dist / 'bin'}:{Path(python[0]).parent}:/usr/bin:/bin"}

    def app(self, name):
        """./app is this target."""
        (self.out / "app").unlink(missing_ok=True)
        (self.out / "app").symlink_to(self.targets / name)

    def write(self, name, text):
        (self.out / name).write_text(text, encoding="utf-8")

    def __call__(self, line, results="memscopeDumpResults", status=0, **env):
        run = self.msmemscope.bare("bash", "-c", line, cwd=self.out, env={**self.env, **env})
        run = harness.Run([line], run.returncode, run.stdout, run.stderr, self.out / results)
        assert run.returncode == status, str(run)
        return run

    def exact(self, line):
        """Types it; every process has the rows that it says it must have (said.py)."""
        start = time.time_ns()
        run = self(line)
        said = said_module.Said(self.msmemscope, run, (start, time.time_ns()), self.truth.read_text(), line.split())
        return said.exact()

    def info(self, run):
        return self.msmemscope.info(run.project())

    def tree(self):
        return sorted(str(path.relative_to(self.out)) for path in self.out.rglob("*") if path.is_file())


@pytest.fixture
def shell(msmemscope, dist, targets, python, out):
    typed = Shell(msmemscope, dist, targets, python, out)
    yield typed
    typed.truth.unlink(missing_ok=True)


@pytest.fixture
def preloaded(shell):
    """Types a line after the two exports of the manual."""
    def run(line, names=NAMES[:2], **options):
        preload = ":".join(f"$P/lib64/{name}" for name in names)
        return shell(f"export LD_PRELOAD={preload}\nexport LD_LIBRARY_PATH=$P/lib64/:$LD_LIBRARY_PATH\n{line}",
                     **options)

    return run


def step_starts(rows):
    return [row.name for row in rows].count("step start")


# ---- starting a program ----

def test_a_script_of_the_shell_is_collected_with_its_children(shell):
    shell.app("acl_train")
    shell.write("user.sh", "./app --steps=2\n./app --steps=3\n")
    said = shell.exact("msmemscope bash user.sh")
    assert sorted(step_starts(said.rows(project)) for project in said.run.projects()) == [2, 3]
    assert re.findall(r"(suspect|no leak)$", said.run.stderr, re.M) == ["suspect", "no leak"], "a table of both"


def test_behind_two_dashes_the_app_gets_its_own(shell):
    shell.app("acl_train")
    said = shell.exact("msmemscope -- ./app --steps=3")
    assert step_starts(said.rows()) == 3 and "taken by msmemscope" not in said.run.stderr


def test_both_options_behind_the_app_are_ours_and_it_gets_none(shell):
    shell.app("acl_train")
    shell("./app")
    [alone] = {text.count("step start") for text in shell.truth.read_text().splitlines() if "step start" in text}
    shell.truth.unlink()
    run = shell("msmemscope ./app --steps=2 --level=kernel")
    assert shell.truth.read_text().count("step start") == alone > 2, "as many steps as without any word"
    [line] = [line for line in run.stderr.splitlines() if "taken by msmemscope" in line]
    assert line.startswith("msmemscope: ") and "'--steps=2' '--level=kernel'" in line and " -- " in line
    assert {row.event for row in run.rows()} == {"MALLOC", "FREE", "MSTX", "SYSTEM", "KERNEL_LAUNCH"}
    assert step_starts(run.rows()) == 1


# ---- values ----

@COMMAS
def test_the_first_three_steps_are_written(shell, comma):
    shell.app("acl_train")
    run = shell(f"msmemscope ./app --steps=1{comma}2{comma}3")
    assert shell.truth.read_text().count("step start") == 4 and step_starts(run.rows()) == 3


@COMMAS
def test_two_devices_are_written(shell, comma):
    shell.app("many_devices")
    run = shell(f"msmemscope ./app 8 --device=npu:2{comma}npu:7")
    assert {row.device for row in run.rows()} - {"cpu"} == {"2", "7"}


@COMMAS
def test_allocations_frees_and_launches_are_written(shell, comma):
    shell.app(f"{ATB}/atb_ops")
    run = shell(f"msmemscope ./app --events=alloc{comma}free{comma}launch")
    assert {row.event for row in run.rows()} - {"SYSTEM"} == {"MALLOC", "FREE", "OP_LAUNCH"}


@COMMAS
def test_stacks_have_a_depth_for_each_language(shell, comma):
    shell.write("train.py", "import npu\ndef down(n):\n"
                            "    return npu.free(npu.alloc(4096)) if n == 0 else list(map(down, [n - 1]))\ndown(40)\n")
    run = shell(f"msmemscope --call-stack=c:20{comma}python:10 -- python train.py")
    assert [(row.event, len(row.c_stack), len(row.python_stack)) for row in run.rows()] == [("MALLOC", 20, 10), ("FREE", 20, 10)]


@COMMAS
def test_leaks_and_owners_are_told(shell, comma):
    shell.app("leaky_steps")
    run = shell(f"msmemscope ./app --analysis=leaks{comma}decompose")
    assert "\nSUSPECT on " in run.stderr and "\nMemory of NPU 0 by class at the peak (" in run.stderr
    assert "PTA memory of device 0 by owner" in (run.project().path / "report.txt").read_text(encoding="utf-8")
    assert {row.attr["owner"] for row in run.rows() if row.event == "MALLOC"} == {"PTA", "ATB", "MINDSPORE", "CANN@APP"}


@COMMAS
def test_operators_and_kernels_are_written(shell, comma):
    shell.app(f"{ATB}/atb_ops")
    found = Counter(row.event for row in shell(f"msmemscope ./app --level=0{comma}1").rows())
    assert found["OP_LAUNCH"] > 0 and found["KERNEL_LAUNCH"] > 0


def database(project, device="device_0"):
    [path] = (project.path / device / "dump").glob("memscope_dump_*.db")
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = db.execute('select Event, "Event Type", Name, Attr from memscope_dump order by ID').fetchall()
    db.close()
    return [(event, kind, name, json.loads(attr) if attr else {}) for event, kind, name, attr in found]


def test_a_database_is_written(shell):
    shell.app("acl_train")
    run = shell("msmemscope ./app --data-format=db")
    [process] = [one for one in said_module.parse(shell.truth.read_text()).values()]
    sizes = sorted(block[2] for block in said_module.blocks_of(process).values() if block[0] == "HAL")
    assert sorted(int(attr["size"]) for event, kind, _, attr in database(run.project()) if (event, kind) == ("MALLOC", "HAL")) == sizes
    assert run.project().dumps() == []


# ---- marks ----

MARKS = [("Mark", "MarkA"), ("Range_start", "step start"), ("Range_end", "Range end from id 1")]


@pytest.mark.parametrize("line", ["msmemscope ./app", "msmemscope -- ./app --work"], ids=["without-device", "with-work"])
def test_marks_from_cpp_are_three_rows_and_one_step(shell, line):
    shell.app("acl_train_cpp")
    said = shell.exact(line)
    assert [(row.type, row.name) for row in said.rows() if row.event == "MSTX"] == MARKS
    assert shell.info(said.run)["steps"] == 1


def test_ranges_from_python_are_15_steps(shell):
    said = shell.exact(f"msmemscope python {TARGETS / 'steps.py'}")
    assert step_starts(said.rows()) == shell.info(said.run)["steps"] == 15


# ---- comparing, and memory that nobody uses ----

def compared(run):
    [path] = (run.out / "compare").iterdir()
    assert re.fullmatch(r"memory_compare_\d{14}\.csv", path.name) and str(path) in run.stderr
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.reader(file, strict=True))
    assert found[:2] == compare_model.HEAD
    return found[2:]


def test_two_directories_are_compared_by_kernels(shell):
    shell.app("acl_train")
    calls = []
    for steps in ("1,2", "1,2,3,4"):
        shell(f"msmemscope --level=kernel --output=steps{steps[-1]} --steps={steps} -- ./app --steps=4")
        [process] = said_module.parse(shell.truth.read_text()).values()
        calls.append(compare_model.kernel_calls(process, [int(step) for step in steps.split(",")])["0"])
        shell.truth.unlink()
    run = shell("msmemscope --compare --input=steps2,steps4 --level=kernel")
    assert compared(run) == compare_model.wanted("0", "KERNEL_LAUNCH", *calls)


def test_two_csv_files_are_compared_by_operators(shell):
    """Of PyTorch on the CPU; the second run keeps a tensor more."""
    shell.write("train.py", "import sys, torch\nkept = [torch.zeros(1000)]\nfor _ in range(int(sys.argv[1])):\n"
                            "    kept.append(kept[0].add(1))\nprint(flush=True)\n")
    for count in (1, 2):
        run = shell(f"msmemscope --device=cpu --level=op -- python train.py {count}", results="memscopeDumpResults")
        [path] = run.project().dumps()
        path.rename(shell.out / f"{count}.csv")
        run.project().path.rename(shell.out / f"run{count}")
    found = compared(shell("msmemscope --compare --input=1.csv,2.csv --level=op"))
    assert {row[0] for row in found} == {"OP_LAUNCH"} and {row[2] for row in found} == {"cpu"}
    assert [row[1:] for row in found if row[5] != "0"] == [["torch._ops.aten.add.Tensor", "cpu", "N/A", "4000", "4000"]]


def check_inefficient(run):
    rows = run.rows()
    # Of all blocks, also one of 32 numbers that the script keeps over the next allocation.
    assert [(row.attr["inefficient_type"], row.attr["size"]) for row in rows if row.event == "MALLOC" and
            "inefficient_type" in row.attr and row.attr["size"] != 32 * 4] == list(run.value("blocks").items())
    assert [row.attr["inefficient_type"] for row in rows if "inefficient_type" in row.attr and row.attr["size"] == 32 * 4] == [
        "late_deallocation"]
    assert tuple(run.value("blocks")) == ("early_allocation", "late_deallocation", "temporary_idleness")
    assert {row.event for row in rows} >= {"MALLOC", "FREE", "ACCESS", "OP_LAUNCH"}


def test_inefficient_memory_is_told_with_accesses_and_launches(shell):
    shell.write("app", f"#!/bin/sh\nexec python {TARGETS / 'torch_inefficient.py'}\n")
    (shell.out / "app").chmod(0o755)
    check_inefficient(shell("msmemscope ./app --analysis=inefficient --device=cpu"))


def test_inefficient_memory_is_told_in_a_deferred_window(shell):
    shell.write("s.py", f"""
import runpy, torch, msmemscope
torch.zeros(4096)
msmemscope.start()
runpy.run_path({str(TARGETS / 'torch_inefficient.py')!r})
msmemscope.stop()
torch.zeros(4097)
""")
    run = shell("msmemscope --collect-mode=deferred --analysis=inefficient --device=cpu -- python s.py")
    check_inefficient(run)
    first, last = [row.id for row in run.rows() if row.event == "SYSTEM"]
    assert all(first < row.id < last for row in run.rows() if row.event in ("OP_LAUNCH", "ACCESS")), "nothing around the window"


# ---- a collector that is only preloaded ----

WINDOW = """
import msmemscope, npu
npu.start()
block = npu.alloc(4096)
npu.free(block)
npu.stop()
"""


@pytest.mark.parametrize("names", [NAMES[:count] for count in (2, 3, 4, 5)] + [NAMES[3:1:-1]], ids=len)
def test_preloaded_ls_and_bash_leave_nothing_and_a_script_collects(preloaded, shell, names):
    shell.write("script.py", WINDOW)
    run = preloaded("ls > listed; bash -c 'exit 3'; echo $?; find . -type f > before; python script.py", names=names)
    assert run.stdout == "3\n"
    assert (shell.out / "listed").read_text().split() == ["listed", "script.py"]
    assert sorted((shell.out / "before").read_text().split()) == ["./before", "./listed", "./script.py"]
    [(pid, events)] = windows.read(shell.truth).items()
    assert run.project().pid == pid
    assert [windows.seen(row) for row in run.rows()] == windows.wanted(events, traced=False, on=False)


# ---- the Python package ----

# Memory of the simulated NPU as tensors, and operators that a framework would tell of.
TRAINING = """
import ctypes, glob, json, shutil, sqlite3, sys, threading, types
import mstx
ctypes.CDLL("libascendcl.so", mode=ctypes.RTLD_GLOBAL)
acl = ctypes.CDLL(None)
assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(0) == 0
sys.modules["torch"] = types.SimpleNamespace(npu=types.SimpleNamespace(current_stream=lambda index: None))
NPU = 20 << 8

class Tensor:
    device = types.SimpleNamespace(type="npu", index=0)
    def __init__(self, size):
        self.place, self.size = ctypes.c_void_p(), size
        assert acl.aclrtMalloc(ctypes.byref(self.place), ctypes.c_size_t(size), 0) == 0
        self.fill(0)
    def fill(self, byte):
        self.held = bytes([byte]) * self.size
        assert acl.aclrtMemcpy(self.place, ctypes.c_size_t(self.size), self.held, ctypes.c_size_t(self.size), 1) == 0
    def data_ptr(self): return self.place.value
    def numel(self): return self.size
    def element_size(self): return 1
    def is_contiguous(self): return True
    def free(self): assert acl.aclrtFree(self.place) == 0

dumps = {}
def operator(name, watcher, tensor, byte=None, watched=True):
    def dump(moment):
        dumps[f"0_{threading.get_native_id()}_{name}_1-op0_0_{moment}.bin"] = tensor.held.hex()
    if watched and name != "op0":
        dump("before")
    number = watcher.begin(name.encode(), NPU)
    if byte is not None:
        tensor.fill(byte)
    watcher.end(number, name.encode(), NPU, [tensor])
    if watched:
        dump("after")

leaked = []
def train(watcher):
    for step in range(1, 4):
        id = mstx.range_start("step start", None)
        tensor = Tensor(1000 * step)
        if step == 2:
            leaked.append(Tensor(123456))
            operator("op0", watcher, tensor, 7)
            operator("between", watcher, tensor, 8)
            operator("op1", watcher, tensor)
            operator("later", watcher, tensor, watched=False)
        tensor.free()
        mstx.range_end(id)
"""
CONFIG = TRAINING + """
import msmemscope
OUT = "results"
msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu", analysis="leaks,decompose", watch="op0,op1,full-content", data_format="db", output=OUT)
msmemscope.start()
train(msmemscope.watcher)
msmemscope.stop()
[path] = glob.glob("results/msmemscope_*_ascend/device_0/dump/memscope_dump_*.db")
rows = sqlite3.connect(shutil.copy(path, "copy.db")).execute(
    'select Event, "Event Type", Attr, "Call Stack(C)", "Call Stack(Python)" from memscope_dump order by ID').fetchall()
print(json.dumps({"dumps": dumps, "rows": rows, "leaked": leaked[0].data_ptr()}))
"""


def test_config_with_everything_gives_a_database_owners_leaks_and_dumps(preloaded, shell):
    """The script itself copies and reads the database when stop() has returned."""
    shell.write("script.py", CONFIG)
    run = preloaded("python script.py", results="results")
    said = json.loads(run.stdout)
    blocks = [(event, json.loads(attr), c.count("\n"), py.count("\n"))
              for event, kind, attr, c, py in said["rows"] if kind == "HAL"]
    sizes = [(event, int(attr["size"]) // 1000) for event, attr, _, _ in blocks]
    assert sizes == [("MALLOC", 1), ("FREE", 1), ("MALLOC", 2), ("MALLOC", 123), ("FREE", 2), ("MALLOC", 3), ("FREE", 3)]
    assert {attr["owner"] for event, attr, _, _ in blocks if event == "MALLOC"} == {"CANN@APP"}
    assert all(5 < c <= 10 and 2 <= py <= 5 for _, _, c, py in blocks), blocks
    assert [kind for event, kind, *_ in said["rows"] if event == "SYSTEM"] == ["START_TRACE", "STOP_TRACE"]
    report = (run.project().path / "report.txt").read_text(encoding="utf-8")
    for text in (run.stderr, report):
        assert f"Mb(s) at 0x{said['leaked']:x} in kernel_0 at step 2." in text and text.count("Direct Hal memory leak") == 1
        assert re.search("HAL memory of device 0 by owner|Memory of NPU 0 by class", text) and "op0 output 0 on device 0, 2000 bytes, 5 dumps" in text
    dumps = {path.name: path.read_bytes() for path in (shell.out / "results" / "watch_dump").iterdir()}
    assert dumps == {name: bytes.fromhex(data) for name, data in said["dumps"].items()} and len(dumps) == 5


def test_the_tracer_alone_writes_a_trace(preloaded, shell):
    shell.write("script.py", "import msmemscope\ndef train(n):\n    return sum(map(abs, range(n)))\n"
                             "msmemscope.tracer.start()\ntrain(3)\nmsmemscope.tracer.stop()\n")
    run = preloaded("python script.py")
    [(tid, found)] = slices.threads(run.project()).items()
    assert tid == run.project().pid
    assert [one.text for one in found if one.text.endswith("script.py(2): train")] and run.rows() == []
    assert "never started" not in run.stderr


def test_ranges_of_ones_own_are_one_for_each_call_and_nothing_else(preloaded, shell):
    shell.write("script.py", """
import msmemscope
@msmemscope.RecordFunction("forward_pass")
def forward():
    return sum(range(9))
for _ in range(3):
    forward()
with msmemscope.RecordFunction("forward_pass"):
    forward()
""")
    run = preloaded("python script.py")
    [found] = slices.threads(run.project()).values()
    assert len(found) == 5 and all("forward_pass" in one.text for one in found), found
    assert run.rows() == [] and "never started" not in run.stderr


# Behind each call the script reads its own files, as another process would.
SNAPSHOTS = """
import csv, glob, json
{begin}
def found():
    rows = [row for path in glob.glob("{results}/*/device_*/dump/*.csv") for row in csv.DictReader(open(path))]
    rows.sort(key=lambda row: int(row["ID"]))
    print(json.dumps([[row["Event"], row["Event Type"], row["Name"], row["Device Id"], row["Attr"]] for row in rows]))
import {module}
{module}.take_snapshot(device_mask=0)
found()
{module}.take_snapshot(device_mask=[0, 1])
found()
{module}.take_snapshot(device_mask=(0, 1))
found()
{module}.take_snapshot()
found()
{module}.take_snapshot(device_mask=(0, 1), name="test_tuple")
found()
"""
ON_TWO = "import npu\nkept = npu.alloc(1 << 20), npu.alloc(2 << 20, device=1)"
ON_HOST = "import torch\nkept = torch.zeros(1 << 20)"
FIGURES = r"\{reserved:\d+,max_reserved:\d+,allocated:(\d+),max_allocated:\d+,total:\d+,free:\d+,device_rate:[\d.]+,reserved_rate:[\d.]+\}"


@pytest.mark.parametrize("started", ["preloaded", "command", "deferred"])
@pytest.mark.parametrize("module, results", [("msmemscope", "memscopeDumpResults"), ("msleaks", "leaksDumpResults")])
def test_snapshots_are_one_row_a_device_and_can_be_read_at_once(preloaded, shell, module, results, started):
    """Without start(), by both names of the module."""
    if started != "preloaded":
        results = "memscopeDumpResults"
    shell.write("script.py", SNAPSHOTS.format(begin=ON_TWO, module=module, results=results))
    if started == "preloaded":
        run = preloaded("python script.py", results=results, SIMNPU_DEVICES="2")
    else:
        run = shell("msmemscope {}-- python script.py".format("--collect-mode=deferred " if started == "deferred" else ""),
                    SIMNPU_DEVICES="2")
    read = [[row for row in json.loads(line) if row[0] != "MALLOC"] for line in run.stdout.splitlines()]
    assert list(map(len, read)) == [1, 3, 5, 7, 9]
    names = ["Memory Snapshot"] * 7 + ["test_tuple"] * 2
    assert [row[:4] for row in read[-1]] == [["SNAPSHOT", "SNAPSHOT", name, device] for name, device in zip(names, "001010101")]
    held = [re.fullmatch(FIGURES, row[4])[1] for row in read[-1]]
    assert held == [str(1 << 20 if device == "0" else 2 << 20) for device in "001010101"]
    assert "never started" not in run.stderr and "take_snapshot" not in run.stderr


def test_snapshots_of_a_machine_without_an_npu_are_of_the_host(shell):
    shell.write("script.py", SNAPSHOTS.format(begin=ON_HOST, module="msmemscope", results="memscopeDumpResults"))
    run = shell("msmemscope --device=cpu -- python script.py")
    rows = [row for row in json.loads(run.stdout.splitlines()[-1]) if row[0] == "SNAPSHOT"]
    assert [row[2:4] for row in rows] == [["Memory Snapshot", "cpu"]] * 4 + [["test_tuple", "cpu"]]
    assert all(int(re.fullmatch(FIGURES, row[4])[1]) >= 4 << 20 for row in rows)
    assert run.stderr.count("there is no device 1: the host is the only one") == 1


def test_ten_steps_and_the_leak_in_one_of_them(preloaded, shell):
    shell.write("script.py", """
import msmemscope, npu
msmemscope.config()
npu.start()
for turn in range(10):
    block = npu.alloc(4096)
    if turn == 4:
        kept = npu.alloc(1 << 20)
    npu.free(block)
    npu.step()
npu.stop()
print(f"0x{kept:x}")
""")
    run = preloaded("python script.py")
    [events] = windows.read(shell.truth).values()
    assert [windows.seen(row) for row in run.rows()] == windows.wanted(events, traced=False, on=False)
    assert [row.name for row in run.rows() if row.type == "STEP"] == [str(step) for step in range(1, 11)]
    assert "\nSUSPECT on " in run.stderr, "one block may as well be a buffer that is made late"
    assert f"Direct Hal memory leak of 1.000000 Mb(s) at {run.stdout.strip()} in kernel_0 at step 5." in run.stderr
    assert run.stderr.count("Direct ") == 1


def test_in_deferred_mode_the_old_module_starts_the_rows(shell):
    shell.write("s.py", "import npu\nold = npu.alloc(4096)\nimport msleaks\nnpu.did('start')\nmsleaks.start()\n"
                        "new = npu.alloc(8192)\n")
    run = shell("msmemscope --collect-mode=deferred -- python s.py")
    [events] = windows.read(shell.truth).values()
    assert [windows.seen(row) for row in run.rows()] == windows.wanted(events, on=False)
    assert "call sites checked" not in run.stderr, "no step was marked"


# ---- labels of one's own ----

DESCRIBED = """
import json, torch
import msmemscope.describe as describe
dev, said, kept = "cpu", {{}}, []
def work(label):
    kept.append(torch.zeros(1000).to(dev))
    said[kept[-1].data_ptr()] = label
{}
print(json.dumps({{"owners": said}}))
"""


@pytest.mark.parametrize("text", [
    """
@describe.describer(owner="test1")
def train1():
    work("@test1")
train1()
with describe.describer(owner="test2"):
    work("@test2")
work("")""", """
def train3():
    work("@test3")
describe.describer(owner="test3").__enter__()
train3()
describe.describer(owner="test3").__exit__()
work("")""", """
work("")
t = torch.randn(10,10).to(dev)
describe.describer(t, owner="test4")
said[t.data_ptr()] = "@test4"
"""], ids=["around", "by-hand", "tensor"])
def test_blocks_have_the_owner_that_the_script_describes(shell, text):
    shell.write("script.py", DESCRIBED.format(text))
    run = shell("msmemscope --device=cpu --analysis=decompose -- python script.py")
    owners = {row.ptr: row.attr["owner"] for row in run.rows() if row.event == "MALLOC"}
    wanted = {int(place): f"HOST@ops@aten{label}" for place, label in run.value("owners").items()}
    assert {place: owners[place] for place in wanted} == wanted and len(wanted) > 1


# ---- watching ----

PATHS = {"start": "token0/layer0/module0/op0", "end": "token0/layer0/module0/op1"}
NAMED = {"start": "op0", "end": "op1"}
WATCHES = [("token0/layer0/module0/op0,token0/layer0/module0/op1,full-content", PATHS), ("op0,op1,full-content", NAMED),
           ("op0:out1,op1", {**NAMED, "output": 1}), ("op0:1,op1", {**NAMED, "output": 1}), ("op1", {"end": "op1"}),
           ("op1,full-content", {"end": "op1"})]


def check_watch(out, run, watch, settings):
    wanted = expected(run.stdout, **settings)
    assert (len(wanted) > 5) == ("start" in settings)
    if not wanted:
        # Without a start nothing is watched but what a program names itself, until the end.
        assert not (out / "watch_dump").exists()
    elif "full-content" in watch:
        found = {path.name: path.read_bytes() for path in (out / "watch_dump").iterdir()}
        assert found == {name.replace("/", "."): content(block, added)[0] for name, block, added in wanted}
    else:
        assert checksums(out) == [(name, content(block, added)[1]) for name, block, added in wanted]
    if wanted:
        [dumps] = re.findall(r"^Dumps: (.*)$", run.stderr, re.M)
        assert (out.parent / dumps).resolve() == out / "watch_dump"
    config = json.loads((run.project().path / "config.json").read_text(encoding="utf-8"))["watchConfig"]
    assert (config["isWatched"], config["start"], config["end"]) == (True, settings.get("start", ""), settings["end"])


@pytest.mark.parametrize("watch, settings", WATCHES + [(watch.replace(",", "，"), settings) for watch, settings in WATCHES
                                                       if "," in watch])
def test_a_watch_dumps_what_its_words_say(shell, watch, settings):
    shell.app(f"{ATB}/atb_watch")
    words = " ".join(f"'{word}'" for word in MODEL)
    run = shell(f"msmemscope ./app {words} --watch={watch}")
    check_watch(run.out, run, watch, settings)


@pytest.mark.parametrize("watch", ["op0:outid,op1", "op0:,op1", "full-content"])
def test_a_watch_that_says_nothing_is_refused_with_the_form_of_one(shell, watch):
    """Before the program and after it: the manuals put options there, and no program has this one."""
    shell.app("acl_train")
    form = "allowed: [START[:OUTPUT],]END[,full-content]"
    run = shell(f"msmemscope --watch={watch} ./app", status=2)
    assert form in run.stderr and not shell.truth.exists() and shell.tree() == ["app"]
    run = shell(f"msmemscope ./app --watch={watch}", status=2)
    assert form in run.stderr and not shell.truth.exists() and shell.tree() == ["app"]


WATCHER = """
import json, torch, {module}
dev = "cpu"
test_tensor = torch.randn(2,3).to(dev)
held = bytes(test_tensor.untyped_storage())
{module}.watcher.watch({watched}, name="test", dump_nums=2)
test_tensor.mul_(2)
after = bytes(test_tensor.untyped_storage())
test_tensor.add_(1)
{module}.watcher.remove({removed})
test_tensor.neg_()
print(json.dumps([held.hex(), after.hex()]))
"""
TENSOR = {"watched": "test_tensor", "removed": "test_tensor"}
ADDRESS = {"watched": "test_tensor.data_ptr(), length=1000", "removed": "test_tensor.data_ptr(), length=1000"}


def dumped(out):
    """(operator, moment, bytes) of each dump of `test`, in the order in which they came."""
    found = []
    for path in (out / "watch_dump").iterdir():
        match = re.fullmatch(r"cpu_\d+_torch\._ops\.aten\.(\w+)\.\w+_1-test_0_(before|after)\.bin", path.name)
        found.append((match[1], match[2], path.read_bytes()))
    return sorted(found, key=lambda dump: dump[1], reverse=True)


def test_a_tensor_is_dumped_before_and_after_the_first_operator(shell):
    """And to remove it when it has had its dumps is no mistake."""
    shell.write("script.py", WATCHER.format(module="msmemscope", **TENSOR))
    run = shell("msmemscope -- python script.py")
    before, after = [bytes.fromhex(data) for data in json.loads(run.stdout)]
    assert [(name.split("_", 2)[2], value) for name, value in checksums(run.out, "cpu")] == [
        (f"torch._ops.aten.mul_.Tensor_1-test_0_{moment}.bin", f"{checksum(data):016x}")
        for moment, data in (("before", before), ("after", after))]
    said = " ".join(run.stderr.split())
    assert "Watched: test output 0 on cpu, 24 bytes, 2 dumps: no unexpected change; 1 change by" in said
    assert "nothing is watched" not in run.stderr


def test_an_address_is_dumped_as_far_as_its_length_goes(shell):
    """The 1000 bytes are more than the tensor has; all of them can be read."""
    shell.write("script.py", WATCHER.format(module="msmemscope", **ADDRESS))
    run = shell("msmemscope --watch=no_such_operator,full-content -- python script.py")
    before, after = [bytes.fromhex(data) for data in json.loads(run.stdout)]
    found = dumped(run.out)
    assert [(moment, data[:24], len(data)) for _, moment, data in found] == [("before", before, 1000), ("after", after, 1000)]
    assert "1000 bytes, 2 dumps" in run.stderr and "nothing is watched" not in run.stderr


def test_by_its_old_names_the_dumps_lie_in_the_old_directory(shell):
    """The command with --watch, the module with a tensor."""
    shell.app(f"{ATB}/atb_watch")
    words = " ".join(f"'{word}'" for word in MODEL)
    run = shell(f"msleaks ./app {words} --watch=op0,op1", results="leaksDumpResults")
    check_watch(shell.out / "leaksDumpResults", run, "op0,op1", NAMED)
    shell.write("script.py", WATCHER.format(module="msleaks", **TENSOR))
    run = shell("rm -r leaksDumpResults; msleaks python script.py --watch=aten::none,full-content", results="leaksDumpResults")
    assert [(name, moment, data.hex()) for name, moment, data in dumped(run.out)] == [
        ("mul_", moment, data) for moment, data in zip(("before", "after"), json.loads(run.stdout))]
    assert not (shell.out / "memscopeDumpResults").exists()


# ---- a script that does not know us ----

def test_a_training_that_never_imports_us_has_stacks_operators_accesses_owners_and_its_trace(shell):
    shell.write("train.py", (TARGETS / "torch_owners.py").read_text(encoding="utf-8"))
    run = shell("msmemscope --device=cpu --events=alloc,free,launch,access,traceback --call-stack=python "
                "--analysis=leaks,decompose -- python train.py", PYTHONPATH=None)
    [wanted] = map(json.loads, run.stdout.splitlines())
    rows = run.rows()
    counts = Counter(row.event for row in rows)
    assert counts["MALLOC"] > 50 and counts["FREE"] > 50 and counts["OP_LAUNCH"] > 50 and counts["ACCESS"] > 100
    owners = {row.ptr: row.attr["owner"] for row in rows if row.event == "MALLOC"}
    assert {name: {owners[address] for address in places} for name, places in wanted.items()} == {
        name: {f"HOST@{name}"} for name in wanted}
    for row in rows:
        if row.event in ("OP_LAUNCH", "ACCESS"):
            assert any("train.py(" in frame for frame in row.python_stack), str(row)
    live = {row.attr["allocation_id"] for row in rows if row.event == "MALLOC"}
    assert {row.attr["allocation_id"] for row in rows if row.event == "ACCESS"} <= live
    script = str(shell.out / "train.py")
    # Millions of slices, nearly all of them PyTorch's own import: only those of the script are looked at.
    [trace] = [path for path in slices.files(run.project()) if f"python_trace_{run.project().pid}_" in path.name]
    with trace.open(encoding="utf-8") as file:
        assert next(file).rstrip("\n").split(",") == slices.HEADER
        mine = {line.split(",")[0].strip('"') for line in file if script in line}
    assert {f"{script}(1): <module>", f"{script}(9): main"} <= mine
    assert "Memory of the CPU by class at the peak" in run.stderr and "  weights\n" in run.stderr
