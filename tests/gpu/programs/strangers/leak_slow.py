# SPDX-License-Identifier: Apache-2.0
"""4 KiB are kept in each step, among some hundred MiB that come and go."""
import collections
import json
import random

import torch
from torch import nn

random.seed(7)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 3).cuda()
optimizer = torch.optim.AdamW(model.parameters())
scale = collections.defaultdict(list)
for step in range(150):
    length = random.choice((64, 96, 128, 192))
    out = model(torch.randn(16, length, 256, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
    scale[length].append(model.layers[0].linear1.weight.detach().amax(1))  # @leak @filled
print(json.dumps({"per_step": 4096, "keeper": "scale"}), flush=True)
