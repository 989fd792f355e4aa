# SPDX-License-Identifier: Apache-2.0
"""What people use the tool for, on programs that print the truth: leaks, inefficient memory, running out of memory, and ranks that train
a data-parallel model in mixed precision. Watching, snapshots and a plain profile have files of their own (test_watch.py,
test_features.py, test_rows.py).
"""
import json
import re
import subprocess

import pytest

from clients import HERE
from test_analysis import line_of
from test_ranks import torchrun
from test_rows import POOLS, agree_with_counters, agree_with_receiver, kernels_agree

MIB = 1 << 20


def test_every_forgotten_block_is_told_with_its_size_address_and_step(client):
    """And no other: not the full cache, not the queue. The first step is never judged."""
    result = client.trace("smoke_leaks.py").check()
    (path,) = result.out.glob("*/report.txt")
    told = re.findall(r"^Direct (Hal|Pytorch Caching) memory (?:pool )?leak of (\S+) Mb\(s\) at (0x[0-9a-f]+) in kernel_\d+ "
                      r"at step (\d+)\.$", path.read_text(encoding="utf-8"), re.M)
    forgotten = [("Hal" if block["place"] == "runtime" else "Pytorch Caching", f"{block['size'] / MIB:.6f}", hex(block["address"]),
                  str(block["step"])) for block in result.value("forgotten") if block["step"] > 1]
    assert sorted(told) == sorted(forgotten) and len(told) == 37
    assert f"Mb(s) leaked in {len(told)} allocation(s)" in result.stderr
    places = re.findall(r"^leak: (.*?)  ", path.read_text(encoding="utf-8"), re.M)
    forget = f" -> smoke_leaks.py:{line_of('smoke_leaks.py', 'torch.full(')} forget"
    lines = [line_of("smoke_leaks.py", text) for text in ("acl.aclrtMalloc", 'forget("second"', 'forget("each"')]
    assert places == [f"smoke_leaks.py:{lines[0]}", f"smoke_leaks.py:{lines[1]}{forget}", f"smoke_leaks.py:{lines[2]}{forget}"]


def test_inefficient_blocks_are_those_that_the_program_planted(client):
    result = client.trace("smoke_inefficient.py", tool=["--analysis=inefficient"]).check()
    found = [row.attr.get("inefficient_type") for row in result.rows()
             if row.type == "PTA" and row.event == "MALLOC" and row.attr["size"] > result.value("size")]
    assert found == result.value("kinds")


def test_running_out_of_memory_is_explained(client):
    """Snapshots have torch_npu's counters, and so has the verdict; the blocks that are listed are those that the program kept."""
    # So much that the cached workspace of matrix products, 22 MiB, would not make room for the request that is refused.
    result = client.trace("smoke_oom.py", tool=["--analysis=oom:5"], env={"SIMNPU_HBM": "494M"}).check()
    assert result.value("ooms") == 1
    rows = result.rows()
    snapshots = [row for row in rows if row.event == "SNAPSHOT"]
    assert [row.name for row in snapshots] == ["OOM_Snapshot Before", "OOM_Snapshot After"]
    for row in snapshots:
        for key in ("reserved", "max_reserved", "allocated", "max_allocated"):
            given_back = 22 * MIB if key == "reserved" and row.name == "OOM_Snapshot Before" else 0
            assert row.attr[key] == result.value(key) + given_back, (key, row)
        assert row.attr["total"] == 494 * MIB
        assert row.python_stack.startswith(f"{HERE}/programs/smoke_oom.py({line_of('smoke_oom.py', '# WHAT GROWS')}): <module>")
    details = {kind: [row.attr for row in rows if row.event == "OOM_DETAIL" and row.type == kind]
               for kind in ("OOM_TRIGGER", "OOM_RECENT_ALLOC", "OOM_TOP_ALLOC")}
    # torch_npu asks for its 24 MiB and 32 bytes in units of 2 MiB.
    assert [row["req_size"] for row in details["OOM_TRIGGER"]] == [26 * MIB]
    assert [row["ptr"] for row in details["OOM_TOP_ALLOC"]] == result.value("blocks")[:5]
    index = next(n for n, row in enumerate(rows) if row.event == "SNAPSHOT")
    live = {}
    for row in rows[:index]:
        if row.event == "MALLOC":
            live[row.type, row.ptr] = row
        elif row.event == "FREE":
            del live[row.type, row.ptr]
    newest = list(live.values())[:-6:-1]
    assert [(row["pool"], row["ptr"], row["size"]) for row in details["OOM_RECENT_ALLOC"]] == [
        (row.type, row.ptr, row.attr["size"]) for row in newest]
    (project,) = result.out.glob("msmemscope_*")
    done = subprocess.run([client.dist / "bin" / "msmemscope", "info", "--json", project], check=True, stdout=subprocess.PIPE, text=True)
    ((verdict,),) = [process["oom"] for process in json.loads(done.stdout)["processes"]]
    assert (verdict["cause"], verdict["step"], verdict["requested_bytes"]) == ("growth", result.value("steps") + 1, 26 * MIB)
    assert verdict["growing"]["frames"][0]["line"] == line_of("smoke_oom.py", "# WHAT GROWS")


