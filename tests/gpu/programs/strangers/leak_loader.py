# SPDX-License-Identifier: Apache-2.0
"""Batches from a DataLoader with workers and pinned memory; four rows of each are kept as hard examples: a view, which keeps all of the batch."""
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 40 * 128

    def __getitem__(self, index):
        return torch.full((1024,), float(index)), index % 10


def main():
    model, hard, sizes = nn.Sequential(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)).cuda(), [], []
    optimizer = torch.optim.AdamW(model.parameters())
    for rows, labels in DataLoader(Numbers(), 128, num_workers=2, pin_memory=True):
        rows, labels = rows.cuda(non_blocking=True), labels.cuda(non_blocking=True)  # @leak
        loss = nn.functional.cross_entropy(model(rows), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hard.append(rows[:4])  # @filled
        sizes.append(torch.cuda.memory_allocated())
    print(json.dumps({"per_step": (sizes[-1] - sizes[9]) / 30, "keeper": "hard"}), flush=True)


if __name__ == "__main__":
    main()
