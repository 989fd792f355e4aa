# SPDX-License-Identifier: Apache-2.0
"""The tool's rows of a real torch_npu: against what torch_npu itself counts, at many moments of a run, and event by event against
a receiver of our own that stands between torch_npu and the tool.

TASK_QUEUE_ENABLE decides on which threads operators and their workspaces are handled: 0 all on the caller's, 1 launches on another,
2 workspaces too.
"""
import re

import pytest

QUEUES = ("0", "1", "2")


@pytest.fixture(scope="module", params=QUEUES)
def story(request, client, receiver):
    """A run of story.py with rows and the receiver's lines."""
    log = client.work / f"receiver{request.param}.txt"
    log.unlink(missing_ok=True)
    kernels = client.work / f"kernels{request.param}.txt"
    kernels.unlink(missing_ok=True)
    result = client.trace("story.py", tool=["--level=op,kernel", "--events=alloc,free,launch"],
                          env={"TASK_QUEUE_ENABLE": request.param, "MSTX_INJECTION_PATH": str(receiver), "RECEIVER": str(log),
                               "SIMNPU_LOG": str(kernels)})
    result.check()
    result.queue = request.param
    result.kernels = [line.split() for line in kernels.read_text(encoding="utf-8").splitlines()]
    result.received = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    return result


def counted(row):
    """What a mark of story.py says: its name, its device and the counters."""
    name, device, rest = re.fullmatch(r"count (\S+) (\d+) (.*)", row.name).groups()
    return name, device, {key: int(value) for key, value in (pair.split("=") for pair in rest.split())}


def agree_with_counters(rows):
    """How many marks there are; at each the sums of the rows are what torch_npu counts."""
    used, total, mallocs, frees = {}, {}, {}, {}
    marks = 0
    for row in rows:
        if row.type == "PTA":
            device = row.device
            change = row.attr["size"] if row.event == "MALLOC" else -row.attr["size"]
            used[device] = used.get(device, 0) + change
            total[device] = row.attr["total"]
            counts = mallocs if row.event == "MALLOC" else frees
            counts[device] = counts.get(device, 0) + 1
            assert row.attr["used"] == used[device], f"{row}: the row's own sum"
        elif row.type == "HAL" and "reserved" in row.attr:
            # A segment goes back to the driver: what the pool has reserved after it.
            total[row.device] = row.attr["reserved"]
        elif row.event == "MSTX" and row.name.startswith("count "):
            name, device, truth = counted(row)
            marks += 1
            where = f"{name}, device {device}"
            assert used.get(device, 0) == truth["allocated"], where
            assert mallocs.get(device, 0) == truth["allocations"], where
            assert frees.get(device, 0) == truth["frees"], where
            assert total.get(device, 0) == truth["reserved"], where
    return marks


def test_rows_agree_with_the_counters_of_torch_npu(story):
    assert agree_with_counters(story.rows()) == len([line for line in story.lines if "mark" in line])
    assert [row for row in story.rows() if row.type == "HAL" and "reserved" in row.attr]


POOLS = {"ptaCaching": "PTA", "ptaWorkspace": "PTA_WORKSPACE"}


def agree_with_receiver(rows, received, domain):
    """Kind, address, size, device, what is reserved, and order, in one of the two pools: these are used on different threads."""
    rows = [row for row in rows if row.type == POOLS[domain]]
    assert {line[1] for line in received} <= set(POOLS)
    received = [line for line in received if line[1] == domain]
    assert len(rows) == len(received)
    assert len(rows) > 500 or domain != "ptaCaching"
    for row, (event, _, device, address, size, heap) in zip(rows, received):
        where = f"{row} against {event} {device} {address} {size}"
        assert row.event == event and row.ptr == int(address, 16), where
        if event == "MALLOC":
            assert (row.device, row.attr["size"], row.attr["total"]) == (device, int(size), int(heap)), where
    print(f"{domain}: {len(rows)} of {len(received)} rows are equal")


@pytest.mark.parametrize("domain", POOLS)
def test_rows_agree_with_an_independent_receiver(story, domain):
    agree_with_receiver(story.rows(), story.received, domain)


def test_workspaces_have_rows_of_their_own(story):
    rows = [row for row in story.rows() if row.type == "PTA_WORKSPACE"]
    if story.queue != "2":
        assert not rows, "workspaces are blocks of the caching pool"
        return
    mallocs = [row for row in rows if row.event == "MALLOC"]
    frees = [row for row in rows if row.event == "FREE"]
    assert len(mallocs) > 20 and len(mallocs) == len(frees)
    assert {row.ptr for row in mallocs} == {row.ptr for row in frees}


def test_the_pools_lie_in_memory_of_the_driver(story):
    """Every block of a pool lies in a block of the driver that is alive, and the pools reserve what the driver gave."""
    driver = {}
    held = {}
    for row in story.rows():
        if row.type == "HAL" and row.event == "MALLOC":
            driver[row.ptr] = (row.attr["size"], row.device)
            held[row.device] = held.get(row.device, 0) + row.attr["size"]
        elif row.type == "HAL" and row.event == "FREE":
            size, device = driver.pop(row.ptr)
            held[device] -= size
        elif row.type in POOLS.values() and row.event == "MALLOC":
            assert any(start <= row.ptr and row.ptr + row.attr["size"] <= start + size
                       for start, (size, _) in driver.items()), row
        elif row.event == "MSTX" and row.name.startswith("count "):
            name, device, truth = counted(row)
            if story.queue != "2":
                assert held.get(device, 0) == truth["reserved"], f"{name}, device {device}"


def test_pinned_memory_has_rows(story):
    """PyTorch keeps pinned memory for reuse, so it is not freed before the end."""
    rows = [row for row in story.rows() if row.type.startswith("HOST")]
    mallocs = [row for row in rows if row.event == "MALLOC"]
    assert any(row.attr["size"] >= 1 << 20 for row in mallocs), rows


def kernels_agree(rows, kernels):
    """With the log of the simulated device: each kernel once, with its name and its place, launched, begun and ended."""
    ran = sorted((device, stream, task, name) for device, stream, task, name, _, _ in kernels)
    for kind in ("KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END"):
        assert ran == sorted((row.device, str(row.attr["streamId"]), str(row.attr["taskId"]), row.name)
                             for row in rows if row.type == kind), kind
    print(f"{len(ran)} kernels are equal")


def test_kernels_are_those_that_ran(story):
    kernels_agree(story.rows(), story.kernels)
    names = {name for _, _, _, name, _, _ in story.kernels}
    assert {"aclnnMatmul", "aclnnLayerNorm", "aclnnEmbedding", "aclnnSoftmaxBackward"} <= names
