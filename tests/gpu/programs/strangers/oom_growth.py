# SPDX-License-Identifier: Apache-2.0
"""Outputs are put aside for a figure at the end of the epoch, with their graphs; without them it runs through (FIXED=1)."""
import json
import os

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction((2 << 30) / torch.cuda.get_device_properties(0).total_memory)
model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
print(json.dumps({"cause": "growth", "keeper": "outputs"}), flush=True)
outputs = []
for step in range(200):
    out = model(torch.randn(1024, 512, device="cuda"))  # @grown
    loss = out.square().mean()
    outputs.append(float(out.mean()) if "FIXED" in os.environ else (out - out.mean()).relu())  # @grown
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps({"passed": True}), flush=True)
