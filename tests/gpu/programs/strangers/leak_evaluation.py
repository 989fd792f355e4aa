# SPDX-License-Identifier: Apache-2.0
"""Every tenth step there is an evaluation, whose predictions stay in a list of the class; nothing else grows."""
import json

import torch
from torch import nn


class Report:
    predictions = []

    def evaluate(self, model):
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                self.predictions.append(model(torch.randn(500, 64, device="cuda")).softmax(1))  # @leak @filled
        model.train()


model = nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 1000)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
report, sizes = Report(), []
for step in range(1, 151):
    loss = nn.functional.cross_entropy(model(torch.randn(64, 64, device="cuda")), torch.randint(0, 1000, (64,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        report.evaluate(model)
    sizes.append(torch.cuda.memory_allocated())
print(json.dumps({"per_step": (sizes[149] - sizes[19]) / 130, "keeper": "predictions"}), flush=True)
