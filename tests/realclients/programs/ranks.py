# SPDX-License-Identifier: Apache-2.0
"""A rank of several, started by torchrun: every collective operation, and training with data-parallel models, which must give what
one process gives that has all the data.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch_npu  # pylint: disable=unused-import
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from models import OPTIMIZERS, Transformer, step

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("hccl")


def numbers(*shape, dtype=torch.float32, rank=RANK):
    return (torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 100 * rank).to(dtype)


def of_all(*shape, dtype=torch.float32):
    return [numbers(*shape, dtype=dtype, rank=rank) for rank in range(RANKS)]


def check(name, got, want):
    assert torch.equal(got.cpu(), want), f"rank {RANK}: {name}: {got.cpu()} is not {want}"


def collectives(dtype):
    want = torch.stack(of_all(240, 1000, dtype=dtype))
    for op, wanted in ((dist.ReduceOp.SUM, want.float().sum(0)), (dist.ReduceOp.MAX, want.amax(0)), (dist.ReduceOp.MIN, want.amin(0))):
        value = numbers(240, 1000, dtype=dtype).npu()
        dist.all_reduce(value, op)
        check(f"all_reduce {op} {dtype}", value, wanted.to(dtype))
    value = numbers(240, 1000, dtype=dtype).npu()
    dist.broadcast(value, RANKS - 1)
    check(f"broadcast {dtype}", value, want[RANKS - 1])
    parts = [torch.empty_like(value) for _ in range(RANKS)]
    dist.all_gather(parts, numbers(240, 1000, dtype=dtype).npu())
    check(f"all_gather {dtype}", torch.stack(parts), want)
    part = torch.empty(240 // RANKS, 1000, dtype=dtype, device="npu")
    dist.reduce_scatter_tensor(part, numbers(240, 1000, dtype=dtype).npu())
    check(f"reduce_scatter {dtype}", part, want.float().sum(0).to(dtype).chunk(RANKS)[RANK])
    value = numbers(240, 1000, dtype=dtype).npu()
    dist.reduce(value, 0)
    if RANK == 0:
        check(f"reduce {dtype}", value, want.float().sum(0).to(dtype))


def pairs():
    other = (RANK + 1) % RANKS
    got = torch.empty(500, 1000, device="npu")
    requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, numbers(500, 1000).npu(), other),
                                       dist.P2POp(dist.irecv, got, (RANK - 1) % RANKS)])
    for request in requests:
        request.wait()
    check("ring", got, numbers(500, 1000, rank=(RANK - 1) % RANKS))
    got = torch.empty(2 * RANKS, 10, device="npu")
    dist.all_to_all_single(got, numbers(2 * RANKS, 10).npu())
    check("all_to_all", got, torch.cat([part.chunk(RANKS)[RANK] for part in of_all(2 * RANKS, 10)]))
    dist.barrier()


def train(wrap, device, data, steps=4):
    torch.manual_seed(0)
    model = wrap(Transformer().to(device))
    optimizer = OPTIMIZERS["adamw"](model.parameters(), device)
    inputs, targets = (tensor.to(device) for tensor in data)
    losses = []
    for _ in range(steps):
        loss = step(model, optimizer, inputs, targets)
        if device == "npu":
            dist.all_reduce(loss.data, dist.ReduceOp.AVG)
        losses.append(loss.item())
    return losses


for kind in (torch.float32, torch.float16, torch.int64):
    collectives(kind)
pairs()

torch.manual_seed(5)
whole = Transformer.batch(2 * RANKS)
mine = [tensor.chunk(RANKS)[RANK] for tensor in whole]
result = {"rank": RANK, "alone": train(lambda model: model, "cpu", whole), "ddp": train(DistributedDataParallel, "npu", mine),
          "fsdp": train(fully_shard, "npu", mine)}
sys.stdout.write(json.dumps(result) + "\n")  # one write: ranks share the pipe
sys.stdout.flush()
dist.destroy_process_group()
