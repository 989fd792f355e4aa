# SPDX-License-Identifier: Apache-2.0
"""runs.py [planted]: steps of training with snapshots. {"snapshots": [[allocated, reserved, most allocated, most reserved], ...]}: what PyTorch
says at each. With `planted`, each step keeps 3 MiB more. DEVICE=cpu is for trying it."""
import json
import os
import sys

import msmemscope
import torch

DEVICE = os.environ.get("DEVICE", "cuda")
kept, said = [], []


def keep_more():
    kept.append(torch.ones(3 << 20, dtype=torch.uint8, device=DEVICE))


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(64, 512, device=DEVICE)).square().mean().backward()
        optimizer.step()
        if "planted" in sys.argv:
            keep_more()
        if DEVICE == "cuda":
            said.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated(),
                         torch.cuda.max_memory_reserved()])
        msmemscope.take_snapshot(name=f"step {step}")
        msmemscope.step()
    print(json.dumps({"snapshots": said}), flush=True)


main()
