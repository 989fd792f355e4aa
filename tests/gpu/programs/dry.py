# SPDX-License-Identifier: Apache-2.0
"""Scripts as people write them, by name, for a card and for a dry run: each ends with a line of JSON that has PyTorch's own peaks. They know nothing of
the tool. Argument: a name, or nothing for the list of names."""
import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

SCRIPTS = {}
STEPS = 3


def script(function):
    SCRIPTS[function.__name__] = function
    return function


def train(model, optimizer, batch, loss=lambda out: out.float().square().mean(), steps=STEPS):
    for step in range(steps):
        value = loss(model(batch(step)))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), **options)


def rows(width=512, count=64):
    return lambda step: torch.randn(count, width, device="cuda")


def mlp(width=512):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()


class Block(nn.Module):
    def __init__(self, width, heads, inner, dtype):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.RMSNorm(width, dtype=dtype), nn.RMSNorm(width, dtype=dtype)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False, dtype=dtype), nn.Linear(width, width, bias=False, dtype=dtype)
        self.gate, self.up = nn.Linear(width, inner, bias=False, dtype=dtype), nn.Linear(width, inner, bias=False, dtype=dtype)
        self.down = nn.Linear(inner, width, bias=False, dtype=dtype)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(attended)
        hidden = self.second(x)
        return x + self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, inner, words=32000, dtype=torch.bfloat16, saves=True):
        super().__init__()
        self.words, self.saves = nn.Embedding(words, width, dtype=dtype), saves
        self.blocks = nn.ModuleList(Block(width, heads, inner, dtype) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, dtype=dtype), nn.Linear(width, words, bias=False, dtype=dtype)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saves else block(x)
        return self.head(self.norm(x))


def llama(length=2048, **shape):
    with torch.device("cuda"):
        model = Llama(**shape)
    tokens = torch.randint(0, 32000, (1, length), device="cuda")
    optimizer = adamw(model)
    for _ in range(STEPS):
        out = model(tokens)
        functional.cross_entropy(out.view(-1, 32000).float(), tokens.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()


@script
def transformer():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6).cuda()
    train(model, adamw(model), lambda step: torch.randn(16, 128, 512, device="cuda"))


@script
def llama_tiny():
    llama(layers=4, width=512, heads=8, inner=1376, saves=False)


@script
def llama_1b():
    llama(layers=16, width=2048, heads=32, inner=8192)


@script
def llama_7b():
    llama(layers=32, width=4096, heads=32, inner=11008)


@script
def varied_lengths():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 3).cuda()
    train(model, adamw(model), lambda step: torch.randn(8, (64, 200, 130)[step], 256, device="cuda"))


@script
def fused_adam():
    model = mlp()
    train(model, adamw(model, fused=True), rows())


@script
def plain_adam():
    model = mlp()
    train(model, adamw(model, foreach=False), rows())


@script
def sgd_momentum():
    model = mlp()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), rows())


@script
def autocast():
    model = mlp()
    optimizer, scaler = adamw(model), torch.amp.GradScaler("cuda")
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.randn(64, 512, device="cuda")).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@script
def accumulated():
    model = mlp()
    optimizer = adamw(model)
    for step in range(4 * STEPS):
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


@script
def alternation():
    """Acting without gradients, then learning, as in reinforcement learning."""
    policy = mlp()
    optimizer = adamw(policy)
    for _ in range(STEPS):
        with torch.no_grad():
            seen = [policy(torch.randn(256, 512, device="cuda")) for _ in range(16)]
        for part in torch.cat(seen).split(1024):
            policy(part).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


@script
def decoding():
    """A cache that grows by concatenation."""
    width, heads = 512, 8
    layer = nn.Linear(width, 3 * width).cuda().half()
    keys = values = torch.empty(4, heads, 0, width // heads, device="cuda", dtype=torch.half)
    x = torch.randn(4, 1, width, device="cuda", dtype=torch.half)
    with torch.inference_mode():
        for _ in range(200):
            q, k, v = layer(x).view(4, 1, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
            x = functional.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(4, 1, width)


@script
def graphed():
    model, x = mlp(), torch.randn(64, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(x).square().mean().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        model(x).square().mean().backward()
    for _ in range(STEPS):
        graph.replay()


@script
def embedding():
    model = nn.Sequential(nn.Embedding(50000, 256), nn.Linear(256, 50000)).cuda()
    tokens = torch.randint(0, 50000, (8, 128), device="cuda")
    optimizer = adamw(model)
    for _ in range(STEPS):
        functional.cross_entropy(model(tokens).view(-1, 50000), tokens.view(-1)).backward()
        optimizer.step()
        optimizer.zero_grad()


@script
def sorted_rows():
    x = torch.randn(1000, 3000, device="cuda")
    for _ in range(STEPS):
        x.sort(dim=1)
        x.topk(50, dim=1)
        x.softmax(1).multinomial(5)
        x.index_add(0, torch.arange(1000, device="cuda"), x).cumsum(1)


@script
def dropped():
    model = nn.Sequential(nn.Linear(512, 512), nn.Dropout(0.1), nn.LayerNorm(512), nn.Softmax(1)).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rows())


@script
def saved_and_loaded():
    import io
    model = mlp()
    optimizer = adamw(model)
    train(model, optimizer, rows())
    kept = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, kept)
    kept.seek(0)
    state = torch.load(kept, map_location="cuda")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, rows())


