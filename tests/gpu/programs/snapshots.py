# SPDX-License-Identifier: Apache-2.0
"""snapshots.py WORKLOAD STACKS STEPS ENTRIES FILE: records PyTorch's own memory history of a training or an inference and dumps it.
WORKLOAD: transformer, cnn, decode, leak. STACKS: all, python, none. Prints what PyTorch says of its pool as a line of JSON."""
import json
import random
import sys

import torch
import torch.nn.functional as F

WORKLOAD, STACKS, STEPS, ENTRIES, FILE = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
torch.manual_seed(1)
random.seed(1)


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Network(torch.nn.Module):
    def __init__(self, width=256, layers=6):
        super().__init__()
        self.layers, self.head = torch.nn.ModuleList(Layer(width) for _ in range(layers)), torch.nn.Linear(width, 1000)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def train(network, make, kept=None):
    optimizer = torch.optim.AdamW(network.parameters())
    for _ in range(STEPS):
        out = network(make())
        if kept is not None:
            kept.append(out)  # the leak
        F.cross_entropy(out.flatten(0, -2), torch.zeros(out.numel() // out.shape[-1], dtype=torch.long, device="cuda")).backward()
        optimizer.step()
        optimizer.zero_grad()


def transformer():
    train(Network().cuda(), lambda: torch.randn(8, 128, 256, device="cuda"))


def leak():
    kept = []
    train(Network().cuda(), lambda: torch.randn(8, 128, 256, device="cuda"), kept)
    return kept


def cnn():
    layers = [layer for wide in (3, 32, 64) for layer in (torch.nn.Conv2d(wide, wide * 2 if wide > 3 else 32, 3, padding=1), torch.nn.ReLU())]
    network = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10)).cuda()
    train(network, lambda: torch.randn(16, 3, 64, 64, device="cuda"))


@torch.no_grad()
def decode():
    network, caches = Network().cuda().eval(), {}
    for _ in range(STEPS):
        for row in range(8):
            if row not in caches or caches[row].shape[0] > 300 or random.random() < 0.05:
                caches[row] = torch.randn(random.randrange(20, 200), 256, device="cuda")
            caches[row] = torch.cat([caches[row], torch.randn(1, 256, device="cuda")])
        network(torch.randn(8, 1, 256, device="cuda"))
    return caches


torch.cuda.init()
torch.cuda.memory._record_memory_history(max_entries=ENTRIES, **({"context": None} if STACKS == "none" else {"stacks": STACKS}))
result = {"transformer": transformer, "cnn": cnn, "decode": decode, "leak": leak}[WORKLOAD]()
torch.cuda.synchronize()
torch.cuda.memory._dump_snapshot(FILE)
stats = torch.cuda.memory_stats()
print(json.dumps({"requested": stats["requested_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
                  "requested_peak": stats["requested_bytes.all.peak"]}))
