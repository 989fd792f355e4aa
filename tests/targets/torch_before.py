# SPDX-License-Identifier: Apache-2.0
"""Builds and trains a model, and begins to look at its memory only then, as the manual shows it: $OUT, $DEVICE and $START say how.
Prints where weights and the optimizer's state lie: {class: [[address, bytes], ...]}."""
import json
import os

import torch

import msmemscope


def places(tensors):
    return [(tensor.data_ptr(), tensor.untyped_storage().nbytes()) for tensor in tensors]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gone = [torch.empty(1000 + size) for size in range(100)]
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 32))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)

    def step():
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    del gone
    step()
    msmemscope.config(output=os.environ["OUT"], device=os.environ["DEVICE"], analysis="decompose")
    if os.environ.get("START"):
        msmemscope.start()
    step()
    msmemscope.stop()
    print(json.dumps({"model@weight": places(model.parameters()),
                      "model@optimizer_state": places(value for state in optimizer.state.values() for value in state.values())}))
    # Between windows all of it goes, and addresses come back with other sizes.
    del model, optimizer, step
    others = [torch.empty(size) for size in (8192, 128, 4096, 32)]
    del others
    if os.environ.get("START"):
        msmemscope.start()
        torch.empty(777)


main()
