# SPDX-License-Identifier: Apache-2.0
"""pool_oom.py: a private pool has most of the device and uses little of it; another request does not fit. Goes on behind it, and prints
what PyTorch says that the private pool has, as a line of JSON."""
import json

import torch

free, total = torch.cuda.mem_get_info()
pool = torch.cuda.MemPool()
PART = free // 20 // (2 << 20) * (2 << 20)
with torch.cuda.use_mem_pool(pool):
    blocks = [torch.empty(PART, dtype=torch.uint8, device="cuda") for _ in range(14)]
del blocks
kept = torch.empty(free // 10, dtype=torch.uint8, device="cuda")
try:
    more = torch.empty(free // 2, dtype=torch.uint8, device="cuda")
    refused = False
except torch.OutOfMemoryError:
    refused = True
private = sum(segment["total_size"] for segment in torch.cuda.memory_snapshot() if tuple(segment["segment_pool_id"]) != (0, 0))
print(json.dumps({"refused": refused, "private": private, "reserved": torch.cuda.memory_reserved()}), flush=True)
