# SPDX-License-Identifier: Apache-2.0
"""A forward hook notes the output of a layer; only the hook refers to the object that has the notes."""
import json

import torch
from torch import nn


class Probe:
    def __init__(self):
        self.seen = []

    def note(self, module, inputs, output):
        self.seen.append(output.detach().float().abs())  # @leak @filled


def build():
    net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
    net[3].register_forward_hook(Probe().note)
    return net


def main():
    net, sizes = build(), []
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(40):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = net(torch.randn(200, 512, device="cuda")).float().logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        sizes.append(torch.cuda.memory_allocated())
    print(json.dumps({"per_step": (sizes[-1] - sizes[9]) / 30, "keeper": "seen"}), flush=True)


main()
