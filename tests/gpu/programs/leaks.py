# SPDX-License-Identifier: Apache-2.0
"""leaks.py SEED DEVICE: a training with random things beside it, of which it knows which leak: DEVICE is cuda or cpu. Each thing takes
its memory at lines of its own, and says which. The last line is JSON: {"seed", "steps", "marks", "things": [{"name", "leaks", "lines"}]}.
"""
import collections
import ctypes
import inspect
import json
import random
import sys

import torch

import msmemscope

SEED, DEVICE = int(sys.argv[1]), sys.argv[2]
STEPS = 60
chance = random.Random(SEED)
torch.manual_seed(SEED)
KIB = 1024
things = []


def thing(leaks, only=None):
    """Registers a function that makes a function of the step's number."""
    def add(make):
        if only in (None, DEVICE):
            first = make.__code__.co_firstlineno
            lines = list(range(first, first + len(inspect.getsource(make).splitlines())))
            things.append({"name": make.__name__, "leaks": leaks, "lines": lines, "make": make})
        return make
    return add


def size():
    return chance.randrange(8, 400) * KIB


@thing(True)
def list_that_grows():
    kept, count = [], size()
    return lambda step: kept.append(torch.empty(count, dtype=torch.uint8, device=DEVICE))


@thing(True)
def every_kth_is_kept():
    kept, count, k = [], size(), chance.randrange(2, 4)
    return lambda step: step % k or kept.append(torch.zeros(count, dtype=torch.uint8, device=DEVICE))


@thing(True)
def sizes_vary():
    kept = {}
    return lambda step: kept.update({step: torch.empty(size(), dtype=torch.uint8, device=DEVICE)})


@thing(True)
def losses_with_their_graphs():
    losses, layer, width = [], torch.nn.Linear(256, 256).to(DEVICE), chance.randrange(64, 512)
    return lambda step: losses.append(layer(torch.randn(width, 256, device=DEVICE)).relu().sum())


@thing(True)
def grows_by_cat():
    state = {"all": torch.zeros(0, device=DEVICE)}
    more = chance.randrange(64, 200) * KIB  # PyTorch's pool leaves up to 1 MiB of a block unused
    return lambda step: state.update(all=torch.cat([state["all"], torch.ones(more, device=DEVICE)]))


@thing(True)
def double_buffer_that_forgets():
    buffers, forgotten, count = [None, None], [], size()

    def run(step):
        if step % 2 and buffers[0] is not None:
            forgotten.append(buffers[0])
        buffers[0], buffers[1] = buffers[1], torch.empty(count, dtype=torch.uint8, device=DEVICE)
    return run


@thing(True, "cuda")
def driver_memory():
    driver, count = ctypes.CDLL("libcuda.so.1"), chance.randrange(1, 8) << 20
    return lambda step: driver.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(count))


@thing(True, "cuda")
def pinned_memory():
    driver, count = ctypes.CDLL("libcuda.so.1"), chance.randrange(1, 8) << 18
    return lambda step: driver.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(count), 0)


@thing(True, "cuda")
def pinned_tensors():
    kept, count = [], chance.randrange(1, 8) << 18
    return lambda step: kept.append(torch.empty(count, dtype=torch.uint8, pin_memory=True))


@thing(False)
def temporaries():
    count = size()

    def run(step):
        for _ in range(3):
            torch.empty(count, dtype=torch.uint8, device=DEVICE)
    return run


@thing(False)
def last_few():
    kept, count = collections.deque(maxlen=chance.randrange(2, 6)), size()
    return lambda step: kept.append(torch.empty(count, dtype=torch.uint8, device=DEVICE))


@thing(False)
def cache_that_fills():
    cache, count, most = {}, size(), chance.randrange(3, 9)
    return lambda step: cache.setdefault(step % most, None) is None and cache.update(
        {step % most: torch.empty(count, dtype=torch.uint8, device=DEVICE)})


@thing(False)
def grows_and_stops():
    state = {"room": torch.empty(KIB, dtype=torch.uint8, device=DEVICE)}
    most = chance.randrange(10, 18)

    def run(step):
        if step <= most and step % 2 == 0:
            state["room"] = torch.empty(2 * state["room"].numel(), dtype=torch.uint8, device=DEVICE)
    return run


