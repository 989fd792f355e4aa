# SPDX-License-Identifier: Apache-2.0
"""Another process has nearly all of the card (`oom_others.py hold`); this one loads a model of 8 GiB."""
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
layers = [torch.nn.Linear(8192, 8192, bias=False, device="cuda") for _ in range(32)]  # @refused
torch.nn.Sequential(*layers)(torch.randn(4, 8192, device="cuda")).sum().item()
print(json.dumps({"passed": True}), flush=True)
