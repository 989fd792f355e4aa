# SPDX-License-Identifier: Apache-2.0
"""Random networks: one after the other is built and used until a moment, at which the script says what its memory is, by storage:

    {"step": number, "kind": what was done, "layers": of which kinds, "classes": {class: bytes}}

Truth comes from the model alone: parameters(), grad, the optimizer's state, buffers(), what the graph has saved, inputs. Then
a step ends, and everything is dropped. With DEVICE=cuda in the environment the networks are on a GPU, and a storage has the bytes of
the block that PyTorch's pool says it lies in.
"""
import copy
import gc
import json
import os
import random
import sys

import msmemscope
import torch
import torch.utils.checkpoint
from torch import nn
from torch.nn import functional as F


DEVICE = os.environ.get("DEVICE", "cpu")
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        squared = x * x
        ctx.save_for_backward(x, squared)
        return squared + 1

    @staticmethod
    def backward(ctx, grad):
        x, _ = ctx.saved_tensors
        return 2 * x * grad


class Layer(nn.Module):
    """One random layer, from `width` numbers to as many."""
    KINDS = ("linear", "norm", "batch", "exp", "dropout", "inplace", "residual", "attention", "mask", "function", "checkpoint", "gru",
             "conv", "buffer", "where", "sort", "cache")

    def __init__(self, rng, width):
        super().__init__()
        self.kind, self.width = rng.choice(self.KINDS), width
        kind = self.kind
        if kind in ("linear", "residual", "checkpoint", "exp", "inplace", "function", "mask"):
            self.inner = nn.Linear(width, width, bias=rng.random() < 0.7)
        elif kind == "norm":
            self.inner = nn.LayerNorm(width)
        elif kind == "batch":
            self.inner = nn.BatchNorm1d(width)
        elif kind == "attention":
            self.qkv = nn.Linear(width, 3 * width)
        elif kind == "gru":
            self.inner = nn.GRU(width, width, batch_first=True)
        elif kind == "conv":
            self.inner = nn.Conv1d(1, 3, 3, padding=1)
        elif kind == "buffer":
            self.register_buffer("scale", torch.rand(width))
        elif kind == "cache":
            self.register_buffer("key_cache", torch.zeros(8, width))
            self.seen = None

    def forward(self, x):
        kind = self.kind
        if kind == "residual":
            return x + F.gelu(self.inner(x))
        if kind == "checkpoint":
            return torch.utils.checkpoint.checkpoint(lambda y: torch.tanh(self.inner(y)), x, use_reentrant=False)
        if kind == "exp":
            return torch.exp(self.inner(x).clamp(-4, 4))
        if kind == "inplace":
            return self.inner(x).relu_()
        if kind == "function":
            return Square.apply(self.inner(x))
        if kind == "mask":
            return self.inner(x) * (torch.rand_like(x) > 0.3)
        if kind == "dropout":
            return F.dropout(x, 0.4, self.training)
        if kind == "attention":
            query, key, value = self.qkv(x).chunk(3, -1)
            return torch.softmax(query @ key.transpose(-1, -2), -1) @ value
        if kind == "gru":
            return self.inner(x.unsqueeze(1))[0].squeeze(1)
        if kind == "conv":
            return self.inner(x.unsqueeze(1)).mean(1)
        if kind == "buffer":
            return x * self.scale
        if kind == "where":
            return torch.where(x > 0, x, torch.expm1(x))
        if kind == "sort":
            return x.sort(-1).values.cumsum(-1) / self.width
        if kind == "cache":
            if not torch.is_grad_enabled():
                self.seen = x.clone() if self.seen is None else torch.cat([self.seen, x])
            return x + self.key_cache[:1]
        return self.inner(x)


class Network(nn.Module):
    def __init__(self, rng, dies=False):
        super().__init__()
        self.width, self.dies = rng.choice((32, 64, 96)), dies
        self.embed = nn.Embedding(50, self.width) if rng.random() < 0.4 else nn.Linear(self.width, self.width)
        self.layers = nn.ModuleList(Layer(rng, self.width) for _ in range(rng.randint(2, 7)))
        if rng.random() < 0.3:
            self.layers.append(copy.deepcopy(self.layers[0]))
        self.head = nn.Linear(self.width, self.width, bias=False)
        if rng.random() < 0.3:
            self.head.weight = nn.Parameter(torch.randn(self.width, self.width))

    def inputs(self, rng):
        rows = rng.randint(2, 40)
        if isinstance(self.embed, nn.Embedding):
            return torch.randint(0, 50, (rows,))
        return torch.randn(rows, self.width)

    def forward(self, x):
        x = self.embed(x)
        for at, layer in enumerate(self.layers):
            x = layer(x)
            if self.dies and at == len(self.layers) // 2:
                raise Died(x)
        return self.head(x)


ended = 0  # steps
layers = ()  # of the network


class Died(Exception):
    pass


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)


def saved_by(*roots):
    """All that the graphs behind some tensors have saved."""
    seen, todo, found = set(), [root.grad_fn for root in roots if root.grad_fn is not None], []
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        todo.extend(following for following, _ in node.next_functions if following is not None)
        for name in dir(node):
            if name.startswith("_raw_saved_"):
                saved = getattr(node, name)
                for one in saved if isinstance(saved, (list, tuple)) else (saved,):
                    if one.unpack_hook is None and one.data is not None:
                        found.append(one.data)
    return found


