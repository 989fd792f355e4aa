# SPDX-License-Identifier: Apache-2.0
"""init_framework_hooks(): phases of frameworks as ranges, snapshots and owners. The frameworks here are small packages with the names
of each version (lib/frameworks.py), which note what must be found, and the real FSDP of PyTorch on two ranks. The real packages of
the others are `make soak PART=hooks`."""
import json
import re
from pathlib import Path

import pytest

import frameworks
from fixtures import ROOT
from scripts import python_path

PHASES = ["load_weight", "profile_run", "kv_cache", "activate"]
SERVE = """
import importlib, sys
import msmemscope
from told import take, tell
for kind in {kinds}:
    msmemscope.init_framework_hooks("{framework}", "{version}", "worker", kind)
Worker = getattr(importlib.import_module("{module}"), "{name}")
worker = Worker()
take("")
worker.load_model()
worker.determine_available_memory()
take("")
worker.initialize_from_config("config")
worker.compile_or_warm_up_model()
assert [worker.execute_model(i) for i in range(2)] == [0, 1]
take("")
msmemscope.cleanup_framework_hooks()
worker.execute_model(0); take.__globals__["said"].popitem(); take.__globals__["said"]
tell()
"""


@pytest.fixture
def packages(out):
    """Where a test writes packages."""
    directory = out / "packages"
    directory.mkdir()
    frameworks.told(directory)
    return directory


@pytest.fixture
def run(scripts, packages, dist):
    """run(text, *options, way="command"): runs a script that finds the packages."""
    def run(text, *options, way="command", env=None):
        env = {"PYTHONPATH": f"{python_path(dist)}:{packages}", **(env or {})}
        if way == "command":
            return scripts.command(text, *options, env=env).check()
        begin = "import os, msmemscope\nmsmemscope.config(output=os.environ['OUT'])\n"
        return scripts.preloaded(begin + text, env=env).check()
    return run


def owners(project, said):
    """{address: owner behind the component} of the blocks that were noted."""
    last = {row.ptr: row.attr.get("owner", "") for row in project.rows() if row.event == "MALLOC" and row.type == "HAL"}
    return {address: re.sub("^CANN@[^@]*@?", "", last[int(address)]) for address in said}


def notes(run):
    """{pid: notes} of what told.tell() printed."""
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"pid"')]
    return {line["pid"]: line["said"] for line in lines}


def names(rows, event="SNAPSHOT"):
    return [row.name.strip('"') for row in rows if row.event == event]


def ranges(rows):
    """Ranges as brackets: ["load_weight", "/load_weight", ...]."""
    open_ranges, found = [], []
    for row in rows:
        if row.event == "MSTX" and row.type == "Range_start":
            open_ranges.append(row.name.strip('"'))
            found.append(open_ranges[-1])
        elif row.event == "MSTX":
            found.append("/" + open_ranges.pop())
    assert not open_ranges
    return found


def hook_lines(run):
    return [line for line in run.stderr.splitlines() if "init_framework_hooks" in line]


# ---- vLLM ----

VLLM = [("vllm_ascend", "0.9.1"), ("vllm_ascend", "0.11.0"), ("vllm_ascend", "0.13.0"), ("vllm", "0.11.0"), ("vllm", "0.29.0")]


