# SPDX-License-Identifier: Apache-2.0
"""Other ways to write a script than those of dry.py, by name, for a card, a dry run and, with DRY_ON=npu, an NPU. Each ends with a line of JSON that has
PyTorch's own peaks. They know nothing of the tool. Argument: a name, or nothing for the list of names."""
import argparse
import copy
import json
import math
import os
import random
import sys
import tempfile

import numpy
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

DEVICE = os.environ.get("DRY_ON", "cuda")
if DEVICE == "npu":
    import torch_npu  # noqa: F401
CARD = getattr(torch, DEVICE)

WAYS = {}
STEPS = 3


def way(function):
    WAYS[function.__name__] = function
    return function


def mlp(width=512, out=None):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, out or width)).to(DEVICE)


def randn(*shape, **more):
    return torch.randn(*shape, device=DEVICE, **more)


def one_rank():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0")
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


@way
def no_sync():
    one_rank()
    model = nn.parallel.DistributedDataParallel(mlp())
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        for _ in range(3):
            with model.no_sync():
                (model(randn(64, 512)).square().mean() / 4).backward()
        (model(randn(64, 512)).square().mean() / 4).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def scaler_that_skips():
    """A step only where the norm is small enough."""
    model, scaler = mlp(), torch.amp.GradScaler(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        with torch.autocast(DEVICE, torch.float16):
            loss = model(randn(64, 512)).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm < 1000:
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)


