# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU: memory of tensors, operators, the tensors that they take and give, and whose memory a block is. PyTorch
itself is the ground truth: its profiler for memory, a dispatch mode of the script's own for operators."""
import json
import os
from collections import Counter
from pathlib import Path

import pytest

import harness
from operators import expected_accesses, found_accesses

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def torch(together, python):
    """torch("torch_train.py", options=[...]): runs a target under the tool; the same words are the same run."""
    def run(name, *arguments, options=("--device=cpu",), status=0):
        done = together.once(options, [*python, ROOT / "tests" / "targets" / name, *map(str, arguments)])
        assert done.returncode == status, str(done)
        return done

    return run


def memory(run):
    return [(row.ptr, row.attr["size"] if row.event == "MALLOC" else -row.attr["size"])
            for row in run.rows() if row.event in ("MALLOC", "FREE") and row.type == "HOST"]


def lies_in(part, whole):
    return any(whole[at:at + len(part)] == part for at in range(len(whole) - len(part) + 1))


def test_memory_of_tensors_is_what_the_allocator_told_the_profiler(torch):
    run = torch("torch_train.py", 4)
    told = [tuple(report) for report in run.value("memory")]
    assert len(told) > 200
    assert lies_in(told, memory(run)), "every allocation and free, in order"
    blocks = set(memory(run))
    assert all((address, size) in blocks for address, size in run.value("tensors"))


def test_rows_of_tensors_stand_with_the_host_and_add_up(torch):
    run = torch("torch_train.py", 2, options=["--device=cpu", "--events=alloc,free"])
    project = run.project()
    assert project.path.name.endswith("_cpu")
    assert [path.parent.parent.name for path in project.dumps()] == ["device_cpu"]
    live, ids = {}, {}
    for row in run.rows():
        assert row.type == "HOST" and row.device == "cpu"
        ident, size = row.attr["allocation_id"], row.attr["size"]
        if row.event == "MALLOC":
            assert row.ptr not in live
            live[row.ptr], ids[row.ptr] = size, ident
        else:
            assert live.pop(row.ptr) == size and ids.pop(row.ptr) == ident
        assert row.attr == {"allocation_id": ident, "addr": row.ptr, "size": size, "total": sum(live.values())}


def test_without_the_host_a_program_on_the_cpu_is_left_alone(torch):
    run = torch("torch_train.py", 2, options=[])
    assert run.value("modes") == 0
    assert run.projects() == []


@pytest.mark.parametrize("options, operators, accesses", [
    ([], False, False),
    (["--level=op"], True, False),
    (["--level=kernel"], False, False),
    (["--level=0,1", "--events=launch"], True, False),
    (["--events=alloc"], False, False),
    (["--events=access"], False, True),
    (["--events=launch,access"], True, True),
    (["--analysis=inefficient"], True, True)], ids=lambda value: "-".join(value) if isinstance(value, list) else None)
def test_operators_and_accesses_are_there_when_they_are_asked_for(torch, options, operators, accesses):
    run = torch("torch_accesses.py", options=["--device=cpu", *options])
    found = Counter(row.event for row in run.rows())
    assert (found["OP_LAUNCH"] > 0, found["ACCESS"] > 0) == (operators, accesses)
    assert found["KERNEL_LAUNCH"] == 0
    assert (found["MALLOC"] > 0) == ("--events=launch" not in options)


def test_operators_are_those_that_a_mode_of_the_scripts_own_sees(torch):
    run = torch("torch_train.py", 2, options=["--device=cpu", "--events=alloc,free,launch"])
    names = run.value("operators")
    started = [row.name for row in run.rows() if row.type == "ATEN_START" and ".profiler." not in row.name]
    assert len(names) > 50 and started[-len(names):] == names
    open_operators = []
    for row in run.rows():
        if row.type == "ATEN_START":
            open_operators.append(row.name)
        elif row.type == "ATEN_END":
            assert open_operators.pop() == row.name
    assert open_operators == []


