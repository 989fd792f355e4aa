# SPDX-License-Identifier: Apache-2.0
"""The manuals' examples of the Python package, each with a framework, started in each way and written in each form: the effect of each is
there, and every form of the run says the same (same.py). Objects live until the interpreter's end frees them.

`make test` runs each example once: of the 16 ways to run them --ways are drawn, each way of starting first, and the examples are dealt out to
them. $MSMEMSCOPE_SEED is the seed, which is printed, and else a new one. `make soak PART=matrix` runs all examples in all 16.
"""
import itertools
import json
import os
import random
import sqlite3
import subprocess

import pytest

import harness
import same
from fixtures import ROOT

STARTS = ("command", "preloaded", "plain", "deferred")
MATRIX = list(itertools.product(STARTS, ("csv", "db"), ("cpu", "npu")))

BEGIN = """
import json, os, torch
dev, notes, kept = {device!r}, {{}}, []
if dev == "npu":
    import torch_npu
import msmemscope
import msmemscope.describe as describe
{config}
def train():
    return torch.zeros(1000).to(dev).add(1)
def note(key, value):
    notes.setdefault(key, []).append(value)
train()
"""
CONFIG = "msmemscope.config(output=os.environ['OUT'], data_format={form!r}, device={device!r}, analysis='leaks,decompose')"

# In this order: what needs no start() first, and the steps, which leak, last.
EXAMPLES = {
    "snapshots": """
msmemscope.take_snapshot(device_mask=0)
msmemscope.take_snapshot(device_mask=[0, 1])
msmemscope.take_snapshot(device_mask=(0, 1))
msmemscope.take_snapshot()
msmemscope.take_snapshot(device_mask=(0, 1), name="test_tuple")
""",
    "tracer": """
def traced(n):
    return sum(map(abs, range(n)))
msmemscope.tracer.start()
traced(3)
msmemscope.tracer.stop()
""",
    "ranges": """
@msmemscope.RecordFunction("forward_pass")
def forward():
    train()
for _ in range(3):
    forward()
with msmemscope.RecordFunction("forward_pass"):
    forward()
""",
    "watcher": """
msmemscope.start()
test_tensor = torch.zeros(2, 3).to(dev)
msmemscope.watcher.watch(test_tensor, name="test", dump_nums=2)
test_tensor.add_(1)
test_tensor.add_(1)
msmemscope.watcher.remove(test_tensor)
msmemscope.stop()
""",
    "owners": """
def work(label):
    kept.append(torch.zeros(1000).to(dev))
    note("owners", [kept[-1].data_ptr(), label])
msmemscope.start()
@describe.describer(owner="test1")
def train1():
    work("@test1")
train1()
with describe.describer(owner="test2"):
    work("@test2")
describe.describer(owner="test3").__enter__()
work("@test3")
describe.describer(owner="test3").__exit__()
work("")
t = torch.zeros(10, 10).to(dev)
describe.describer(t, owner="test4")
note("owners", [t.data_ptr(), "@test4"])
msmemscope.stop()
""",
    "steps": """
msmemscope.start()
for _ in range(10):
    train()
    kept.append(torch.zeros(1 << 18).to(dev)) # leaks
    msmemscope.step()
msmemscope.stop()
""",
}


