# SPDX-License-Identifier: Apache-2.0
"""For each new length a CUDA graph is captured, in a private pool of its own, and kept; lengths never come again. NVTX marks steps."""
import json

import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda().eval()
runners, sizes = {}, []


@torch.no_grad()
def run(length):
    if length not in runners:
        graph = torch.cuda.CUDAGraph()
        given = torch.zeros(length, 512, device="cuda")  # @leak
        with torch.cuda.graph(graph):
            result = model(given)  # @leak
        runners[length] = graph, given, result  # @filled
    graph, given, result = runners[length]
    given.normal_()
    graph.replay()
    return result.sum().item()


with torch.no_grad():
    model(torch.zeros(64, 512, device="cuda"))
for step in range(30):
    torch.cuda.nvtx.range_push("step start")
    run(256 + 4 * step)
    torch.cuda.nvtx.range_pop()
    sizes.append(torch.cuda.memory_allocated())
print(json.dumps({"per_step": (sizes[-1] - sizes[5]) / 24, "keeper": "runners", "pools": len(runners)}), flush=True)
