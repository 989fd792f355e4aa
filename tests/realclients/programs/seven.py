# SPDX-License-Identifier: Apache-2.0
"""Three steps of a transformer of 6.7 thousand million parameters with AdamW, made on the device. Prints the losses, torch_npu's own peaks, and
the most memory that this process had on the host."""
import json
import resource

import torch
import torch_npu  # noqa: F401
from torch.nn.functional import cross_entropy

from models import Transformer

torch.set_default_device("npu")
Transformer.VOCABULARY = 32000
model = Transformer(width=4096, heads=32, layers=32, length=128)
optimizer = torch.optim.AdamW(model.parameters())
losses = []
for _ in range(3):
    inputs, targets = Transformer.batch(1, 128)
    optimizer.zero_grad()
    loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(json.dumps({"parameters": sum(one.numel() for one in model.parameters()), "losses": losses, "allocated": torch.npu.max_memory_allocated(),
                  "reserved": torch.npu.max_memory_reserved(), "host": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}))
