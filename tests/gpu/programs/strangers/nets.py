# SPDX-License-Identifier: Apache-2.0
"""nets.py NETWORK [--checkpoint=CLASS] [--which=all] [--parts=N] [--batch=N] [--vary]: four steps of a network; PyTorch's own peaks are its last line.

    convnext   depthwise convolutions, layer norm over channels, layer scale
    unet       group norm, attention in the middle, skips that are concatenated
    moe        experts choose their tokens, so that sizes do not follow from values
    vit        pictures cut up, blocks of which every second is checkpointed already
    vit_plain  the same without
    lora       a frozen trunk in bfloat16, of which only small matrices beside its layers learn
"""
import argparse
import functools
import json
import random

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

words = argparse.ArgumentParser()
words.add_argument("network")
words.add_argument("--checkpoint")
words.add_argument("--which", default="all")
words.add_argument("--parts", type=int, default=1)
words.add_argument("--batch", type=int)
words.add_argument("--vary", action="store_true")
given = words.parse_args()
random.seed(4)
torch.manual_seed(4)


class NextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.spread, self.norm = nn.Conv2d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x):
        hidden = self.norm(self.spread(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(functional.gelu(self.up(hidden)))).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, widths=(64, 128, 256), depth=2):
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 4, 4)
        self.stages = nn.ModuleList(nn.Sequential(*(NextBlock(width) for _ in range(depth))) for width in widths)
        self.between = nn.ModuleList(nn.Conv2d(a, b, 2, 2) for a, b in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 200)

    def forward(self, x):
        x = self.stages[0](self.stem(x))
        for down, stage in zip(self.between, self.stages[1:]):
            x = stage(down(x))
        return self.head(x.mean((2, 3)))


class Double(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first, self.second = nn.Conv2d(inside, outside, 3, padding=1), nn.Conv2d(outside, outside, 3, padding=1)
        self.norm1, self.norm2 = nn.GroupNorm(8, outside), nn.GroupNorm(8, outside)

    def forward(self, x):
        return functional.silu(self.norm2(self.second(functional.silu(self.norm1(self.first(x))))))


class Unet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.down = nn.ModuleList((Double(3, width), Double(width, 2 * width), Double(2 * width, 4 * width)))
        self.attention = nn.MultiheadAttention(4 * width, 4, batch_first=True)
        self.up = nn.ModuleList((Double(6 * width, 2 * width), Double(3 * width, width)))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        kept = []
        for level, part in enumerate(self.down):
            x = part(functional.max_pool2d(x, 2) if level else x)
            kept.append(x)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).view_as(x)
        for level, part in enumerate(self.up):
            x = part(torch.cat([functional.interpolate(x, scale_factor=2), kept[1 - level]], 1))
        return self.last(x)


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((width, 3 * width), (width, 3 * width), (3 * width, width)))

    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each expert takes the tokens that it likes best, an equal number."""

    def __init__(self, width, count=6):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(width), nn.Linear(width, count)
        self.experts = nn.ModuleList(Expert(width) for _ in range(count))

    def forward(self, x):
        rows = self.norm(x).flatten(0, 1)
        weights, chosen = self.router(rows).softmax(0).topk(2 * len(rows) // len(self.experts), dim=0)
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            out = out.index_add(0, chosen[:, number], expert(rows[chosen[:, number]]) * weights[:, number, None])
        return x + out.view_as(x)


class Attention(nn.Module):
    def __init__(self, width, heads=8):
        super().__init__()
        self.heads, self.norm, self.qkv, self.out = heads, nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mixture(nn.Module):
    def __init__(self, width=384, depth=3):
        super().__init__()
        self.words = nn.Embedding(3000, width)
        self.layers = nn.Sequential(*(part for _ in range(depth) for part in (Attention(width), Experts(width))))

    def forward(self, x):
        return self.layers(self.words(x)) @ self.words.weight.T


class VitBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention, self.norm = Attention(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width))

    def forward(self, x):
        x = self.attention(x)
        return x + self.mlp(self.norm(x))


class Vit(nn.Module):
    def __init__(self, saves, width=384, depth=8):
        super().__init__()
        self.saves, self.cut = saves, nn.Linear(3 * 16 * 16, width)
        self.place = nn.Parameter(torch.zeros(1, 197, width))
        self.blocks = nn.ModuleList(VitBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, 100)

    def forward(self, x):
        x = self.cut(functional.unfold(x, 16, stride=16).transpose(1, 2))
        x = torch.cat([x.new_zeros(len(x), 1, x.shape[2]), x], 1) + self.place
        for number, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if self.saves and number % 2 else block(x)
        return self.head(x[:, 0])


class Low(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.a, self.b = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x.float())).to(x.dtype)


def lora(width=512, depth=6):
    blocks = [VitBlock(width).bfloat16().requires_grad_(False) for _ in range(depth)]
    for block in blocks:
        block.attention.qkv, block.mlp[0] = Low(block.attention.qkv), Low(block.mlp[0])
    return nn.Sequential(*blocks)


def pictures(size, batch):
    return lambda: torch.randn((given.batch or batch) // given.parts, 3, size, size, device="cuda")


def texts(length, batch):
    return lambda: torch.randint(0, 3000, ((given.batch or batch) // given.parts, length - 32 * random.randrange(4) * given.vary), device="cuda")


def vectors(length, width, batch):
    return lambda: torch.randn((given.batch or batch) // given.parts, length, width, device="cuda", dtype=torch.bfloat16)


NETWORKS = {"convnext": (ConvNext, pictures(128, 48)), "unet": (Unet, pictures(64, 16)), "moe": (Mixture, texts(256, 16)),
            "vit": (functools.partial(Vit, True), pictures(224, 24)), "vit_plain": (functools.partial(Vit, False), pictures(224, 24)),
            "lora": (lora, vectors(256, 512, 24))}


def chosen(model, kind):
    """Outermost modules of a class, in the order of their names."""
    found = [(name, one) for name, one in model.named_modules() if type(one).__name__ == kind]
    found = [one for name, one in found if not any(name.startswith(f"{other}.") for other, _ in found)]
    half = (len(found) + 1) // 2
    return {"all": found, "first half": found[:half], "last half": found[len(found) // 2:], "every other": found[::2]}[given.which]


def main():
    make, batch = NETWORKS[given.network]
    model = make().cuda()
    for module in chosen(model, given.checkpoint) if given.checkpoint else []:
        module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-4)
    for _ in range(4 if not given.vary else 12):
        optimizer.zero_grad()
        for _ in range(given.parts):
            piece = batch()
            loss = model(piece).float().square().mean()
            loss.backward()
            del loss, piece
        optimizer.step()
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(json.dumps({"requested": stats["requested_bytes.all.peak"], "allocated": stats["allocated_bytes.all.peak"],
                      "reserved": stats["reserved_bytes.all.peak"], "segments": stats["segment.all.peak"]}), flush=True)


main()
