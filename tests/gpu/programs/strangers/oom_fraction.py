# SPDX-License-Identifier: Apache-2.0
"""The program gives itself a hundredth of the card, which is too little for its model from the first step on; with a tenth it fits (FIXED=1)."""
import json
import os

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction(0.1 if "FIXED" in os.environ else 0.01)
print(json.dumps({"cause": "full"}), flush=True)
model = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(6))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(256, 4096, device="cuda")).square().mean().backward()
    optimizer.step()  # @refused
    optimizer.zero_grad()
print(json.dumps({"passed": True}), flush=True)