@way
def averaged():
    """An exponential average of the weights, evaluated each epoch."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    model = mlp()
    mean = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer, best = torch.optim.Adam(model.parameters()), math.inf
    for _ in range(STEPS):
        model(randn(128, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        mean.update_parameters(model)
        with torch.no_grad():
            score = mean(randn(256, 512)).square().mean().item()
        if score < best:
            best, kept = score, copy.deepcopy(mean.state_dict())
    mean.load_state_dict(kept)


@way
def segments():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1)) for _ in range(12))).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(STEPS):
        checkpoint_sequential(model, 4, randn(2048, 512, requires_grad=True), use_reentrant=False).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def dynamic_lengths():
    """Lengths of each batch by Python, padded on the host, a mask on the card."""
    random.seed(7)
    words, head = nn.Embedding(8000, 256).to(DEVICE), nn.Linear(256, 8000).to(DEVICE)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).to(DEVICE)
    optimizer = torch.optim.AdamW([*words.parameters(), *layer.parameters(), *head.parameters()])
    for _ in range(6):
        rows = [torch.randint(1, 8000, (random.randint(20, 200),)) for _ in range(8)]
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(DEVICE)
        lengths = torch.tensor([len(row) for row in rows]).to(DEVICE)
        padding = torch.arange(tokens.shape[1], device=DEVICE)[None] >= lengths[:, None]
        out = head(layer(words(tokens), src_key_padding_mask=padding))
        functional.cross_entropy(out.flatten(0, 1), tokens.flatten(), ignore_index=0, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def smoothed_and_masked():
    """The loss of tokens that count, chosen by a mask of lengths that the host knows."""
    model, lengths = mlp(out=2000), [17, 120, 64, 3]
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        mask = torch.zeros(4, 128, dtype=torch.bool, device=DEVICE)
        for row, length in enumerate(lengths):
            mask[row, :length] = True
        logits = model(randn(4, 128, 512))[mask]
        targets = torch.randint(0, 2000, (4, 128)).to(DEVICE)[mask]
        assert len(logits) == sum(lengths)
        functional.cross_entropy(logits, targets, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def known_masks():
    """Wherever a mask of lengths chooses rows, it chooses as many as it has."""
    mask = torch.arange(128, device=DEVICE)[None] < torch.tensor([17, 120, 64, 3]).to(DEVICE)[:, None]
    columns = torch.tensor([True] * 100 + [False] * 200).to(DEVICE)
    x, y = randn(4, 128, 300, requires_grad=True), torch.zeros(4, 128, 300, device=DEVICE)
    for _ in range(STEPS):
        kept = x[mask]
        kept.sum().backward()
        x[:, :, columns].sum().backward()
        y[mask] = kept.detach()
        y[mask] += 1
        y.index_put_(indices=(mask,), values=kept.detach())
        assert len(kept) == len(torch.nonzero(mask)) == len(torch.argwhere(input=mask)) == len(torch.where(mask)[0]) == 204
        assert y[mask, :5].shape == (204, 5) and y[:, mask[0]].shape == (4, 17, 300)


@way
def beam_search():
    beams, end, width, words = 4, 2, 256, 5000
    embed, head = nn.Embedding(words, width).to(DEVICE), nn.Linear(width, words).to(DEVICE)
    tokens = torch.ones(beams, 1, dtype=torch.long, device=DEVICE)
    scores, kept, finished = torch.zeros(beams, device=DEVICE), randn(beams, 0, width), []
    with torch.no_grad():
        for _ in range(60):
            kept = torch.cat([kept, embed(tokens[:, -1:])], 1)
            logits = head(kept.mean(1)).log_softmax(-1) + scores[:, None]
            scores, chosen = logits.flatten().topk(beams)
            origin, token = chosen // words, chosen % words
            tokens = torch.cat([tokens[origin], token[:, None]], 1)
            kept = kept[origin]
            for row in range(beams):
                if token[row].item() == end:
                    finished.append(tokens[row].tolist())
            if len(finished) >= beams:
                break


@way
def routed():
    """Experts by topk; how many tokens each gets follows from values: at most."""
    experts, width = 8, 256
    gate, parts = nn.Linear(width, experts).to(DEVICE), nn.ModuleList(mlp(width) for _ in range(experts))
    optimizer = torch.optim.AdamW([*gate.parameters(), *parts.parameters()])
    for _ in range(STEPS):
        x = randn(2048, width)
        weights, chosen = gate(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(parts):
            rows, slot = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot, None])
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Lora(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + 2 * self.up(self.down(functional.dropout(x, 0.05, self.training)))


@way
def lora():
    model = nn.Sequential(*(part for _ in range(4) for part in (Lora(nn.Linear(1024, 1024)), nn.SiLU()))).to(DEVICE, torch.bfloat16)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    print(sum(one.numel() for one in trained), "of", sum(one.numel() for one in model.parameters()))
    for _ in range(STEPS):
        model(randn(256, 1024, dtype=torch.bfloat16)).float().square().mean().backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (linear.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = nn.Parameter(linear.bias.detach().clone())

    def forward(self, x):
        return functional.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype), self.bias)


@way
def quantised():
    model = nn.Sequential(*(Int8Linear(nn.Linear(1024, 1024)) for _ in range(6)))
    model = model.to(DEVICE).half().eval()
    with torch.no_grad():
        for _ in range(STEPS):
            model(randn(512, 1024, dtype=torch.half))


@way
def bags():
    model = nn.EmbeddingBag(20000, 128, mode="mean").to(DEVICE)
    head, offsets = nn.Linear(128, 4).to(DEVICE), torch.tensor([0, 10, 30, 35, 100])
    optimizer = torch.optim.Adagrad([*model.parameters(), *head.parameters()])
    for _ in range(STEPS):
        words = torch.randint(0, 20000, (160,))
        out = head(model(words.to(DEVICE), offsets.to(DEVICE)))
        functional.cross_entropy(out, torch.randint(0, 4, (5,)).to(DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def adversaries():
    maker, judge = mlp(out=784), nn.Sequential(nn.Linear(784, 512), nn.LeakyReLU(0.2), nn.Linear(512, 1)).to(DEVICE)
    first, second = (torch.optim.Adam(model.parameters(), lr=2e-4, betas=(0.5, 0.999)) for model in (maker, judge))
    truth = functional.binary_cross_entropy_with_logits
    for _ in range(STEPS):
        real, fake = torch.rand(256, 784).to(DEVICE), maker(randn(256, 512))
        ones, zeros = torch.ones(256, 1, device=DEVICE), torch.zeros(256, 1, device=DEVICE)
        second.zero_grad()
        (truth(judge(real), ones) + truth(judge(fake.detach()), zeros)).backward()
        second.step()
        first.zero_grad()
        truth(judge(fake), ones).backward()
        first.step()


@way
def replayed():
    """A buffer on the card, a greedy choice now and then, a target that follows slowly."""
    random.seed(1)
    policy, target = mlp(64, 6), mlp(64, 6)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.RMSprop(policy.parameters())
    states, rewards = torch.zeros(10000, 64, device=DEVICE), torch.zeros(10000, device=DEVICE)
    actions, filled, state = torch.zeros(10000, dtype=torch.long, device=DEVICE), 0, randn(64)
    for step in range(300):
        if random.random() < 0.1:
            action = random.randrange(6)
        else:
            with torch.no_grad():
                action = policy(state[None]).argmax(1).item()
        states[filled % 10000], actions[filled % 10000], rewards[filled % 10000] = state, action, 1.0
        filled, state = filled + 1, randn(64)
        if filled < 100 or step % 50:
            continue
        rows = torch.randint(0, min(filled, 10000), (128,), device=DEVICE)
        with torch.no_grad():
            best = target(states[rows]).max(1).values
        value = policy(states[rows]).gather(1, actions[rows, None]).squeeze(1)
        functional.smooth_l1_loss(value, rewards[rows] + 0.99 * best).backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        optimizer.zero_grad()
        for slow, fast in zip(target.parameters(), policy.parameters()):
            slow.data.mul_(0.995).add_(fast.data, alpha=0.005)


@way
def contrasted():
    model = mlp(out=128)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        a, b = (functional.normalize(model(randn(256, 512)), dim=1) for _ in range(2))
        both = torch.cat([a, b])
        likeness = both @ both.t() / 0.07
        likeness = likeness.masked_fill(torch.eye(512, dtype=torch.bool, device=DEVICE), -math.inf)
        pairs = torch.arange(512, device=DEVICE).roll(256)
        (torch.logsumexp(likeness, 1) - likeness[torch.arange(512, device=DEVICE), pairs]).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return 2 * ctx.scale * x * gradient, None


@way
def own_function():
    model = mlp()
    optimizer = torch.optim.NAdam(model.parameters())
    for _ in range(STEPS):
        Squared.apply(model(randn(512, 512)), 0.5).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def fused_amsgrad():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True, amsgrad=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    for _ in range(STEPS):
        model(randn(64, 512)).abs().mean().backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@way
def foreach_off():
    model = mlp()
    optimizer = torch.optim.RAdam(model.parameters(), foreach=False)
    for _ in range(STEPS):
        model(randn(64, 512)).abs().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
        optimizer.zero_grad()


@way
def many_heads():
    model = nn.MultiheadAttention(256, 8, dropout=0.1, batch_first=True).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    padding = torch.zeros(8, 100, dtype=torch.bool)
    padding[:, 80:] = True
    padding = padding.to(DEVICE)
    causal = nn.Transformer.generate_square_subsequent_mask(100).to(DEVICE)
    for step in range(STEPS):
        x = randn(8, 100, 256)
        out, _ = model(x, x, x, key_padding_mask=padding if step else None, attn_mask=causal if step == 2 else None, need_weights=step == 1)
        out.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def attentions():
    attend = functional.scaled_dot_product_attention
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (randn(4, 8, 256, 64, dtype=dtype, requires_grad=True) for _ in range(3))
        attend(q, k, v, is_causal=True).sum().backward()
        attend(q, k, v, attn_mask=torch.ones(256, 256, dtype=torch.bool, device=DEVICE).tril()).sum().backward()
        attend(q, k, v, dropout_p=0.1).sum().backward()
        attend(q[:, :, :100], k, v, attn_mask=randn(4, 1, 100, 256, dtype=dtype)).sum().backward()


@way
def attention_by_hand():
    from torch.nn.attention import SDPBackend, sdpa_kernel
    q, k, v = (randn(2, 8, 512, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    for kind in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(kind):
            functional.scaled_dot_product_attention(q, k, v).sum().backward()
    functional.scaled_dot_product_attention(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True).sum().backward()


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 4, stride=2, padding=1)
        self.up, self.last = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1), nn.Conv2d(64, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, 32), nn.GroupNorm(8, 64), nn.GroupNorm(8, 32)])

    def forward(self, x):
        kept = functional.silu(self.norms[0](self.first(x)))
        x = functional.silu(self.norms[1](self.down(kept)))
        return self.last(torch.cat([functional.silu(self.norms[2](self.up(x))), kept], 1))


@way
def transposed_unet():
    model = Up().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        out = model(randn(8, 3, 64, 64))
        target = torch.rand(8, 1, 64, 64).to(DEVICE).round()
        truth = functional.binary_cross_entropy_with_logits(out, target)
        overlap = 1 - 2 * (out.sigmoid() * target).sum() / (out.sigmoid().sum() + target.sum() + 1)
        (truth + overlap).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def normed_weights():
    from torch.nn.utils import parametrizations
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(512, 1024)), nn.ReLU(), parametrizations.spectral_norm(nn.Linear(1024, 512)),
                          nn.utils.spectral_norm(nn.Linear(512, 512))).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(STEPS):
        model(randn(128, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def resumed():
    def start():
        model = mlp()
        return model, torch.optim.AdamW(model.parameters())

    model, optimizer = start()
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "last.pt")
        for step in range(4):
            model(randn(64, 512)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 1:
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "random": torch.get_rng_state()}, path)
                del model, optimizer
                model, optimizer = start()
                kept = torch.load(path, map_location="cpu", weights_only=True)
                model.load_state_dict(kept["model"])
                optimizer.load_state_dict(kept["optimizer"])
                assert kept["step"] == 1


@way
def plateau():
    model, best, worse = mlp(), math.inf, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for _ in range(6):
        loss = model(randn(64, 512)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        schedule.step(value)
        if value < best - 1e-4:
            best, worse = value, 0
        else:
            worse += 1
        if worse > 100:
            break


@way
def norm_decides():
    """What needs more memory comes only where the norm of the gradients is large, which it is not."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        (model(randn(64, 512)).square().mean() / 1000).backward()
        norm = torch.norm(torch.stack([one.grad.norm() for one in model.parameters()]))
        if norm.item() > 1e4:
            copies = [one.grad.clone() for one in model.parameters() for _ in range(8)]
            print(len(copies))
        optimizer.step()
        optimizer.zero_grad()


