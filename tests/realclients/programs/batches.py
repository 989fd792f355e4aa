# SPDX-License-Identifier: Apache-2.0
"""batches.py BATCH SNAPSHOT: four steps of training; prints what torch_npu's pool reserved and writes its snapshot."""
import json
import pickle
import sys

import torch
import torch_npu  # pylint: disable=unused-import
from torch import nn

batch, path = int(sys.argv[1]), sys.argv[2]
torch.npu.memory._record_memory_history(max_entries=1000000)
net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)).to("npu:0")
optimizer = torch.optim.Adam(net.parameters())
for step in range(4):
    inputs = torch.zeros(batch * 1024, 256).to("npu:0")
    outputs = net(inputs)
    loss = (outputs * outputs).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    del inputs, outputs, loss
torch.npu.synchronize()
print(json.dumps({"reserved": torch.npu.max_memory_reserved()}))
with open(path, "wb") as file:
    pickle.dump(torch.npu.memory._snapshot(), file)
