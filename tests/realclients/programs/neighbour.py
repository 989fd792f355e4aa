# SPDX-License-Identifier: Apache-2.0
"""Watches a block and the one behind it by their address. The one behind is written, given back and taken again; then 3 bytes of the
first are overwritten past PyTorch.
"""
import ctypes
import json

import torch
import torch_npu
from msmemscope import watcher

SIZE = 512
acl = ctypes.CDLL("libascendcl.so")
blocks = {tensor.data_ptr(): tensor for tensor in (torch.zeros(SIZE // 4).npu() for _ in range(16))}
places = sorted(blocks)
place, behind = next((a, b) for a, b in zip(places, places[1:]) if b - a <= 4 * SIZE)
own = blocks[place]
length = behind + SIZE - place
watcher.watch(place, length=length, name="both")
blocks[behind].add_(1)
del blocks[behind]
torch.neg(own)
again = torch.ones(SIZE // 4).npu()
own.add_(1)
torch.npu.synchronize()
assert acl.aclrtMemset(ctypes.c_void_p(place + 4), ctypes.c_size_t(3), 0x5a, ctypes.c_size_t(3)) == 0
torch.abs(own)
print(json.dumps({"bytes": length, "again": again.data_ptr() == behind}))
