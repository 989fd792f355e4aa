# SPDX-License-Identifier: Apache-2.0
"""Trains small networks on the CPU, each in a process of its own.

    torch_advise.py plain NETWORK...   for a recorder: trains each as it is
    torch_advise.py truth NETWORK...   trains each again and again, with torch.utils.checkpoint around the modules of one class (all of them, the
                                       first or last half, every other), with zero_grad(set_to_none=True) and with smaller optimizer states;
                                       prints a line of JSON each: the most memory that PyTorch's profiler counts

With DEVICE=cuda in the environment they are trained on a GPU, with 32 times the batch, and PyTorch's pool says what was requested; with DEVICE=npu
on an NPU. TIMES says how many times the batch it is, CLASS that only modules of this class are of interest. On both, torch.autograd.graph.save_on_cpu() is tried around the same modules.

A network is transformer, cnn, unet, rnn, lstm, room (that is made once and kept), hooked (hooks keep results), nested, keeps (gradients that are set to zero), compiled
(torch.compile), again (checkpoints already), or a number: the seed of a random one.
"""
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
from torch.utils.checkpoint import checkpoint

STEPS = 3
DEVICE = os.environ.get("DEVICE", "cpu")
ON_GPU = DEVICE == "cuda"
CLASS = os.environ.get("CLASS")
TIMES = int(os.environ.get("TIMES", 32 if ON_GPU else 1))
if DEVICE == "npu":
    import torch_npu  # noqa: F401
ROOM = []


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, act=nn.GELU, drop=0.0):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width), nn.Dropout(drop))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, width=64, depth=6, heads=4, words=96, **more):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.ModuleList(Block(width, heads, **more) for _ in range(depth))

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self, inside, outside, stride=1, inplace=True):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(inplace=inplace),
                                  nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.short = nn.Identity() if inside == outside and stride == 1 else nn.Conv2d(inside, outside, 1, stride, bias=False)
        self.act = nn.ReLU(inplace=inplace)

    def forward(self, x):
        return self.act(self.body(x) + self.short(x))


class Cnn(nn.Module):
    def __init__(self, widths=(16, 16, 32, 32, 64), inplace=True):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1), nn.BatchNorm2d(widths[0]), nn.ReLU(inplace=inplace))
        self.stages = nn.Sequential(*[Residual(a, b, 1 if a == b else 2, inplace) for a, b in zip(widths, widths[1:])])
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x):
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class Double(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first, self.second, self.norm = nn.Conv2d(inside, outside, 3, 1, 1), nn.Conv2d(outside, outside, 3, 1, 1), nn.GroupNorm(4, outside)

    def forward(self, x):
        return F.silu(self.norm(self.second(F.silu(self.first(x)))))


class Unet(nn.Module):
    def __init__(self, widths=(8, 16, 32)):
        super().__init__()
        self.down = nn.ModuleList(Double(a, b) for a, b in zip((3, *widths), widths))
        self.middle = Double(widths[-1], widths[-1] * 2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths))
        self.merge = nn.ModuleList(Double(2 * w, w) for w in reversed(widths))
        self.last = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x):
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.last(x)


class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gates, self.state = nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, h):
        r, z = torch.sigmoid(self.gates(torch.cat([x, h], -1))).chunk(2, -1)
        return (1 - z) * h + z * torch.tanh(self.state(torch.cat([x, r * h], -1)))


class Rnn(nn.Module):
    def __init__(self, width=48, layers=3, words=40):
        super().__init__()
        self.embed, self.cells, self.head = nn.Embedding(words, width), nn.ModuleList(Cell(width) for _ in range(layers)), nn.Linear(width, words)

    def forward(self, tokens):
        sequence = list(self.embed(tokens).unbind(1))
        for cell in self.cells:
            h = torch.zeros_like(sequence[0])
            for at, x in enumerate(sequence):
                h = cell(x, h)
                sequence[at] = h
        return self.head(torch.stack(sequence, 1))


