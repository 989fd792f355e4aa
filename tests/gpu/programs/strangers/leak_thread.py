# SPDX-License-Identifier: Apache-2.0
"""A thread beside the training computes histograms of the weights and keeps what it made them of."""
import json
import queue
import threading

import torch
from torch import nn

jobs, done = queue.Queue(), queue.Queue()


def watch():
    ranked = []
    while (weight := jobs.get()) is not None:
        ranked.append(weight.flatten().sort().values)  # @leak @filled
        done.put(float(ranked[-1][0]))
    done.put(len(ranked))


def main():
    model, sizes = nn.Linear(512, 512).cuda(), []
    optimizer = torch.optim.Adam(model.parameters())
    helper = threading.Thread(target=watch, name="watcher")
    helper.start()
    for _ in range(40):
        model(torch.randn(64, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        jobs.put(model.weight.detach())
        done.get()
        sizes.append(torch.cuda.memory_allocated())
    jobs.put(None)
    helper.join()
    print(json.dumps({"per_step": (sizes[-1] - sizes[9]) / 30, "keeper": "ranked"}), flush=True)


main()
