# SPDX-License-Identifier: Apache-2.0
"""Uses memory in many ways and says after each what torch_npu itself counts: as an mstx mark, where it appears among the rows, and
as a line of JSON.

    story.py [part...]     all parts by default
"""
import json
import sys
import threading

import mstx
import torch
import torch_npu  # pylint: disable=unused-import

from models import OPTIMIZERS, Transformer, step


def mark(name):
    """Everything on the way has arrived, so that the counters and the rows speak of the same moment."""
    for device in USED:
        torch.npu.synchronize(device)
    for device in USED:
        stats = torch.npu.memory_stats(device)
        counted = {
            "allocated": stats.get("allocated_bytes.all.current", 0),
            "reserved": stats.get("reserved_bytes.all.current", 0),
            "allocations": stats.get("allocation.all.allocated", 0),
            "frees": stats.get("allocation.all.freed", 0),
        }
        mstx.mark(f"count {name} {device} " + " ".join(f"{key}={value}" for key, value in counted.items()))
        print(json.dumps({"mark": name, "device": device, **counted}), flush=True)


def tensors():
    kept = [torch.empty(1000 * (n + 1), device="npu") for n in range(8)]
    mark("alive")
    del kept[::2]
    mark("half")
    large = torch.zeros(3 << 20, device="npu")  # not from a small block
    mark("large")
    del large, kept
    mark("none")


def training():
    torch.manual_seed(0)
    model = Transformer(dropout=0.1).npu()
    optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
    inputs, targets = (tensor.npu() for tensor in Transformer.batch())
    for n in range(3):
        step(model, optimizer, inputs, targets)
        mark(f"step{n}")


def streams():
    side = torch.npu.Stream()
    data = torch.ones(5000, device="npu")
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        other = data * 2
        data.record_stream(side)
        del data
    mark("side")
    torch.npu.current_stream().wait_stream(side)
    assert other.sum().item() == 10000
    del other
    mark("joined")


def pinned():
    host = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    assert host.is_pinned()
    device = host.npu(non_blocking=True)
    mark("pinned")
    back = device.cpu()
    assert torch.equal(back, host)
    del host, device
    mark("unpinned")


def threads():
    def work(number):
        torch.npu.set_device(0)
        for n in range(20):
            kept = torch.full((100 * (number + 1), n + 1), float(n), device="npu")
            assert kept.sum().item() == kept.numel() * n
    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    mark("threads")


def devices():
    first = torch.ones(2000, device="npu:0")
    second = torch.ones(3000, device="npu:1")
    USED.append(1)
    moved = first.to("npu:1")
    assert moved.sum().item() == 2000 and second.sum().item() == 3000
    mark("two_devices")
    del first, second, moved
    mark("two_devices_free")


def caches():
    torch.empty(30 << 20, dtype=torch.uint8, device="npu")
    mark("cached")
    torch.npu.empty_cache()
    mark("emptied")
    kept = torch.ones(10, device="npu")
    mark("after_emptied")
    del kept


PARTS = {part.__name__: part for part in (tensors, training, streams, pinned, threads, devices, caches)}
USED = [0]  # devices; another one is looked at when it has its first tensor
for part in sys.argv[1:] or PARTS:
    PARTS[part]()