class Lstm(nn.Module):
    """Layers of PyTorch that have no parts, give a tensor and a pair, and save a workspace."""

    def __init__(self, width=48, layers=3, words=40):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(x)


class Hooked(Transformer):
    """A hook keeps what each block gives until the next step."""

    def __init__(self):
        super().__init__(width=32, depth=4, heads=1, words=32)
        kept = {}
        for number, block in enumerate(self.blocks):
            block.register_forward_hook(lambda module, given, result, number=number: kept.__setitem__(number, result))


class Inner(nn.Module):
    def __init__(self, width, factor, act, norm):
        super().__init__()
        self.norm, self.up, self.down, self.act = norm(width), nn.Linear(width, factor * width), nn.Linear(factor * width, width), act

    def forward(self, x):
        return self.down(self.act(self.up(self.norm(x))))


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.proj = nn.Linear(width, 2 * width)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, -1)
        return value * torch.sigmoid(gate), gate


class Working(nn.Module):
    """The first one that runs makes room that all use from then on, as the GPU's libraries make a workspace."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        if not ROOM:
            ROOM.append(torch.empty(100000))
        return x + self.down(F.gelu(self.up(x)))


class Scaled(nn.Module):
    """A weight that is broadcast: its gradient is summed up when the node has computed it, which has then dropped what a hook gave it."""

    def __init__(self, width, length):
        super().__init__()
        self.up, self.down, self.scale = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Parameter(torch.ones(1, length, 4 * width))

    def forward(self, x):
        return x + self.down(torch.sin(self.up(x)) * self.scale)


class Outer(nn.Module):
    """Parts in one another, a residual, two results, and perhaps a part that is used twice."""

    def __init__(self, width, parts, twice, residual):
        super().__init__()
        self.parts, self.gate, self.twice, self.residual = nn.Sequential(*parts), Gate(width), twice, residual

    def forward(self, x):
        y = self.parts(x)
        if self.twice:
            y = self.parts(y)
        value, gate = self.gate(y)
        return (x + value if self.residual else value) * torch.tanh(gate)


class Nested(nn.Module):
    def __init__(self, chance, width, depth):
        super().__init__()
        acts = (F.relu, F.gelu, torch.tanh, F.silu, nn.ReLU(inplace=True), nn.Softplus())
        norms = (nn.LayerNorm, lambda width: nn.Identity(), lambda width: nn.Dropout(0.3))
        self.first = nn.Linear(24, width)
        self.stages = nn.ModuleList(
            Outer(width, [Inner(width, chance.choice((1, 2, 4)), chance.choice(acts), chance.choice(norms)) for _ in range(chance.randint(1, 3))],
                  chance.random() < 0.25, chance.random() < 0.6) for _ in range(depth))
        self.last = nn.Linear(width, 24)
        if chance.random() < 0.3:
            for parameter in self.stages[0].parameters():
                parameter.requires_grad_(False)

    def forward(self, x):
        x = self.first(x)
        for stage in self.stages:
            x = stage(x)
        return self.last(x)


def random_network(seed):
    chance = random.Random(seed)
    kind = chance.choice(("nested", "nested", "transformer", "cnn", "unet", "rnn"))
    if kind == "transformer":
        words, heads = chance.randint(50, 300), chance.choice((1, 2, 4))
        model = Transformer(16 * heads * chance.randint(1, 3), chance.randint(2, 8), heads, words, act=chance.choice((nn.GELU, nn.ReLU, nn.SiLU)),
                            drop=chance.choice((0.0, 0.2)))
        return model, lambda: torch.randint(words, (chance_batch(seed, 8), 32))
    if kind == "cnn":
        widths = sorted(8 * chance.randint(1, 6) for _ in range(chance.randint(3, 7)))
        return Cnn(widths, chance.random() < 0.5), lambda: torch.randn(chance_batch(seed, 6), 3, 24, 24)
    if kind == "unet":
        narrow = 4 * chance.randint(1, 3)
        return Unet([narrow, 2 * narrow, 4 * narrow][:chance.randint(1, 3)]), lambda: torch.randn(chance_batch(seed, 4), 3, 32, 32)
    if kind == "rnn":
        words = chance.randint(30, 90)
        return Rnn(16 * chance.randint(1, 4), chance.randint(1, 4), words), lambda: torch.randint(words, (chance_batch(seed, 8), 12))
    return Nested(chance, 16 * chance.randint(2, 6), chance.randint(2, 7)), lambda: torch.randn(chance_batch(seed, 200), 24)


def chance_batch(seed, most):
    return max(2, most * (5 + seed % 7) // 8)


def make(name):
    """A model, what makes its input, and how it is trained: the optimizer, set_to_none."""
    torch.manual_seed(1)
    adam, sgd = (lambda p: torch.optim.Adam(p, 1e-3)), (lambda p: torch.optim.SGD(p, 1e-3))
    if name == "transformer":
        return Transformer(), lambda: torch.randint(96, (8, 48)), adam, True
    if name == "cnn":
        return Cnn(), lambda: torch.randn(8, 3, 32, 32), sgd, True
    if name == "unet":
        return Unet(), lambda: torch.randn(4, 3, 32, 32), adam, True
    if name == "rnn":
        return Rnn(), lambda: torch.randint(40, (16, 20)), sgd, True
    if name == "lstm":
        return Lstm(), lambda: torch.randint(40, (16, 20)), sgd, True
    if name == "room":
        return nn.Sequential(*(Working(32) for _ in range(4))), lambda: torch.randn(64, 32), sgd, True
    if name == "scaled":
        return nn.Sequential(*(Scaled(16, 500) for _ in range(3))), lambda: torch.randn(4, 500, 16), sgd, True
    if name == "hooked":
        return Hooked(), lambda: torch.randint(32, (16, 32)), sgd, True
    if name == "nested":
        return Nested(random.Random(5), 64, 4), lambda: torch.randn(256, 24), adam, True
    if name == "compiled":
        model = Transformer(depth=2)
        model.blocks[0] = torch.compile(model.blocks[0], backend="eager")
        drop = torch.compile(lambda x: (model.head.zero_grad(), x + 1)[1], backend="eager", fullgraph=True)  # nothing of a recorder is in its way
        drop(torch.ones(3))
        return model, lambda: torch.randint(96, (4, 16)), adam, True
    if name == "again":
        model = Transformer(depth=2)
        with_checkpoints(["blocks.0", "blocks.1"], model)
        return model, lambda: torch.randint(96, (4, 16)), adam, True
    if name == "keeps":
        return Transformer(96, 3, 2, 128), lambda: torch.randint(128, (4, 16)), adam, False
    model, data = random_network(int(name))
    return model, data, (adam, sgd)[int(name) % 2], int(name) % 5 != 0


class HalfAdam(torch.optim.Optimizer):
    """Adam whose states may have two bytes an element."""

    def __init__(self, parameters, dtype):
        super().__init__(parameters, {})
        self.dtype = dtype

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in state:
                    state[name] = torch.zeros_like(parameter, dtype=self.dtype)
            state["exp_avg"].mul_(0.9).add_(parameter.grad, alpha=0.1)
            state["exp_avg_sq"].mul_(0.99)
            parameter.add_(state["exp_avg"], alpha=-1e-3)


def batches(data, parts):
    """The batch, or parts of it, each made when it is needed."""
    for part in range(parts):
        batch = torch.cat([data()] * TIMES)
        batch = (batch if parts == 1 else batch.chunk(parts)[part].clone()).to(DEVICE)
        yield batch
        del batch


def train(name, change=lambda model: None, none=None, dtype=None, parts=1):
    model, data, optimizer, set_to_none = make(name)
    change(model)
    model.to(DEVICE)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    steps = HalfAdam(trained, dtype or torch.float32) if dtype is not None or name == "keeps" else optimizer(trained)
    for _ in range(STEPS):
        steps.zero_grad(set_to_none=set_to_none if none is None else none)
        for batch in batches(data, parts):
            loss = model(batch).square().mean()
            loss.backward()
            del loss, batch
        steps.step()


def groups(name):
    """Modules that advise may speak of, by class, in the order of their first call; none inside another one of its class."""
    model, data, *_ = make(name)
    called = []

    def note(module, *_):
        if module is not model and module not in called:
            called.append(module)

    for module in model.modules():
        module.register_forward_pre_hook(note)
    model(data())
    paths = {id(module): path for path, module in model.named_modules()}
    found = {}
    for module in called:
        path, kind = paths[id(module)], type(module).__name__
        around = [model.get_submodule(path[:at]) for at, letter in enumerate(path) if letter == "."]
        alone = not module._modules and type(module).__module__.startswith("torch.nn.") and not isinstance(module, nn.RNNBase)
        if not alone and kind not in [type(one).__name__ for one in around]:
            found.setdefault(kind, []).append(path)
    return found


def variants(groups):
    """(class, which, paths) of {class: paths}."""
    for kind, paths in groups.items():
        count = len(paths)
        yield kind, "all", paths
        if count > 1:
            yield kind, "first half", paths[:(count + 1) // 2]
            yield kind, "last half", paths[count // 2:]
        if count > 2:
            yield kind, "every other", paths[::2]


def with_checkpoints(paths, model):
    for path in paths:
        module = model.get_submodule(path)
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)


def with_offload(paths, model):
    """What these modules save goes to the host."""
    def run(forward, *args, **kwargs):
        with torch.autograd.graph.save_on_cpu(device_type=DEVICE):
            return forward(*args, **kwargs)

    for path in paths:
        module = model.get_submodule(path)
        module.forward = functools.partial(run, module.forward)


def apart(function):
    """In a process of its own; its result is JSON."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        torch.set_num_threads(1)
        with os.fdopen(writer, "w") as out:
            json.dump(function(), out)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as inside:
        text = inside.read()
    if os.waitpid(child, 0)[1] != 0:
        sys.exit("a network failed")
    return json.loads(text)


