# SPDX-License-Identifier: Apache-2.0
"""Operators with inputs on the host and a result on the device; prints the name of each, and where its result lies."""
import json

import torch
import torch_npu  # noqa: F401  pylint: disable=unused-import

host = torch.ones(64, 64)
made = []
for name, make in (("_to_copy", lambda: host.to("npu")), ("_to_copy", host.npu), ("zeros_like", lambda: torch.zeros_like(host, device="npu")),
                   ("_to_copy", lambda: torch.nn.Linear(64, 64, bias=False).to("npu").weight)):
    made.append((name, make()))
torch.npu.synchronize()
print(json.dumps({"moves": [[f"torch._ops.aten.{name}.default", tensor.data_ptr()] for name, tensor in made]}))
