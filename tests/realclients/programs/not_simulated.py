# SPDX-License-Identifier: Apache-2.0
"""Calls an operator that the simulated NPU does not compute, twice."""
import torch
import torch_npu

x = torch.ones(3, device="npu")
for _ in range(2):
    torch_npu.npu_trans_quant_param(x)
torch.npu.synchronize()
print("done")
