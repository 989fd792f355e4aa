# SPDX-License-Identifier: Apache-2.0
"""Builds a model and trains it, and only then calls start(). Prints what torch_npu has in use at that moment, where the weights lie,
and what is in use after one more tensor."""
import json
import os

import torch
import torch_npu  # pylint: disable=unused-import

import msmemscope
from models import OPTIMIZERS, Transformer, step

torch.manual_seed(0)
model = Transformer(dropout=0.1).npu()
optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
inputs, targets = (tensor.npu() for tensor in Transformer.batch())
step(model, optimizer, inputs, targets)
torch.npu.synchronize()
msmemscope.config(output=os.environ["OUT"], analysis="decompose")
before = torch.npu.memory_allocated()
msmemscope.start()
more = torch.empty(1000, device="npu")
torch.npu.synchronize()
after = torch.npu.memory_allocated()
step(model, optimizer, inputs, targets)
torch.npu.synchronize()
msmemscope.stop()
print(json.dumps({"before": before, "after": after, "weights": [parameter.data_ptr() for parameter in model.parameters()]}))
