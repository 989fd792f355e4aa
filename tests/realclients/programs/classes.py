# SPDX-License-Identifier: Apache-2.0
"""Trains a small model for two steps and prints, before the second one's gradients are given back, where its tensors lie:
{class: [address, ...]}."""
import json

import torch
import torch_npu  # pylint: disable=unused-import

torch.manual_seed(0)
first, second = torch.nn.Linear(64, 128).npu(), torch.nn.Linear(128, 32).npu()
weights = [*first.parameters(), *second.parameters()]
optimizer = torch.optim.AdamW(weights, foreach=False)
for step in range(2):
    active = first(torch.randn(16, 64).npu()).relu()
    loss = second(active).sum()
    loss.backward()
    optimizer.step()
    torch.npu.synchronize()
    if step == 1:
        groups = {"weight": weights, "gradient": [weight.grad for weight in weights], "activation": [active],
                  "optimizer_state": [value for state in optimizer.state.values() for value in state.values()
                                      if value.device.type == "npu"]}
        print(json.dumps({name: [tensor.data_ptr() for tensor in tensors] for name, tensors in groups.items()}))
    optimizer.zero_grad()
