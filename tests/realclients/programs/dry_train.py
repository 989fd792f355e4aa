# SPDX-License-Identifier: Apache-2.0
"""Trains two layers on the NPU as users do, and after the steps that its first argument names prints the peaks that torch_npu counts itself. With
"mstx" as second argument it marks its steps and takes two steps of its optimizer in each. With "saves" it would write a file at its end."""
import atexit
import json
import sys

import mstx
import torch
import torch_npu  # noqa: F401
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1024, 4096)
        self.second = nn.Linear(4096, 1024)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def main():
    steps, marks, saves = int(sys.argv[1]), "mstx" in sys.argv, "saves" in sys.argv
    if saves:
        atexit.register(lambda: open("saved", "w", encoding="utf-8"))
    model = Net().npu()
    optimizer = torch.optim.AdamW(model.parameters())
    try:
        for step in range(steps):
            if marks:
                identity = mstx.range_start("step start", None)
            for _ in range(2 if marks else 1):
                loss = model(torch.randn(256, 1024, device="npu")).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            print(json.dumps({"step": step + 1}))
            if marks:
                mstx.range_end(identity)
    finally:
        if saves:
            open("finally", "w", encoding="utf-8").close()
    print(json.dumps({"allocated": torch.npu.max_memory_allocated(), "reserved": torch.npu.max_memory_reserved()}))


main()
