# SPDX-License-Identifier: Apache-2.0
"""--watch on operators of Ascend Transformer Boost: called by name or by their place in the model, in both builds of the library
and both layouts of an operator's pack, whose stream is the one to wait for (targets/atb/atb_watch.cpp)."""
import pytest

from atb import FORMS, libraries
from watch_model import MODEL, checksums, content, expected, sums

PATH = "token0/layer0/module0"


@pytest.fixture
def watched(msmemscope, dist, targets, program):
    def run(form, watch, *words, options=()):
        return msmemscope(f"--watch={watch}", *options, "--", *program(f"{form}/atb_watch", *words),
                          env=libraries(dist, targets, form)).check()

    return run


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("watch, settings", [
    ("op0,op1", {"start": "op0", "end": "op1"}),
    ("op0:out1,op1", {"start": "op0", "output": 1, "end": "op1"}),
    ("op0:1，op1", {"start": "op0", "output": 1, "end": "op1"}),
    (f"{PATH}/op0,{PATH}/op1", {"start": f"{PATH}/op0", "end": f"{PATH}/op1"}),
])
def test_operators_of_atb_dump_the_outputs_of_start_until_end(watched, form, watch, settings):
    run = watched(form, watch, *MODEL)
    wanted = expected(run.stdout, **settings)
    assert checksums(run.out) == sums(wanted)
    # By name both layers are meant, by path the first alone.
    assert len(wanted) == {"op0,op1": 28, f"{PATH}/op0,{PATH}/op1": 14}.get(watch, 14)


@pytest.mark.parametrize("form", FORMS)
def test_paths_name_files_with_dots(watched, form):
    run = watched(form, f"{PATH}/op0,{PATH}/op1,full-content", *MODEL)
    wanted = expected(run.stdout, start=f"{PATH}/op0", end=f"{PATH}/op1")
    files = {path.name: path.read_bytes() for path in (run.out / "watch_dump").iterdir()}
    assert files == {name.replace("/", "."): content(block, added)[0] for name, block, added in wanted}
    assert any(name.endswith("_token0.layer0.module0.op2_1-token0.layer0.module0.op0_1_before.bin") for name in files)


@pytest.mark.parametrize("level, settings", [("kernel", {"op": False, "kernel": True}), ("0,1", {"op": True, "kernel": True})])
@pytest.mark.parametrize("form", ["atb_abi0", "atb_abi1"])
def test_at_kernel_level_the_kernels_of_atb_dump(watched, form, level, settings):
    run = watched(form, "op0,op1", *MODEL, options=[f"--level={level}"])
    wanted = expected(run.stdout, start="op0", end="op1", **settings)
    assert checksums(run.out) == sums(wanted)
    assert any("_0_kop3_2_1-op0_0_before" in name for name, _, _ in wanted)


def test_watching_needs_no_events(watched):
    run = watched("atb_abi1", "op0,op1", *MODEL, options=["--events="])
    assert checksums(run.out) == sums(expected(run.stdout, start="op0", end="op1"))


def test_a_block_that_a_stray_kernel_writes_is_told_with_the_operators_around_it(watched):
    run = watched("atb_abi1", "op0,op1", "m/op0=01:01", "m/op2=:", "!0", "m/op3=:", "m/op1=:")
    assert ("Watched: op0 output 0 on device 0, 4096 bytes, 7 dumps: changed between the end of call 1 of op2 and the start of "
            "call 1 of op3: 4096 bytes (offsets 0 to 4095), thread ") in run.stderr.replace("\n      ", " "), str(run)
    assert "Watched: op0 output 1 on device 0, 1000 bytes, 7 dumps: no change." in run.stderr
