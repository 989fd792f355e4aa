# SPDX-License-Identifier: Apache-2.0
"""pool_cost.py: how long one block of the pool takes, allocated and freed: the median of many rounds, in ns, as a line of JSON."""
import json
import statistics
import time

import torch

torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
rounds = []
for _ in range(60):
    begin = time.perf_counter_ns()
    for _ in range(2000):
        torch.empty(1000, dtype=torch.uint8, device="cuda")
    rounds.append((time.perf_counter_ns() - begin) / 2000)
print(json.dumps({"ns": statistics.median(rounds)}), flush=True)
