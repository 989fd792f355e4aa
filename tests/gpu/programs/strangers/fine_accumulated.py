# SPDX-License-Identifier: Apache-2.0
"""Gradients of eight parts are added up; figures are kept as numbers; the last loss stays until the next."""
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scaler = torch.amp.GradScaler("cuda")
seen, losses = 0, []
while seen < 40 * 8:
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.randn(16, 3, 64, 64, device="cuda")).logsumexp(1).mean() / 8
    scaler.scale(loss).backward()
    losses.append(float(loss))
    seen += 1
    if seen % 8 == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
