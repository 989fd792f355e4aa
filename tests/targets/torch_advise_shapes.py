# SPDX-License-Identifier: Apache-2.0
"""Trains networks of other shapes than torch_advise.py on the CPU, each in a process of its own.

    torch_advise_shapes.py plain SEED...   for a recorder: trains each as it is
    torch_advise_shapes.py truth SEED...   trains each again and again with one change each, as torch_advise.py does; prints a line of JSON each: the
                                    most memory that PyTorch's profiler counts

The shape goes by the seed: SHAPES. All else is random: widths, depths, activations, optimizers, what the program holds.
"""
import collections
import functools
import json
import os
import random
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.nn import functional as F

from torch_advise import HalfAdam, apart, counted_peak, say, variants, with_checkpoints

STEPS = 3
Pair = collections.namedtuple("Pair", "value extra")


def act(chance):
    return chance.choice((nn.GELU, nn.SiLU, nn.Tanh, nn.Softplus, nn.ELU, lambda: nn.ReLU(inplace=chance.random() < 0.5)))()


# ---- shapes ----

class Stack(nn.Module):
    """Sequentials in one another, in a list."""

    def __init__(self, chance, width=0):
        super().__init__()
        width = width or 16 * chance.randint(2, 6)
        self.enter, self.leave = nn.Linear(24, width), nn.Linear(width, 8)
        self.rows = nn.ModuleList(nn.Sequential(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), act(chance)),
                                                nn.Sequential(nn.Linear(2 * width, width), nn.Dropout(chance.choice((0.0, 0.1)))))
                                  for _ in range(chance.randint(3, 7)))
        self.plus = chance.random() < 0.6

    def forward(self, x):
        x = self.enter(x)
        for row in self.rows:
            x = x + row(x) if self.plus else row(x)
        return self.leave(x)


class DenseLayer(nn.Module):
    def __init__(self, chance, inside, growth, inplace):
        super().__init__()
        self.norm, self.act, self.conv = nn.BatchNorm2d(inside), nn.ReLU(inplace=inplace), nn.Conv2d(inside, growth, 3, 1, 1, bias=False)

    def forward(self, features):
        return self.conv(self.act(self.norm(torch.cat(features, 1))))


class DenseBlock(nn.Module):
    def __init__(self, chance, inside, growth, count, inplace):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(chance, inside + at * growth, growth, inplace) for at in range(count))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(list(features)))
        return torch.cat(features, 1)


