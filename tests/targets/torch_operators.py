# SPDX-License-Identifier: Apache-2.0
"""Random networks, trained for two steps each, and what an observer of the script's own sees of their operators.

    torch_operators.py mode SEED...       a dispatch mode: {"name", "thread", "reads", "writes"}, each tensor as [address, bytes, dtype, shape]
    torch_operators.py profiler SEED...   PyTorch's profiler: [names of the operators of a network's step]

Each seed also says how the network runs: plainly, with autocast, with checkpoints, on a thread, compiled (with the profiler only).
"""
import json
import random
import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode

WAYS = ("plain", "autocast", "checkpoint", "thread", "compile")


class Block(nn.Module):
    """A random layer with a way around it."""

    def __init__(self, kind, width):
        super().__init__()
        self.kind = kind
        self.layer = {"linear": lambda: nn.Sequential(nn.Linear(width, width), nn.GELU()),
                      "norm": lambda: nn.LayerNorm(width),
                      "batch": lambda: nn.BatchNorm1d(width),
                      "drop": lambda: nn.Sequential(nn.Dropout(0.3), nn.ReLU(inplace=True)),
                      "halves": lambda: nn.Linear(width // 2, width // 2),
                      "attention": lambda: nn.Linear(width, 3 * width)}[kind]()

    def forward(self, x):
        if self.kind == "halves":
            first, second = x.chunk(2, dim=-1)
            return torch.cat([self.layer(first), second * 0.5], dim=-1)
        if self.kind == "attention":
            query, key, value = self.layer(x).split(x.shape[-1], dim=-1)
            return x + torch.softmax(query @ key.t() / 3, dim=-1) @ value
        return x + self.layer(x) if self.kind in ("linear", "norm") else self.layer(x)


class Network(nn.Module):
    def __init__(self, chance, way):
        super().__init__()
        self.way = way
        width = chance.choice((8, 12, 16))
        self.table = nn.Embedding(10, width)
        kinds = ("linear", "norm", "batch", "drop", "halves", "attention")
        self.blocks = nn.ModuleList(Block(chance.choice(kinds), width) for _ in range(chance.randint(2, 5)))
        self.head = nn.Linear(width, 4)

    def forward(self, words):
        x = self.table(words)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.way == "checkpoint" else block(x)
        return self.head(x)


def train(seed, way):
    chance = random.Random(seed)
    torch.manual_seed(seed)
    network = Network(chance, way)
    optimizer = chance.choice((lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, foreach=True),
                               lambda p: torch.optim.AdamW(p, foreach=False), torch.optim.RMSprop))(network.parameters())
    run = torch.compile(network, backend="aot_eager") if way == "compile" else network
    words, goals = torch.randint(0, 10, (6,)), torch.randint(0, 4, (6,))

    def step():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
            loss = nn.functional.cross_entropy(run(words), goals)
        loss.backward()
        if chance.random() < 0.5:
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    return step


def tensor(value):
    last = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    return [value.data_ptr(), (last + 1) * value.element_size() if value.numel() else 0, str(value.dtype), str(value.shape)]


def tensors(value):
    if isinstance(value, torch.Tensor):
        # Memory of its own, in one piece.
        return [tensor(value)] if value.layout is torch.strided and value.data_ptr() else []
    return [found for item in value for found in tensors(item)] if isinstance(value, (list, tuple)) else []


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema, reads, writes = func._schema, [], []
        base = schema.name.partition("::")[2]
        touches = torch.Tag.inplace_view not in func.tags
        for place, argument in enumerate(schema.arguments):
            value = kwargs.get(argument.name) if argument.kwarg_only else args[place] if place < len(args) else None
            if not touches or value is None:
                continue
            if argument.alias_info is None:
                reads += [] if base.endswith("_like") or base.startswith("new_") else tensors(value)
            elif argument.alias_info.is_write:
                writes.append(value)
        result = func(*args, **kwargs)
        written = [found for value in writes for found in tensors(value)]
        results = result if isinstance(result, (list, tuple)) and len(schema.returns) != 1 else [result]
        if touches and not base.startswith(("empty", "new_empty", "_empty")):
            for said, value in zip(schema.returns, results):
                written += tensors(value) if said.alias_info is None else []
        if not schema.name.startswith("profiler::"):
            print(json.dumps({"name": f"{func.__module__}.{func.__name__}", "thread": threading.get_native_id(), "reads": reads,
                              "writes": written}))
        return result


def is_composite(event):
    """Made of others: all of its overloads, which the profiler does not always know; those with out= have kernels of their own."""
    known = getattr(event, "overload_name", "")
    overloads = [known] if known else [schema.overload_name for schema in torch._C._jit_get_schemas_for_operator(event.name)]
    names = [f"{event.name}.{overload}" if overload else event.name for overload in overloads if not overload.endswith("out")]
    return all(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
               for name in names if torch._C._dispatch_has_kernel(name))


def add_outermost(event, names):
    """Of an event and those in it: operators that are in no other one."""
    if "::" in event.name and not event.name.startswith(("profiler::", "autograd::")) and not is_composite(event):
        names.append(event.name)
    else:
        for inner in event.children:
            add_outermost(inner, names)


def with_mode(step):
    with Mode():
        step()


def observed(step, how):
    if how == "mode":
        return with_mode(step)
    step()
    return None


def main():
    how, *seeds = sys.argv[1:]
    steps = []
    for seed in map(int, seeds):
        way = WAYS[seed % (len(WAYS) - (how == "mode"))]
        steps.append((way, train(seed, way)))
    for _, step in steps:
        step()  # states of optimizers, and what is compiled, exist from here on

    def run_all():
        for way, step in steps:
            if way == "thread":
                thread = threading.Thread(target=observed, args=(step, how))
                thread.start()
                thread.join()
            else:
                observed(step, how)

    if how == "mode":
        run_all()
        return
    for way, step in steps:
        if way == "thread":
            continue  # the profiler has its own thread only
        with torch.autograd.profiler.profile() as found:
            step()
        names = []
        # Not function_events: it nests by times, which older versions round to microseconds.
        for event in sorted(found.kineto_results.experimental_event_tree(), key=lambda event: event.start_time_ns):
            add_outermost(event, names)
        print(json.dumps(names))


main()
