# SPDX-License-Identifier: Apache-2.0
"""A training that leaks: validate() keeps each loss, and the loss keeps the graph of its forward pass. `loss.item()` fixes it."""
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters())
losses = []


def train(batch, labels):
    torch.nn.functional.cross_entropy(model(batch), labels).backward()
    optimizer.step()
    optimizer.zero_grad()


def validate(batch, labels):
    loss = torch.nn.functional.cross_entropy(model(batch), labels)
    losses.append(loss)


for _ in range(40):
    train(torch.randn(64, 256), torch.randint(10, (64,)))
    validate(torch.randn(16, 256), torch.randint(10, (16,)))
