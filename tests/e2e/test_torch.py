# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the CPU: memory of tensors, operators, the tensors that they take and give, and whose memory a block is. PyTorch
itself is the ground truth: its profiler for memory, a dispatch mode of the script's own for operators."""
import json
import os
from collections import Counter
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def torch(msmemscope, python):
    """torch("torch_train.py", options=[...]): runs a target under the tool."""
    def run(name, *arguments, options=("--device=cpu",), status=0):
        done = msmemscope(*options, "--", *python, ROOT / "tests" / "targets" / name, *map(str, arguments))
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
    ([], True, False),
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
    run = torch("torch_train.py", 2)
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


def expected_accesses(run):
    """By thread, the rows that the script says: begin, reads, writes, end of each operator."""
    threads = {}
    for line in map(json.loads, run.stdout.splitlines()):
        rows = threads.setdefault(line["thread"], [])
        rows.append(("ATEN_START", line["name"]))
        rows += [("READ", line["name"], *tensor) for tensor in line["reads"]]
        rows += [("WRITE", line["name"], *tensor) for tensor in line["writes"]]
        rows.append(("ATEN_END", line["name"]))
    return threads


def found_accesses(run):
    threads = {}
    for row in run.rows():
        if row.event == "OP_LAUNCH":
            threads.setdefault(row.tid, []).append((row.type, row.name))
        elif row.event == "ACCESS":
            threads.setdefault(row.tid, []).append(
                (row.type, row.name, row.ptr, row.attr["size"], row.attr["dtype"], row.attr["shape"]))
    return threads


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


def test_owners_are_labelled_once_for_each_new_block(torch, msmemscope):
    """Weights and states of the optimizer once, gradients of each step; what two linear layers, ReLU and the loss save."""
    run = torch("torch_train.py", 3, options=["--device=cpu", "--analysis=decompose"])
    labels = run.value("labels")
    # Input of each layer, result of ReLU is the second of them, log-softmax, its target, and the weight sum of the loss.
    activations = msmemscope.info(run.project())["events_by_type"]["label"] - sum(labels.values())
    assert activations % 4 == 0 and activations // 4 >= 4, "four steps, the same of each"


def test_owners_are_what_the_script_says(torch):
    """Of each tensor that lives at that moment, the last block at its address; weights that are not trained stay what they were."""
    run = torch("torch_owners.py", options=["--device=cpu", "--analysis=decompose"])
    owners = {row.ptr: row.attr["owner"] for row in run.rows() if row.event == "MALLOC"}
    [wanted] = map(json.loads, run.stdout.splitlines())
    assert {name: {owners[address] for address in addresses} for name, addresses in wanted.items()} == {
        name: {f"HOST@{name}"} for name in wanted}


def test_bytes_of_each_class_add_up_to_what_was_in_use(torch, msmemscope):
    run = torch("torch_train.py", 3, options=["--device=cpu", "--analysis=decompose"])
    [host] = [pool for pool in msmemscope.info(run.project(), "--analysis=decompose")["decompose"] if pool["event_type"] == "HOST"]
    used = [row.attr["total"] for row in run.rows() if row.event in ("MALLOC", "FREE") and row.type == "HOST"]
    assert sum(owner["peak_bytes"] for owner in host["owners"]) == host["peak_bytes"] == max(used)
    assert sum(owner["live_bytes"] for owner in host["owners"]) == host["live_bytes"] == used[-1]
    peak = {owner["owner"]: owner["peak_bytes"] for owner in host["owners"]}
    for name in ("weight", "gradient", "optimizer_state", "activation"):
        assert peak[f"HOST@model@{name}"] > 0 and f"HOST@model@{name}\n" in run.stderr
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
    """Between the two every operator dumps it before and after; the report names the one that changed it."""
    run = torch("torch_watch.py", options=[f"--watch={watch},full-content"])
    wanted = {name: bytes.fromhex(data) for name, data in run.value("dumps").items()}
    name = watch.split(",")[0].split("，")[0].removesuffix(":out0")
    assert dumps(run) == {f"{dump.replace('START', name)}.bin": data for dump, data in wanted.items()}
    assert len(wanted) == 9
    assert "changed during call 1 of torch._ops.aten.add_.Tensor" in " ".join(run.stderr.split())


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
    assert dumps(run) == in_dumps(run) and len(in_dumps(run)) == 9


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