def pool_blocks():
    """{address: bytes} of all blocks of the pool."""
    found = {}
    for segment in torch.cuda.memory_snapshot():
        at = segment["address"]
        for block in segment["blocks"]:
            found[at] = block["size"]
            at += block["size"]
    return found


def say(kind, **classes):
    """Each storage counts for the first class that has it."""
    seen, said, blocks = set(), {}, pool_blocks() if DEVICE == "cuda" else {}
    for name in ("weight", "kv_cache", "buffer", "attribute", "optimizer_state", "gradient", "input", "activation"):
        said[name] = 0
        for tensor in tensors(list(classes.get(name, ()))):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen and storage.device.type == DEVICE:
                seen.add(storage.data_ptr())
                said[name] += blocks[storage.data_ptr()] if blocks and storage.nbytes() else storage.nbytes()
    msmemscope.step()
    global ended
    ended += 1
    print(json.dumps({"step": ended, "kind": kind, "classes": said, "layers": layers}), flush=True)


def of_model(*models):
    found = {"weight": [], "kv_cache": [], "buffer": [], "gradient": []}
    for model in models:
        found["weight"] += model.parameters()
        found["gradient"] += [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        for name, buffer in model.named_buffers():
            found["kv_cache" if "cache" in name else "buffer"].append(buffer)
    found["attribute"] = [layer.seen for model in models if isinstance(model, Network) for layer in model.layers
                          if getattr(layer, "seen", None) is not None]
    return found


def optimizer_for(rng, parameters):
    parameters = list(parameters)
    foreach = rng.random() < 0.5
    return rng.choice((lambda: torch.optim.SGD(parameters, 1e-3, momentum=0.9, foreach=foreach),
                       lambda: torch.optim.Adam(parameters, foreach=foreach),
                       lambda: torch.optim.AdamW(parameters, amsgrad=True, foreach=foreach),
                       lambda: torch.optim.RMSprop(parameters, foreach=foreach)))()


def loss_of(model, x, y):
    return F.mse_loss(model(x), y)


def run(rng):
    kind = rng.choice(("forward", "backward", "step", "accumulate", "infer", "die", "frozen", "functional", "copy", "two", "grad",
                       "moved", "refused"))
    torch.manual_seed(rng.randrange(1 << 30))
    model = Network(rng, dies=kind == "die")
    global layers
    layers = [layer.kind for layer in model.layers]
    x = model.inputs(rng)
    y = torch.randn(x.shape[0], model.width)
    if kind == "infer":
        model.eval()
        with torch.inference_mode() if rng.random() < 0.5 else torch.no_grad():
            for _ in range(rng.randint(1, 3)):
                out = model(x)
        del y
        say(kind, **of_model(model), input=[x], activation=[out])
    elif kind == "die":
        try:
            model(x)
        except Died as error:
            say(kind, **of_model(model), input=[x], activation=saved_by(error.args[0]))
            del error
    elif kind == "forward":
        loss = loss_of(model, x, y)
        say(kind, **of_model(model), input=[x, y], activation=saved_by(loss))
    elif kind in ("backward", "accumulate", "frozen", "moved"):
        if kind == "frozen":
            for layer in model.layers[::2]:
                layer.requires_grad_(False)
        elif kind == "moved":
            model, x, y = model.double(), x.double() if x.is_floating_point() else x, y.double()
        for _ in range(3 if kind == "accumulate" else 1):
            loss_of(model, x, y).backward()
        say(kind, **of_model(model), input=[x, y])
    elif kind == "step":
        optimizer = optimizer_for(rng, model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()
        say(kind, **of_model(model), input=[x, y], optimizer_state=list(optimizer.state.values()))
    elif kind == "functional":
        weights = [torch.randn(model.width, model.width, requires_grad=True) for _ in range(3)]
        out = x if x.is_floating_point() else y
        given = [out, y]
        for weight in weights:
            out = torch.tanh(out @ weight)
        loss = F.mse_loss(out, y)
        if rng.random() < 0.5:
            loss.backward()
        del x
        say(kind, **{**of_model(model), "weight": [*weights, *model.parameters()], "gradient": [weight.grad for weight in weights]},
            input=given, activation=saved_by(loss) if weights[0].grad is None else [out])
    elif kind == "copy":
        average = copy.deepcopy(model)
        loss_of(model, x, y).backward()
        say(kind, **of_model(model, average), input=[x, y])
    elif kind == "two":
        critic = nn.Sequential(nn.Linear(model.width, 16), nn.ReLU(), nn.Linear(16, 1))
        out = critic(model(x)).sum()
        del y
        say(kind, **of_model(model, critic), input=[x], activation=saved_by(out))
    elif kind == "grad":
        gradients = torch.autograd.grad(loss_of(model, x, y), list(model.parameters()), allow_unused=True)
        found = of_model(model)
        found["gradient"] += [gradient for gradient in gradients if gradient is not None]
        say(kind, **found, input=[x, y])
    elif kind == "refused":
        loss = loss_of(model, x, y)
        try:
            torch.empty(1 << 56)
        except RuntimeError:
            pass
        say(kind, **of_model(model), input=[x, y], activation=saved_by(loss))


def main(seed, count):
    torch.set_num_threads(1)
    for at in range(count):
        run(random.Random(seed * 100003 + at))
        gc.collect()


main(int(sys.argv[1]), int(sys.argv[2]))
