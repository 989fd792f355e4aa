# SPDX-License-Identifier: Apache-2.0
"""torch.compile, with a new shape now and then."""
import os

import torch
from torch import nn

net = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256)).cuda()
model = torch.compile(net, backend="eager" if os.environ.get("STRANGERS_SIMULATED") else "inductor")
optimizer = torch.optim.AdamW(net.parameters())
for step in range(60):
    loss = model(torch.randn(32 + 8 * (step // 12), 256, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
