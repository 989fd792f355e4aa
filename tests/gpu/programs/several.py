# SPDX-License-Identifier: Apache-2.0
"""several.py WHAT: memory on two GPUs at once. WHAT: one (one process, both), peer (the second reads memory of the first), ranks (a
process for each, which says its rank). Prints what PyTorch says of each GPU, by UUID, as lines of JSON."""
import json
import os
import subprocess
import sys

import torch


def say(device, **more):
    torch.cuda.synchronize(device)
    stats = torch.cuda.memory_stats(device)
    print(json.dumps({"pid": os.getpid(), "uuid": str(torch.cuda.get_device_properties(device).uuid), "visible": device,
                      "allocated": stats["allocated_bytes.all.current"], "peak": stats["allocated_bytes.all.peak"],
                      "reserved": stats["reserved_bytes.all.current"], **more}), flush=True)


def hold(device, blocks):
    return [torch.empty((3 + device) << 20, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(blocks)]


def one():
    kept = [hold(0, 40), hold(1, 60)]
    say(0)
    say(1)
    return kept


def peer():
    kept = [hold(0, 10), hold(1, 10)]
    for block in kept[0]:
        kept[1].append(block.to("cuda:1"))
    say(0, peer=torch.cuda.can_device_access_peer(0, 1))
    say(1)
    return kept


def rank():
    kept = hold(0, 50)
    say(0, rank=int(os.environ["RANK"]))
    return kept


def ranks():
    names = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1").split(",")
    children = [subprocess.Popen([sys.executable, __file__, "rank"], env={**os.environ, "RANK": str(number), "LOCAL_RANK": str(number),
                                                                         "WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": names[number]})
                for number in range(2)]
    assert [child.wait() for child in children] == [0, 0]


{"one": one, "peer": peer, "rank": rank, "ranks": ranks}[sys.argv[1]]()