@pytest.mark.parametrize("framework, version", VLLM)
def test_phases_of_vllm_have_ranges_snapshots_and_owners(run, packages, framework, version):
    module, name = getattr(frameworks, framework)(packages, version)
    done = run(SERVE.format(kinds=("decompose", "snapshot"), framework=framework, version=version, module=module, name=name))
    assert not hook_lines(done), done
    [project] = done.projects()
    rows = project.rows()
    [said] = notes(done).values()
    assert owners(project, said) == said
    warm = ["compile_or_warm_up_model", "capture_model", "/capture_model", "/compile_or_warm_up_model"]
    in_order = [text for phase in PHASES[:3] for text in (phase, "/" + phase)]
    assert ranges(rows) == [*in_order, *warm, *["activate", "/activate"] * 2]
    found = [one for one in names(rows) if one in PHASES]
    assert found == [*PHASES[:3], "activate", "activate"], "each phase has a snapshot of its name"
    runner = next(one for one in names(rows) if one.endswith("@load_model@Start"))[:-len("load_model@Start")]
    methods = {"load_weight": "load_model", "profile_run": "profile_run", "kv_cache": "initialize_kv_cache", "activate": "execute_model"}
    for phase, method in methods.items():
        at = names(rows).index(f"{runner}{method}@Start")
        assert names(rows)[at:at + 3] == [f"{runner}{method}@Start", f"{runner}{method}@End", phase]


@pytest.mark.parametrize("way", ["command", "preloaded"])
def test_one_call_takes_four_snapshots_of_vllm_with_the_figures_of_that_moment(run, packages, way):
    module, name = frameworks.vllm_ascend(packages, "0.11.0")
    # As the manual calls it: 11.0 is 0.11.0.
    done = run(SERVE.format(kinds=("snapshot",), framework="vllm_ascend", version="11.0", module=module, name=name), way=way)
    assert not hook_lines(done), done
    held, taken, seen = 0, {}, []
    for row in done.project().rows():
        if row.event == "SNAPSHOT" and row.name in PHASES:
            taken.setdefault(row.name, int(row.attr["allocated"]))
        seen.append(row.event)
    # Blocks of 4 KiB: one before, then one in each phase; two in warming up; the rest of that moment is in the table above.
    if way == "command":
        blocks = {"load_weight": 2, "profile_run": 3, "kv_cache": 5, "activate": 8}
        assert {name: size - held for name, size in taken.items()} == {name: 4096 * count for name, count in blocks.items()}
    assert list(taken) == PHASES
    assert ("MALLOC" in seen) == (way == "command"), "without start() there are only snapshots"


def test_the_installed_version_decides_where_classes_are(run, packages):
    """The caller names 11.0, 0.13.0 is there, whose worker is in another module: it is told, and hooked."""
    module, name = frameworks.vllm_ascend(packages, "0.13.0")
    done = run(SERVE.format(kinds=("decompose",), framework="vllm_ascend", version="11.0", module=module, name=name))
    [line] = hook_lines(done)
    assert "vllm_ascend 0.13.0 is installed, not 11.0" in line
    [said] = notes(done).values()
    assert owners(done.project(), said) == said


def test_a_version_that_is_not_known_is_not_hooked(run, packages):
    module, name = frameworks.vllm_ascend(packages, "0.7.3")
    text = SERVE.format(kinds=("snapshot",), framework="vllm_ascend", version="11.0", module=module, name=name)
    done = run(text)
    [line] = hook_lines(done)
    assert "vllm_ascend 0.7.3 is installed, which has no hooks" in line
    assert not names(done.project().rows())


