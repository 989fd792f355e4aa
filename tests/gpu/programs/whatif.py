# SPDX-License-Identifier: Apache-2.0
"""whatif.py SHAPE [--limit=BYTES] [--batch=N] [--snapshot=FILE]: programs whose pool `msmemscope whatif` is asked about; prints what PyTorch counted."""
import argparse
import json
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

arguments = argparse.ArgumentParser()
arguments.add_argument("shape")
arguments.add_argument("--limit", type=int, default=0)
arguments.add_argument("--batch", type=int, default=8)
arguments.add_argument("--snapshot")
given = arguments.parse_args()
random.seed(1)
torch.manual_seed(1)
steps = 0


def net(layers=4, width=384):
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
    return nn.Sequential(nn.Embedding(4000, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, 4000)).cuda()


def train(model, optimizer, length):
    global steps
    x = torch.randint(0, 4000, (given.batch, length), device="cuda")
    F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1


def fixed():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        train(model, optimizer, 256)


def varied():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(8):
        train(model, optimizer, random.randrange(64, 512))


def pictures():
    global steps
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, 1, 1),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(8):
        side = random.choice((96, 128, 160, 192))
        F.cross_entropy(model(torch.randn(24, 3, side, side, device="cuda")), torch.zeros(24, dtype=torch.long, device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()
        steps += 1


def serve():
    """Caches of requests that grow, end and begin again; the cache of the pool is emptied now and then."""
    global steps
    model = net(2).eval()
    held = {}
    with torch.no_grad():
        for step in range(120):
            for number in range(12):
                if number not in held or random.random() < 0.05:
                    held[number] = torch.randn(2, 2, random.randrange(20, 600), 384, device="cuda")
                held[number] = torch.cat([held[number], torch.randn(2, 2, 1, 384, device="cuda")], 2)
            model(torch.randint(0, 4000, (12, random.randrange(1, 200)), device="cuda"))
            if step % 30 == 29:
                torch.cuda.empty_cache()
            steps += 1


total = torch.cuda.get_device_properties(0).total_memory
if given.limit:
    torch.cuda.set_per_process_memory_fraction(given.limit / total)
if given.snapshot:
    torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
refused = None
try:
    globals()[given.shape]()
except torch.cuda.OutOfMemoryError:
    refused = steps + 1
torch.cuda.synchronize()
if given.snapshot:
    torch.cuda.memory._dump_snapshot(given.snapshot)
stats = torch.cuda.memory_stats()
print(json.dumps({"torch": torch.__version__, "reserved": stats["reserved_bytes.all.peak"], "in_use": stats["allocated_bytes.all.peak"], "refused": refused,
                  "ooms": stats["num_ooms"]}))