def dumped(project):
    """(event, type, name, address, Attr) of all rows, in whichever form; a row that stands in the file of each device counts once."""
    found = {row.id: (row.event, row.type, row.name, row.ptr, row.attr) for row in project.rows()}
    for path in project.path.glob("device_*/dump/memscope_dump_*.db"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            for ident, event, kind, name, ptr, attr in database.execute(
                    'select ID, Event, "Event Type", Name, Ptr, Attr from memscope_dump'):
                found[ident] = event, kind, name, int(ptr, 16) if ptr not in (None, "N/A") else None, json.loads(attr) if attr else {}
    return [found[ident] for ident in sorted(found)]


def calls(project):
    """What Python traces have, in whichever form."""
    found = []
    for path in project.path.glob("device_*/dump/python_trace_*.csv"):
        found += path.read_text(encoding="utf-8").splitlines()
    for path in project.path.glob("device_*/dump/*.db"):
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            for (table,) in database.execute("select name from sqlite_master where name like 'python_trace%'").fetchall():
                found += [text for (text,) in database.execute(f'select FuncInfo from "{table}"')]
    return found


class Checks:
    """The effect of each example, by its name."""

    def __init__(self, run, msmemscope, script, start, device):
        # The pool of torch_npu reports to a preloaded collector only, and the screen says so.
        self.sees_pool = (start, device) != ("plain", "npu")
        assert ("recorded without a preload" in " ".join(run.stderr.split())) == (start == "plain"), str(run)
        self.project, self.out, self.device = run.project(), run.out, device
        self.rows, self.calls = dumped(self.project), calls(self.project)
        self.info, self.notes = msmemscope.info(self.project), run.value("notes")
        self.script = script

    def snapshots(self):
        wanted = {"Memory Snapshot": 4, "test_tuple": 1} if self.device == "cpu" else {"Memory Snapshot": 7, "test_tuple": 2}
        names = [name for event, _, name, _, _ in self.rows if event == "SNAPSHOT"]
        assert {name: names.count(name) for name in set(names)} == wanted

    def tracer(self):
        assert [text for text in self.calls if ": traced" in text]

    def ranges(self):
        assert len([text for text in self.calls if "forward_pass" in text]) == 5

    def watcher(self):
        [path] = (self.out / "watch_dump").glob("watch_dump_data_check_sum_*.csv")
        assert path.read_text(encoding="utf-8").count("-test_0_") == 2

    def owners(self):
        if not self.sees_pool:
            return
        owners = {ptr: attr.get("owner") for event, _, _, ptr, attr in self.rows if event == "MALLOC"}
        assert [owners[ptr].rpartition("ops@aten")[2] if label == "" else owners[ptr] for ptr, label in self.notes["owners"]] == [
            label if label == "" else owners[ptr].rpartition("@")[0] + label for ptr, label in self.notes["owners"]]

    def steps(self):
        assert [name for event, kind, name, _, _ in self.rows if (event, kind) == ("SYSTEM", "STEP")] == list(map(str, range(1, 11)))
        if not self.sees_pool:
            return
        leaks = [place for place in self.info["places"] if place["verdict"] == "leak" and any(
            frame.get("line") == self.line("# leaks") and frame.get("file", "").endswith("script.py") for frame in place["frames"])]
        # The pool of torch_npu takes 512 bytes more.
        assert [place["bytes_per_step"] // 1024 for place in leaks if place["pool"] in ("HOST", "PTA")] == [1024], self.info["places"]

    def line(self, text):
        return next(number for number, line in enumerate(self.script.splitlines(), 1) if line.endswith(text))


@pytest.fixture(scope="session")
def npu_python():
    """Python with torch_npu; None where there is none for this machine."""
    place = ROOT / "build" / "venv-npu"
    done = subprocess.run([ROOT / "tests" / "realclients" / "environment.sh", place], check=False, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    print(done.stderr)
    return [place / "bin" / "python", "-W", "ignore"] if done.returncode == 0 else None


def dealt(ways, both):
    """[((start, form, device), examples)]: which examples run in which way."""
    if ways >= len(MATRIX):
        return [(way, list(EXAMPLES)) for way in MATRIX if both or way[2] == "cpu"]
    seed = int(os.environ.get("MSMEMSCOPE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"MSMEMSCOPE_SEED={seed}")
    chance = random.Random(seed)
    drawn = [(start, chance.choice(("csv", "db")), chance.choice(("cpu", "npu")) if both else "cpu") for start in STARTS]
    chance.shuffle(drawn)
    drawn = drawn[:ways]
    order = list(EXAMPLES)
    chance.shuffle(order)
    return [(way, [name for name in EXAMPLES if name in order[i::len(drawn)]]) for i, way in enumerate(drawn)]


@pytest.fixture
def launch(msmemscope, dist, python, npu_python, out):
    """Runs examples in one process, in one way."""
    def run(start, form, device, examples):
        config = CONFIG.format(form=form, device=device) if start in ("preloaded", "plain") else ""
        script = BEGIN.format(device=device, config=config) + "".join(EXAMPLES[name] for name in examples) + \
            "print(json.dumps({'notes': notes}), flush=True)\n"
        place = out / f"{start}-{form}-{device}"
        place.mkdir()
        (place / "script.py").write_text(script, encoding="utf-8")
        words = [*(python if device == "cpu" else npu_python), place / "script.py"]
        env = {"PYTHONPATH": f"{dist / 'python'}:{dist / 'simnpu' / 'python'}", "OUT": place / "results", "SIMNPU_DEVICES": 2,
               "ASCEND_OPP_PATH": dist / "simnpu" / "opp", "OMP_NUM_THREADS": 1}
        if start in ("command", "deferred"):
            deferred = ["--collect-mode=deferred"] if start == "deferred" else []
            done = msmemscope(f"--format={form}", f"--device={device}", "--analysis=leaks,decompose", *deferred, "--", *words,
                              output=place / "results", env=env)
        else:
            if start == "preloaded":
                env["LD_PRELOAD"] = dist / "lib64" / "libascend_kernel_hook.so"
            done = msmemscope.bare(*words, env=env, cwd=place)
            done = harness.Run(done.argv, done.returncode, done.stdout, done.stderr, place / "results")
        return done.check(), script

    return run


def test_every_example_works_however_it_is_started(launch, msmemscope, npu_python, ways):
    wrong = []
    for (start, form, device), examples in dealt(ways, npu_python is not None):
        print(start, form, device, *examples)
        run, script = launch(start, form, device, examples)
        checks = Checks(run, msmemscope, script, start, device)
        for check in (*(getattr(checks, name) for name in examples), lambda run=run: same.check(run, msmemscope)):
            try:
                check()
            except AssertionError as error:
                wrong.append(f"{start} {form} {device}: {error}")
    assert not wrong, "\n\n".join(wrong)
