# SPDX-License-Identifier: Apache-2.0
"""One feature of torch_npu that has to do with memory, by name. Prints what there is to know."""
import json
import sys

import torch
import torch.multiprocessing as mp
import torch_npu  # pylint: disable=unused-import
from torch.utils.data import DataLoader, TensorDataset


def say(**values):
    print(json.dumps(values), flush=True)


def oom():
    """More than the device has: the allocator says so, and goes on."""
    kept = []
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="npu"))
    except torch.OutOfMemoryError as error:
        say(blocks=len(kept), message=str(error))
    kept.clear()
    torch.npu.empty_cache()
    say(after=torch.ones(1000, device="npu").sum().item())


def expandable():
    """Segments that grow in place: with PYTORCH_NPU_ALLOC_CONF=expandable_segments:True."""
    kept = [torch.full((300 << n,), float(n), device="npu") for n in range(14)]
    say(right=all(tensor.eq(n).all().item() for n, tensor in enumerate(kept)))
    stats = torch.npu.memory_stats()
    say(allocated=stats["allocated_bytes.all.current"], reserved=stats["reserved_bytes.all.current"])
    del kept
    torch.npu.empty_cache()
    say(emptied=torch.npu.memory_stats()["reserved_bytes.all.current"])


def unnumbered():
    """Devices without a number: the one that is set at that moment."""
    torch.npu.set_device(1)
    kept = [torch.empty(1000, device="npu")]
    with torch.npu.device(2):
        kept.append(torch.empty(2000, device="npu"))
    kept.append(torch.empty(3000, device="npu"))
    say(devices=[str(tensor.device.index) for tensor in kept])


def mempool():
    """A pool of its own."""
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = torch.ones(5 << 20, device="npu")
    outside = torch.ones(5 << 20, device="npu")
    say(sum=inside.sum().item() + outside.sum().item(), apart=abs(inside.data_ptr() - outside.data_ptr()) >= 20 << 20)


def loader():
    """Workers that read, a thread that pins, copies that do not wait."""
    data = TensorDataset(torch.arange(256.0).reshape(64, 4), torch.arange(64))
    batches = DataLoader(data, batch_size=8, num_workers=2, pin_memory=True)
    total = 0
    for inputs, targets in batches:
        assert inputs.is_pinned() and targets.is_pinned()
        total += (inputs.npu(non_blocking=True).sum() + targets.npu(non_blocking=True).sum()).item()
    say(total=total, wanted=float(sum(range(256)) + sum(range(64))))


def child(number, results):
    torch.npu.set_device(number)
    results.put((number, torch.full((1000,), number + 1.0, device="npu").sum().item()))


def spawn():
    """Processes with a device each."""
    results = mp.get_context("spawn").SimpleQueue()
    mp.spawn(child, args=(results,), nprocs=2)
    say(results=sorted(results.get() for _ in range(2)))


def graph():
    """Operators that are captured once and replayed, on two streams."""
    x = torch.zeros(1000, device="npu")
    side = torch.npu.Stream()
    captured = torch.npu.NPUGraph()
    with torch.npu.graph(captured):
        double = x * 2
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            other = double + 1
        torch.npu.current_stream().wait_stream(side)
        total = (double + other).sum()
    totals = []
    for value in (1.0, 3.0, 5.0):
        x.fill_(value)
        captured.replay()
        totals.append(total.item())
    say(totals=totals)
    layer = torch.nn.Linear(8, 8).npu()
    fast = torch.npu.make_graphed_callables(layer, (torch.randn(4, 8, device="npu"),))
    values = torch.randn(4, 8, device="npu")
    out = fast(values)
    out.sum().backward()
    say(same=torch.allclose(out, torch.nn.functional.linear(values, layer.weight, layer.bias)),
        gradient=torch.allclose(layer.weight.grad, values.sum(0).expand(8, 8)))


def snapshot():
    """Snapshots of devices that are used and of some that are not, with torch_npu's own counters at the same moments."""
    import msmemscope

    def take(name, mask, devices):
        msmemscope.take_snapshot(mask, name=name)
        # Not of a device that is not used: mem_get_info() would begin it.
        said.extend([name, str(device), npu.memory_reserved(device), npu.max_memory_reserved(device), npu.memory_allocated(device),
                     npu.max_memory_allocated(device), *(npu.mem_get_info(device)[::-1] if device in used else (None, None))]
                    for device in devices)

    npu, used, said = torch.npu, set(), []
    msmemscope.take_snapshot(name="nothing yet")
    say(begun=npu.is_initialized())
    kept = []
    for turn in range(6):
        device = turn % 2
        used.add(device)
        kept.append(torch.ones((turn + 1) * 700000, device=f"npu:{device}"))
        if turn % 3 == 2:
            kept.pop(0)
        take(f"int {turn}", device, [device])
    take("list", [0, 1], [0, 1])
    take("tuple", (1, 0), [1, 0])
    take("all", None, range(npu.device_count()))
    kept.clear()
    npu.empty_cache()
    with msmemscope.TakeSnapshot(torch.device("npu:0"), name="around"):
        torch.ones(1000, device="npu:0")
    say(snapshots=said, reserved=npu.memory_reserved(0), count=npu.device_count())


if __name__ == "__main__":
    {function.__name__: function for function in (oom, expandable, unnumbered, mempool, loader, spawn, graph, snapshot)}[sys.argv[1]]()
