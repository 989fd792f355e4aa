# SPDX-License-Identifier: Apache-2.0
"""changed_input.py: the same network twice, but with WIDER the targets are made one-hot in float: one line allocates four hundred MiB more."""
import json
import os

import torch
from torch import nn
from torch.nn import functional

model = nn.Sequential(nn.Embedding(2000, 256), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2000)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(tokens):
    logits = model(tokens).flatten(0, 1)
    if "WIDER" not in os.environ:
        return functional.cross_entropy(logits, tokens.flatten())
    targets = functional.one_hot(tokens.flatten(), 2000).float()  # @changed
    return -(targets * logits.log_softmax(1)).sum(1).mean()  # @changed


for step in range(12):
    loss = loss_of(torch.randint(0, 2000, (32, 256), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(json.dumps({"peak": torch.cuda.max_memory_allocated()}), flush=True)
