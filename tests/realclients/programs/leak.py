# SPDX-License-Identifier: Apache-2.0
"""Training that keeps something of every step."""
import mstx
import torch
import torch_npu  # pylint: disable=unused-import

from models import OPTIMIZERS, Transformer, step

torch.manual_seed(0)
model = Transformer().npu()
optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
inputs, targets = (tensor.npu() for tensor in Transformer.batch())
history = []
for number in range(8):
    running = mstx.range_start("step start", None)
    loss = step(model, optimizer, inputs, targets)
    history.append(loss.detach().expand(1000).clone())  # THE LEAK
    torch.npu.synchronize()
    mstx.range_end(running)