@way
def lists_decide():
    """Lengths come back from the card as a list; the host knew them."""
    tokens = torch.zeros(16, 300, dtype=torch.long)
    for row in range(16):
        tokens[row, :10 + 15 * row] = row + 1
    tokens, table = tokens.to(DEVICE), nn.Embedding(100, 512).to(DEVICE)
    lengths = tokens[:, :200].ne(0).sum(1).tolist()
    for _ in range(STEPS):
        parts = [table(tokens[row, :length]) for row, length in enumerate(lengths)]
        nn.utils.rnn.pad_sequence(parts, batch_first=True).square().mean().backward()


@way
def from_numpy():
    rng = numpy.random.default_rng(3)
    data, labels = rng.normal(size=(4000, 128)).astype(numpy.float32), rng.integers(0, 10, 4000)
    model = mlp(128, 10)
    optimizer, right = torch.optim.Adam(model.parameters()), []
    for start in range(0, 4000, 1000):
        x, y = torch.from_numpy(data[start:start + 1000]).to(DEVICE), torch.as_tensor(labels[start:start + 1000], device=DEVICE)
        out = model(x)
        functional.cross_entropy(out, y).backward()
        optimizer.step()
        optimizer.zero_grad()
        right.append((out.argmax(1) == y).float().mean().item())
        predicted = out.detach().softmax(1).cpu().numpy()
        assert predicted.shape == (1000, 10)
    print(f"accuracy {100 * numpy.mean(right):.1f} %")


