# SPDX-License-Identifier: Apache-2.0
"""Products of matrices, small and large, on the CPU and on the NPU. Prints the largest difference of each, relative to its numbers, and
whether the process has opened OpenBLAS of the machine (NumPy brings one of its own)."""
import json

import torch
import torch_npu  # noqa: F401

torch.manual_seed(7)
SHAPES = [((3, 5), (5, 2)), ((300, 65), (65, 130)), ((2, 3, 70, 40), (3, 40, 33)), ((64, 512), (512,)), ((257, 128), (128, 128))]


def difference(left, right, added=None):
    def product(one, other, third):
        return one @ other if third is None else torch.addmm(third, one, other, beta=0.5, alpha=2)

    ours = product(left.npu(), right.npu(), None if added is None else added.npu()).cpu().double()
    exact = product(left.double(), right.double(), None if added is None else added.double())
    assert ours.shape == exact.shape
    return ((ours - exact).abs().max() / exact.abs().max()).item()


found = [difference(torch.randn(left), torch.randn(right)) for left, right in SHAPES]
found.append(difference(torch.randn(290, 64), torch.randn(64, 99), torch.randn(99)))
found.append(difference(torch.randn(64, 290).t(), torch.randn(99, 64).t()))
whole = difference(torch.randint(-9, 9, (90, 80)).float(), torch.randint(-9, 9, (80, 70)).float())
with open("/proc/self/maps", encoding="utf-8") as file:
    opened = "/libopenblas" in file.read()
print(json.dumps({"differences": found, "whole": whole, "opened": opened}))
