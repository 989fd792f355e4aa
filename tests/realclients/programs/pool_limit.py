# SPDX-License-Identifier: Apache-2.0
"""Keeps a tensor of every step until torch_npu's pool refuses one by its own limit, while the device has memory left."""
import json

import mstx
import torch
import torch_npu  # pylint: disable=unused-import

torch.npu.set_per_process_memory_fraction(0.01)
kept = []
try:
    while True:
        running = mstx.range_start("step start", None)
        kept.append(torch.ones(6 << 20, device="npu"))  # WHAT GROWS
        mstx.range_end(running)
except torch.OutOfMemoryError as error:
    stats = torch.npu.memory_stats()
    print(json.dumps({"steps": len(kept), "ooms": stats["num_ooms"], "message": str(error)}))