def test_a_request_that_the_pool_refuses_by_its_own_limit_is_explained(client):
    """No call of the driver fails, so nothing but torch_npu's observer knows of it."""
    result = client.trace("pool_limit.py").check()
    assert result.value("ooms") == 1 and "allowed" in result.value("message")
    text = " ".join(result.stderr.split())
    assert f"OUT OF MEMORY on NPU 0, step {result.value('steps') + 1}: " in text, result.stderr
    assert "The device had free memory; the pool's own limit was reached (set_per_process_memory_fraction)." in text
    line = line_of("pool_limit.py", "# WHAT GROWS")
    assert f"Cause: growth. pool_limit.py:{line} keeps 24.0 MiB more with every step." in text, result.stderr
    assert f"Try: bound what list `kept` keeps: remove items from the list when they are no longer needed; filled at pool_limit.py:{line}." in text


@pytest.fixture(scope="module", name="ranks")
def ranks_fixture(client, receiver):
    """A run of two ranks with all that is known about it, by process."""
    received, kernels = client.work / "ranks", client.work / "kernels-%p"
    received.mkdir()
    result = client.trace(None, command=torchrun(client, "smoke_ddp.py"),
                          tool=["--level=op,kernel", "--analysis=decompose", "--events=launch"],
                          env={"MSTX_INJECTION_PATH": str(receiver), "RECEIVER": str(received), "SIMNPU_LOG": str(kernels)})
    result.check()
    assert sorted(line["rank"] for line in result.lines) == [0, 1]
    assert "simnpu:" not in result.stderr
    result.ranks = [(line, [row for row in result.rows() if row.pid == line["pid"]],
                     [text.split() for text in (received / str(line["pid"])).read_text(encoding="utf-8").splitlines()],
                     [text.split() for text in (client.work / f"kernels-{line['pid']}").read_text(encoding="utf-8").splitlines()])
                    for line in result.lines]
    return result


def test_ranks_have_the_rows_of_their_counters_and_receivers(ranks):
    for line, rows, received, kernels in ranks.ranks:
        assert line["losses"][-1] < line["losses"][0]
        assert agree_with_counters(rows) == line["steps"]
        for domain in POOLS:
            agree_with_receiver(rows, received, domain)
        kernels_agree(rows, kernels)
        names = {row.name for row in rows if row.type == "KERNEL_LAUNCH"}
        assert {"HcclAllReduce", "aclnnForeachNonFiniteCheckAndUnscale", "aclnnAmpUpdateScale"} <= names
        assert {row.device for row in rows if row.type == "PTA"} == {str(line["rank"])}


@pytest.mark.parametrize("kind", ["weight", "gradient", "optimizer_state"])
def test_the_tensors_of_a_rank_have_their_owners(ranks, kind):
    """The blocks that live at the end where the model's own tensors lie have that owner, and no other block that lives has it."""
    for line, rows, _, _ in ranks.ranks:
        live = {}
        for row in rows:
            if row.event == "MSTX" and row.name.startswith(f"count {line['steps'] - 1} "):
                break
            if row.type == "PTA" and row.event == "MALLOC":
                live[row.ptr] = row
            elif row.type == "PTA" and row.event == "FREE":
                del live[row.ptr]
        owned = sorted(address for address, row in live.items() if row.attr["owner"] == f"PTA@model@{kind}")
        assert owned and owned == sorted(line[kind]), line["rank"]
