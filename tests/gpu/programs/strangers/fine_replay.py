# SPDX-License-Identifier: Apache-2.0
"""A memory of 300 transitions, full after 60 steps of 180; samples of it train a network."""
import collections
import random

import torch
from torch import nn

random.seed(5)
memory = collections.deque(maxlen=300)
values = nn.Sequential(nn.Linear(4096, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
optimizer = torch.optim.SGD(values.parameters(), lr=1e-3)
for step in range(180):
    for _ in range(5):
        seen = torch.rand(4096, device="cuda")
        with torch.no_grad():
            memory.append((seen, values(seen).argmax(), random.random()))
    batch = torch.stack([one[0] for one in random.sample(list(memory), min(32, len(memory)))])
    optimizer.zero_grad()
    values(batch).square().mean().backward()
    optimizer.step()
