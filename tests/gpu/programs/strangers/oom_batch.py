# SPDX-License-Identifier: Apache-2.0
"""A few usual batches, then one that is much larger; a smaller one fits (FIXED=1)."""
import json
import os

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction((3 << 30) / torch.cuda.get_device_properties(0).total_memory)
model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step(rows):
    batch = torch.randn(rows, 1024, device="cuda")
    loss = model(batch).square().mean()  # @refused
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


print(json.dumps({"cause": "spike"}), flush=True)
for number in range(12):
    step(1024 if number != 11 or "FIXED" in os.environ else 65536)
print(json.dumps({"passed": True}), flush=True)
