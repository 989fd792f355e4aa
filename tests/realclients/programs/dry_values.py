# SPDX-License-Identifier: Apache-2.0
"""Reads values of small tensors, which are computed, and of large ones, which a dry run does not compute. With "loop" it waits for one of them, with "branch" one
decides what it takes, with "log" it has a logarithm."""
import math
import sys

import torch
import torch_npu  # noqa: F401


def main():
    model = torch.nn.Linear(200, 200).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    known = torch.tensor([1., 0., 2.], device="npu")
    while True:
        assert known.sum().item() == 3 and known[known > 0].numel() == 2 and torch.unique(known).numel() == 3
        out = model(torch.randn(50, 200, device="npu"))
        assert torch.isfinite(out).all()
        assert not torch.isnan(out).any().item()
        mask = out > 0
        rows = mask.nonzero()
        kept = out[mask]
        sums = out.sum(0)
        few = sums[sums > 0]
        loss = kept.square().mean() + few.sum()
        while "loop" in sys.argv and loss.item() < 1:
            out.detach().add_(1)
        assert rows.shape == (10000, 2) and kept.numel() == 10000 and few.numel() == 200
        if "log" in sys.argv:
            print(math.log(1 + loss.item()) / loss.item(), file=sys.stderr)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if "branch" in sys.argv and loss.item() > 0.5:
            torch.zeros(1 << 22, device="npu")


main()
