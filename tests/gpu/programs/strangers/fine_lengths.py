# SPDX-License-Identifier: Apache-2.0
"""Lengths vary at random, and longer ones come late: the pool breaks into pieces, and no line keeps anything."""
import random

import torch
from torch import nn

random.seed(2)
words = nn.Embedding(5000, 256).cuda()
body = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 2).cuda()
head = nn.Linear(256, 5000).cuda()
optimizer = torch.optim.AdamW([*words.parameters(), *body.parameters(), *head.parameters()])
for step in range(120):
    tokens = torch.randint(0, 5000, (8, min(700, int(random.lognormvariate(4.5, 0.7)) + 8)), device="cuda")
    loss = nn.functional.cross_entropy(head(body(words(tokens))).flatten(0, 1), tokens.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
