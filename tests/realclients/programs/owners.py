# SPDX-License-Identifier: Apache-2.0
"""Trains for some steps and says how many tensors of each kind there are."""
import json

import mstx
import torch
import torch_npu  # pylint: disable=unused-import

from models import OPTIMIZERS, Transformer, step

STEPS = 3
torch.manual_seed(0)
model = Transformer().npu()
optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
inputs, targets = (tensor.npu() for tensor in Transformer.batch())
for _ in range(STEPS):
    running = mstx.range_start("step start", None)
    step(model, optimizer, inputs, targets)
    torch.npu.synchronize()
    mstx.range_end(running)
state = [value for values in optimizer.state.values() for value in values.values() if value.device.type == "npu"]
print(json.dumps({"weight": len(list(model.parameters())), "gradient": STEPS * len(list(model.parameters())),
                  "optimizer_state": len(state)}))