class Rows(torch.utils.data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"x": torch.full((256,), float(index)), "label": index % 10}


@way
def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=48)
    args = parser.parse_args([])
    loader = torch.utils.data.DataLoader(Rows(200), args.batch_size, shuffle=True, num_workers=2, pin_memory=DEVICE == "cuda", persistent_workers=True)
    model = mlp(256, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(args.epochs):
        total = 0.0
        for batch in loader:
            batch = {key: value.to(DEVICE, non_blocking=True) for key, value in batch.items()}
            loss = functional.cross_entropy(model(batch["x"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch["x"])
        print(f"epoch {epoch}: {total / 200:.4f}")


@way
def halved_batch():
    model, size = mlp(1024), 1 << 26
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(STEPS):
        while True:
            try:
                model(randn(size, 1024)).square().mean().backward()
                break
            except torch.cuda.OutOfMemoryError:
                optimizer.zero_grad()
                CARD.empty_cache()
                size //= 2
                print(f"halved to {size}")
        optimizer.step()
        optimizer.zero_grad()


@way
def by_free_memory():
    free, total = CARD.mem_get_info()
    size = 1 << int(math.log2(free * 0.1 / (1024 * 4 * 8)))
    print(f"{free / total:.0%} are free: batches of {size}")
    model = mlp(1024)
    for _ in range(STEPS):
        model(randn(size, 1024)).square().mean().backward()


@way
def by_properties():
    properties = CARD.get_device_properties(0)
    width = 1024 if properties.total_memory > 100e9 else 512
    print(CARD.get_device_name(0), CARD.is_bf16_supported(), properties.name)
    dtype = torch.bfloat16 if CARD.is_bf16_supported() else torch.float16
    model = mlp(width).to(dtype)
    for _ in range(STEPS):
        model(randn(256, width, dtype=dtype)).float().square().mean().backward()
    CARD.synchronize()
    print(CARD.memory_summary() and CARD.memory_stats()["num_alloc_retries"])


@way
def timed():
    """Speed by events and by the clock."""
    model, start, end = mlp(), CARD.Event(enable_timing=True), CARD.Event(enable_timing=True)
    for _ in range(STEPS):
        start.record()
        model(randn(64, 512)).square().mean().backward()
        end.record()
        CARD.synchronize()
        print(f"{64 * 1000 / start.elapsed_time(end):.0f} rows a second")


@way
def resampled():
    """Interpolation, sampling by a grid, shuffled pixels."""
    x = randn(8, 16, 32, 32, requires_grad=True)
    grid = functional.affine_grid(torch.eye(2, 3, device=DEVICE).repeat(8, 1, 1), (8, 16, 48, 48), align_corners=False)
    for mode in ("nearest", "bilinear", "bicubic"):
        functional.interpolate(x, size=(64, 64), mode=mode).sum().backward()
    functional.grid_sample(x, grid, align_corners=False).sum().backward()
    functional.pixel_shuffle(x, 4).sum().backward()
    functional.unfold(x, 3, padding=1).sum().backward()


@way
def cells():
    """A recurrent network by hand."""
    first, second, head = nn.LSTMCell(64, 256).to(DEVICE), nn.GRUCell(256, 256).to(DEVICE), nn.Linear(256, 64).to(DEVICE)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()])
    for _ in range(STEPS):
        h, c, g, out = *torch.zeros(2, 32, 256, device=DEVICE), torch.zeros(32, 256, device=DEVICE), []
        for x in randn(20, 32, 64):
            h, c = first(x, (h, c))
            g = second(h, g)
            out.append(head(g))
        torch.stack(out).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def penalised():
    """The gradient of a gradient."""
    judge = mlp(out=1)
    optimizer = torch.optim.Adam(judge.parameters())
    for _ in range(STEPS):
        real, fake = randn(128, 512), randn(128, 512)
        share = torch.rand(128, 1, device=DEVICE)
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        slope, = torch.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
        (judge(fake).mean() - judge(real).mean() + 10 * (slope.norm(2, dim=1) - 1).square().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def distilled():
    teacher, student = mlp(1024).half().eval(), nn.Linear(1024, 1024).to(DEVICE)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = randn(256, 1024)
        with torch.no_grad():
            wanted = functional.softmax(teacher(x.half()).float() / 2, -1)
        functional.kl_div(functional.log_softmax(student(x) / 2, -1), wanted, reduction="batchmean").backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def varied_autoencoder():
    encoder, decoder = mlp(out=64), mlp(32, 512)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(STEPS):
        x = randn(256, 512)
        mean, log = encoder(x).chunk(2, -1)
        drawn = torch.distributions.Normal(mean, (0.5 * log).exp()).rsample()
        loss = functional.mse_loss(decoder(drawn), x) - 0.5 * (1 + log - mean.square() - log.exp()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"psnr {-10 * math.log10(loss.item()):.2f}")


@way
def codebook():
    codes, model = nn.Parameter(randn(1024, 64)), mlp(64)
    optimizer = torch.optim.Adam([codes, *model.parameters()])
    for _ in range(STEPS):
        x = model(randn(2000, 64))
        chosen = torch.cdist(x, codes).argmin(1)
        near = codes[chosen]
        straight = x + (near - x).detach()
        used = functional.one_hot(chosen, 1024).float().mean(0)
        (straight.square().mean() + functional.mse_loss(near, x.detach())).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"perplexity {torch.exp(-(used * (used + 1e-10).log()).sum()).item():.1f}")


@way
def functional_gradients():
    model = mlp(128, 10)
    weights = {name: one.detach() for name, one in model.named_parameters()}

    def loss(weights, x, y):
        return functional.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    for _ in range(STEPS):
        found = each(weights, randn(32, 128), torch.randint(0, 10, (32,)).to(DEVICE))
        weights = {name: one - 0.1 * found[name].mean(0) for name, one in weights.items()}


@way
def patches():
    """A vision transformer with mixed pictures."""
    class Vit(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.token = nn.Conv2d(3, 192, 8, 8), nn.Parameter(torch.zeros(1, 1, 192))
            self.place = nn.Parameter(torch.zeros(1, 65, 192))
            layer = nn.TransformerEncoderLayer(192, 3, 768, 0.1, "gelu", batch_first=True, norm_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(192, 100)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
            return self.head(self.layers(x)[:, 0])

    numpy.random.seed(5)
    model = Vit().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        x, y = torch.randn(32, 3, 64, 64).to(DEVICE), torch.randint(0, 100, (32,)).to(DEVICE)
        share, order = float(numpy.random.beta(0.8, 0.8)), torch.randperm(32, device=DEVICE)
        out = model(share * x + (1 - share) * x[order])
        (share * functional.cross_entropy(out, y) + (1 - share) * functional.cross_entropy(out, y[order])).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def diffused():
    model, times = mlp(544, 512), 1000
    slow = copy.deepcopy(model).requires_grad_(False)
    kept = (1 - torch.linspace(1e-4, 0.02, times)).cumprod(0).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())

    def said(model, x, when):
        angle = when[:, None] * torch.exp(-math.log(10000) * torch.arange(16, device=DEVICE) / 16)
        return model(torch.cat([x, angle.sin(), angle.cos()], 1))

    for _ in range(STEPS):
        x, noise, when = randn(256, 512), randn(256, 512), torch.randint(0, times, (256,), device=DEVICE)
        share = kept[when, None]
        functional.mse_loss(said(model, share.sqrt() * x + (1 - share).sqrt() * noise, when), noise).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for old, new in zip(slow.parameters(), model.parameters()):
                old.lerp_(new, 0.01)
    x = randn(16, 512)
    with torch.no_grad():
        for step in reversed(range(0, times, 100)):
            x = x - 0.1 * said(slow, x, torch.full((16,), step, device=DEVICE))
    assert not torch.isnan(x).any()


class Gpt(nn.Module):
    def __init__(self, words=5000, width=256, length=128):
        super().__init__()
        self.length = length
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.qkv, self.out, self.norm = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width)
        self.mlp, self.head = mlp(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens, targets=None):
        batch, length = tokens.shape
        x = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1))
        x = x + self.mlp(x)
        if targets is None:
            return self.head(x[:, [-1]]), None
        logits = self.head(x)
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, tokens, count, top=20):
        for _ in range(count):
            logits, _ = self(tokens[:, -self.length:])
            logits = logits[:, -1] / 0.8
            least = logits.topk(top).values[:, [-1]]
            logits[logits < least] = -math.inf
            tokens = torch.cat([tokens, logits.softmax(-1).multinomial(1)], 1)
        return tokens


