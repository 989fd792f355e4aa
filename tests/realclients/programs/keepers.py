# SPDX-License-Identifier: Apache-2.0
"""Keeps tensors of the NPU in several ways, and tensors of the CPU under NumPy's arrays; each kind has a function that makes its tensors."""
import functools
import gc

import msmemscope
import torch
import torch.futures
import torch_npu  # noqa: F401 (it makes torch.npu)

gc.disable()  # cycles stay
history, arrays, futures, views = [], {}, [], []
weight = torch.ones(8, device="npu", requires_grad=True)


class Trainer:
    def __init__(self):
        self.outputs = []


class Node:
    pass


def in_global(step):
    history.append(torch.zeros(3000, device="npu"))


def in_attribute(step):
    trainer.outputs.append({"step": step, "out": torch.zeros(4000, device="npu")})


@functools.lru_cache(None)
def in_cache(step):
    return torch.zeros(5000, device="npu")


def in_cycle(step):
    node = Node()
    node.itself, node.tensor = node, torch.zeros(6000, device="npu")


def in_cpp(step):
    future = torch.futures.Future()
    future.set_result(torch.zeros(7000, device="npu"))
    futures.append(future)


def in_array(step):
    arrays[step] = torch.zeros(9000).numpy()[10:]


def in_storage(step):
    views.append(torch.zeros(10000, device="npu").untyped_storage())


trainer = Trainer()
for number in range(24):
    for kind in (in_global, in_attribute, in_cache, in_cycle, in_cpp, in_array, in_storage):
        kind(number)
    msmemscope.step()
