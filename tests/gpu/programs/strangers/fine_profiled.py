# SPDX-License-Identifier: Apache-2.0
"""torch.profiler looks at some of the steps, with its record of memory."""
import os

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

kinds = [ProfilerActivity.CPU, *([] if os.environ.get("STRANGERS_SIMULATED") else [ProfilerActivity.CUDA])]
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
traces = []
with profile(activities=kinds, schedule=schedule(wait=5, warmup=2, active=4, repeat=3), profile_memory=True, with_stack=True,
             on_trace_ready=lambda one: traces.append(len(one.key_averages()))) as profiler:
    for _ in range(60):
        model(torch.randn(128, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        profiler.step()
assert len(traces) == 3 and all(traces), traces