class Dense(nn.Module):
    def __init__(self, chance):
        super().__init__()
        growth, width, inplace = 4 * chance.randint(1, 3), 8 * chance.randint(1, 3), chance.random() < 0.5
        self.stem, parts = nn.Conv2d(3, width, 3, 1, 1), []
        for _ in range(chance.randint(1, 3)):
            count = chance.randint(2, 4)
            parts.append(DenseBlock(chance, width, growth, count, inplace))
            width += count * growth
            parts.append(nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(inplace=inplace), nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2)))
            width //= 2
        self.body, self.head = nn.Sequential(*parts), nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Heads(nn.Module):
    """Attention written out, to itself or to something else."""

    def __init__(self, chance, width, drop):
        super().__init__()
        self.heads = chance.choice((1, 2, 4))
        self.q, self.kv, self.out, self.drop = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width), nn.Dropout(drop)

    def forward(self, x, memory=None, mask=None):
        memory = x if memory is None else memory
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = (part.view(batch, memory.shape[1], self.heads, -1).transpose(1, 2) for part in self.kv(memory).chunk(2, -1))
        scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        return self.out((self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(batch, length, width))


class Feed(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(width, 3 * width), act(chance), nn.Linear(3 * width, width)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Encoder(nn.Module):
    def __init__(self, chance, width, drop):
        super().__init__()
        self.norm, self.heads, self.norm2, self.feed = nn.LayerNorm(width), Heads(chance, width, drop), nn.LayerNorm(width), Feed(chance, width)

    def forward(self, x):
        x = x + self.heads(self.norm(x))
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, chance, width, drop):
        super().__init__()
        self.own, self.other, self.feed = Heads(chance, width, drop), Heads(chance, width, drop), Feed(chance, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x, memory, mask):
        x = x + self.own(self.norms[0](x), mask=mask)
        x = x + self.other(self.norms[1](x), memory=memory)
        return x + self.feed(self.norms[2](x))


class Translate(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width, drop = 16 * chance.randint(2, 4), chance.choice((0.0, 0.1))
        self.embed = nn.Embedding(100, width)
        self.encoder = nn.ModuleList(Encoder(chance, width, drop) for _ in range(chance.randint(1, 4)))
        self.decoder = nn.ModuleList(Decoder(chance, width, drop) for _ in range(chance.randint(1, 4)))
        self.head = nn.Linear(width, 100, bias=False)
        if chance.random() < 0.5:
            self.head.weight = self.embed.weight

    def forward(self, source, target):
        memory = self.embed(source)
        for layer in self.encoder:
            memory = layer(memory)
        x, mask = self.embed(target), torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        for layer in self.decoder:
            x = layer(x, memory, mask)
        return self.head(x)


class Trunk(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv1d(4, width, 5, padding=2), act(chance), nn.Conv1d(width, width, 5, padding=2), act(chance), nn.MaxPool1d(2),
                                    nn.Conv1d(width, 2 * width, 3, padding=1), act(chance))

    def forward(self, x):
        return self.layers(x).flatten(1)


class Siamese(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width = 8 * chance.randint(1, 4)
        self.trunk, self.head = Trunk(chance, width), nn.Sequential(nn.Linear(2 * width * 32, 64), act(chance), nn.Linear(64, 16))

    def forward(self, one, other):
        one, other = self.head(self.trunk(one)), self.head(self.trunk(other))
        return (one - other).square().sum(-1)


class Cells(nn.Module):
    """Loops over PyTorch's own cells, or over one with parts."""

    def __init__(self, chance):
        super().__init__()
        width, kind = 16 * chance.randint(1, 4), chance.choice((nn.GRUCell, nn.LSTMCell, nn.RNNCell))
        self.embed, self.head = nn.Embedding(60, width), nn.Linear(width, 60)
        self.cells = nn.ModuleList(kind(width, width) for _ in range(chance.randint(1, 3)))
        self.gates = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Sigmoid()) for _ in self.cells)

    def forward(self, tokens):
        inputs = self.embed(tokens).unbind(1)
        for cell, gate in zip(self.cells, self.gates):
            state, outputs = None, []
            for x in inputs:
                state = cell(x, state)
                h = state[0] if isinstance(state, tuple) else state
                outputs.append(h * gate(x) + x)
            inputs = outputs
        return self.head(torch.stack(inputs, 1))


class Part(nn.Module):
    """Takes and gives a dict, a tuple, a list or a named tuple."""

    def __init__(self, chance, width, how):
        super().__init__()
        self.how, self.up, self.down, self.act = how, nn.Linear(width, 2 * width), nn.Linear(2 * width, width), act(chance)

    def forward(self, given):
        value, extra = (given["value"], given["extra"]) if isinstance(given, dict) else given
        middle = self.act(self.up(value))
        value = value + self.down(middle)
        extra = extra + middle.mean(-1, keepdim=True)
        return {"dict": {"value": value, "extra": extra}, "tuple": (value, extra), "list": [value, extra], "named": Pair(value, extra)}[self.how]


class Parts(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width = 16 * chance.randint(2, 6)
        self.how = chance.choice(("dict", "tuple", "list", "named"))
        self.first, self.last = nn.Linear(24, width), nn.Linear(width, 8)
        self.parts = nn.ModuleList(Part(chance, width, self.how) for _ in range(chance.randint(2, 7)))

    def forward(self, x):
        x = self.first(x)
        given = {"value": x, "extra": x.mean(-1, keepdim=True)}
        for part in self.parts:
            given = part(given)
        value, extra = given.values() if isinstance(given, dict) else given
        return self.last(value) * extra


class Plain(nn.Module):
    """Convolutions that work in place, with a part that weighs channels."""

    def __init__(self, chance):
        super().__init__()
        width, inplace = 8 * chance.randint(1, 4), chance.random() < 0.7
        norm = chance.choice((lambda: nn.BatchNorm2d(width), lambda: nn.GroupNorm(4, width), lambda: nn.InstanceNorm2d(width)))
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        self.rows = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), norm(), nn.ReLU(inplace=inplace), nn.Conv2d(width, width, 3, 1, 1, groups=width), norm())
                                  for _ in range(chance.randint(2, 6)))
        self.weigh = nn.ModuleList(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(inplace=inplace), nn.Conv2d(8, width, 1), nn.Sigmoid()) for _ in self.rows)
        self.act, self.head = nn.ReLU(inplace=inplace), nn.Linear(width, 10)
        self.add = chance.random() < 0.5

    def forward(self, x):
        x = self.stem(x)
        for row, weigh in zip(self.rows, self.weigh):
            y = row(x)
            y = y * weigh(y)
            if self.add:
                y += x
            else:
                y = y + x
            x = self.act(y)
        return self.head(x.mean((2, 3)))


