# SPDX-License-Identifier: Apache-2.0
"""torch_culprits.py SEED ROUNDS: in each round a random tensor is watched while operators, optimizers and threads write it as they
say, and in most rounds something else writes some of its bytes once. Prints what that was, a line of JSON for each round:

    {"name": of the watched tensor, "kind": null or how it was overwritten, "op": who did it, "from", "to": operators around it,
     "bytes", "first", "last": how many and where, "step": the step in progress, "line": where in this file}

With DEVICE=cuda in the environment all of it happens on a GPU, with larger tensors too.
"""
import ctypes
import inspect
import json
import os
import random
import sys
import threading

import torch
from msmemscope import step, watcher

CHUNK = 12  # bytes that are overwritten, at most
DEVICE = os.environ.get("DEVICE", "cpu")
LENGTHS = {"cpu": (8, 64, 1000, 20000), "cuda": (8, 1000, 20000, 262144, 300002, 3000006)}[DEVICE]
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)
library = torch.library.Library("culprits", "DEF")
library.define("quiet(Tensor x) -> Tensor")
library.define("other(Tensor(a!) x) -> ()")
library.define("part(Tensor(a!) x) -> ()")
plant = None  # what an operator of ours does besides


def overwrite(address, count):
    """Changes every one of the bytes."""
    if DEVICE == "cuda":
        driver, there = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(address)
        data = ctypes.create_string_buffer(count)
        assert driver.cuMemcpyDtoH_v2(data, there, ctypes.c_size_t(count)) == 0
        data = bytes(byte ^ 0x5a for byte in data.raw)
        assert driver.cuMemcpyHtoD_v2(there, data, ctypes.c_size_t(count)) == 0
        return
    data = bytes(byte ^ 0x5a for byte in ctypes.string_at(address, count))
    ctypes.memmove(address, data, count)


def quiet(x):
    plant()
    return x * 2


def other(x):
    x.add_(1)
    plant()


library.impl("quiet", quiet, DEVICE.upper())
library.impl("other", other, DEVICE.upper())
library.impl("part", other, DEVICE.upper())


# ---- who may write ----

def optimizer(kind, **options):
    def write(t, rng):
        t.grad = torch.randn_like(t)
        kind([t], lr=0.1, **options).step()
    return write


def in_thread(write):
    def run(t, rng):
        thread = threading.Thread(target=write, args=(t, rng))
        thread.start()
        thread.join()
    return run


def some(t, rng):
    """A random part of it."""
    first = rng.randrange(len(t))
    return t.detach()[first:rng.randrange(first, len(t)) + 1]


def normalize(t, rng):
    torch.nn.functional.batch_norm(torch.randn(4, len(t)), t.detach(), torch.ones(len(t)), training=True)


def put(t, rng):
    t.detach()[torch.tensor([0, len(t) - 1])] = rng.random()


