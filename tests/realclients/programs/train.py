# SPDX-License-Identifier: Apache-2.0
"""Trains each model with each optimizer on the CPU and on the NPU, from the same start, and prints both series of losses."""
import json

import torch
import torch_npu  # pylint: disable=unused-import

from models import MODELS, OPTIMIZERS, step


def train(device, kind, optimizer_name, steps=5):
    torch.manual_seed(0)
    model = MODELS[kind]()
    inputs, targets = MODELS[kind].batch()
    model, inputs, targets = model.to(device), inputs.to(device), targets.to(device)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters(), device)
    return [step(model, optimizer, inputs, targets).item() for _ in range(steps)]


for kind in MODELS:
    for name in OPTIMIZERS:
        print(json.dumps({"model": kind, "optimizer": name, "cpu": train("cpu", kind, name), "npu": train("npu", kind, name)}),
              flush=True)
