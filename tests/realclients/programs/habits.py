# SPDX-License-Identifier: Apache-2.0
"""What scripts do besides a plain training loop: a function each. Each runs in a process of its own, a fork of one import of torch_npu, and a line of
JSON has its name, torch_npu's own peaks, or the type of what it raised. Arguments are names; without any, all of them."""
import json
import os
import sys
import tempfile

import torch
import torch_npu  # noqa: F401
from torch import nn
from torch.utils.checkpoint import checkpoint

HABITS = {}
WIDTH = 256  # its square is not computed in a dry run


def habit(function):
    HABITS[function.__name__] = function
    return function


def net():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).npu()


def batch(rows=64):
    return torch.randn(rows, WIDTH, device="npu")


def steps(model, optimizer, count=3, loss=lambda model, x: model(x).square().mean()):
    for _ in range(count):
        loss(model, batch()).backward()
        optimizer.step()
        optimizer.zero_grad()


def adamw(model, **options):
    return torch.optim.AdamW(model.parameters(), **options)


@habit
def moved_by_npu():
    model = net()
    steps(model, adamw(model))


@habit
def moved_by_to():
    model = nn.Linear(WIDTH, WIDTH).to("npu:0")
    steps(model, torch.optim.SGD(model.parameters(), momentum=0.9, lr=0.1))


@habit
def default_device():
    with torch.device("npu"):
        model = nn.Linear(WIDTH, WIDTH)
    steps(model, adamw(model))


@habit
def autocast():
    model = net()

    def loss(model, x):
        with torch.autocast("npu", dtype=torch.bfloat16):
            return model(x).float().square().mean()
    steps(model, adamw(model), loss=loss)


@habit
def grad_scaler():
    model, scaler = net(), torch.amp.GradScaler("npu")
    optimizer = adamw(model)
    for _ in range(3):
        with torch.autocast("npu", dtype=torch.float16):
            loss = model(batch()).float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


@habit
def half_model():
    model = net().half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps(model, optimizer, loss=lambda model, x: model(x.half()).float().square().mean())


@habit
def foreach_off():
    model = net()
    steps(model, adamw(model, foreach=False))


@habit
def accumulated_gradients():
    model = net()
    optimizer = adamw(model)
    for _ in range(2):
        for _ in range(4):
            (model(batch()).square().mean() / 4).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@habit
def streams():
    side = torch.npu.Stream()
    x = batch(512)
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        y = x @ x.t()
        x.record_stream(side)
    torch.npu.current_stream().wait_stream(side)
    y.sum()
    torch.npu.synchronize()


@habit
def pinned_loader():
    data = torch.utils.data.TensorDataset(torch.randn(256, WIDTH), torch.randint(0, WIDTH, (256,)))
    model = net()
    optimizer = adamw(model)
    for x, target in torch.utils.data.DataLoader(data, batch_size=64, pin_memory=True):
        nn.functional.cross_entropy(model(x.npu(non_blocking=True)), target.npu(non_blocking=True)).backward()
        optimizer.step()
        optimizer.zero_grad()


@habit
def loader_with_workers():
    data = torch.utils.data.TensorDataset(torch.randn(256, WIDTH))
    model = net()
    for x, in torch.utils.data.DataLoader(data, batch_size=64, num_workers=2):
        model(x.npu()).sum().backward()


@habit
def reads_the_loss():
    model = net()
    optimizer = adamw(model)
    losses = []
    for _ in range(3):
        loss = model(batch()).square().mean()
        assert not torch.isnan(loss) and torch.isfinite(loss)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {sum(losses)}", file=sys.stderr)


@habit
def checks_that_all_is_finite():
    model = net()
    for _ in range(2):
        out = model(batch())
        assert torch.isfinite(out).all(), "the model diverged"
        out.sum().backward()


@habit
def reads_small_constants():
    assert torch.full((3,), 2.5, device="npu").sum().item() == 7.5
    assert torch.arange(5, device="npu").tolist() == [0, 1, 2, 3, 4]


@habit
def saves_and_loads():
    model = net()
    with tempfile.NamedTemporaryFile() as file:
        torch.save(model.state_dict(), file.name)
        model.load_state_dict(torch.load(file.name, map_location="npu"))
    steps(model, adamw(model))


@habit
def checkpoint_reentrant():
    model = net()
    steps(model, adamw(model), loss=lambda model, x: checkpoint(model, x.requires_grad_(), use_reentrant=True).square().mean())


@habit
def checkpoint_not_reentrant():
    model = net()
    steps(model, adamw(model), loss=lambda model, x: checkpoint(model, x, use_reentrant=False).square().mean())


@habit
def sorts():
    x = batch(512)
    x.sort(dim=1)
    x.topk(8, dim=1)
    x.argmax(dim=1)


@habit
def draws():
    torch.multinomial(torch.softmax(batch(), dim=1), 4)
    nn.functional.dropout(batch(512), 0.5)


@habit
def puts_by_index():
    x = batch()
    x[torch.arange(8, device="npu"), 3] = 1.0
    x.index_add_(0, torch.tensor([1, 2], device="npu"), batch(2))
    x.scatter_(1, torch.zeros(64, 1, dtype=torch.int64, device="npu"), 2.0)


@habit
def convolves():
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 8, 1)).npu()
    optimizer = adamw(model)
    for _ in range(2):
        model(torch.randn(2, 3, 32, 32, device="npu")).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@habit
def attends():
    model = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).npu()
    model(torch.randn(4, 32, 64, device="npu")).sum().backward()


@habit
def recurs():
    model = nn.LSTM(64, 64, batch_first=True).npu()
    model(torch.randn(4, 16, 64, device="npu"))[0].sum().backward()


@habit
def decomposes_matrices():
    torch.linalg.qr(batch(WIDTH))


@habit
def embeds():
    model = nn.Embedding(1000, 64).npu()
    model(torch.randint(0, 1000, (8, 64), device="npu")).sum().backward()


@habit
def infers():
    model = net().eval()
    with torch.no_grad():
        for _ in range(3):
            model(batch(512))
    torch.npu.empty_cache()


@habit
def decodes():
    """A cache that grows, and a token that is read back each time."""
    cache, token = torch.empty(0, WIDTH, device="npu"), 0
    for _ in range(16):
        cache = torch.cat([cache, batch(16)])
        token = int((cache @ cache[-1]).argmax())
        assert token >= 0


@habit
def shows_a_tensor():
    x = batch()
    print(x, x.cpu().numpy().shape, file=sys.stderr)


@habit
def catches_out_of_memory():
    try:
        torch.empty(1 << 45, device="npu")
    except torch.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    model = net()
    steps(model, adamw(model))


@habit
def keeps_only_some():
    """Masks of data: in a dry run as large as they can be."""
    x = batch(512)
    kept = x[x > 0]
    kept.square().sum()
    (x > 0).nonzero()
    torch.unique((x * 4).int())


def run(name):
    try:
        HABITS[name]()
        torch.npu.synchronize()
        found = {"allocated": torch.npu.max_memory_allocated(), "reserved": torch.npu.max_memory_reserved()}
    except Exception as error:  # pylint: disable=broad-exception-caught  # what it raised is the answer
        found = {"raised": type(error).__name__, "why": str(error)[:400]}
    print(json.dumps({"habit": name, **found}), flush=True)


for one in sys.argv[1:] or HABITS:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        run(one)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(json.dumps({"habit": one, "raised": "died", "why": ""}), flush=True)
