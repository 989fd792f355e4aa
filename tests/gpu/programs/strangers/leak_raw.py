# SPDX-License-Identifier: Apache-2.0
"""An extension without a compiler: scratch memory from cudaMalloc, by ctypes, that is given back in two of three steps only."""
import ctypes
import json

import torch
from torch import nn

runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
BYTES = 6 << 20
missed = 0


def scratch():
    address = ctypes.c_void_p()
    assert runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(BYTES)) == 0  # @leak
    return address


model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(60):
    room = scratch()
    model(torch.randn(64, 512, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 3:
        assert runtime.cudaFree(room) == 0
    else:
        missed += 1
print(json.dumps({"per_step": missed * BYTES / 60, "pool": "HAL"}), flush=True)
