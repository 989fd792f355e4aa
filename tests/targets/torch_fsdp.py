# SPDX-License-Identifier: Apache-2.0
"""torch_fsdp.py fsdp1|fsdp2 DIRECTORY: two ranks train a sharded model over gloo. Each writes pairs of an address
and of what the owner of the block there must end with, "" for none of FSDP's, to DIRECTORY/rank-N.json. All of these blocks live until
the end."""
import gc
import json
import os
import sys

import torch
import torch.distributed
import torch.multiprocessing

SIZE = 300
kept, said = [], []


def take(owner, tensor=None):
    tensor = torch.empty(SIZE, SIZE) if tensor is None else tensor
    kept.append(tensor)
    said.append([tensor.data_ptr(), owner])


class Backward(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x, owner):
        _ctx.owner = owner
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        take(ctx.owner)
        return grad * 1, None


class Block(torch.nn.Module):
    """Between the hooks in front of a forward or backward pass and those behind it."""

    def __init__(self, kind):
        super().__init__()
        self.linear = torch.nn.Linear(SIZE, SIZE)
        self.kind = kind
        self.fails = False

    def forward(self, x):
        take(f"{self.kind}@activation")
        if self.fails:
            raise ValueError("as asked")
        return self.linear(Backward.apply(x, f"{self.kind}@backward"))


def shard(model, kind):
    if kind == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        cpu = torch.device("cpu")
        for at, block in enumerate(model):
            model[at] = FullyShardedDataParallel(block, device_id=cpu)
        return FullyShardedDataParallel(model, device_id=cpu)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (2,))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, kind, directory):
    torch.distributed.init_process_group("gloo", init_method=f"file://{directory}/store-{kind}", rank=rank, world_size=2)
    torch.manual_seed(0)
    blocks = [Block(kind), Block(kind)]
    model = shard(torch.nn.Sequential(*blocks), kind)
    for parameter in model.parameters():
        if parameter.numel() > SIZE:
            take(f"{kind}@sharded_weight", getattr(parameter, "_local_tensor", parameter))
    take("")
    for step in range(3):
        x = torch.randn(SIZE, SIZE, requires_grad=True)
        if step == 1:
            blocks[1].fails = True
            try:
                model(x)
            except ValueError:
                blocks[1].fails = False
            # FSDP1 is told of the exception, FSDP2 is not: what the next pass leaves counts.
            if kind == "fsdp1":
                take("")
        loss = model(x).sum()
        take("")
        loss.backward()
        take("")
        if step == 2:
            for parameter in model.parameters():
                if parameter.numel() > SIZE:
                    take("@gradient", getattr(parameter.grad, "_local_tensor", parameter.grad))
    with open(f"{directory}/rank-{rank}.json", "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "said": said}, file)
    # The process group ends its threads when nothing refers to it, which cycles of the model do.
    del model, blocks, loss, x, parameter
    gc.collect()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=sys.argv[1:3], nprocs=2)
