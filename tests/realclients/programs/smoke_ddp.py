# SPDX-License-Identifier: Apache-2.0
"""A rank of several: data-parallel training in mixed precision. Prints what torch_npu counts at the end of each step, as an mstx mark and
as JSON, and at the end where its weights, gradients and the optimizer's state lie.
"""
import json
import os

import mstx
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_npu  # pylint: disable=unused-import
from torch.nn.parallel import DistributedDataParallel

from models import OPTIMIZERS, Transformer

STEPS = 4
DEVICE = int(os.environ["LOCAL_RANK"])
torch.npu.set_device(DEVICE)
dist.init_process_group("hccl")
torch.manual_seed(0)
model = DistributedDataParallel(Transformer().npu(), device_ids=[DEVICE])
optimizer = OPTIMIZERS["adamw"](model.parameters(), "npu")
scaler = torch.amp.GradScaler("npu", init_scale=1024.0)
torch.manual_seed(DEVICE + 1)
inputs, targets = (tensor.npu() for tensor in Transformer.batch())
losses = []
for number in range(STEPS):
    running = mstx.range_start("step start", None)
    optimizer.zero_grad()
    with torch.autocast("npu", torch.float16):
        out = model(inputs)
        loss = F.cross_entropy(out.reshape(-1, out.shape[-1]).float(), targets.reshape(-1))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    del out, loss
    torch.npu.synchronize()
    stats = torch.npu.memory_stats()
    counted = {"allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
               "allocations": stats["allocation.all.allocated"], "frees": stats["allocation.all.freed"]}
    mstx.mark(f"count {number} {DEVICE} " + " ".join(f"{key}={value}" for key, value in counted.items()))
    mstx.range_end(running)
state = [value for values in optimizer.state.values() for value in values.values() if value.device.type == "npu"]
print(json.dumps({"rank": DEVICE, "pid": os.getpid(), "losses": losses, "scale": scaler.get_scale(), "steps": STEPS,
                  "weight": [parameter.data_ptr() for parameter in model.parameters()],
                  "gradient": [parameter.grad.data_ptr() for parameter in model.parameters()],
                  "optimizer_state": [value.data_ptr() for value in state]}), flush=True)
dist.destroy_process_group()
