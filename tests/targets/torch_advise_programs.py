# SPDX-License-Identifier: Apache-2.0
"""Whole training programs that advise has to know more about than the model.

    torch_advise_programs.py plain NAME          for a recorder: the program as it is
    torch_advise_programs.py truth NAME CHANGE   changed: "halves" (the batch, twice), "checkpoint" (around all blocks); prints a line of JSON: the most
                                                 memory that PyTorch's profiler counts

"result" has the model's result in a variable until the next one takes its place. "history" puts each into a list. "autocast" computes in bfloat16, of which
PyTorch keeps a copy of each weight. "partly" has checkpoints around every other block already.
"""
import json
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from torch_advise import counted_peak

STEPS = 3
SHAPES = {"autocast": (384, 4, 20), "partly": (128, 6, 3000)}  # width, blocks, classes


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(F.silu(self.first(self.norm(x))))


class Net(nn.Module):
    def __init__(self, again, width, count, classes):
        super().__init__()
        self.again, self.blocks, self.head = again, nn.ModuleList(Block(width) for _ in range(count)), nn.Linear(width, classes)

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if number in self.again else block(x)
        return self.head(x)


def train(name, change=None):
    global result  # as in a program without functions: to the end of the process
    width, count, classes = SHAPES.get(name, (64, 1, 5000))
    again = range(count) if change == "checkpoint" else range(0, count, 2) if name == "partly" else ()
    model, mixed, parts = Net(again, width, count, classes), name == "autocast", 2 if change == "halves" else 1
    optimizer, history = (torch.optim.AdamW if mixed else torch.optim.SGD)(model.parameters(), foreach=False), []
    for _ in range(STEPS):
        for _ in range(2 if mixed else 1):
            rows, labels = torch.randn(256, width), torch.randint(20, (256,))
            for part, target in zip(rows.chunk(parts), labels.chunk(parts)):
                with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                    result = model(part)
                    loss = F.cross_entropy(result, target)
                if name == "history":
                    history.append(result.detach())
                elif name != "result":
                    del result
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[1] == "plain":
        train(sys.argv[2])
    else:
        print(json.dumps({"peak_bytes": counted_peak(lambda: train(*sys.argv[2:]))}), flush=True)