TENSORS = """
import json, sys, types
import torch
import msmemscope
msmemscope.init_framework_hooks("vllm", "0.11.0", "worker", "decompose")
keep, said = [], {}
def new(owner, count=5000):
    keep.append(torch.zeros(count))
    said[keep[-1].data_ptr()] = owner
    return keep[-1]
module = types.ModuleType("vllm.v1.worker.gpu_model_runner")
class AttentionSpec: pass
class MambaSpec: pass
class Group:
    def __init__(self, spec, *names):
        self.kv_cache_spec, self.layer_names = spec, names
class Config:
    kv_cache_groups = [Group(AttentionSpec(), "a", "b"), Group(MambaSpec(), "m")]
class Simple:
    kv_cache_groups = [Group(AttentionSpec(), "a")]
def module_of(owner, count=1):
    model = torch.nn.Module()
    for i in range(count):
        model.register_parameter(f"w{i}", torch.nn.Parameter(new(owner)))
    return model
class GPUModelRunner:
    def load_model(self):
        new("vllm@load_weight")
        self.model = module_of("vllm@weights", 2)
        self.model.register_buffer("scale", new("vllm@weights"))
        self.model.layer = module_of("vllm@weights")
        self.model.layer.lora_a_stacked = (new("vllm@weights@lora"), new("vllm@weights@lora"))
        self.drafter = types.SimpleNamespace(model=module_of("vllm@weights@drafter"))
    def profile_run(self): new("vllm@profile")
    def initialize_kv_cache(self, kv_cache_config):
        self.kv_caches = []
        self.initialize_kv_cache_tensors(kv_cache_config)
    def initialize_kv_cache_tensors(self, kv_cache_config):
        new("vllm@kv_cache")
        a, m = new("vllm@kv_cache@attn"), new("vllm@kv_cache@mamba")
        return {"a": a, "b": [a, new("vllm@kv_cache@attn")], "m": {"state": m}}
    def execute_model(self): new("vllm@serve")
    def capture_model(self): pass
module.GPUModelRunner = GPUModelRunner
class Old(GPUModelRunner):
    # Allocates the caches by itself.
    def initialize_kv_cache(self, kv_cache_config):
        self.kv_caches = [new("vllm@kv_cache@attn")]
msmemscope.cleanup_framework_hooks()
for name in ("vllm", "vllm.v1", "vllm.v1.worker"):
    sys.modules[name] = types.ModuleType(name)
sys.modules[module.__name__] = module
msmemscope.init_framework_hooks("vllm", "0.11.0", "worker", "decompose")
for runner in (GPUModelRunner(), Old()):
    runner.load_model(); runner.profile_run()
    runner.initialize_kv_cache(kv_cache_config=Config()) if type(runner) is GPUModelRunner else runner.initialize_kv_cache(Simple())
    runner.execute_model()
print(json.dumps({"said": said}))
"""


def test_weights_and_caches_of_vllm_have_owners_by_their_addresses(msmemscope, python, out):
    (out / "script.py").write_text(TENSORS)
    done = msmemscope("--device=cpu", "--analysis=decompose", "--", *python, out / "script.py").check()
    assert not hook_lines(done), done
    last = {row.ptr: row.attr["owner"] for row in done.project().rows() if row.event == "MALLOC"}
    for address, owner in done.value("said").items():
        assert last[int(address)].endswith("@" + owner), (last[int(address)], owner)
    # And where a person looks.
    text = msmemscope("info", done.project().path, output=False).check().stdout
    assert "vllm@weights" in text or "vllm" in text


# ---- worker processes ----

WORKERS = """
import multiprocessing, os, subprocess, sys
import msmemscope
from told import take, tell

def work(steps):
    from vllm_ascend.worker.worker_v1 import NPUWorker
    worker = NPUWorker()
    worker.load_model()
    for step in range(steps):
        msmemscope.step()
        worker.execute_model(step)
    tell()

if __name__ == "__main__":
    if sys.argv[1:] == ["child"]:
        work(2)
        sys.exit()
    msmemscope.init_framework_hooks("vllm_ascend", "11.0", "worker", "decompose")
    for way in ("spawn", "fork", "forkserver"):
        child = multiprocessing.get_context(way).Process(target=work, args=(12,))
        child.start(); child.join()
        assert child.exitcode == 0
    subprocess.run([sys.executable, __file__, "child"], check=True)
    subprocess.run([sys.executable, "-c", "import told"], check=True)
"""


