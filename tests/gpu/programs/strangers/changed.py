# SPDX-License-Identifier: Apache-2.0
"""changed.py: a decoder for speech; one layer is wider when WIDER is set, named `codes.project`. Each layer has a line of its own."""
import json
import os

import torch
from torch import nn


class Codes(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, inner)
        self.back = nn.Linear(inner, width)

    def forward(self, x):
        hidden = self.norm(x)
        hidden = self.project(hidden)  # @changed
        hidden = hidden.tanh()
        return x + self.back(hidden)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(80, 512)
        self.mixing = nn.Conv1d(512, 512, 5, padding=2, groups=8)
        self.codes = Codes(512, 3072 if "WIDER" in os.environ else 1024)
        self.head = nn.Linear(512, 600)

    def forward(self, x):
        x = self.front(x)
        x = x + self.mixing(x.transpose(1, 2)).transpose(1, 2)
        x = self.codes(x)
        return self.head(x)


model = Decoder().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(12):
    loss = model(torch.randn(16, 256, 80, device="cuda")).logsumexp(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(json.dumps({"peak": torch.cuda.max_memory_allocated()}), flush=True)
