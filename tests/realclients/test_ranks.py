# SPDX-License-Identifier: Apache-2.0
"""Several ranks, started by torchrun, each with a simulated device of its own: the hccl backend of an unmodified torch_npu."""
import os

import pytest

RANKS = int(os.environ.get("MSMEMSCOPE_RANKS", "2"))  # make soak PART=clients: 8


def torchrun(client, program):
    return [client.python, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--standalone", *client.command(program)[1:]]


def test_ranks_train_as_one_process_does_and_have_their_rows(client):
    """All collective operations too: the program asserts them."""
    result = client.trace(None, command=torchrun(client, "ranks.py"), tool=["--level=op,kernel"]).check()
    assert sorted(line["rank"] for line in result.lines) == list(range(RANKS))
    for line in result.lines:
        for way in ("ddp", "fsdp"):
            assert line[way] == pytest.approx(line["alone"], abs=1e-4), f"{way} of rank {line['rank']}"
    assert "simnpu:" not in result.stderr
    rows = [row for row in result.rows() if row.event in ("MALLOC", "FREE", "KERNEL_LAUNCH")]
    for kind in ("PTA", "HAL", "KERNEL_LAUNCH"):
        assert {row.device for row in rows if row.type == kind} == {str(rank) for rank in range(RANKS)}, kind
    of_pid = {}
    for row in rows:
        if row.device != "cpu":
            of_pid.setdefault(row.pid, set()).add(row.device)
    assert sorted(of_pid.values()) == [{str(rank)} for rank in range(RANKS)], "a rank uses its own device"
    names = {row.name for row in rows if row.type == "KERNEL_LAUNCH"}
    assert {"HcclAllReduce", "HcclAllGather", "HcclReduceScatter", "HcclBroadcast", "HcclGroup"} <= names
    # Each communicator has two buffers, for which the library asks as itself.
    assert [row for row in rows if row.type == "HAL" and row.event == "MALLOC" and row.attr["size"] >= 200 << 20]