def test_workers_have_the_hooks_and_a_leak_of_theirs_is_found(run, packages, msmemscope):
    frameworks.vllm_ascend(packages, "0.11.0")
    done = run(WORKERS, "--analysis=leaks,decompose")
    said = notes(done)
    assert len(said) == 4 and not hook_lines(done), done
    projects = {project.pid: project for project in done.projects()}
    for pid, blocks in said.items():
        assert set(blocks.values()) == {"vllm@load_weight", "vllm@serve"}
        assert owners(projects[pid], blocks) == blocks
    for pid, blocks in said.items():
        if len(blocks) == 13:  # 12 steps, each of which leaves a block behind
            assert "vllm@serve" in json.dumps(msmemscope.info(projects[pid])["leaks"]), "the leak of each step has its phase"


WATCHED = """
import multiprocessing, sys
import msmemscope
def work():
    import torch
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner
    GPUModelRunner().execute_model(torch.ones(4))
if __name__ == "__main__":
    msmemscope.init_framework_hooks("vllm", "0.11.0", "worker", "decompose")
    child = multiprocessing.get_context("spawn").Process(target=work)
    child.start(); child.join()
    assert child.exitcode == 0
"""
WATCHED_RUNNER = """
class GPUModelRunner:
    def load_model(self): pass
    profile_run = initialize_kv_cache = initialize_kv_cache_tensors = capture_model = load_model
    def execute_model(self, x):
        y = x * 2
        return y + 1
"""


def test_a_watch_works_in_a_worker(msmemscope, python, packages, out):
    frameworks.write(packages, "vllm.v1.worker.gpu_model_runner", WATCHED_RUNNER)
    frameworks.version(packages, "vllm", "0.11.0")
    (out / "script.py").write_text(WATCHED)
    done = msmemscope("--device=cpu", "--watch=aten::mul,aten::add", "--", *python, out / "script.py",
                      env={"PYTHONPATH": packages}).check()
    assert not hook_lines(done), done
    [table] = list(done.out.glob("**/watch_dump_data_check_sum_*.csv"))
    assert "mul" in table.read_text() and "activate" in [text for project in done.projects() for text in ranges(project.rows())]


# ---- verl ----

VERL = """
import asyncio, importlib, inspect, json, sys
import msmemscope
from told import take, tell
msmemscope.init_framework_hooks("verl", {version!r}, "TaskRunner", {kind!r})
for module, name, methods in json.loads({targets!r}):
    cls = getattr(importlib.import_module(module), name)
    if hasattr(cls, "__ray_metadata__"):
        cls = cls.__ray_metadata__.modified_class
    for method in methods:
        result = getattr(cls(), method)(method)
        assert (asyncio.run(result) if inspect.isawaitable(result) else result) == (method,)
take("")
tell()
"""


@pytest.mark.parametrize("version", ["0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1"])
def test_phases_of_verl_in_its_runner_and_its_workers(run, packages, version):
    targets = frameworks.verl(packages, version)
    done = run(VERL.format(version=version, kind="decompose", targets=json.dumps(targets)))
    assert not hook_lines(done), done
    [said] = notes(done).values()
    assert owners(done.project(), said) == said
    phases = [phase for _, _, methods in targets for phase in methods.values()]
    assert ranges(done.project().rows()) == [text for phase in phases for text in (phase, "/" + phase)]


def test_snapshots_of_verl_in_its_runner_and_in_rollout_workers(run, packages):
    """One call in the driver: its own phases, and those of vLLM in a worker process."""
    targets = frameworks.verl(packages, "0.7.0")
    frameworks.vllm_ascend(packages, "0.11.0")
    done = run(VERL.format(version="0.7.0", kind="snapshot", targets=json.dumps(targets)) + """
import subprocess
subprocess.run([sys.executable, "-c", '''
from vllm_ascend.worker.worker_v1 import NPUWorker
worker = NPUWorker()
worker.load_model(); worker.determine_available_memory(); worker.initialize_from_config(0); worker.execute_model(0)
'''], check=True)
""")
    assert not hook_lines(done), done
    driver, worker = sorted((project.rows() for project in done.projects()), key=len, reverse=True)
    for module, name, methods in targets:
        for method, phase in methods.items():
            assert {f"{module}@{name}@{method}@Start", f"{module}@{name}@{method}@End", phase} <= set(names(driver))
    assert [one for one in names(worker) if one in PHASES] == PHASES


