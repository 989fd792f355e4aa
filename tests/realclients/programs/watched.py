# SPDX-License-Identifier: Apache-2.0
"""watched.py OPTIMIZER CULPRIT: trains a small network on the device; its first weight and the statistics of its normalization are
watched. CULPRIT overwrites 12 bytes of the weight before the optimizer's sixth step: `op`, an operator that does not say so,
`memset`, the runtime called past PyTorch, or `none`. The same memory is watched by its address, too.
"""
import ctypes
import json
import sys

import torch
import torch_npu
from msmemscope import step, watcher

OPTIMIZERS = {"sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
              "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
              "foreach": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, foreach=True)}
optimizer_name, culprit = sys.argv[1:3]
acl = ctypes.CDLL("libascendcl.so")
library = torch.library.Library("culprits", "DEF")
library.define("stray(Tensor x) -> Tensor")


def overwrite():
    torch.npu.synchronize()
    place = ctypes.c_void_p(weight.data_ptr() + 16)
    assert acl.aclrtMemset(place, ctypes.c_size_t(12), 0x5a, ctypes.c_size_t(12)) == 0


def stray(x):
    overwrite()
    return x + 1


library.impl("stray", stray, "PrivateUse1")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).npu()
weight = model[0].weight
optimizer = OPTIMIZERS[optimizer_name](model.parameters())
watcher.watch(weight, name="weight")
watcher.watch(weight.data_ptr(), length=64, name="by address")
x, other = torch.randn(16, 8).npu(), torch.ones(3).npu()
for number in range(1, 9):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    if number == 6:
        other = torch.neg(other)
        if culprit == "memset":
            overwrite()
        if culprit == "op":
            torch.ops.culprits.stray(other)
        other = torch.abs(other)
    optimizer.step()
    step()
torch.npu.synchronize()
print(json.dumps({"bytes": weight.nbytes}))
