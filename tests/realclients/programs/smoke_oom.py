# SPDX-License-Identifier: Apache-2.0
"""Training that keeps a tensor of every step until the device is full. Prints what torch_npu counts when it is refused, and the blocks
that it kept, from the first to the last."""
import json

import mstx
import torch
import torch_npu  # pylint: disable=unused-import

from models import OPTIMIZERS, Transformer, step

torch.manual_seed(0)
model = Transformer().npu()
optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
inputs, targets = (tensor.npu() for tensor in Transformer.batch())
kept = []
try:
    while True:
        running = mstx.range_start("step start", None)
        step(model, optimizer, inputs, targets)
        kept.append(torch.ones(6 << 20, device="npu"))  # WHAT GROWS
        torch.npu.synchronize()
        mstx.range_end(running)
except torch.OutOfMemoryError as error:
    stats = torch.npu.memory_stats()
    print(json.dumps({"refused": 24 << 20, "steps": len(kept), "blocks": [tensor.data_ptr() for tensor in kept],
                      "reserved": torch.npu.memory_reserved(), "max_reserved": torch.npu.max_memory_reserved(),
                      "allocated": torch.npu.memory_allocated(), "max_allocated": torch.npu.max_memory_allocated(),
                      "ooms": stats["num_ooms"], "message": str(error)}))
