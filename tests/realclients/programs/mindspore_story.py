# SPDX-License-Identifier: Apache-2.0
"""Tensors and operators of MindSpore on the device, compared with numpy's results. After each part it says what its pool itself counts:
as an mstx mark, where it appears among the rows, and as a line of JSON.
"""
import json
import os
import random
import sys

import mstx
import numpy as np

import mindspore as ms
from mindspore import Tensor, mint, ops

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("Ascend", 0)
NUMBERS = np.random.default_rng(1)
random.seed(1)


def mark(name):
    ms.runtime.synchronize()
    counted = {"allocated": ms.runtime.memory_allocated(), "reserved": ms.runtime.memory_reserved()}
    mstx.mark(f"count {name} " + " ".join(f"{key}={value}" for key, value in counted.items()))
    print(json.dumps({"mark": name, **counted}), flush=True)


def values(*shape):
    return NUMBERS.uniform(0.5, 2, shape).astype(np.float32)


def check(name, result, wanted):
    assert result.shape == wanted.shape, name
    assert np.allclose(result.asnumpy(), wanted, 1e-4, 1e-4), f"{name}: {result.asnumpy()} is not {wanted}"


def operators():
    a, b, row = values(30, 40), values(30, 40), values(40)
    left, right = Tensor(a), Tensor(b)
    check("add", ops.add(left, right), a + b)
    check("add of a row", ops.add(left, Tensor(row)), a + row)
    check("sub", ops.sub(left, right), a - b)
    check("mul", ops.mul(left, right), a * b)
    check("mul by a number", left * 3.0, a * 3)
    check("div", ops.div(left, right), a / b)
    check("exp", ops.exp(left), np.exp(a))
    check("relu", ops.relu(ops.sub(left, right)), np.maximum(a - b, 0))
    check("sum", mint.sum(left, 1), a.sum(1))
    check("cast", ops.cast(left, ms.float16).astype(ms.float32), a.astype(np.float16).astype(np.float32))
    check("matmul", ops.matmul(left, Tensor(b.T.copy())), a @ b.T)
    mark("operators")


def lives():
    """Blocks of many sizes that come and go in no order."""
    kept = []
    for turn in range(200):
        if kept and random.random() < 0.45:
            kept.pop(random.randrange(len(kept)))
        else:
            size = random.choice((10, 700, 5000, 80000, 600000))
            kept.append((turn, mint.full((size,), float(turn))))
        if turn % 20 == 19:
            mark(f"turn{turn}")
    assert all((tensor.asnumpy() == turn).all() for turn, tensor in kept)
    kept.clear()
    mark("none")


def caches():
    large = mint.ones((12 << 20,))
    mark("large")
    check("large", mint.sum(large), np.float32(12 << 20))
    del large
    ms.runtime.empty_cache()
    mark("emptied")
    small = mint.zeros((10,))
    mark("after_emptied")
    check("small", small, np.zeros(10))


operators()
lives()
caches()
# Objects of the graph engine, of which there are only stubs, are destroyed at the exit of 2.10: free(): invalid pointer.
if ms.__version__ != "2.7.0":
    sys.stdout.flush()
    os._exit(0)
