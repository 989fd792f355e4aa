# SPDX-License-Identifier: Apache-2.0
"""torch.profiler over ten steps; prints how many events it has of the CPU and of the GPU."""
import json

import torch
from torch.profiler import ProfilerActivity, profile

model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
data = torch.randn(64, 256, device="cuda")


def step():
    model.zero_grad(set_to_none=True)
    model(data).sum().backward()


for _ in range(3):
    step()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
    for _ in range(10):
        step()
    torch.cuda.synchronize()
events = profiler.events()
print(json.dumps({"cuda": sum(event.device_type == torch.autograd.DeviceType.CUDA for event in events),
                  "launches": sum("LaunchKernel" in event.name for event in events)}))
