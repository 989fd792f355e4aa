# SPDX-License-Identifier: Apache-2.0
"""Trains a small random network on the CPU whose program holds results longer than it needs them.

    torch_held.py plain SEED...    for a recorder: each as it is, in a process of its own
    torch_held.py truth SEED...    each again with the results freed before backward(); prints the most memory that PyTorch's profiler counts
                                   of both as a line of JSON

How they are held, by seed: a variable, a tuple of results, a list, a dict, an attribute of the model, a variable of the caller's caller, or not
at all.
"""
import json
import os
import random
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn
from torch.nn import functional as F

HOW = ("variable", "tuple", "list", "dict", "attribute", "caller", "nothing")
STEPS = 3


class Part(nn.Module):
    def __init__(self, width, factor, act):
        super().__init__()
        self.norm, self.up, self.down, self.act = nn.LayerNorm(width), nn.Linear(width, factor * width), nn.Linear(factor * width, width), act

    def forward(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, chance, how):
        super().__init__()
        self.how, self.last = how, None
        self.words, width = chance.randint(300, 1500), 16 * chance.randint(1, 4)
        self.embed = nn.Embedding(self.words, width)
        self.recurrent = nn.GRU(width, width, batch_first=True) if chance.random() < 0.3 else None
        acts = (F.gelu, F.silu, torch.tanh, F.relu)
        self.parts = nn.ModuleList(Part(width, chance.randint(1, 4), chance.choice(acts)) for _ in range(chance.randint(1, 5)))
        self.head, self.second = nn.Linear(width, self.words), nn.Linear(width, self.words // 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        if self.recurrent is not None:
            x, _ = self.recurrent(x)
        for part in self.parts:
            x = part(x)
        result = self.head(x)
        if self.how == "attribute":
            self.last = result
        return (result, self.second(x)) if self.how in ("tuple", "dict") else result


def loss_of(logits, tokens):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens.reshape(-1) % logits.shape[-1])


def step(model, tokens, how, frees):
    """The backward pass runs here, or in the caller."""
    if how in ("variable", "attribute", "caller"):
        logits = model(tokens)
        loss = loss_of(logits, tokens)
        if how == "caller":
            return loss, logits
        if frees:
            del logits
            model.last = None
        loss.backward()
    elif how == "tuple":
        logits, second = model(tokens)
        loss = loss_of(logits, tokens) + loss_of(second, tokens)
        if frees:
            del logits, second
        loss.backward()
    elif how == "dict":
        out = dict(zip(("logits", "second"), model(tokens)))
        loss = loss_of(out["logits"], tokens) + loss_of(out["second"], tokens)
        if frees:
            out.clear()
        loss.backward()
    elif how == "list":
        kept = [model(tokens)]
        loss = loss_of(kept[-1], tokens)
        if frees:
            kept.clear()
        loss.backward()
    else:
        loss_of(model(tokens), tokens).backward()
    return None, None


def train(seed, frees):
    chance = random.Random(seed)
    torch.manual_seed(seed)
    how = HOW[seed % len(HOW)]
    model = Model(chance, how)
    optimizer = chance.choice((torch.optim.SGD, torch.optim.AdamW))(model.parameters(), 1e-3)
    batch, length = chance.randint(2, 8), chance.randint(8, 48)
    for _ in range(STEPS):
        tokens = torch.randint(model.words, (batch, length))
        optimizer.zero_grad()
        loss, logits = step(model, tokens, how, frees)
        if loss is not None:
            if frees:
                del logits
            loss.backward()
        optimizer.step()
        loss = logits = None


def peak_of(seed, frees):
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        train(seed, frees)
    live = peak = 0
    for event in sorted((one for one in profile.kineto_results.events() if one.name() == "[memory]"), key=lambda one: one.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def apart(function):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        function()
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("a network failed")


def plain(seed):
    print(json.dumps({"seed": seed, "pid": os.getpid(), "how": HOW[seed % len(HOW)]}))
    train(seed, False)


def truth(seed):
    print(json.dumps({"seed": seed, "how": HOW[seed % len(HOW)], "peak_bytes": peak_of(seed, False), "freed_bytes": peak_of(seed, True)}))


for number in sys.argv[2:]:
    apart(lambda seed=int(number): {"plain": plain, "truth": truth}[sys.argv[1]](seed))