@thing(False)
def gradient_accumulation():
    layer, every = torch.nn.Linear(192, 192).to(DEVICE), chance.randrange(2, 5)
    state = {}

    def update():
        # As an optimizer does, whose steps are not those of the training.
        for parameter in layer.parameters():
            average = state.setdefault(parameter, torch.zeros_like(parameter))
            average.lerp_(parameter.grad, 0.1)

    def run(step):
        layer(torch.randn(32, 192, device=DEVICE)).square().mean().backward()
        if step % every == 0:
            update()
            layer.zero_grad(set_to_none=True)
    return run


@thing(False)
def average_of_weights():
    layer, begin, copies = torch.nn.Linear(256, 256).to(DEVICE), chance.randrange(5, 22), []

    def run(step):
        if step == begin:
            copies.extend(parameter.detach().clone() for parameter in layer.parameters())
        for copy, parameter in zip(copies, layer.parameters()):
            copy.lerp_(parameter.detach(), 0.01)
    return run


@thing(False)
def evaluation():
    layer, every = torch.nn.Linear(128, 128).to(DEVICE), chance.randrange(4, 9)

    def run(step):
        if step % every == 0:
            with torch.no_grad():
                outputs = [layer(torch.randn(256, 128, device=DEVICE)) for _ in range(6)]
                torch.stack(outputs).mean()
    return run


@thing(False)
def double_buffer():
    buffers, count = [None, None], size()

    def run(step):
        buffers[step % 2] = torch.empty(count, dtype=torch.uint8, device=DEVICE)
    return run


@thing(False)
def checkpoint():
    state, layer, every = {}, torch.nn.Linear(256, 256).to(DEVICE), chance.randrange(3, 7)

    def run(step):
        if step % every == 0:
            state["weights"] = [parameter.detach().clone() for parameter in layer.parameters()]
    return run


@thing(False, "cuda")
def driver_memory_given_back():
    driver, count = ctypes.CDLL("libcuda.so.1"), chance.randrange(1, 8) << 20

    def run(step):
        address = ctypes.c_uint64()
        driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(count))
        driver.cuMemFree_v2(address)
    return run


@thing(False, "cuda")
def pinned_batches():
    count = chance.randrange(1, 8) << 18
    return lambda step: torch.empty(count, dtype=torch.uint8, pin_memory=True).to(DEVICE, non_blocking=True)


def chosen():
    leaking = [entry for entry in things if entry["leaks"]]
    healthy = [entry for entry in things if not entry["leaks"]]
    picked = chance.sample(leaking, chance.choice([0, 1, 1, 2, 3])) + chance.sample(healthy, chance.randrange(4, 7))
    names = [entry["name"] for entry in picked]
    # PyTorch keeps pinned memory that is freed: a tensor that stays may lie in what a batch took first, and the driver knows only that.
    return [entry for entry in picked if entry["name"] != "pinned_batches" or "pinned_tensors" not in names]


def main():
    marks = chance.choice(["optimizer", "module", "nvtx"] if DEVICE == "cuda" else ["optimizer", "module"])
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).to(DEVICE)
    optimizer = (torch.optim.AdamW if marks == "optimizer" else torch.optim.SGD)(model.parameters(), lr=0.01)
    picked = chosen()
    chance.shuffle(picked)
    runs = [entry["make"]() for entry in picked]
    for step in range(1, STEPS + 1):
        if marks == "nvtx":
            torch.cuda.nvtx.range_push("step start")
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(64, 256, device=DEVICE)).square().mean().backward()
        for run in runs:
            run(step)
        optimizer.step()
        if marks == "nvtx":
            torch.cuda.nvtx.range_pop()
        elif marks == "module":
            msmemscope.step()
    print(json.dumps({"seed": SEED, "steps": STEPS, "marks": marks,
                      "things": [{key: entry[key] for key in ("name", "leaks", "lines")} for entry in picked]}), flush=True)


main()
