# SPDX-License-Identifier: Apache-2.0
"""torch_layers.py SEED COUNT: builds COUNT random networks (nested, shared, frozen, tied, with adapters, wrapped), trains each for a step, runs
another forward pass and keeps its graph. When all of them are there it says what each module holds, by storage, one network a line:

    {"model": class, "tied": [name, ...] or null, "layers": {path: {class: bytes}}, "tensors": {name: {class: bytes}}}

and what operators outside of models have saved: {"model": "", "layers": {"": {"activation": bytes}}}. Then it takes a tensor that is larger
than all before, so that this is the peak.

Truth comes from PyTorch alone: named_modules(), grad, the optimizer's state, and what nodes of the graph have saved; a storage belongs to
the innermost module whose forward pass was running when an operator made it.
"""
import json
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

running = []  # modules whose forward pass is running
makers = {}   # address of a storage -> the innermost of them when it was made, None: none was


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def enters(module, _args):
    running.append(module)


def leaves(_module, _args, _result):
    running.pop()


class Making(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = {address(one) for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)}
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and address(one) not in given:
                makers[address(one)] = running[-1] if running else None
        return result


class Mlp(nn.Module):
    def __init__(self, rng, width):
        super().__init__()
        inner = width * rng.choice((1, 2, 4))
        self.up, self.down = nn.Linear(width, inner, bias=rng.random() < 0.5), nn.Linear(inner, width)
        self.act = rng.choice((nn.GELU, nn.ReLU, nn.Tanh))()

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


class Adapted(nn.Module):
    """A frozen layer with a small one beside it, as LoRA has it."""

    def __init__(self, rng, width):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("scale", torch.rand(width))

    def forward(self, x):
        return self.base(x) + self.scale * self.b(self.a(self.dropout(x)))


class Attention(nn.Module):
    def __init__(self, rng, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)


class Recurrent(nn.Module):
    def __init__(self, rng, width):
        super().__init__()
        self.rnn = nn.GRU(width, width, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


def part(rng, width, depth):
    kind = rng.randrange(7 if depth else 5)
    if kind > 4:
        parts = [part(rng, width, depth - 1) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.3:
            parts.append(parts[0])  # the same module twice
        return nn.Sequential(*parts)
    made = (Mlp, Adapted, Attention, Recurrent, lambda rng, width: nn.LayerNorm(width))[kind](rng, width)
    return made.requires_grad_(False) if rng.random() < 0.15 else made


class Net(nn.Module):
    def __init__(self, rng):
        super().__init__()
        width, words = rng.choice((8, 12, 16)), rng.randint(20, 60)
        self.embed = nn.Embedding(words, width)
        self.body = nn.ModuleList(part(rng, width, 3) for _ in range(rng.randint(1, 4)))
        self.head = nn.Linear(width, words, bias=False)
        self.tied = rng.random() < 0.5
        if self.tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for one in self.body:
            x = one(x)
        return self.head(x)


def train(rng, number):
    net = type(f"Net{number}", (Net,), {})(rng)
    called = nn.DataParallel(net) if rng.random() < 0.3 else net  # without a GPU it only calls the module
    weights = [one for one in net.parameters() if one.requires_grad]
    optimizer = rng.choice((lambda w: torch.optim.Adam(w, foreach=rng.random() < 0.5), lambda w: torch.optim.SGD(w, momentum=0.9),
                            torch.optim.AdamW))(weights)
    tokens = torch.randint(0, net.embed.num_embeddings, (rng.randint(1, 4), rng.randint(2, 8)))

    def loss():
        return F.cross_entropy(called(tokens).flatten(0, 1), tokens.flatten())
    loss().backward()
    optimizer.step()
    if rng.random() < 0.5:
        optimizer.zero_grad()
    with Making():
        kept = loss()
    return net, called, optimizer, tokens, kept


def saved(root):
    """Storages that nodes of a graph have saved: {address: bytes}."""
    found, todo, seen = {}, [root.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        todo.extend(one for one, _ in node.next_functions)
        for name in dir(node):
            if name.startswith("_saved_"):
                for one in tree_leaves(getattr(node, name)):
                    if isinstance(one, torch.Tensor):
                        found[address(one)] = one.untyped_storage().nbytes()
    return found


def tell(net, optimizer, tokens, loss, outside):
    paths = {id(module): path for path, module in net.named_modules()}
    layers, tensors, known = {}, {}, {address(tokens)}

    def add(path, kind, storage, name=None):
        if storage.data_ptr() in known:
            return
        known.add(storage.data_ptr())
        for table, key in ((layers, path), (tensors, name)):
            if key is not None:
                entry = table.setdefault(key, {})
                entry[kind] = entry.get(kind, 0) + storage.nbytes()
    for name, weight in net.named_parameters():
        path = name.rpartition(".")[0]
        add(path, "weight", weight.untyped_storage(), name)
        if weight.grad is not None:
            add(path, "gradient", weight.grad.untyped_storage(), name)
        for state in optimizer.state[weight].values() if weight in optimizer.state else ():
            if isinstance(state, torch.Tensor):
                add(path, "optimizer_state", state.untyped_storage(), name)
    for name, buffer in net.named_buffers():
        add(name.rpartition(".")[0], "buffer", buffer.untyped_storage(), name)
    for at, size in saved(loss).items():
        if at in known:
            continue
        known.add(at)
        maker = makers.get(at)
        table, key = (outside, "") if maker is None else (layers, paths[id(maker)])
        entry = table.setdefault(key, {})
        entry["activation"] = entry.get("activation", 0) + size
    tied = [name for name, one in net.named_parameters(remove_duplicate=False) if one is net.embed.weight] if net.tied else None
    print(json.dumps({"model": type(net).__name__, "tied": tied, "layers": layers, "tensors": tensors}))


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rng = random.Random(seed)
    hooks.register_module_forward_pre_hook(enters)
    hooks.register_module_forward_hook(leaves, always_call=True)
    kept, outside = [], {}
    for number in range(count):
        kept.append(train(rng, number))
    for net, _called, optimizer, tokens, loss in kept:
        tell(net, optimizer, tokens, loss, outside)
    print(json.dumps({"model": "", "tied": None, "layers": outside, "tensors": {}}))
    torch.empty(64 << 20, dtype=torch.uint8)


main()
