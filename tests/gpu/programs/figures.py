# SPDX-License-Identifier: Apache-2.0
"""What PyTorch and the driver say about the first GPU, at moments at which a program holds still."""
import json
import os
import time

import torch

HOLD_S = 0.9  # the driver is asked every 100 ms, and the answer may take 300 ms


def figures():
    stats = torch.cuda.memory_stats()
    left, total = torch.cuda.mem_get_info()
    return {"used": total - left, "total": total, "reserved": stats.get("reserved_bytes.all.current", 0),
            "allocated": stats.get("allocated_bytes.all.current", 0)}


def hold(name, **more):
    """A line of JSON: what is counted while nothing happens, and when that was."""
    torch.cuda.synchronize()
    begin, before = time.time_ns(), figures()
    time.sleep(HOLD_S)
    print(json.dumps({"hold": name, "pid": os.getpid(), "from_ns": begin, "to_ns": time.time_ns(), "before": before["used"], **figures(),
                      **more}), flush=True)
