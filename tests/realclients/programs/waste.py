# SPDX-License-Identifier: Apache-2.0
"""waste.py [early] [late]: training steps with a scratch buffer that is there before it is needed and a feature map that stays too
long. A word that is given is mended. Says the device's own peak."""
import json
import sys

import torch
import torch_npu  # pylint: disable=unused-import

SCRATCH, FEATURES, MIDDLE = 24 << 20, 40 << 20, 30 << 20
MENDED = set(sys.argv[1:])

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def step():
    inputs = torch.ones(256, 64, device="npu")
    if "early" not in MENDED:
        scratch = torch.empty(SCRATCH, dtype=torch.uint8, device="npu")  # EARLY
    features = torch.empty(FEATURES, dtype=torch.uint8, device="npu")  # LATE
    features.fill_(1)
    if "late" in MENDED:
        del features
    torch.empty(MIDDLE, dtype=torch.uint8, device="npu").fill_(3)
    loss = model(inputs).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if "early" in MENDED:
        scratch = torch.empty(SCRATCH, dtype=torch.uint8, device="npu")
    scratch.fill_(2)


for _ in range(3):
    step()
torch.npu.synchronize()
print(json.dumps({"peak": torch.npu.max_memory_allocated()}))
