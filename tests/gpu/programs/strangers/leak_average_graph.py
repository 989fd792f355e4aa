# SPDX-License-Identifier: Apache-2.0
"""A running average of a penalty is never detached: with it, the graph of every step stays."""
import json

import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 1024), nn.Tanh(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
average = torch.zeros((), device="cuda")
sizes = []
for step in range(40):
    data = torch.randn(128, 256, device="cuda")
    probe = torch.exp(-data.square() @ torch.randn(256, 512, device="cuda").requires_grad_())  # @leak
    average = 0.9 * average + 0.1 * probe.square().mean()  # @leak
    loss = (model(data) - data).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    sizes.append(torch.cuda.memory_allocated())
print(json.dumps({"per_step": (sizes[-1] - sizes[9]) / 30, "keeper": "average"}), flush=True)
