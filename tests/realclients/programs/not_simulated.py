# SPDX-License-Identifier: Apache-2.0
"""Calls an operator that the simulated NPU does not compute, twice."""
import torch
import torch_npu  # pylint: disable=unused-import

x = torch.ones(3, device="npu")
for _ in range(2):
    torch.cummax(x, 0)
torch.npu.synchronize()