WRITERS = [
    lambda t, rng: t.detach().add_(1), lambda t, rng: t.detach().mul_(-1.5), lambda t, rng: t.detach().normal_(),
    lambda t, rng: t.detach().copy_(torch.randn(len(t))), lambda t, rng: t.detach().zero_(), lambda t, rng: some(t, rng).fill_(rng.random()),
    lambda t, rng: some(t, rng).sub_(2), lambda t, rng: torch.add(t.detach(), 1, out=t.detach()),
    lambda t, rng: torch.cumsum(torch.randn(len(t)), 0, out=t.detach()), lambda t, rng: t.detach().clamp_(-1, 1),
    lambda t, rng: t.detach().masked_fill_(torch.rand(len(t)) > 0.5, 3.0),
    lambda t, rng: t.detach().scatter_(0, torch.randperm(len(t)), torch.randn(len(t))),
    lambda t, rng: t.detach().view(2, -1)[1].addcdiv_(torch.ones(len(t) // 2), torch.full((len(t) // 2,), 2.0)),
    lambda t, rng: torch._foreach_add_([torch.ones(3), t.detach()], 1), lambda t, rng: torch._foreach_mul_([t.detach()], [1.25]),
    lambda t, rng: torch._foreach_copy_([t.detach()], [torch.randn(len(t))]), lambda t, rng: torch.nn.functional.relu_(t.detach()),
    lambda t, rng: t.data.lerp_(torch.ones(len(t)), 0.5), lambda t, rng: t.detach().index_fill_(0, torch.tensor([1]), 7.0),
    lambda t, rng: torch.nn.init.uniform_(t), put, normalize,
    optimizer(torch.optim.SGD), optimizer(torch.optim.SGD, momentum=0.9, foreach=True), optimizer(torch.optim.Adam),
    optimizer(torch.optim.AdamW, foreach=True), optimizer(torch.optim.Adam, fused=True), optimizer(torch.optim.SGD, fused=True),
    optimizer(torch.optim.Adagrad), optimizer(torch.optim.RMSprop, foreach=True),
    in_thread(lambda t, rng: t.detach().add_(3)), in_thread(optimizer(torch.optim.SGD)),
]
READERS = [lambda t, rng: t.detach().sum(), lambda t, rng: (t * t).sum().backward(), lambda t, rng: t.detach().sort(),
           lambda t, rng: torch.outer(t.detach()[:8], t.detach()).mean(), lambda t, rng: torch.randn(5).softmax(0)]


# ---- who may not ----

def here():
    return inspect.currentframe().f_back.f_lineno


def between(t, address, count, rng):
    noise = torch.randn(3)
    torch.cos(noise)
    overwrite(address, count)
    line = here() + 1
    torch.sin(noise)
    return {"from": "torch._ops.aten.cos.default", "to": "torch._ops.aten.sin.default", "line": line}


def by_operator(name):
    def run(t, address, count, rng):
        global plant
        plant = lambda: overwrite(address, count)
        line = here() + 1
        getattr(torch.ops.culprits, name)(torch.ones(4, device=DEVICE))
        plant = None
        return {"op": f"torch._ops.culprits.{name}.default", "line": line}
    return run


def beyond(t, address, count, rng):
    """Writes the part that it says, and bytes behind or before it."""
    global plant
    first = (address - t.data_ptr()) // 4
    last = (address + count - 1 - t.data_ptr()) // 4
    part = t.detach()[last + 1:] if last + 1 < len(t) else t.detach()[:first]
    plant = lambda: overwrite(address, count)
    line = here() + 1
    torch.ops.culprits.part(part)
    plant = None
    return {"op": "torch._ops.culprits.part.default", "line": line}


def by_thread(t, address, count, rng):
    found = {}
    thread = threading.Thread(target=lambda: found.update(by_operator("quiet")(t, address, count, rng)))
    thread.start()
    thread.join()
    return found


PLANTS = {"between": between, "quiet": by_operator("quiet"), "other": by_operator("other"), "beyond": beyond, "thread": by_thread}
steps = 1


def play(number, rng):
    global steps
    t = torch.randn(rng.choice(LENGTHS), requires_grad=True)
    name = f"round {number}"
    first, length = 0, t.nbytes
    how = rng.choice(("tensor", "view", "address"))
    if how == "tensor":
        watcher.watch(t, name=name)
    elif how == "view":
        first, length = len(t) // 4 * 4, len(t) // 2 * 4
        watcher.watch(t.detach()[len(t) // 4:len(t) // 4 + len(t) // 2], name=name)
    else:
        watcher.watch(t.data_ptr(), length=length, name=name)
    said = {"name": name, "kind": rng.choice((None, *PLANTS))}
    rounds = rng.randrange(2, 5)
    when = rng.randrange(rounds)
    for index in range(rounds):
        for _ in range(rng.randrange(1, 5)):
            rng.choice(WRITERS)(t, rng)
            rng.choice(READERS)(t, rng)
        if index == when and said["kind"] is not None:
            count = rng.randrange(1, CHUNK + 1)
            offset = rng.randrange(length - count + 1)
            said.update(PLANTS[said["kind"]](t, t.data_ptr() + first + offset, count, rng))
            said.update(bytes=count, first=offset, last=offset + count - 1, step=steps)
        rng.choice(WRITERS)(t, rng)
        step()
        steps += 1
    if how == "address":
        watcher.remove(t.data_ptr(), length=length)
    else:
        watcher.remove(t if how == "tensor" else t.detach()[len(t) // 4:])
    print(json.dumps(said))


def main():
    rng = random.Random(int(sys.argv[1]))
    torch.manual_seed(int(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        play(number, rng)


main()