def test_the_program_itself_may_be_the_module(run, packages, msmemscope, scripts, dist, out):
    """`python -m verl.trainer.main_ppo`: nobody imports that module. A child inherits hooks before its first line."""
    frameworks.verl(packages, "0.7.0")
    with open(packages / "verl" / "trainer" / "main_ppo.py", "a", encoding="utf-8") as file:
        file.write("""
if __name__ == "__main__":
    import colorsys  # as any program imports something while it runs
    import told
    TaskRunner().run(1)
    told.tell()
""")
    done = run("""
import subprocess, sys
import msmemscope
msmemscope.init_framework_hooks("verl", "0.7.0", "TaskRunner", "decompose")
subprocess.run([sys.executable, "-m", "verl.trainer.main_ppo"], check=True)
""")
    [(pid, said)] = notes(done).items()
    [project] = [project for project in done.projects() if project.pid == pid]
    assert owners(project, said) == said and set(said.values()) == {"verl@run"}


# ---- MindSpeed-LLM ----

@pytest.mark.parametrize("imported", ["before", "after"])
def test_phases_of_mindspeed_llm(run, packages, imported):
    frameworks.mindspeed_llm(packages)
    lines = ["import mindspeed_llm.training.training as training",
             "import msmemscope; msmemscope.init_framework_hooks('mindspeed_llm', '0.12.1', 'training', 'snapshot')"]
    done = run("\n".join([*(lines if imported == "before" else lines[::-1]), """
training.pretrain(2)
msmemscope.cleanup_framework_hooks()
assert training.train_step.__module__ == "megatron.training.training" and not hasattr(training.train_step, "__wrapped__")
training.pretrain(1)
"""]))
    assert not hook_lines(done), done
    rows = done.project().rows()
    step = ["train_step", "/train_step", "MLP.forward", "/MLP.forward"]
    assert ranges(rows) == ["setup_model_and_optimizer", "get_model", "/get_model", "/setup_model_and_optimizer", "train", *step * 2, "/train"]
    assert "mindspeed_llm.training.training@@train_step@Start" in names(rows)
    assert "megatron.core.transformer.mlp@MLP@forward@End" in names(rows)


# ---- what is asked for ----

UNKNOWN = """
import msmemscope, sys
def ours():
    return [one for one in sys.meta_path if getattr(one, "__module__", "").endswith("_hooks")]
calls = [("fllm", "1", "worker", "snapshot"), ("vllm", "0.11.0", "wrker", "snapshot"), ("verl", "0.7.0", "TaskRunner", "snap"),
         ("vllm_ascend", "0.3", "worker", "decompose"), ("vllm_ascend", "", "worker", "decompose"), ("pytorch", "1.13", "fsdp1", "decompose"),
         ("pytorch", "2.6", "fsdp1", "snapshot"), ("vllm", "new", "worker", "snapshot"), (None, "1", "worker", "snapshot"),
         ("vllm", 0.11, "worker", "snapshot")]
for call in calls:
    assert msmemscope.init_framework_hooks(*call) is None
assert not ours()
assert msmemscope.cleanup_framework_hooks() is None
assert msmemscope.init_framework_hooks(framework="verl", version="0.7.0", component="TaskRunner", hook_type="snapshot") is None
assert msmemscope.cleanup_framework_hooks() is None and msmemscope.cleanup_framework_hooks() is None
assert not ours()
for wrong in ((), ("vllm",), ("vllm", "0.11.0", "worker", "snapshot", 1)):
    try:
        msmemscope.init_framework_hooks(*wrong)
    except TypeError:
        pass
    else:
        raise AssertionError(wrong)
"""