def test_each_operator_reads_and_writes_what_it_is_known_to(torch):
    """Views, out= and in-place variants, factories, lists, several results, tensors with gaps, failures, another thread."""
    run = torch("torch_accesses.py", options=["--device=cpu", "--events=launch,access"])
    assert found_accesses(run) == expected_accesses(run)


@pytest.mark.parametrize("name", ["torch_train.py", "torch_accesses.py"])
def test_accesses_are_of_blocks_that_live(torch, name):
    run = torch(name, options=["--device=cpu", "--events=access"])
    live, count = {}, 0
    for row in run.rows():
        if row.event == "MALLOC":
            live[row.attr["allocation_id"]] = row
        elif row.event == "FREE":
            del live[row.attr["allocation_id"]]
        elif row.event == "ACCESS":
            block = live[row.attr["allocation_id"]]
            assert block.ptr <= row.ptr and row.ptr + row.attr["size"] <= block.ptr + block.attr["size"]
            assert row.attr["type"] == "HOST"
            count += 1
    assert count > 40


def test_stacks_of_operators_are_the_scripts(torch):
    run = torch("torch_accesses.py", options=["--device=cpu", "--events=launch,access", "--call-stack=python"])
    stacks = [row.python_stack for row in run.rows() if row.event in ("OP_LAUNCH", "ACCESS")]
    assert len(stacks) > 100
    assert all(any("torch_accesses.py(" in frame for frame in stack) for stack in stacks)
    assert not any("/msmemscope/" in frame for stack in stacks for frame in stack), "no frame of ours"


def test_a_step_sends_few_labels(torch, msmemscope):
    """The same in each step. Of 12 blocks it labels: 4 weights when they are used, 4 gradients as they appear, after the pass and after
    the step; what the graph has saved; inputs; a result that is dropped inside an expression. States of the optimizer, which stay where they
    are, are not among them."""
    few, many = (msmemscope.info(torch("torch_train.py", steps, options=["--device=cpu", "--analysis=decompose"]).projects()[-1])
                 ["events_by_type"]["label"] for steps in (3, 6))
    assert (many - few) % 3 == 0 and 12 < (many - few) // 3 < 49


def test_owners_are_what_the_script_says(torch):
    """Of each tensor that lives at that moment, the last block at its address."""
    run = torch("torch_owners.py", options=["--device=cpu", "--analysis=decompose"])
    owners = {row.ptr: row.attr["owner"] for row in run.rows() if row.event == "MALLOC"}
    [wanted] = map(json.loads, run.stdout.splitlines())
    assert {name: {owners[address] for address in addresses} for name, addresses in wanted.items()} == {
        name: {f"HOST@{name}"} for name in wanted}


# As the newer versions tell it, and as it is found in the older ones. A hook that runs says so.
SAVED = """
import torch
from msmemscope import _saved


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, None)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def nodes():
    x = torch.rand(4, requires_grad=True)
    y = torch.rand(4)
    made = [x.exp(), x.sin(), x.exp().sin(), (x * y), x.view(2, 2).exp(), x[torch.tensor([0, 1])], Twice.apply(x), x.tanh(),
            torch.nn.functional.linear(y.view(2, 2), x.view(2, 2), x[:2]), torch.cat([x, x]), x.clone().relu_()]
    return [one.grad_fn for one in made]


def found(nodes):
    return [(name, [tensor.data_ptr() for tensor in _saved.read(node, name)])
            for node in nodes for name in _saved.names(type(node))]


def say(word):
    return lambda tensor: (print(word), tensor)[1]


plain = nodes()
with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, say("ran")):
    hooked = nodes()
    told, _saved._told = _saved._told, False  # searched for while the program has hooks of its own
    assert _saved.can_be_read()
    known = found(plain)
    assert found(hooked) == [(name, []) for name, _ in known] and sum(len(tensors) for _, tensors in known) > 8
one = torch.ones(3, requires_grad=True).exp().grad_fn
one._raw_saved_result.register_hooks(lambda tensor: tensor, say("ran"))
assert found([one]) == [("_raw_saved_result", [])]
freed = torch.ones(3, requires_grad=True).exp()
freed.sum().backward()
assert found([freed.grad_fn]) == [("_raw_saved_result", [])]
if told:
    _saved._told = True
    assert found(plain) == known
print("ok")
"""


