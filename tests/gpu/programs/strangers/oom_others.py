# SPDX-License-Identifier: Apache-2.0
"""Another process has nearly all of the card (`oom_others.py hold`); this one needs 8 GiB in all, 256 MiB at a time."""
import json
import sys

import torch

GIB = 1 << 30
if "hold" in sys.argv:
    free, _ = torch.cuda.mem_get_info()
    held = torch.empty(free - 6 * GIB, dtype=torch.uint8, device="cuda")
    print("held", flush=True)
    sys.stdin.read()
    sys.exit()
print(json.dumps({"cause": "other processes"}), flush=True)
model = torch.nn.Linear(256, 256).cuda()
weights = []
for number in range(32):
    weights.append(torch.empty(GIB // 4, dtype=torch.uint8, device="cuda"))  # @refused
print(json.dumps({"passed": True}), flush=True)
