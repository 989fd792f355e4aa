# SPDX-License-Identifier: Apache-2.0
"""cost.py SECONDS, under the command: a training step with the driver's calls recorded and without, in turns inside one process, and
without a second time (A/A). Prints medians of the ratios within a round, with intervals of 95 % (bootstrap)."""
import json
import random
import statistics
import sys
import time

import torch

from msmemscope._native import collector

layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(16, 128, 512, device="cuda")


def timed(on):
    collector.mscope_cuda(on)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    model(data).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def interval(ratios):
    middles = sorted(statistics.median(random.choices(ratios, k=len(ratios))) for _ in range(300))
    return [round(statistics.median(ratios), 4), round(middles[7], 4), round(middles[292], 4)]


end = time.monotonic() + float(sys.argv[1])
for _ in range(20):
    timed(1), timed(0)
rounds = []
while time.monotonic() < end and len(rounds) < 3000:
    order = ["on", "off", "again"]
    random.shuffle(order)
    rounds.append({name: timed(name == "on") for name in order})
print(json.dumps({"pairs": len(rounds), "step_ms": round(1000 * statistics.median(r["off"] for r in rounds), 2),
                  "driver calls": interval([r["on"] / r["off"] for r in rounds]),
                  "A/A": interval([r["again"] / r["off"] for r in rounds])}))
