# SPDX-License-Identifier: Apache-2.0
"""torch_shapes.py KIND: one shape of a program on the CPU, large enough for shares of its peak. Some say what they hold when they end:
{"name": bytes, ...}, and end a step there."""
import json
import os
import signal
import subprocess
import sys
import tempfile

import msmemscope
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, ROWS = 256, 512


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, fails=lambda at: None):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)
        self.fails = fails

    def forward(self, x):
        for at, block in enumerate(self.blocks):
            x = block(x)
            self.fails(at)
        return self.head(x)


class Decoder(nn.Module):
    """Keeps keys and values in three ways: a buffer, an attribute that grows, and what it is given and gives back."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("k_cache", torch.zeros(1024, WIDTH))
        self.register_buffer("table", torch.zeros(300, WIDTH))
        self.v_cache = torch.zeros(0, WIDTH)

    def forward(self, x, past_key_values=None):
        y = self.inner(x)
        self.k_cache[:y.shape[0]] = y
        self.v_cache = torch.cat([self.v_cache, y])
        past = y if past_key_values is None else torch.cat([past_key_values[0], y])
        return {"logits": y + self.table[:y.shape[0]], "past_key_values": (past,)}


def say(**what):
    os.write(1, (json.dumps(what) + "\n").encode())  # at once: ranks share it
    msmemscope.step()


def size(*tensors):
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}.values())


def train(model, steps=3, passes=1, optimizer=torch.optim.AdamW):
    optimizer = optimizer(model.parameters())
    for _ in range(steps):
        for _ in range(passes):
            F.mse_loss(model(torch.randn(ROWS, WIDTH)), torch.randn(ROWS, WIDTH)).backward()
        optimizer.step()
        optimizer.zero_grad()


def infer():
    model = Model().eval()
    with torch.no_grad():
        for _ in range(3):
            torch.softmax(model(torch.randn(ROWS, WIDTH)), -1).argmax(-1)


def dies(how):
    """What three blocks have saved: of each the input, the result of the norm and its two figures, and both sides of gelu."""
    def fails(at):
        if at == 2:
            say(activation=4 * ROWS * (3 * (2 * WIDTH + 2 + 2 * 2 * WIDTH) - WIDTH), weight=size(*model.parameters()), input=size(x))
            how()

    model, x = Model(fails), torch.randn(ROWS, WIDTH)
    model(x)


def raises():
    raise ValueError("in the middle of a forward pass")


def is_killed():
    os.kill(os.getpid(), signal.SIGKILL)


def runs_out():
    torch.empty(1 << 56)


def backward_dies():
    """In the middle of the backward pass, by a signal: the gradients of the last two blocks are there."""
    model = Model()
    made = [*model.head.parameters(), *model.blocks[3].parameters(), *model.blocks[2].parameters()]

    class Stop(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            assert all(parameter.grad is not None for parameter in made)
            torch.zeros(1)  # one operator later than the gradients
            say(gradient=size(*[parameter.grad for parameter in made]))
            os.kill(os.getpid(), signal.SIGKILL)

    x = torch.randn(ROWS, WIDTH)
    for at, block in enumerate(model.blocks):
        x = Stop.apply(x) if at == 2 else x
        x = block(x)
    model.head(x).sum().backward()


def first_step_dies():
    """States of half of the parameters are there when a step runs out of memory."""
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    F.mse_loss(model(torch.randn(ROWS, WIDTH)), torch.randn(ROWS, WIDTH)).backward()
    zeros_like, made = torch.zeros_like, []

    def limited(*args, **kwargs):
        if len(made) == 20:
            torch.empty(1 << 56)
        made.append(zeros_like(*args, **kwargs))
        return made[-1]

    torch.zeros_like = limited
    try:
        optimizer.step()
    except RuntimeError:
        pass
    say(optimizer_state=size(*made) + 4 * len(optimizer.state), gradient=size(*[p.grad for p in model.parameters()]))


def decode():
    model = Decoder()
    with torch.inference_mode():
        given = None
        for _ in range(4):
            out = model(torch.randn(64, WIDTH), past_key_values=given)
            given = out["past_key_values"]
    say(**{"kv_cache@k_cache": size(model.k_cache), "kv_cache@v_cache": size(model.v_cache), "buffer@table": size(model.table),
           "kv_cache@past_key_values": size(given[0]), "weight": size(*model.parameters())})


def fsdp():
    if "RANK" not in os.environ:
        with tempfile.NamedTemporaryFile() as store:
            ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(rank), "STORE": store.name})
                     for rank in range(2)]
            sys.exit(max(rank.wait() for rank in ranks))
    from torch import distributed
    from torch.distributed.fsdp import fully_shard
    distributed.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=int(os.environ["RANK"]), world_size=2)
    model = Model()
    mesh = distributed.device_mesh.init_device_mesh("cpu", (2,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(ROWS, WIDTH)), torch.randn(ROWS, WIDTH)).backward()
        optimizer.step()
    shards = [parameter._local_tensor for parameter in model.parameters()]
    say(weight=size(*shards), gradient=size(*[parameter.grad._local_tensor for parameter in model.parameters()]),
        optimizer_state=size(*[getattr(value, "_local_tensor", value) for state in optimizer.state.values()
                               for value in state.values()]))
    distributed.destroy_process_group()


KINDS = {
    "train": lambda: train(Model()),
    "accumulate": lambda: train(Model(), passes=3),
    "infer": infer,
    "compile": lambda: train(torch.compile(Model(), backend="aot_eager")),
    "inductor": lambda: train(torch.compile(Model())),
    "raises": lambda: dies(raises),
    "killed": lambda: dies(is_killed),
    "runs_out": lambda: dies(runs_out),
    "backward_dies": backward_dies,
    "first_step_dies": first_step_dies,
    "decode": decode,
    "fsdp": fsdp,
}
torch.set_num_threads(1)
KINDS[sys.argv[1]]()
