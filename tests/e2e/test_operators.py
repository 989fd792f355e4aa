# SPDX-License-Identifier: Apache-2.0
"""Operators of random networks, and the tensors that they take and give, against two observers of the script's own: a dispatch mode and
PyTorch's profiler. --networks=100 is the long form."""
import json
import subprocess
from pathlib import Path

import pytest

from operators import expected_accesses, found_accesses

TARGET = Path(__file__).resolve().parents[1] / "targets" / "torch_operators.py"
AT_ONCE = 5  # networks in one process: one for each way to run


@pytest.fixture
def observe(msmemscope, python):
    """observe("mode", [1, 2]): runs these networks. The run, and what the script says in JSON."""
    def run(how, seeds):
        done = msmemscope("--device=cpu", "--events=launch,access", "--", *python, TARGET, how, *map(str, seeds)).check()
        assert msmemscope.info(done.projects()[-1])["notes"] == [], "the callback is used, and none of our own code failed"
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    return run


# Operators on ordinary tensors count: those that wrappers, transforms and scripts call in the end. Tensors without memory do not.
CORNERS = """
import os
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._pytree import tree_map


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        result = func(*tree_map(lambda value: value.inner if isinstance(value, Wrapper) else value, args), **(kwargs or {}))
        return tree_map(lambda value: Wrapper(value) if isinstance(value, torch.Tensor) else value, result)


torch.library.define("my::twice", "(Tensor x) -> Tensor")
torch.library.impl("my::twice", "cpu")(lambda x: x * 2)
wrapped = Wrapper(torch.ones(1))                       # ones
gelu = torch.jit.script(torch.nn.GELU())
for _ in range(4):  # the first time that an operator is called teaches what it is
    x = torch.ones(2, 3)                                   # ones
    Wrapper(x).exp()                                       # exp
    with torch._C._DisableTorchDispatch():
        wrapped.detach()
    torch.vmap(lambda one: one.sin() * one)(x)             # sin, mul
    with FakeTensorMode():
        torch.ones(3).cos()
    torch.ones(4, device="meta").tan()
    gelu(x)                                            # gelu
    with torch.inference_mode():
        torch.nn.functional.linear(x, x)                   # t, mm
    torch.ops.my.twice(x)                                  # my.twice
    try:
        x @ x                                              # mm
    except RuntimeError:
        pass
if os.fork() == 0:
    x.neg()                                            # neg, of the child
    os._exit(0)
os.wait()
x.erf()                                                # erf
"""


@pytest.mark.parametrize("events", ["launch", "launch,access"])
def test_operators_of_wrappers_transforms_and_children_are_those_that_compute(msmemscope, python, out, events):
    (out / "corners.py").write_text(CORNERS)
    run = msmemscope("--device=cpu", f"--events={events}", "--", *python, out / "corners.py").check()
    found = {}
    for row in run.rows():
        if row.type == "ATEN_START":
            found.setdefault(row.pid, []).append(row.name[len("torch._ops."):])
    wanted = ["aten.ones.default"] + 4 * ["aten.ones.default", "aten.exp.default", "aten.sin.default", "aten.mul.Tensor", "aten.gelu.default", "aten.t.default",
              "aten.mm.default", "my.twice.default", "aten.mm.default"] + ["aten.erf.default"]
    assert sorted(found.values(), key=len) == [["aten.neg.default"], wanted]


# What PyTorch's profiler gets to know of one step, as it is: events() leaves some out by their times, which older versions round.
BESIDE = """
import torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
optimizer = torch.optim.AdamW(model.parameters())


def step():
    model(torch.ones(4, 2, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(3):
    step()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as found:
    step()
step()
for event in found.profiler.kineto_results.events():
    print(event.name(), event.shapes(), event.start_thread_id())
"""


@pytest.mark.parametrize("events", ["launch", "launch,access"])
def test_the_profiler_of_the_program_sees_what_it_sees_without_us(msmemscope, python, out, events):
    (out / "beside.py").write_text(BESIDE)
    plain = subprocess.run([*python, out / "beside.py"], capture_output=True, text=True, check=True).stdout
    run = msmemscope("--device=cpu", f"--events={events}", "--", *python, out / "beside.py").check()
    assert len(plain.splitlines()) > 300
    assert sorted(run.stdout.splitlines()) == sorted(plain.splitlines()), "in the order of times, which may be the same"
    rows = [row.name for row in run.rows() if row.type == "ATEN_START"]
    step = rows.count("torch._ops.aten.native_layer_norm_backward.default")
    assert step == 2 * 5, "steps with the profiler and without it are recorded alike"


def batches(networks):
    count = AT_ONCE if networks < 20 else 20
    return [range(first, first + AT_ONCE) for first in range(0, count, AT_ONCE)]


def test_names_alone_are_the_same(msmemscope, python):
    """Where no tensors are asked for, PyTorch is not asked for inputs either."""
    seeds = map(str, range(AT_ONCE))
    run = msmemscope("--device=cpu", "--events=launch", "--", *python, TARGET, "mode", *seeds).check()
    assert msmemscope.info(run.projects()[-1])["notes"] == []
    expected = {thread: [row for row in rows if row[0].startswith("ATEN")] for thread, rows in expected_accesses(run).items()}
    found = found_accesses(run)
    assert len(expected) > 1 and sum(map(len, expected.values())) > 1000
    for thread, rows in expected.items():
        assert found[thread][-len(rows):] == rows


def test_operators_and_tensors_are_those_that_a_dispatch_mode_sees(observe, networks):
    """In the same run, so addresses are the same: names, nesting, shapes, types, sizes, in order, on each thread."""
    for seeds in batches(networks):
        run, _ = observe("mode", seeds)
        expected = expected_accesses(run)
        found = found_accesses(run)
        assert len(expected) > 1 and sum(map(len, expected.values())) > 1000
        for thread, rows in expected.items():
            assert found[thread][-len(rows):] == rows


def test_operators_are_the_outermost_ones_that_the_profiler_sees(observe, networks):
    """Without a mode of the script's, and compiled, too. Not all profilers know overloads."""
    for seeds in batches(networks):
        run, told = observe("profiler", seeds)
        found = [row[1] for rows in found_accesses(run).values() for row in rows if row[0] == "ATEN_START"]
        found = " ".join("::".join(name.split(".")[2:4]) for name in found if ".profiler." not in name) + " "
        assert len(told) == 4
        for names in told:
            assert len(names) > 30 and " ".join(names) + " " in found
