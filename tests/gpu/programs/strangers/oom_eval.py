# SPDX-License-Identifier: Apache-2.0
"""An evaluation without gradients keeps the outputs of all batches on the card; on the host there is room for them (FIXED=1)."""
import json
import os

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction((2 << 30) / torch.cuda.get_device_properties(0).total_memory)
model = nn.Sequential(nn.Embedding(1000, 256), nn.Linear(256, 20000)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def evaluate():
    outputs = []
    for _ in range(100):
        logits = model(torch.randint(0, 1000, (4, 128), device="cuda"))  # @refused @grown
        outputs.append(logits.cpu() if "FIXED" in os.environ else logits)
    return torch.cat([one[:1] for one in outputs])


print(json.dumps({"cause": "growth"}), flush=True)
for step in range(15):
    model(torch.randint(0, 1000, (4, 128), device="cuda")).logsumexp(-1).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
evaluate()
print(json.dumps({"passed": True}), flush=True)