def peak_of(*args, **kwargs):
    if DEVICE != "cpu":
        train(*args, **kwargs)
        stats = getattr(torch, DEVICE).memory_stats()
        return [stats["requested_bytes.all.peak" if ON_GPU else "allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]]
    return counted_peak(functools.partial(train, *args, **kwargs))


def counted_peak(run):
    """The most memory of the CPU that PyTorch's profiler counts."""
    with torch.autograd.profiler.profile(profile_memory=True, use_kineto=True) as profile:
        run()
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def say(name, rule, peak, **more):
    print(json.dumps({"network": name, "rule": rule, "peak_bytes": peak, **more}), flush=True)


def truth(name):
    say(name, "plain", apart(lambda: peak_of(name)))
    for kind, which, paths in apart(lambda: list(variants(groups(name)))):
        if CLASS not in (None, kind):
            continue
        say(name, "checkpoint", apart(lambda: peak_of(name, functools.partial(with_checkpoints, paths))), **{"class": kind, "which": which})
        if DEVICE != "cpu":
            say(name, "offload", apart(lambda: peak_of(name, functools.partial(with_offload, paths))), **{"class": kind, "which": which})
    if CLASS is not None:
        return
    if name == "keeps":
        say(name, "optimizer_state", apart(lambda: peak_of(name, dtype=torch.bfloat16)))
    say(name, "accumulate", apart(lambda: peak_of(name, parts=2)))
    say(name, "set_to_none", apart(lambda: peak_of(name, none=True)))


def plain(name):
    train(name)
    return os.getpid()


if __name__ == "__main__":
    if sys.argv[1] == "truth":
        import torch._dynamo  # once, and not in each process
    for network in sys.argv[2:]:
        if sys.argv[1] == "truth":
            truth(network)
        else:
            print(json.dumps({"network": network, "pid": apart(functools.partial(plain, network))}), flush=True)
