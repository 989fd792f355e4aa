# SPDX-License-Identifier: Apache-2.0
"""Two streams that use a tensor without waiting for each other, with torch_npu's own sanitizer switched on."""
import json
import sys

import torch
import torch_npu  # pylint: disable=unused-import
from torch_npu.npu import _sanitizer

_sanitizer.enable_npu_sanitizer()
data = torch.rand(1000, device="npu")
side = torch.npu.Stream()
if "--wait" in sys.argv:
    side.wait_stream(torch.npu.current_stream())
found = 0
try:
    with torch.npu.stream(side):
        data.mul_(2)
except Exception as error:  # pylint: disable=broad-exception-caught  # its class is PyTorch's own and has no public name
    found = len(error.errors)
print(json.dumps({"races": found}))
