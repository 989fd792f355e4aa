# SPDX-License-Identifier: Apache-2.0
"""Two lines leak: one 1 MiB in each step, the other 3 MiB in every fourth."""
import json

import torch
from torch import nn

MIB = 1 << 20
traces, masks = [], {}


def trace():
    traces.append(torch.zeros(MIB, dtype=torch.uint8, device="cuda"))  # @leak @first


def mask(step):
    masks[step] = torch.ones(3 * MIB, dtype=torch.bool, device="cuda")  # @leak @second


model = nn.Sequential(nn.Linear(384, 384), nn.SiLU(), nn.Linear(384, 384)).cuda()
optimizer = torch.optim.NAdam(model.parameters())
for step in range(64):
    optimizer.zero_grad()
    model(torch.randn(32, 384, device="cuda")).square().mean().backward()
    optimizer.step()
    trace()
    if step % 4 == 0:
        mask(step)
print(json.dumps({"per_step": 1.75 * MIB, "rates": {"first": MIB, "second": 0.75 * MIB}, "keeper": "traces", "keepers": ["traces", "masks"]}), flush=True)
