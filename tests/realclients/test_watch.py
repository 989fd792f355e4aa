# SPDX-License-Identifier: Apache-2.0
"""Watched memory of the real torch_npu: what optimizers write is expected, what something else writes is told first; by operators
and, from the command line, by the kernels of PyTorch itself; whatever queue the operators go through."""
import re

import pytest

TASK_QUEUES = ("0", "1", "2")


def watched(result):
    """Lines of the report about the weight, and about the same memory by its address."""
    (report,) = result.out.glob("*/report.txt")
    lines = [line for line in report.read_text(encoding="utf-8").splitlines() if line.startswith("Watched: ")]
    assert sorted({re.match(r"Watched: (.*) output 0 on device 0, \d+ bytes", line)[1] for line in lines}) == ["by address", "weight"]
    return lines


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "foreach"])
def test_what_an_optimizer_writes_is_expected(client, optimizer):
    result = client.trace("watched.py", optimizer, "none").check()
    lines = watched(result)
    assert len(lines) == 2 and all("no unexpected change; " in line and " by operators that declare to write it: " in line
                                   for line in lines), lines


@pytest.mark.parametrize("queue", TASK_QUEUES)
def test_an_operator_that_overwrites_a_weight_is_told_first(client, queue):
    result = client.trace("watched.py", "adamw", "op", env={"TASK_QUEUE_ENABLE": queue}).check()
    first, second, *rest = watched(result)
    for line in (first, second):
        assert ("changed during call 1 of torch._ops.culprits.stray.default, which did not declare to write it: 12 bytes (offsets 16 "
                "to 27), step 6, thread ") in line and "watched.py:50" in line, line
    assert not [line for line in rest if "changed during" in line or "changed between" in line]


@pytest.mark.parametrize("level, around", [
    ("op", ("torch._ops.aten.neg.default", "torch._ops.aten.abs.default")),
    ("kernel", ("aclnnNeg", "aclnnAbs in torch._ops.aten.abs.default")),
])
def test_what_overwrites_a_weight_past_pytorch_is_told_with_the_calls_around_it(client, level, around):
    result = client.trace("watched.py", "sgd", "memset", tool=[f"--level={level}"]).check()
    first, second, *rest = watched(result)
    for line in (first, second):
        assert (f"changed between the end of call 1 of {around[0]} and the start of call 1 of {around[1]}: 12 bytes (offsets 16 to 27), "
                "step 6, thread ") in line, line
    assert not [line for line in rest if "changed during" in line or "changed between" in line]


@pytest.mark.parametrize("queue", TASK_QUEUES)
def test_kernels_of_pytorch_are_watched_from_the_command_line(client, queue):
    """Without launch blocking: each dump waits for what it is about. The kernels are told apart by who called them."""
    env = {"TASK_QUEUE_ENABLE": queue, "ASCEND_LAUNCH_BLOCKING": None}
    lines = watched(client.trace("watched.py", "foreach", "none", tool=["--level=kernel"], env=env).check())
    assert len(lines) == 2 and all(re.search(r"no unexpected change; \d+ changes by operators that declare to write it: aclnn", line)
                                   for line in lines), lines
    first, *_ = watched(client.trace("watched.py", "foreach", "op", tool=["--level=kernel"], env=env).check())
    assert ("changed between the end of call 1 of aclnnNeg and the start of call 1 of aclnnAdds in "
            "torch._ops.culprits.stray.default: 12 bytes (offsets 16 to 27), step 6") in first, first


def test_operators_of_the_command_line_give_what_is_watched(client):
    """--watch=START,END: the output of neg until abs, as files of bytes."""
    result = client.trace("watched.py", "sgd", "none", tool=["--watch=aten::neg,aten::abs,full-content"]).check()
    names = sorted(path.name for path in (result.out / "watch_dump").glob("*-aten::neg_0_*.bin"))
    assert [re.sub(r"^0_\d+_", "", name) for name in names] == [
        "torch._ops.aten.abs.default_1-aten::neg_0_after.bin", "torch._ops.aten.abs.default_1-aten::neg_0_before.bin",
        "torch._ops.aten.neg.default_1-aten::neg_0_after.bin"]
    assert {path.read_bytes() for path in (result.out / "watch_dump").glob("*-aten::neg_0_*.bin")} == {b"\0\0\x80\xbf" * 3}


def test_a_freed_neighbour_does_not_end_a_watch(client):
    result = client.trace("neighbour.py").check()
    (report,) = result.out.glob("*/report.txt")
    first, second = [line for line in report.read_text(encoding="utf-8").splitlines() if line.startswith("Watched: ")]
    assert first.startswith(f"Watched: both output 0 on device 0, {result.value('bytes')} bytes, ") and (
        "changed between the end of call 2 of torch._ops.aten.add_.Tensor and the start of call 1 of torch._ops.aten.abs.default: 3 bytes "
        "(offsets 4 to 6), thread ") in first, first
    # Also those that got the memory of the neighbour for their results.
    assert "changes by operators that declare to write it: torch._ops.aten.add_.Tensor (2)" in second, second