def test_what_the_graph_saved_is_found_and_no_hook_runs(msmemscope, python, out):
    (out / "script.py").write_text(SAVED, encoding="utf-8")
    run = msmemscope("--device=cpu", "--", *python, out / "script.py").check()
    assert run.stdout == "ok\n"


def test_bytes_of_each_class_add_up_to_what_was_in_use(torch, msmemscope):
    run = torch("torch_train.py", 3, options=["--device=cpu", "--analysis=decompose"])
    [host] = [pool for pool in msmemscope.info(run.project(), "--analysis=decompose")["decompose"] if pool["event_type"] == "HOST"]
    used = [row.attr["total"] for row in run.rows() if row.event in ("MALLOC", "FREE") and row.type == "HOST"]
    assert sum(owner["peak_bytes"] for owner in host["owners"]) == host["peak_bytes"] == max(used)
    assert sum(owner["live_bytes"] for owner in host["owners"]) == host["live_bytes"] == used[-1]
    peak = {owner["owner"]: owner["peak_bytes"] for owner in host["owners"]}
    for name, words in (("weight", "weights"), ("gradient", "gradients"), ("optimizer_state", "optimizer state")):
        assert peak[f"HOST@model@{name}"] > 0 and f" %  {words}\n" in run.stderr, run
    assert peak["HOST@model@weight"] == peak["HOST@model@gradient"] == run.value("weights")


def test_a_program_does_not_notice(torch, msmemscope, python):
    """What it prints is the same, whoever else has to do with operators in it: compilers, tracers, other listeners."""
    bare = msmemscope.bare(*python, ROOT / "tests" / "targets" / "torch_corners.py")
    assert bare.returncode == 3 and len(bare.stdout.splitlines()) > 15, str(bare)
    run = torch("torch_corners.py", status=3,
                options=["--device=cpu", "--events=alloc,free,launch,access", "--analysis=decompose"])
    assert run.stdout == bare.stdout
    for project in run.projects():
        found = msmemscope.info(project)
        assert found["notes"] == [], "and none of our own code failed"
        assert found["oddities"]["operations_unpaired"] == 0 and found["events_by_type"]["operation"] > 0


def test_nothing_is_left_on_when_the_collector_is_switched_off(msmemscope, python):
    run = msmemscope("--device=cpu", "--", *python, ROOT / "tests" / "targets" / "torch_train.py", "2",
                     env={"MSMEMSCOPE_DISABLE": "1"}).check()
    assert run.value("modes") == 0 and run.projects() == []
    assert "MSMEMSCOPE_DISABLE" not in os.environ


def dumps(run):
    """Name without device and thread -> bytes of each dump that was kept in full."""
    folder = run.out / "watch_dump"
    return {path.name.split("_", 2)[2]: path.read_bytes() for path in folder.glob("*.bin")}


@pytest.mark.parametrize("watch", ["aten::mul,aten::neg", "torch._ops.aten.mul.Tensor:out0，torch._ops.aten.neg.default"])
def test_an_operators_output_is_watched_until_another_has_ended(torch, watch):
    """Between the two every operator dumps it before and after; the report names the one that changed it, as it may."""
    run = torch("torch_watch.py", options=[f"--watch={watch},full-content"])
    wanted = {name: bytes.fromhex(data) for name, data in run.value("dumps").items()}
    name = watch.split(",")[0].split("，")[0].removesuffix(":out0")
    assert dumps(run) == {f"{dump.replace('START', name)}.bin": data for dump, data in wanted.items()}
    assert len(wanted) == 11
    assert ("no unexpected change; 1 change by operators that declare to write it: torch._ops.aten.add_.Tensor (1)."
            in " ".join(run.stderr.split()))


