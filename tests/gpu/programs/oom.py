# SPDX-License-Identifier: Apache-2.0
"""oom.py CAUSE SEED [uncaught]: runs out of a GPU's memory for a reason that it knows. The seed chooses sizes and forms. PyTorch's pool has
a limit of some GiB (torch.cuda.set_per_process_memory_fraction) but where the device itself has to be full.

    growth          a list, a tensor that grows by cat, or losses with their graphs, in the pool
    outside         a leak in the driver, beside the pool, until the device is full
    spike           one request beyond the limit, or a batch that is many times longer than all before
    fragmentation   most of the pool is free, in pieces
    others          another process has the device; for this one too little is left
    full            all is in use at a steady level

The last line is JSON: {"cause", "form", "requested", "line": of the statement that is refused, "grown": of the one that keeps too much}.
"""
import ctypes
import inspect
import json
import random
import sys

import torch

MIB = 1 << 20
GIB = 1 << 30
CAUSE, SEED = sys.argv[1], int(sys.argv[2])
chance = random.Random(SEED)
limit = chance.randrange(2, 5) * GIB
said = {"cause": CAUSE, "seed": SEED, "limit": limit}


def here(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def set_limit():
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total, 0)


class Training:
    """Steps of a network, marked by NVTX; what they use is a small part of the limit."""

    def __init__(self, share=0.1):
        self.width = 512
        count = max(2, int(limit * share) // (self.width * self.width * 4 * 4))
        self.model = torch.nn.Sequential(*(torch.nn.Linear(self.width, self.width) for _ in range(count))).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.number = 0

    def loss(self, batch=64):
        return self.model(torch.randn(batch, self.width, device="cuda")).square().mean()

    def step(self, inside=None):
        self.number += 1
        torch.cuda.nvtx.range_push("step start")
        try:
            self.optimizer.zero_grad(set_to_none=True)
            self.loss().backward()
            self.optimizer.step()
            if inside is not None:
                inside()
            torch.cuda.synchronize()
        finally:
            torch.cuda.nvtx.range_pop()


def growth():
    training = Training()
    form = said["form"] = chance.choice(["list", "cat", "graphs"])
    kept, history = [], torch.empty(0, dtype=torch.uint8, device="cuda")
    size = int(limit * chance.uniform(0.01, 0.03))

    def collect():
        nonlocal history
        if form == "list":
            said["grown"] = here(1)
            kept.append(tensor(size + chance.randrange(4) * 512))
        elif form == "cat":
            said["grown"] = here(1)
            history = torch.cat([history, torch.ones(size // 2, dtype=torch.uint8, device="cuda")])
        else:
            said["grown"] = here(1)
            kept.append((torch.randn(size // 8192, 512, device="cuda", requires_grad=True) * 2).tanh().sum())

    for _ in range(2000):
        training.step(collect)


def outside():
    driver = ctypes.CDLL("libcuda.so.1")
    training = Training()
    said["form"] = "cuMemAlloc"
    size = chance.randrange(3, 6) * GIB
    passing = chance.randrange(2, 4) * GIB

    def leak():
        address = ctypes.c_uint64()
        said["grown"] = here(1)
        result = driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if result != 0:
            said["line"], said["requested"] = said["grown"], size
            raise torch.OutOfMemoryError(f"cuMemAlloc: {result}")
        said["line"], said["requested"] = here(1), passing
        tensor(passing)
        torch.cuda.empty_cache()

    for _ in range(200):
        training.step(leak)


def spike():
    training = Training()
    form = said["form"] = chance.choice(["request", "larger than the device", "batch"])
    for _ in range(chance.randrange(5, 20)):
        training.step()
    if form == "batch":
        training.step(lambda: training.loss(batch=limit // 12288))
    else:
        total = torch.cuda.get_device_properties(0).total_memory
        said["requested"] = 2 * total if form != "request" else int(limit * chance.uniform(0.95, 3))
        said["line"] = here(1)
        tensor(said["requested"])


def fragmentation():
    training = Training(0.03)
    form = said["form"] = chance.choice(["20 MiB segments", "2 MiB segments", "own segments"])
    low, high = {"20 MiB segments": (5 * MIB, 9 * MIB), "2 MiB segments": (300 * 1024, 900 * 1024), "own segments": (11 * MIB, 30 * MIB)}[form]
    for _ in range(4):
        training.step()
    blocks = []
    if form == "own segments":
        # A segment of hundreds of MiB that smaller ones have cut up.
        del [tensor(int(limit * 0.2)) for _ in range(4)][:]
    while torch.cuda.memory_reserved() + 40 * MIB < limit * 0.93:
        blocks.append(tensor(chance.randrange(low, high)))
    kept = [block for block in blocks if chance.random() < 0.55]
    del blocks[:]
    for _ in range(3):
        training.step()
    torch.cuda.empty_cache()
    left = limit - torch.cuda.memory_reserved()
    said["unused"] = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    said["requested"] = max(left, 0) + int(limit * chance.uniform(0.1, 0.14))
    said["line"] = here(1)
    tensor(said["requested"])
    return kept


def others():
    training = Training(0.02)
    for _ in range(chance.randrange(3, 8)):
        training.step()
    left, _ = torch.cuda.mem_get_info()
    said["form"], said["requested"] = "request", left + chance.randrange(2, 20) * GIB
    said["line"] = here(1)
    tensor(said["requested"])


def full():
    weights = []
    unit = chance.randrange(24, 60) * MIB
    while torch.cuda.memory_reserved() + unit * 2 < limit * 0.88:
        weights.append(tensor(unit))
    training = Training(0.01)
    said["form"] = "weights"
    for _ in range(chance.randrange(4, 12)):
        training.step()
    said["requested"] = limit - torch.cuda.memory_reserved() + chance.randrange(4, 40) * MIB
    said["line"] = here(1)
    weights.append(tensor(said["requested"]))


set_limit() if CAUSE not in ("outside", "others") else torch.cuda.init()
try:
    {"growth": growth, "outside": outside, "spike": spike, "fragmentation": fragmentation, "others": others, "full": full}[CAUSE]()
    said["error"] = "memory did not run out"
except torch.OutOfMemoryError as error:
    said["error"] = str(error).splitlines()[0][:200]
    if "uncaught" in sys.argv:
        print(json.dumps(said), flush=True)
        raise
print(json.dumps(said), flush=True)
