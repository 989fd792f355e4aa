# SPDX-License-Identifier: Apache-2.0
"""An optimizer's steps, each of which keeps a tensor of 4 MiB until the NPU is full; prints the step that was refused."""
import json

import torch
import torch_npu  # noqa: F401

net = torch.nn.Linear(64, 64).to("npu")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
kept = []
try:
    for step in range(1, 1000):
        loss = net(torch.ones(8, 64, device="npu")).sum()
        kept.append(torch.ones(1 << 20, device="npu"))  # FILLS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except torch.OutOfMemoryError:
    print(json.dumps({"refused": step}))