class Adapter(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base, self.a, self.b = nn.Linear(width, width), nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Frozen(nn.Module):
    """Half of it, or all but small adapters, is not trained."""

    def __init__(self, chance):
        super().__init__()
        width, self.adapters = 16 * chance.randint(2, 6), chance.random() < 0.5
        linear = (lambda: Adapter(width, 4)) if self.adapters else (lambda: nn.Linear(width, width))
        self.first, self.last = nn.Linear(24, width), nn.Linear(width, 8)
        self.rows = nn.ModuleList(nn.Sequential(linear(), act(chance), nn.LayerNorm(width)) for _ in range(chance.randint(4, 9)))
        if self.adapters:
            self.first.requires_grad_(False)
        else:
            for row in [self.first, *self.rows[:len(self.rows) // 2]]:
                row.requires_grad_(False)

    def forward(self, x):
        x = self.first(x)
        for row in self.rows:
            x = x + row(x)
        return self.last(x)


class Expert(nn.Module):
    def __init__(self, chance, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 2 * width), act(chance), nn.Linear(2 * width, width))

    def forward(self, x):
        return self.body(x)


class Mixture(nn.Module):
    """Rows go to one of several experts."""

    def __init__(self, chance, width=0):
        super().__init__()
        width = width or 16 * chance.randint(2, 4)
        self.first, self.route, self.last = nn.Linear(24, width), nn.Linear(width, 4), nn.Linear(width, 8)
        self.experts = nn.ModuleList(Expert(chance, width) for _ in range(4))

    def forward(self, x):
        x = self.first(x)
        weights, where = self.route(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (where == number).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]) * weights[rows, None])
        return self.last(x + out)


class Vae(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width = 32 * chance.randint(2, 5)
        self.encode = nn.Sequential(nn.Linear(96, width), act(chance), nn.Linear(width, width), act(chance))
        self.mean, self.spread = nn.Linear(width, 16), nn.Linear(width, 16)
        self.decode = nn.Sequential(nn.Linear(16, width), act(chance), nn.Linear(width, width), act(chance), nn.Linear(width, 96))

    def forward(self, x):
        hidden = self.encode(x)
        mean, spread = self.mean(hidden), self.spread(hidden)
        sample = mean + torch.randn_like(mean) * (0.5 * spread).exp()
        return self.decode(sample), mean, spread


class Wave(nn.Module):
    def __init__(self, chance, width, dilation):
        super().__init__()
        self.conv, self.out = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation), nn.Conv1d(width, 2 * width, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, 1)
        y, skip = self.out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
        return x + y, skip


class Waves(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width = 8 * chance.randint(1, 4)
        self.first, self.last = nn.Conv1d(4, width, 1), nn.Sequential(nn.ReLU(), nn.Conv1d(width, 8, 1))
        self.waves, self.listed = nn.ModuleList(Wave(chance, width, 2 ** at) for at in range(chance.randint(3, 6))), chance.random() < 0.5

    def forward(self, x):
        x, skips, total = self.first(x), [], 0
        for wave in self.waves:
            x, skip = wave(x)
            if self.listed:
                skips.append(skip)
            else:
                total = total + skip
        return self.last(sum(skips) if self.listed else total)


class Mixer(nn.Module):
    def __init__(self, chance, length, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across, self.along = nn.Sequential(nn.Linear(length, 2 * length), act(chance), nn.Linear(2 * length, length)), Feed(chance, width)

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.norm2(x))


class Vision(nn.Module):
    def __init__(self, chance):
        super().__init__()
        width, self.mixes = 16 * chance.randint(2, 5), chance.random() < 0.5
        self.patch, self.head = nn.Conv2d(3, width, 4, 4), nn.Linear(width, 10)
        self.token, self.place = nn.Parameter(torch.zeros(1, 1, width)), nn.Parameter(torch.zeros(1, 37, width))
        self.rows = nn.Sequential(*[Mixer(chance, 37, width) if self.mixes else Encoder(chance, width, 0.1) for _ in range(chance.randint(2, 5))])

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        return self.head(self.rows(x)[:, 0])


class Twin(nn.Module):
    """A layer that is used again and again with the same weights, as ALBERT's."""

    def __init__(self, chance):
        super().__init__()
        width = 16 * chance.randint(2, 5)
        self.embed, self.layer, self.head, self.times = nn.Embedding(80, width), Encoder(chance, width, 0.0), nn.Linear(width, 80), chance.randint(2, 6)

    def forward(self, tokens):
        x = self.embed(tokens)
        for _ in range(self.times):
            x = self.layer(x)
        return self.head(x)


# ---- programs ----

class Program:
    """How a network is trained: `losses` make those of a batch, one after another."""

    def __init__(self, chance, roots, data, losses, accumulate=1):
        self.roots, self.data, self.losses, self.accumulate = roots, data, losses, accumulate
        self.none, self.holds = chance.random() < 0.8, chance.random() < 0.3
        kind = chance.choice(("adam", "sgd", "momentum", "half"))
        self.kinds = [kind] * len(roots)
        self.half = kind == "half"

    def optimizers(self, dtype):
        for root, kind in zip(self.roots, self.kinds):
            parameters = [one for one in root.parameters() if one.requires_grad]
            yield {"adam": lambda p: torch.optim.Adam(p, 1e-3), "sgd": lambda p: torch.optim.SGD(p, 1e-3), "momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9),
                   "half": lambda p: HalfAdam(p, dtype or torch.float32)}[kind](parameters)


def cross(logits, tokens):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1) % logits.shape[-1])



