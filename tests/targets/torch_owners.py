# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on the CPU for two steps and prints, before the second one's gradients are given back, where its tensors
lie: {class: [address, ...]}. ops@aten is what an operator made outside of the model."""
import json

import torch


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first, second, frozen = torch.nn.Linear(64, 128), torch.nn.Linear(128, 32), torch.nn.Linear(32, 10)
    frozen.requires_grad_(False)
    weights = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.AdamW(weights, foreach=False)
    for step in range(2):
        inputs, later = torch.randn(16, 64), torch.randn(16, 64)
        hidden = first(inputs)
        active = hidden.relu()
        loss = frozen(second(active)).sum()
        loss.backward()
        optimizer.step()
        if step == 1:
            groups = {"model@weight": [*weights, *frozen.parameters()], "model@gradient": [weight.grad for weight in weights],
                      "model@optimizer_state": [value for state in optimizer.state.values() for value in state.values()],
                      "model@input": [inputs], "model@activation": [active], "model@temporary@forward": [hidden, loss],
                      "ops@aten": [later]}
            print(json.dumps({name: [tensor.data_ptr() for tensor in tensors] for name, tensors in groups.items()}))
        optimizer.zero_grad()


main()
