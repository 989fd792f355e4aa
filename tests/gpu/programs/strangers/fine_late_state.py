# SPDX-License-Identifier: Apache-2.0
"""Layers thaw in step 20 and 40; a scheduler runs; state of the optimizer is made only then."""
import torch
from torch import nn

layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(3)).cuda()
for layer in layers[:2]:
    layer.requires_grad_(False)
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=90)
for step in range(90):
    if step in (20, 40):
        layers[step // 20 - 1].requires_grad_(True)
    hidden = torch.randn(64, 512, device="cuda")
    for layer in layers:
        hidden = layer(hidden).relu()
    hidden.square().mean().backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