def test_a_tensor_that_a_script_names_is_watched_until_it_has_had_its_dumps(torch):
    run = torch("torch_watch.py", "api", options=["--watch=no_such_operator,full-content"])
    assert dumps(run) == {f"{name}.bin": bytes.fromhex(data) for name, data in run.value("dumps").items()}
    assert len(dumps(run)) == 2


def in_dumps(run):
    return {f"{name.replace('START', 'aten::mul')}.bin": bytes.fromhex(data) for name, data in run.value("dumps").items()}


@pytest.mark.parametrize("words", [["windows"], ["windows", "api"]], ids="-".join)
@pytest.mark.parametrize("mode", ["immediate", "deferred"])
def test_what_the_command_watches_is_watched_in_windows(torch, words, mode):
    run = torch("torch_watch.py", *words, options=["--watch=aten::mul,aten::neg,full-content", f"--collect-mode={mode}"])
    wanted = in_dumps(run)
    if "api" in words:
        wanted.update({name: data for name, data in dumps(run).items() if "-aten::mul" in name})
    assert dumps(run) == wanted and len(wanted) > 2


def preloaded(msmemscope, dist, out, python, words, **env):
    env = {"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so", "PYTHONPATH": dist / "python", "OUT": out / "results", **env}
    run = msmemscope.bare(*python, *words, env=env).check()
    return harness.Run(run.argv, run.returncode, run.stdout, run.stderr, out / "results")


def test_what_config_says_is_watched_in_windows(msmemscope, dist, out, python):
    run = preloaded(msmemscope, dist, out, python, [ROOT / "tests" / "targets" / "torch_watch.py", "windows"],
                    WATCH="aten::mul,aten::neg,full-content")
    assert dumps(run) == in_dumps(run) and len(in_dumps(run)) == 11


def test_a_child_has_the_tensors_that_the_window_of_its_parent_wants(msmemscope, dist, out, python):
    """Although the parent had tensors before anybody wanted them."""
    (out / "script.py").write_text("""
import os, torch, msmemscope
early = torch.ones(1000)
msmemscope.config(device="cpu", events="alloc,free", output=os.environ["OUT"])
msmemscope.start()
pid = os.fork()
if pid == 0:
    late = torch.ones(54321, dtype=torch.uint8)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(pid)
""", encoding="utf-8")
    run = preloaded(msmemscope, dist, out, python, [out / "script.py"])
    [child] = [project for project in run.projects() if project.pid == int(run.stdout)]
    assert [row.attr["size"] for row in child.rows() if row.event == "MALLOC"] == [54321]


def test_a_tensor_has_the_label_that_the_script_gives_it(msmemscope, python, tmp_path):
    """On the row of its allocation, which came before; a view of it is the same block."""
    (tmp_path / "label.py").write_text("""
import json, torch
import msmemscope.describe as describe
t = torch.randn(10, 10)
describe.describer(t, owner="test4")
u = torch.randn(300, 300)
describe.describer(u[5], owner="view")
print(json.dumps({"labels": {t.data_ptr(): "test4", u.data_ptr(): "view"}}))
""")
    run = msmemscope("--device=cpu", "--analysis=decompose", "--", *python, tmp_path / "label.py").check()
    owners = {row.ptr: row.attr["owner"] for row in run.rows() if row.event == "MALLOC"}
    assert {address: owners[int(address)] for address in run.value("labels")} == {
        address: f"HOST@ops@aten@{label}" for address, label in run.value("labels").items()}


