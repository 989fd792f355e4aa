# SPDX-License-Identifier: Apache-2.0
"""forecast.py MIB STEPS: keeps so many MiB in each step, and stops after STEPS or when the card is full. Prints what the driver had free after each tenth step."""
import json
import sys
import time

import torch

size, steps = int(sys.argv[1]) << 20, int(sys.argv[2])
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept, free, full = [], [], None
for step in range(1, steps + 1):
    try:
        kept.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        full = step
        break
    model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    time.sleep(0.03)
    free.append(torch.cuda.mem_get_info()[0])
print(json.dumps({"full": full, "step": len(free), "free": free[-1], "per_step": (free[9] - free[-1]) / (len(free) - 10)}), flush=True)
