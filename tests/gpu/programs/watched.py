# SPDX-License-Identifier: Apache-2.0
"""watched.py sums|large|kernels|capture LIBRARY: tensors that are watched. LIBRARY has checksum() (checksum.c). DEVICE=cpu is for trying it.

sums      blocks of many sizes and places: {"sums": {name: checksum of what it holds}}, and what a kernel that nobody declared does to one
large     the same of 3 GiB, of which one byte is overwritten between two operators
kernels   kernels of operators that write as they say, and of one that does not say it: {"writes": how often the one block changes}
capture   operators inside a graph that is captured, and its replays: {"sum", "wanted"}: what they computed, and what they should
"""
import ctypes
import json
import os
import sys
import time

import torch
from msmemscope import watcher

WHAT, LIBRARY = sys.argv[1:]
DEVICE = os.environ.get("DEVICE", "cuda")
library = ctypes.CDLL(LIBRARY)
library.checksum.restype = ctypes.c_uint64
library.checksum.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
MIB = 1 << 20


def checksum(tensor):
    host = tensor.cpu().contiguous()
    return f"{library.checksum(host.data_ptr(), host.nbytes):016x}"


def overwrite(address):
    """One byte, by nobody's operator."""
    if DEVICE == "cpu":
        ctypes.memmove(address, bytes([ctypes.string_at(address, 1)[0] ^ 0xff]), 1)
        return
    driver, byte = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(1)
    assert driver.cuMemcpyDtoH_v2(byte, ctypes.c_uint64(address), ctypes.c_size_t(1)) == 0
    assert driver.cuMemcpyHtoD_v2(ctypes.c_uint64(address), bytes([byte.raw[0] ^ 0xff]), ctypes.c_size_t(1)) == 0


def blocks():
    """{name: tensor}: sizes that are no multiples of words, views that begin at odd addresses."""
    found = {}
    for size in (1, 15, 4096, MIB, MIB + 1, MIB + 4, MIB + 8, MIB + 4095, 2 * MIB + 13, 5 * MIB + 4097, 33 * MIB + 7, 200 * MIB + 3):
        found[f"of {size}"] = torch.randint(0, 256, (size,), dtype=torch.uint8, device=DEVICE)
    whole = torch.randint(0, 256, (3 * MIB,), dtype=torch.uint8, device=DEVICE)
    for first in (1, 3, 4, 7, 8, 13):
        found[f"from {first}"] = whole[first:first + 2 * MIB + first]
    found["transposed"] = torch.randn(700, 900, device=DEVICE).t()
    found["half"] = torch.randn(999_999, device=DEVICE, dtype=torch.float16)
    return found


def sums():
    kept = blocks()
    said = {name: checksum(tensor if name != "transposed" else tensor.t()) for name, tensor in kept.items()}
    small = torch.ones(4, device=DEVICE)
    for name, tensor in kept.items():
        watcher.watch(tensor, name=name, dump_nums=2)
        torch.neg(small)
        watcher.remove(tensor)
    print(json.dumps({"sums": said}), flush=True)


def large():
    big = torch.arange((3 << 30) // 8 + 1, device=DEVICE, dtype=torch.int64)[:-1].view(torch.uint8)[:-5]
    if DEVICE == "cpu":
        big = big[:32 * MIB + 3].clone()
    small, before = torch.ones(4, device=DEVICE), checksum(big)
    watcher.watch(big, name="large")
    begin = time.monotonic()
    torch.neg(small)
    torch.cos(small)
    took = time.monotonic() - begin
    overwrite(big.data_ptr() + len(big) // 3)
    torch.sin(small)
    watcher.remove(big)
    print(json.dumps({"before": before, "after": checksum(big), "bytes": big.nbytes, "offset": len(big) // 3,
                      "ms_per_dump": took * 250}), flush=True)


def kernels():
    definitions = torch.library.Library("watched", "DEF")
    definitions.define("careless(Tensor x) -> Tensor")
    blocks = {name: torch.ones(size, device=DEVICE) for name, size in (("written", 700_001), ("quiet", 1000), ("stray", 300_000))}

    hidden = blocks["stray"][10:14]

    def careless(x):
        """Its schema does not say that it writes the other block."""
        torch.add(x, 1, out=hidden)
        return x * 2

    definitions.impl("careless", careless, DEVICE.upper())
    for name, tensor in blocks.items():
        watcher.watch(tensor, name=name)
    writes = 0
    for turn in range(3):
        blocks["written"].add_(1)
        blocks["written"][turn:turn + 5].mul_(3)
        writes += 2
    for tensor in blocks.values():
        tensor.sum()
    torch.ops.watched.careless(torch.ones(4, device=DEVICE))
    print(json.dumps({"writes": writes}), flush=True)


def capture():
    x, out = torch.ones(1 << 20, device=DEVICE), torch.zeros(1 << 20, device=DEVICE)
    watched = torch.full((1 << 20,), 3.0, device=DEVICE)

    def work():
        out.add_(x * 2).mul_(watched)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    watcher.watch(watched, name="in a graph")
    watcher.watch(out, name="written by a graph")
    graph = torch.cuda.CUDAGraph()
    out.zero_()
    with torch.cuda.graph(graph):
        work()
        torch.ones(3).add_(1)  # on the host, in the middle of a capture
    for _ in range(3):
        graph.replay()
    torch.cos(x)  # what the graph wrote until now its operators have declared
    graph.replay()
    torch.sin(x)
    print(json.dumps({"sum": out.sum().item(), "wanted": 240 << 20}), flush=True)


{"sums": sums, "large": large, "kernels": kernels, "capture": capture}[WHAT]()
