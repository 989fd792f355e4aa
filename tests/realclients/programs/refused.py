# SPDX-License-Identifier: Apache-2.0
"""What the simulated NPU refuses: a type that an operator does not compute with, or an index that is out of range."""
import sys

import torch
import torch_npu  # pylint: disable=unused-import

if sys.argv[1] == "type":
    torch.nn.functional.gelu(torch.ones(3, dtype=torch.complex64, device="npu"))
else:
    torch.ones(3, device="npu")[torch.tensor([5], device="npu")].cpu()
print("done")