@way
def small_gpt():
    """As nanoGPT does it: batches of pinned memory, an evaluation, text at the end."""
    data, best = numpy.random.default_rng(0).integers(0, 5000, 20000).astype(numpy.uint16), 1e9

    def get_batch():
        starts = torch.randint(len(data) - 128, (12,))
        x = torch.stack([torch.from_numpy(data[i:i + 128].astype(numpy.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(data[i + 1:i + 129].astype(numpy.int64)) for i in starts])
        if DEVICE == "cuda":
            return x.pin_memory().to(DEVICE, non_blocking=True), y.pin_memory().to(DEVICE, non_blocking=True)
        return x.to(DEVICE), y.to(DEVICE)

    model = Gpt().to(DEVICE)
    decayed = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=6e-4, fused=DEVICE == "cuda")
    for step in range(6):
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * min(1, (step + 1) / 3)
        if step % 3 == 0:
            model.eval()
            losses = torch.zeros(4)
            with torch.no_grad():
                for k in range(4):
                    losses[k] = model(*get_batch())[1].item()
            model.train()
            if losses.mean() < best:
                best = losses.mean().item()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(*get_batch())[1]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    model.eval()
    text = model.generate(torch.zeros(1, 1, dtype=torch.long, device=DEVICE), 40)[0].tolist()
    print(len(text), f"perplexity {math.exp(loss.item()):.1f}")


@way
def edges():
    """A graph network by index_add."""
    nodes, width = 3000, 128
    edge = torch.randint(0, nodes, (2, 20000))
    edge = edge.to(DEVICE)
    degree = torch.zeros(nodes, device=DEVICE).scatter_add_(0, edge[1], torch.ones(20000, device=DEVICE)).clamp(min=1)
    layers, x = nn.ModuleList(nn.Linear(width, width) for _ in range(3)).to(DEVICE), randn(nodes, width)
    train = torch.rand(nodes) < 0.3
    optimizer = torch.optim.Adam(layers.parameters())
    chosen = train.to(DEVICE)
    for _ in range(STEPS):
        h = x
        for layer in layers:
            h = (torch.zeros_like(h).index_add_(0, edge[1], layer(h)[edge[0]]) / degree[:, None]).relu()
        assert len(h[chosen]) == int(train.sum())
        h[chosen].square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def mined():
    """Triplets: the hardest of each row, and only those that have a loss."""
    model, labels = mlp(out=64), torch.arange(64).repeat_interleave(4).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        out = functional.normalize(model(randn(256, 512)), dim=1)
        far, same = torch.cdist(out, out), labels[:, None] == labels[None]
        worst = (far * same).amax(1)
        best = far.masked_fill(same, math.inf).amin(1)
        loss = functional.relu(worst - best + 0.2)
        hard = loss > 0
        if hard.any():
            loss[hard].mean().backward()
            optimizer.step()
        optimizer.zero_grad()


@way
def suppressed():
    """Boxes that overlap the best one go, until none is left."""
    corners = torch.rand(300, 2) * 100
    boxes, scores = torch.cat([corners, corners + 20], 1).to(DEVICE), torch.rand(300).to(DEVICE)
    kept = []
    while boxes.numel() > 0:
        best = scores.argmax()
        kept.append(boxes[best])
        left = torch.maximum(boxes[:, :2], boxes[best, :2])
        right = torch.minimum(boxes[:, 2:], boxes[best, 2:])
        shared = (right - left).clamp(min=0).prod(1)
        apart = shared / (800 - shared) < 0.5
        apart[best] = False
        boxes, scores = boxes[apart], scores[apart]
    torch.stack(kept)
    randn(1000, 1000)


@way
def converged():
    """Until the change is small."""
    costs = torch.rand(500, 400, device=DEVICE)
    u, v, change, rounds = torch.zeros(500, device=DEVICE), torch.zeros(400, device=DEVICE), math.inf, 0
    while change > 1e-3 and rounds < 200:
        before = u.clone()
        u = -torch.logsumexp(v[None] - costs / 0.1, 1)
        v = -torch.logsumexp(u[:, None] - costs / 0.1, 0)
        change, rounds = (u - before).abs().max().item(), rounds + 1
    print(rounds)


@way
def line_search():
    x = randn(2000, 100, requires_grad=True)
    target = randn(2000, 100)
    for _ in range(STEPS):
        loss = (x - target).square().sum()
        slope, = torch.autograd.grad(loss, x)
        length = 1.0
        with torch.no_grad():
            while (x - length * slope - target).square().sum() > loss - 1e-4 * length * slope.square().sum():
                length *= 0.5
                if length < 1e-6:
                    break
            x -= length * slope


@way
def kept_on_host():
    model = mlp(1024)
    for _ in range(STEPS):
        with torch.autograd.graph.save_on_cpu(pin_memory=DEVICE == "cuda"):
            loss = model(randn(512, 1024)).square().mean()
        loss.backward()


@way
def frozen_first():
    """A head first, then all of it."""
    body, head = mlp(), nn.Linear(512, 10).to(DEVICE)
    body.requires_grad_(False)
    optimizer = torch.optim.AdamW(head.parameters())
    for step in range(4):
        if step == 2:
            body.requires_grad_(True)
            optimizer.add_param_group({"params": body.parameters(), "lr": 1e-5})
        functional.cross_entropy(head(body(randn(64, 512))), torch.randint(0, 10, (64,)).to(DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def stepped_in_backward():
    model = mlp()
    each = {one: torch.optim.Adam([one], foreach=False) for one in model.parameters()}

    def step(one):
        each[one].step()
        each[one].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        model(randn(64, 512)).square().mean().backward()


@way
def packed():
    rows = [torch.randn(length, 64) for length in (50, 30, 20)]
    batch = nn.utils.rnn.pack_sequence(rows).to(DEVICE)
    nn.GRU(64, 128).to(DEVICE)(batch)[1].sum().backward()


@way
def spectral():
    torch.fft.rfft2(randn(8, 128, 128)).abs().sum()


@way
def sparse_matrix():
    places = torch.randint(0, 1000, (2, 5000))
    matrix = torch.sparse_coo_tensor(places, torch.ones(5000), (1000, 1000)).to(DEVICE)
    torch.sparse.mm(matrix, randn(1000, 64))


@way
def inverted_loss():
    """Weights of tasks by their losses."""
    first, second = mlp(), mlp()
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
    for _ in range(STEPS):
        x = randn(128, 512)
        one, two = first(x).square().mean(), second(x).abs().mean()
        (one / one.item() + two / two.item()).backward()
        optimizer.step()
        optimizer.zero_grad()


@way
def curriculum():
    """The length follows from the loss: unsure."""
    model, length = mlp(), 64
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(5):
        loss = (model(randn(length, 512)) - 5).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        length = 64 if loss.item() > 1 else 512


@way
def whole_decoder():
    """Encoder and decoder, and words one after the other until all rows have ended."""
    model = nn.Transformer(128, 4, 2, 2, 512, batch_first=True).to(DEVICE)
    words, head = nn.Embedding(3000, 128).to(DEVICE), nn.Linear(128, 3000).to(DEVICE)
    optimizer = torch.optim.Adam([*model.parameters(), *words.parameters(), *head.parameters()])
    for _ in range(STEPS):
        source, target = torch.randint(3, 3000, (8, 60)).to(DEVICE), torch.randint(3, 3000, (8, 40)).to(DEVICE)
        mask = model.generate_square_subsequent_mask(39, device=DEVICE)
        out = head(model(words(source), words(target[:, :-1]), tgt_mask=mask, tgt_is_causal=True))
        functional.cross_entropy(out.flatten(0, 1), target[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        memory = model.encoder(words(source))
        said, ended = torch.ones(8, 1, dtype=torch.long, device=DEVICE), torch.zeros(8, dtype=torch.bool, device=DEVICE)
        for _ in range(30):
            token = head(model.decoder(words(said), memory)[:, -1]).argmax(-1)
            said = torch.cat([said, torch.where(ended, 0, token)[:, None]], 1)
            ended |= token == 2
            if bool(ended.all()):
                break


@way
def recomputed_in_half():
    """Reentrant checkpoints under autocast, gradients accumulated."""
    layers, scaler = nn.ModuleList(mlp() for _ in range(4)), torch.amp.GradScaler(DEVICE)
    optimizer = torch.optim.AdamW(layers.parameters())
    for step in range(6):
        with torch.autocast(DEVICE, torch.float16):
            x = randn(256, 512, requires_grad=True)
            for layer in layers:
                x = x + checkpoint(layer, x, use_reentrant=True)
        scaler.scale(x.float().square().mean()).backward()
        if (step + 1) % 2 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def main(names):
    torch.manual_seed(0)
    for name in names:
        WAYS[name]()
    CARD.synchronize()
    found = CARD.memory_stats()
    print(json.dumps({"allocated": CARD.max_memory_allocated(), "reserved": CARD.max_memory_reserved(),
                      "requested": found.get("requested_bytes.all.peak", 0)}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1:])
    else:
        print("\n".join(WAYS))
