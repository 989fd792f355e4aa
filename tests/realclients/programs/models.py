# SPDX-License-Identifier: Apache-2.0
"""A small transformer and a small CNN, as a user would write them."""
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        scores = (query @ key.transpose(-2, -1)) * (width // self.heads) ** -0.5
        seen = torch.tril(torch.ones(length, length, device=x.device, dtype=torch.bool))
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.dropout(self.attend(self.before(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.between(x)))))


class Transformer(nn.Module):
    VOCABULARY = 64

    def __init__(self, width=32, heads=4, layers=2, length=16, dropout=0.0):
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.after = nn.LayerNorm(width)
        self.head = nn.Linear(width, self.VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.after(x))

    @classmethod
    def batch(cls, size=4, length=16):
        return torch.randint(0, cls.VOCABULARY, (size, length)), torch.randint(0, cls.VOCABULARY, (size, length))


class Cnn(nn.Module):
    CLASSES = 10

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.first_norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(16)
        self.classify = nn.Linear(16, self.CLASSES)

    def forward(self, images):
        x = F.max_pool2d(F.relu(self.first_norm(self.first(images))), 2)
        x = F.avg_pool2d(F.relu(self.second_norm(self.second(x))), 2)
        return self.classify(F.adaptive_avg_pool2d(x, 1).flatten(1))

    @classmethod
    def batch(cls, size=4):
        return torch.randn(size, 3, 16, 16), torch.randint(0, cls.CLASSES, (size,))


MODELS = {"transformer": Transformer, "cnn": Cnn}

OPTIMIZERS = {
    "sgd": lambda parameters, device: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda parameters, device: torch.optim.AdamW(parameters, 1e-2),
    "adamw_one_by_one": lambda parameters, device: torch.optim.AdamW(parameters, 1e-2, foreach=False),
    # The fused step of the NPU has the plain one of the CPU for comparison.
    "adamw_fused": lambda parameters, device: torch.optim.AdamW(parameters, 1e-2, fused=device != "cpu"),
}


def step(model, optimizer, inputs, targets):
    """One step of training; the loss."""
    optimizer.zero_grad()
    out = model(inputs)
    loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), targets.reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