@pytest.mark.parametrize("way", ["command", "alone"])
def test_what_is_not_known_is_one_line_and_no_hook(scripts, way):
    done = getattr(scripts, way)(UNKNOWN).check()
    lines = hook_lines(done)
    wanted = ["unknown framework 'fllm'; there are: vllm_ascend, vllm, verl, mindspeed_llm, pytorch", "no component 'wrker'; it has: worker",
              "no hooks of type 'snap'; it has: decompose, snapshot", "version '0.3' of vllm_ascend is unknown", "version '' of vllm_ascend",
              "version '1.13' of pytorch", "no hooks of type 'snapshot'; it has: decompose", "version 'new' of vllm", "must be str", "must be str"]
    assert len(lines) == len(wanted), done
    for line, text in zip(lines, wanted):
        assert text in line


def test_what_a_version_does_not_have_is_one_line(run, packages):
    frameworks.version(packages, "vllm", "0.11.0")
    frameworks.write(packages, "vllm.v1.worker.gpu_model_runner", "class GPUModelRunner:\n    def load_model(self): pass\n")
    done = run("""
import msmemscope
msmemscope.init_framework_hooks("vllm", "0.11.0", "worker", "snapshot")
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
GPUModelRunner().load_model()
""")
    [line] = hook_lines(done)
    assert "has no GPUModelRunner.profile_run, GPUModelRunner.initialize_kv_cache, " in line and line.endswith("not hooked")
    assert "load_weight" in names(done.project().rows())


def test_decompose_hooks_by_itself_unless_the_program_chooses(run, packages):
    frameworks.vllm_ascend(packages, "0.11.0")
    text = """
import msmemscope
from vllm_ascend.worker.worker_v1 import NPUWorker
from told import take, tell, said
worker = NPUWorker()
worker.execute_model(1)
msmemscope.init_framework_hooks("pytorch", "2.10", "fsdp2", "decompose")
block = take("")
worker.execute_model(1)
said[list(said)[-1]] = ""
tell()
"""
    done = run(text, "--analysis=decompose")
    [said] = notes(done).values()
    assert owners(done.project(), said) == said and list(said.values()) == ["vllm@serve", "", ""]
    done = run(text.replace("vllm@", ""), "--analysis=leaks", env={"OUT": "unused"})


# ---- wrappers ----

def test_wrappers_change_nothing_but_what_they_add(run, packages):
    """tests/targets/hooks_wrappers.py checks itself; what it cannot see are the owners."""
    text = (ROOT / "tests" / "targets" / "hooks_wrappers.py").read_text(encoding="utf-8")
    done = run(text)
    assert "all fine" in done.stdout
    [said] = notes(done).values()
    assert owners(done.project(), said) == said and len(said) > 20


