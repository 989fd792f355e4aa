# SPDX-License-Identifier: Apache-2.0
"""Prefixes are cached, at most 192 MiB of them; the longest unused goes. No optimizer; requests are NVTX steps."""
import collections
import random

import torch

random.seed(11)
cache = collections.OrderedDict()
held = 0


def prefix(key):
    global held
    if key in cache:
        cache.move_to_end(key)
        return cache[key]
    made = torch.randn(64 + 61 * (key % 97), 1024, device="cuda", dtype=torch.half)
    cache[key] = made
    held += made.nbytes
    while held > 192 << 20:
        _, gone = cache.popitem(last=False)
        held -= gone.nbytes
    return made


weight = torch.randn(1024, 1024, device="cuda", dtype=torch.half)
for request in range(400):
    torch.cuda.nvtx.range_push("step start")
    (prefix(int(random.paretovariate(0.6)) % 5000) @ weight).amax()
    torch.cuda.nvtx.range_pop()
