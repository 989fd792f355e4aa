# SPDX-License-Identifier: Apache-2.0
"""Training in steps, with what a healthy program keeps (a cache that is full after some steps, a queue) and with three leaks: of the
allocator of PyTorch in every step, in every second step, and of the runtime past PyTorch. Prints every block that it forgets.
"""
import collections
import ctypes
import json

import mstx
import torch
import torch_npu  # pylint: disable=unused-import

from models import OPTIMIZERS, Cnn, step

STEPS = 16
acl = ctypes.CDLL("libascendcl.so")
torch.manual_seed(0)
model = Cnn().npu()
optimizer = OPTIMIZERS["sgd"](model.parameters(), "npu")
inputs, targets = (tensor.npu() for tensor in Cnn.batch())
forgotten, cache, queue = [], {}, collections.deque(maxlen=3)
told = []


def tell(place, address, size, number):
    told.append({"place": place, "address": address, "size": size, "step": number})


def forget(place, count, number):
    tensor = torch.full((count,), 1.0, device="npu")
    forgotten.append(tensor)
    tell(place, tensor.data_ptr(), (tensor.nbytes + 32 + 511) // 512 * 512, number)


for number in range(1, STEPS + 1):
    running = mstx.range_start("step start", None)
    loss = step(model, optimizer, inputs, targets)
    cache[number % 4] = cache.get(number % 4) if number > 4 else torch.ones(3000, device="npu")
    queue.append(torch.ones(5000, device="npu"))
    forget("each", 20000, number)
    if number % 2:
        forget("second", 1 << 19, number)
    address = ctypes.c_void_p()
    assert acl.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(3 << 20), 0) == 0
    tell("runtime", address.value, (3 << 20) + 32, number)
    torch.npu.synchronize()
    mstx.range_end(running)
print(json.dumps({"forgotten": told}))