RANDOM = """
import random, sys, threading, types
import msmemscope
from msmemscope import _hooks_table as table
from told import take, tell
OWNERS = ["a@x", "a@y", "a@z@deep", "b@x", "b", "c@x", "", "a@x"]
class Oops(Exception): pass
mesh = types.ModuleType("mesh")
def function(raises_after):
    def plain(work):
        work()
        if raises_after(): raise Oops
    def stepped(work):
        yield 1
        work()
        yield 2
        if raises_after(): raise Oops
    return plain, stepped
raising = threading.local()
for i, owner in enumerate(OWNERS):
    plain, stepped = function(lambda: raising.now)
    setattr(mesh, f"f{i}", plain); setattr(mesh, f"g{i}", stepped)
sys.modules["mesh"] = mesh
table.FRAMEWORKS["mesh"] = table.Framework("mesh")
table.TABLE.append(table.Entry("mesh", "*", "all", ("decompose",), tuple(
    table.Target("mesh", f"{kind}{i}", f"{kind}{i}", owner) for i, owner in enumerate(OWNERS) for kind in "fg")))
msmemscope.init_framework_hooks("mesh", "*", "all", "decompose")

def text(stack):
    # Each owner once, and inside another one of its component only its part.
    parts, seen = [], []
    for owner in stack:
        if owner and owner not in seen:
            component, _, part = owner.partition("@")
            inside = any(one.partition("@")[0] == component for one in seen)
            label = part if part and inside else owner
            if label not in parts:
                parts.append(label)
        seen.append(owner)
    return "@".join(parts)

def grow(chance, stack, depth):
    def work():
        take(text(stack))
        for _ in range(chance.randrange(4) if depth < 5 else 0):
            i, kind, fails = chance.randrange(len(OWNERS)), chance.choice("fg"), chance.random() < 0.2
            # A call inside another one of the same function is part of it.
            inner = grow(chance, stack + [OWNERS[i]], depth + 1)
            def then(inner=inner, fails=fails):
                inner()
                raising.now = fails
            try:
                call = getattr(mesh, f"{kind}{i}")(then)
                if kind == "g":
                    for value in call:
                        take(text(stack))
            except Oops:
                pass
            raising.now = False
            take(text(stack))
    return work

def thread(seed):
    raising.now = False
    chance = random.Random(seed)
    for _ in range(12):
        grow(chance, [], 0)()
threads = [threading.Thread(target=thread, args=(seed,)) for seed in range(int(sys.argv[1]), int(sys.argv[1]) + 4)]
for one in threads: one.start()
for one in threads: one.join()
tell()
"""


@pytest.mark.parametrize("seed", [1, 5, 9])
def test_random_nestings_of_hooked_calls_in_threads(run, seed):
    done = run(RANDOM.replace("sys.argv[1]", repr(str(seed))))
    [said] = notes(done).values()
    assert len(said) > 300
    assert owners(done.project(), said) == said


def test_owners_may_be_as_deep_as_labels_are(run, msmemscope):
    done = run("""
import contextlib
import msmemscope.describe as describe
from told import take, tell
with contextlib.ExitStack() as stack:
    for i in range(400):
        stack.enter_context(describe.describer(owner=f"{i}@x"))
    take("@".join(f"{i}@x" for i in range(400)))
with describe.describer(owner="@".join("abcdefghijkl")):
    take("@".join("abcdefghijkl"))
tell()
""", "--analysis=decompose")
    [said] = notes(done).values()
    assert owners(done.project(), said) == said
    [host] = msmemscope.info(done.project())["decompose"]
    listed = [owner["owner"] for owner in host["owners"]]
    assert all(any(owner.endswith(text) for owner in listed) for text in said.values())


# ---- PyTorch ----

@pytest.mark.parametrize("kind", ["fsdp1", "fsdp2"])
def test_sharded_training_on_two_ranks(msmemscope, python, kind, out):
    done = msmemscope("--device=cpu", "--analysis=decompose", "--", *python, ROOT / "tests" / "targets" / "torch_fsdp.py", kind, out).check()
    assert "may be missing" not in done.stderr
    ranks = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    projects = {project.pid: project for project in done.projects()}
    for rank in ranks:
        last = {}
        for row in projects[rank["pid"]].rows():
            if row.event == "MALLOC":
                last[row.ptr] = row.attr["owner"]
        assert len({owner for _, owner in rank["said"]}) == 5
        for address, owner in rank["said"]:
            found = last[address]
            assert found.endswith(owner) if owner else kind not in found, (found, owner)


