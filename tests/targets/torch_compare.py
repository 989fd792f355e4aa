# SPDX-License-Identifier: Apache-2.0
"""Random networks, a forked process (rank) each: torch_compare.py FIRST COUNT PLANT. With PLANT=1 one layer of each is larger. Each process
prints which layer that is, and the bytes that each tensor has with its gradient and its states."""
import json
import os
import random
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
WIDTH = 32


class Lora(nn.Module):
    """A frozen layer beside a small one that learns."""

    def __init__(self, width, rank):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width, bias=False)
        for parameter in self.base.parameters():
            parameter.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Experts(nn.Module):
    def __init__(self, width, count, inner, odd):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, odd if i == 1 else inner), nn.GELU(), nn.Linear(odd if i == 1 else inner, width))
                                     for i in range(count))

    def forward(self, x):
        share = self.gate(x).softmax(-1)
        return sum(share[..., i:i + 1] * expert(x) for i, expert in enumerate(self.experts))


class Convolution(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv1d(1, channels, 3, padding=1), nn.BatchNorm1d(channels), nn.Conv1d(channels, 1, 3, padding=1)

    def forward(self, x):
        shape = x.shape
        return self.second(functional.relu(self.norm(self.first(x.reshape(-1, 1, shape[-1]))))).reshape(shape)


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.down(functional.relu(self.up(x)))


class Net(nn.Module):
    """Blocks of several kinds; `planted` is the number of the one with another size."""

    def __init__(self, rng, plant):
        super().__init__()
        self.table = nn.Embedding(rng.randrange(60, 200), WIDTH)
        kinds = [rng.choice(("mlp", "lora", "experts", "convolution")) for _ in range(rng.randrange(2, 6))]
        planted = rng.randrange(len(kinds))
        self.blocks = nn.ModuleList(self.block(rng, kind, i == planted, plant) for i, kind in enumerate(kinds))
        self.shared = rng.random() < 0.5
        self.head = nn.Linear(WIDTH, self.table.num_embeddings, bias=False)
        if rng.random() < 0.5:
            self.head.weight = self.table.weight
        self.planted = f"blocks.{planted}"

    @staticmethod
    def block(rng, kind, chosen, plant):
        size, more = rng.randrange(24, 48), rng.randrange(300, 600)
        size = size + more * (chosen and plant)
        if kind == "mlp":
            return Mlp(WIDTH, size)
        if kind == "lora":
            return Lora(WIDTH, size)
        return Experts(WIDTH, 3, rng.randrange(24, 48), size) if kind == "experts" else Convolution(size)

    def forward(self, x):
        x = self.table(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.blocks[0](x) if self.shared else x)


class Factored(torch.optim.Optimizer):
    """States that are smaller than their parameter, as Adafactor has them."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-3})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    flat = parameter.reshape(parameter.shape[0], -1)
                    state["row"], state["column"] = torch.zeros(flat.shape[0]), torch.zeros(flat.shape[1])
                parameter.sub_(parameter.grad, alpha=group["lr"])


def optimizers(rng, net):
    learning = [parameter for parameter in net.parameters() if parameter.requires_grad]
    kind = rng.randrange(4)
    if kind == 0:
        return [torch.optim.AdamW(learning)]
    if kind == 1:
        return [torch.optim.SGD(learning, lr=1e-3, momentum=0.9)]
    if kind == 2:
        return [Factored(learning)]
    return [torch.optim.Adam(learning[::2]), torch.optim.SGD(learning[1::2], lr=1e-3)]


def size(tensor):
    return 0 if tensor is None else tensor.numel() * tensor.element_size()


def train(seed, plant):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    net = Net(rng, plant)
    wrapped = nn.DataParallel(net) if rng.random() < 0.3 else net
    steps = optimizers(rng, net)
    for _ in range(4):
        for optimizer in steps:
            optimizer.zero_grad()
        x = torch.randint(0, net.table.num_embeddings, (2, 8))
        functional.cross_entropy(wrapped(x).flatten(0, 1), x.flatten()).backward()
        for optimizer in steps:
            optimizer.step()
    states = {}
    for optimizer in steps:
        for parameter, state in optimizer.state.items():
            states[parameter] = sum(size(one) for one in state.values() if torch.is_tensor(one) and one.numel() > 1)
    said = {name: [size(tensor), size(tensor.grad), states.get(tensor, 0)] for name, tensor in net.named_parameters()}
    with Path(os.environ["TRUTH"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"rank": seed, "planted": net.planted, "tensors": said}) + "\n")


if __name__ == "__main__":
    first, count, is_planted = map(int, sys.argv[1:])
    for number in range(first, first + count):
        os.environ["RANK"] = str(number)
        child = os.fork()
        if child == 0:
            train(number, is_planted)
            sys.exit()
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"rank {number} failed")