def simple(chance, model, data, accumulate=1):
    return Program(chance, [model], data, [lambda roots, batch, shared: run_loss(roots[0], batch)], accumulate)


def run_loss(model, batch):
    out = model(*batch)
    return out, out.square().mean()


def two_losses(chance):
    model = Stack(chance)
    other, rows = nn.Linear(24, 8), chance.randint(60, 300)
    how = chance.choice(("sum", "weighted", "twice"))
    roots = [nn.ModuleDict({"model": model, "other": other})]
    model.enter.requires_grad_(chance.random() < 0.7)

    def losses(roots, batch, shared):
        x, labels = batch
        out = roots[0]["model"](x)
        first, second = F.cross_entropy(out, labels), F.mse_loss(out, roots[0]["other"](x))
        if how == "twice":
            first.backward(retain_graph=True)
            return out, second
        return out, first + second if how == "sum" else 0.3 * first + 0.7 * second.sqrt()

    return Program(chance, roots, lambda: (torch.randn(rows, 24), torch.randint(8, (rows,))), [losses])


def adversaries(chance):
    width = 16 * chance.randint(1, 3)
    maker = nn.Sequential(nn.Linear(16, width), act(chance), nn.Linear(width, 2 * width), act(chance), nn.Linear(2 * width, 24))
    judge, rows = Stack(chance), chance.randint(60, 300)

    def judged(roots, batch, shared):
        (real, noise), (maker, judge) = batch, roots
        shared["fake"] = maker(noise)
        out = judge(shared["fake"].detach())
        return out, F.softplus(out).mean() + F.softplus(-judge(real)).mean()

    def made(roots, batch, shared):
        out = roots[1](shared.pop("fake"))
        return out, F.softplus(-out).mean()

    return Program(chance, [maker, judge], lambda: (torch.randn(rows, 24), torch.randn(rows, 16)), [judged, made])


def vae(chance):
    rows = chance.randint(80, 400)

    def losses(roots, batch, shared):
        out, mean, spread = roots[0](*batch)
        return out, F.mse_loss(out, batch[0]) + (mean.square() + spread.exp() - spread).mean()

    return Program(chance, [Vae(chance)], lambda: (torch.randn(rows, 96),), [losses])


def teacher(chance):
    """One model teaches another; nothing is saved of it."""
    rows, width = chance.randint(60, 250), 16 * chance.randint(2, 5)
    teach = Stack(chance, width).requires_grad_(False)

    def losses(roots, batch, shared):
        with torch.no_grad():
            wanted = teach(*batch)
        out = roots[0](*batch)
        return out, F.mse_loss(out, wanted)

    return Program(chance, [Stack(chance)], lambda: (torch.randn(rows, 24),), [losses])


def of(kind, least, most, *shape):
    def make(chance):
        rows = chance.randint(least, most)
        return simple(chance, kind(chance), lambda: (torch.randn(rows, *shape),))
    return make