@pytest.mark.parametrize("compiled", [False, True])
def test_any_training_has_its_three_phases(msmemscope, python, out, compiled):
    (out / "script.py").write_text(f"""
import torch, msmemscope
msmemscope.init_framework_hooks("pytorch", "*", "training", "snapshot")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
class Mine(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {{}})
    def step(self, closure=None):
        return closure() if closure else None
call = torch.compile(model, backend="eager") if {compiled} else model
for optimizer in (torch.optim.SGD(model.parameters(), lr=0.1), Mine(model.parameters())):
    call(torch.ones(2, 4)).sum().backward()
    assert optimizer.step() is None
assert Mine(model.parameters()).step(lambda: 3) == 3
msmemscope.cleanup_framework_hooks()
assert not hasattr(torch.nn.Module.__call__, "__wrapped__") and not hasattr(torch.autograd.backward, "__wrapped__")
call(torch.ones(2, 4)).sum().backward()
optimizer.step()
""")
    done = msmemscope("--device=cpu", "--", *python, out / "script.py").check()
    assert not hook_lines(done), done
    rows = done.project().rows()
    step = ["forward", "/forward", "backward", "/backward", "optimizer", "/optimizer"]
    assert ranges(rows) == [*step * 2, "optimizer", "/optimizer"]
    assert [name for name in names(rows) if "@" not in name] == [*["forward", "backward", "optimizer"] * 2, "optimizer"]


# ---- a new framework ----

def test_the_example_of_the_document_runs_as_it_stands(run, packages):
    document = (ROOT / "docs" / "adding-a-framework.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", document, re.DOTALL))
    assert set(blocks) == {"tinyserve.py", "serve.py"}
    (packages / "tinyserve.py").write_text(blocks["tinyserve.py"])
    done = run(blocks["serve.py"])
    assert not hook_lines(done), done
    rows = done.project().rows()
    assert ranges(rows) == ["load_weight", "/load_weight", "activate", "/activate", "activate", "/activate"]
    found = [re.sub("^CANN@[^@]*@?", "", row.attr["owner"]) for row in rows if row.event == "MALLOC"]
    assert found == ["tinyserve@load_weight", "tinyserve@serve", "tinyserve@serve"]


def test_every_entry_of_the_table_is_sound(dist):
    """No version has two entries, and every entry can be reached by a call."""
    import subprocess
    check = """
from msmemscope import _hooks, _hooks_table as table, _hooks_tensors
seen = set()
for entry in table.TABLE:
    assert entry.framework in table.FRAMEWORKS and set(entry.types) <= {"decompose", "snapshot"} and entry.targets
    for kind in entry.types:
        assert not _hooks._problem(_hooks.Wish(entry.framework, entry.versions, entry.component, kind))
    for target in entry.targets:
        assert target.module and target.path and target.span in ("", "opens", "closes", "ends")
        assert target.phase or target.owner or target.tensors
        assert not target.tensors or callable(getattr(_hooks_tensors, target.tensors))
    for other in entry.also:
        assert any((one.framework, one.component) == other for one in table.TABLE)
for text in ("0.5.0", "0.5", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1", "0.10.0", "0.11.0rc1", "0.12", "0.13.0", "0.23.0",
             "1.0", "2.1.0", "2.3.1", "2.6.0", "2.9.1", "2.10.0", "2.13.0+cpu", "3.0"):
    for key in {(entry.framework, entry.component) for entry in table.TABLE}:
        fitting = [entry for entry in table.TABLE if (entry.framework, entry.component) == key and _hooks._matches(entry.versions, _hooks._numbers(text))]
        assert len(fitting) <= 1, (key, text)
for versions, yes, no in (("2.10+", "2.10 2.10.1 2.11 3.0", "2.9 2.9.9 1.13"), ("2.6-2.9", "2.6 2.6.1 2.9.7 2.9.1+cu12", "2.10 2.5.9 3.0"),
                          ("0.7.0", "0.7.0 0.7.0.post1", "0.7.1 0.7"), ("*", "1 9.9 0.0.1", ""), ("0.6-0.7.0", "0.6.1 0.7.0", "0.7.1 0.5")):
    assert all(_hooks._matches(versions, _hooks._numbers(one)) for one in yes.split())
    assert not any(_hooks._matches(versions, _hooks._numbers(one)) for one in no.split())
"""
    subprocess.run(["/usr/bin/python3", "-c", check], check=True, env={"PYTHONPATH": str(dist / "python")})