@script
def loaded_batches():
    data = torch.utils.data.TensorDataset(torch.randn(256, 512))
    model = mlp()
    optimizer = adamw(model)
    for (x,) in torch.utils.data.DataLoader(data, batch_size=64, num_workers=2, pin_memory=True):
        model(x.cuda(non_blocking=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@script
def parallel():
    """Data-parallel training of one rank, by gloo."""
    import os
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(mlp())
    train(model, adamw(model), rows())


@script
def expected_values():
    model, x = mlp(), torch.randn(64, 512, device="cuda")
    for _ in range(STEPS):
        out = model(x)
        assert torch.isfinite(out).all()
        assert not torch.isnan(out).any()
        assert torch.full((3,), 7, device="cuda").tolist() is not None
        print(float(out.square().mean()), out[0, :3])


@script
def convolutions():
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1),
                          nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), lambda step: torch.randn(32, 3, 64, 64, device="cuda"))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 32), (32, 64), (64, 128)))
        self.up = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((192, 64), (96, 32)))
        self.last = nn.Conv2d(32, 3, 1)

    def forward(self, x):
        kept = []
        for index, layer in enumerate(self.down):
            x = functional.silu(layer(x))
            kept.append(x)
            x = functional.avg_pool2d(x, 2) if index < 2 else x
        for index, layer in enumerate(self.up):
            x = functional.silu(layer(torch.cat([functional.interpolate(x, scale_factor=2), kept[1 - index]], 1)))
        return self.last(x)


@script
def unet():
    model = UNet().cuda()
    train(model, adamw(model), lambda step: torch.randn(8, 3, 64, 64, device="cuda"))


@script
def channels_last():
    model = UNet().cuda().to(memory_format=torch.channels_last)
    train(model, adamw(model), lambda step: torch.randn(8, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last))


@script
def masked():
    x = torch.randn(2000, 300, device="cuda")
    for _ in range(STEPS):
        kept = x[x > math.pi]
        x.nonzero()
        torch.unique(kept)


@script
def padded():
    """Lengths that the host has, and the mask that follows from them: known, though small kernels compute them."""
    lengths = torch.tensor([5, 64, 33]).to("cuda")
    longest = int(lengths.max())
    mask = torch.arange(longest, device="cuda")[None] < lengths[:, None]
    x = torch.randn(3, longest, 512, device="cuda")
    for _ in range(STEPS):
        assert not mask.all() and mask.any()
        x[mask] @ torch.full((512, 512), 2.0, device="cuda")


@script
def guarded():
    """Checks as programs have them for one number."""
    model = mlp()
    optimizer = adamw(model)
    for _ in range(STEPS):
        loss = model(torch.randn(64, 512, device="cuda")).square().mean()
        if torch.isnan(loss) or torch.isinf(loss) or not torch.isfinite(loss):
            raise ValueError("not finite")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@script
def generates():
    """Until each row has its last token, which no row of random weights has soon."""
    words, head = nn.Embedding(1 << 20, 64).cuda(), nn.Linear(64, 1 << 20).cuda()
    tokens = torch.zeros(2, 1, dtype=torch.long, device="cuda")
    kept, done = torch.empty(2, 0, 64, device="cuda"), torch.zeros(2, dtype=torch.bool, device="cuda")
    with torch.no_grad():
        for _ in range(100):
            x = words(tokens[:, -1:])
            kept = torch.cat([kept, x], 1)
            token = head(x).argmax(-1)
            tokens = torch.cat([tokens, token], 1)
            done = done | (token[:, 0] == 7)
            if done.all():
                break


@script
def sparse_rows():
    """Of rows that come twice the gradient has one."""
    model = nn.Embedding(10000, 64, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(model.parameters())
    for _ in range(STEPS):
        model(torch.randint(0, 10000, (32, 20), device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@script
def counted():
    """A size that follows from values."""
    above = int((torch.randn(1000, 300, device="cuda") > 0).sum())
    torch.zeros(above, 16, device="cuda")


@script
def repeated():
    x = torch.randn(100, 512, device="cuda")
    counts = (x[:, 0] > 0).long() + 1
    x.repeat_interleave(counts, dim=0)


@script
def recurrent():
    model = nn.LSTM(64, 128, 2, batch_first=True).cuda()
    model(torch.randn(8, 20, 64, device="cuda"))[0].sum().backward()


@script
def searched():
    """How much LBFGS keeps follows from values."""
    model, x = nn.Linear(512, 512).cuda(), torch.randn(64, 512, device="cuda")
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)

    def again():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(again)


@script
def scripted():
    model = torch.jit.script(nn.Sequential(nn.Linear(512, 512), nn.ReLU()).cuda())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rows())


@script
def factorised():
    torch.linalg.qr(torch.randn(64, 64, device="cuda"))


@script
def transformed():
    torch.fft.fft(torch.randn(64, 64, device="cuda"))


@script
def compiled():
    model = torch.compile(mlp())
    model(torch.randn(64, 512, device="cuda")).sum().backward()


@script
def other_streams():
    x, side = torch.randn(4096, 4096, device="cuda"), torch.cuda.Stream()
    for _ in range(STEPS):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        y.record_stream(torch.cuda.current_stream())
        x = x + y
        del y


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(" ".join(SCRIPTS))
        sys.exit()
    SCRIPTS[sys.argv[1]]()
    torch.cuda.synchronize()
    print(json.dumps({"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "torch": torch.__version__,
                      "requested": torch.cuda.memory_stats()["requested_bytes.all.peak"]}))