def words(kind, count, least, most, length, times=1):
    def make(chance):
        rows = chance.randint(least, most)
        return simple(chance, kind(chance), lambda: tuple(torch.randint(count, (rows, length + 4 * at)) for at in range(times)))
    return make


def pairs(chance):
    rows = chance.randint(8, 40)
    return simple(chance, Siamese(chance), lambda: (torch.randn(rows, 4, 64), torch.randn(rows, 4, 64)))


def adds_up(chance):
    rows, times = chance.randint(30, 120), chance.randint(2, 4)
    return simple(chance, chance.choice((Stack, Parts, Frozen))(chance), lambda: (torch.randn(rows, 24),), times)


SHAPES = {"stack": of(Stack, 60, 400, 24), "dense": of(Dense, 2, 8, 3, 24, 24), "translate": words(Translate, 100, 3, 10, 24, 2), "siamese": pairs,
          "two_losses": two_losses, "cells": words(Cells, 60, 8, 40, 10), "parts": of(Parts, 60, 400, 24), "plain": of(Plain, 2, 8, 3, 24, 24),
          "frozen": of(Frozen, 60, 400, 24), "adds_up": adds_up, "adversaries": adversaries, "mixture": of(Mixture, 60, 400, 24), "vae": vae,
          "waves": of(Waves, 3, 12, 4, 96), "vision": of(Vision, 4, 16, 3, 24, 24), "twin": words(Twin, 80, 4, 12, 24), "teacher": teacher}


def shape_of(seed):
    return list(SHAPES)[seed % len(SHAPES)]


def make(seed):
    torch.manual_seed(seed)
    return SHAPES[shape_of(seed)](random.Random(seed))


def step(program, roots, batch):
    shared = {}
    for losses in program.losses:
        out, loss = losses(roots, batch, shared)
        if not program.holds:
            del out
        loss.backward()
        out = loss = None


def train(seed, change=lambda roots: None, none=None, dtype=None, parts=1):
    program = make(seed)
    change(program.roots)
    optimizers = list(program.optimizers(dtype))
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=program.none if none is None else none)
        for _ in range(program.accumulate):
            for part in range(parts):
                batch = tuple(one if parts == 1 else one.chunk(parts)[part].clone() for one in program.data())
                step(program, program.roots, batch)
                del batch
        for optimizer in optimizers:
            optimizer.step()


def groups(seed):
    """As in torch_advise.py: {class: [(number of the root, path)]}"""
    program, called = make(seed), []
    names = {id(module): (number, path) for number, root in enumerate(program.roots) for path, module in root.named_modules(remove_duplicate=True)}
    depth = []

    def note(module, *_):
        if depth and id(module) in names and all(module is not one for one, _ in called):
            called.append((module, [type(one).__name__ for one in depth[1:]]))
        depth.append(module)

    def leave(module, *_):
        depth.pop()

    for root in program.roots:
        for module in root.modules():
            module.register_forward_pre_hook(note)
            module.register_forward_hook(leave)
    step(program, program.roots, program.data())
    found = {}
    for module, around in called:
        kind = type(module).__name__
        alone = not module._modules and type(module).__module__.startswith("torch.nn.") and not isinstance(module, nn.RNNBase)
        if not alone and kind not in around:
            found.setdefault(kind, []).append(names[id(module)])
    return found


def checkpoint_all(paths, roots):
    for number, path in paths:
        with_checkpoints([path], roots[number])


def peak_of(*args, **kwargs):
    return counted_peak(functools.partial(train, *args, **kwargs))


def truth(seed):
    program = make(seed)
    about = functools.partial(say, seed)
    about("plain", apart(lambda: peak_of(seed)))
    for kind, which, paths in apart(lambda: list(variants(groups(seed)))):
        about("checkpoint", apart(lambda: peak_of(seed, functools.partial(checkpoint_all, paths))), **{"class": kind, "which": which})
    if program.half:
        about("optimizer_state", apart(lambda: peak_of(seed, dtype=torch.bfloat16)))
    about("accumulate", apart(lambda: peak_of(seed, parts=2)))
    about("set_to_none", apart(lambda: peak_of(seed, none=True)))


def plain(seed):
    train(seed)
    return os.getpid()


if __name__ == "__main__":
    if sys.argv[1] == "truth":
        import torch._dynamo  # once, and not in each process
    for number in map(int, sys.argv[2:]):
        if sys.argv[1] == "truth":
            truth(number)
        else:
            print(json.dumps({"network": number, "pid": apart(functools.partial(plain, number))}), flush=True)
