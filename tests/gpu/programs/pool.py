# SPDX-License-Identifier: Apache-2.0
"""pool.py SHAPE SEED: a random program on PyTorch's pool. SHAPE: plain, streams, threads, graphs, mempool, profiler, late.

It measures itself at several moments: a snapshot of ours by that name, and a line of JSON with what PyTorch says of its pool then."""
import json
import random
import sys
import threading
from collections import Counter

import torch

import msmemscope

SHAPE, SEED = sys.argv[1], int(sys.argv[2])
random.seed(SEED)
held = []
said = {}


def size():
    return random.choice((random.randint(1, 4000), random.randint(4000, 3 << 20), random.randint(3 << 20, 40 << 20)))


def take(keep=True):
    block = torch.empty(size(), dtype=torch.uint8, device="cuda")
    if keep:
        held.append(block)
    return block


def churn(count):
    for _ in range(count):
        if held and random.random() < 0.45:
            held.pop(random.randrange(len(held)))
        else:
            take()


def measure(name):
    """Nothing is allocated or freed between what PyTorch says and our snapshot."""
    snapshot = torch.cuda.memory_snapshot()
    stats = torch.cuda.memory_stats()
    blocks, segments, waiting, reserved = Counter(), [], Counter(), Counter()
    for segment in snapshot:
        place = f"{segment['stream']} {'-'.join(map(str, segment['segment_pool_id']))}"
        segments.append((segment["address"], segment["total_size"], segment.get("is_expandable", False)))
        reserved[place] += segment["total_size"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                blocks[place + " size"] += block["size"]
                blocks[place + " requested"] += block["requested_size"]
            elif block["state"].startswith("active"):
                waiting["size"] += block["size"]
                waiting["requested"] += block["requested_size"]
                waiting["blocks"] += 1
    said[name] = {"requested": stats["requested_bytes.all.current"], "active": stats["active_bytes.all.current"],
                  "allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
                  "blocks": dict(blocks), "segments": segments, "waiting": dict(waiting), "pools": dict(reserved)}
    msmemscope.take_snapshot(0, name)


def streams():
    """Frees that wait: a side stream is busy and uses the blocks."""
    sides = [torch.cuda.Stream() for _ in range(3)]
    for side in sides:
        with torch.cuda.stream(side):
            churn(10)
            torch.cuda._sleep(int(6e9))
    for _ in range(random.randint(5, 30)):
        block = take(keep=False)
        for side in random.sample(sides, random.randint(1, 3)):
            block.record_stream(side)
        del block
    churn(20)
    measure("waiting")
    torch.cuda.synchronize()
    take()  # the pool looks at its streams when it is asked for something
    measure("drained")


def threads():
    gate = threading.Barrier(5)

    def work(seed):
        numbers, own = random.Random(seed), []
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            gate.wait()
            for _ in range(400):
                if own and numbers.random() < 0.5:
                    own.pop(numbers.randrange(len(own)))
                else:
                    own.append(torch.empty(numbers.randint(1, 4 << 20), dtype=torch.uint8, device="cuda"))
        held.extend(own)

    workers = [threading.Thread(target=work, args=(SEED * 10 + i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    gate.wait()
    for worker in workers:
        worker.join()


def graphs():
    linear = torch.nn.Linear(1024, 1024).cuda()
    data = torch.randn(64, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            linear(data).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = linear(data) * 2
            del kept
            held.append(linear(data))
        graph.replay()
        held.append(graph)


def mempool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        for _ in range(10):
            held.append(torch.empty(random.randint(1, 8 << 20), dtype=torch.uint8, device="cuda"))
    held.append(pool)


def profiled():
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]):
        for _ in range(12):
            held.append(torch.empty(random.randint(11 << 20, 60 << 20), dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()


def main():
    torch.cuda.init()
    if SHAPE == "late":
        churn(60)
        msmemscope.start()
    churn(80)
    measure("begun")
    more = {"streams": streams, "threads": threads, "graphs": graphs, "mempool": mempool, "profiler": profiled}.get(SHAPE)
    if more:
        more()
    churn(80)
    measure("full")
    del held[::2]
    torch.cuda.synchronize()
    measure("half")
    torch.cuda.empty_cache()
    measure("emptied")
    churn(40)
    measure("again")
    if SHAPE == "late":
        msmemscope.stop()
    print(json.dumps(said), flush=True)


main()
