# SPDX-License-Identifier: Apache-2.0
"""A server answers requests, without optimizer and without marks; what a request needed is kept by its number for ever."""
import json
import time

import torch
from torch import nn


class Server:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda().half()
        self.sessions = {}

    @torch.inference_mode()
    def answer(self, number, prompt):
        hidden = self.model(prompt)  # @leak
        self.sessions[number] = hidden  # @filled
        return hidden.argmax(-1)


server = Server()
before = None
for request in range(400):
    server.answer(request, torch.randn(96, 1024, device="cuda", dtype=torch.half))
    time.sleep(0.008)
    if request == 0:
        before = torch.cuda.memory_allocated()
print(json.dumps({"grown": torch.cuda.memory_allocated() - before, "keeper": "sessions"}), flush=True)