NEIGHBOUR = """
import ctypes, json
import torch
from msmemscope import watcher

# Blocks that lie close behind one another, as the allocator happens to give them.
blocks = sorted((torch.zeros(64) for _ in range(200)), key=lambda tensor: tensor.data_ptr())
own, neighbour = next((a, b) for a, b in zip(blocks, blocks[1:]) if b.data_ptr() - a.data_ptr() < 4096)
length = neighbour.data_ptr() + neighbour.nbytes - own.data_ptr()
watcher.watch(own.data_ptr(), length=length, name="long")
torch.cos(own)
neighbour.add_(1)
index = next(index for index, tensor in enumerate(blocks) if tensor is neighbour)
del blocks[index], neighbour
torch.cos(own)
others = [torch.ones(64) for _ in range(20)]  # of which one may get the memory
own.add_(1)
ctypes.memset(own.data_ptr() + 8, 0x5a, 2)
torch.sin(own)
watcher.remove(own.data_ptr(), length=length)
print(json.dumps({"bytes": length}))
"""


def test_a_freed_neighbour_does_not_end_a_watch(msmemscope, python, out):
    (out / "script.py").write_text(NEIGHBOUR, encoding="utf-8")
    run = msmemscope("--device=cpu", "--", *python, out / "script.py").check()
    (item,) = msmemscope.info(run.project())["watched"]
    # Between the blocks and in the freed one others may write, who declare nothing.
    (change,) = [change for change in item["unexpected_changes"] if change["first_offset"] < 256]
    assert change["from"]["operator"] == "torch._ops.aten.add_.Tensor" and change["to"]["operator"] == "torch._ops.aten.sin.default"
    assert change["first_offset"] == 8 and change["bytes"] >= 2
    assert item["bytes"] == run.value("bytes") and "was freed" not in run.stderr and "nothing is watched" not in run.stderr


SWITCHED = """
import sys
import torch, msmemscope
msmemscope.config(watch="aten::mul,aten::neg", output_path=sys.argv[1])
if sys.argv[2] == "before":
    msmemscope.config(watch="")
msmemscope.start()
a = torch.ones(3)
if sys.argv[2] == "after":
    msmemscope.config(watch="")
b = torch.mul(a, 2)
torch.neg(b)
msmemscope.stop()
"""


@pytest.mark.parametrize("when, dumps", [("never", True), ("before", False), ("after", False)])
def test_a_program_switches_its_watch_off(msmemscope, python, dist, out, when, dumps):
    (out / "script.py").write_text(SWITCHED, encoding="utf-8")
    run = msmemscope.bare(*python, out / "script.py", out / "results", when,
                          env={"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so", "PYTHONPATH": dist / "python"}).check()
    assert (out / "results" / "watch_dump").exists() == dumps, str(run)
    assert "is unchanged" not in run.stderr


COMPILED = """
import contextlib, ctypes, json
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from msmemscope import watcher


class Listener(TorchDispatchMode):
    names = []

    @classmethod
    def ignore_compile_internals(cls):
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(f"{func.__module__}.{func.__name__}")
        return func(*args, **(kwargs or {}))


@torch.compile
def update(x):
    x.mul_(2).add_(1)

x = torch.ones(64)
watcher.watch(x, name="x")
for number in range(3):
    with Listener() if number == 2 else contextlib.nullcontext():
        update(x)
    if number == 1:
        ctypes.memset(x.data_ptr() + 4, 0x5a, 3)
torch.cos(x)
print(json.dumps({"before_the_graph": Listener.names}))
"""


def test_compiled_code_may_write_what_its_graph_says(msmemscope, python, out):
    (out / "script.py").write_text(COMPILED, encoding="utf-8")
    run = msmemscope("--", *python, out / "script.py").check()
    (item,) = msmemscope.info(run.project())["watched"]
    (change,) = item["unexpected_changes"]
    # Around the graph older versions call an operator, which sees the change first.
    seen_by = [*run.value("before_the_graph"), "torch.compile"][0]
    assert (change["from"]["operator"], change["to"]["operator"], change["during_one_call"]) == ("torch.compile", seen_by, False)
    assert (change["from"]["call"], change["bytes"], change["first_offset"]) == (2, 3, 4)
    assert item["declared_writers"] == [{"operator": "torch.compile", "changes": 3}]
