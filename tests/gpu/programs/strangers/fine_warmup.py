# SPDX-License-Identifier: Apache-2.0
"""Buffers grow for 25 of 90 steps, as a curriculum of lengths does, and stay then."""
import torch
from torch import nn

model = nn.GRUCell(64, 128).cuda()
optimizer = torch.optim.Adam(model.parameters())
buffers = []
for step in range(90):
    if step < 25:
        buffers.append(torch.zeros(64, 128 * (step + 1), device="cuda"))
    state = torch.zeros(64, 128, device="cuda")
    for _ in range(4):
        state = model(torch.randn(64, 64, device="cuda"), state)
    (state.square().mean() + sum(buffer[0, 0] for buffer in buffers)).backward()
    optimizer.step()
    optimizer.zero_grad()
