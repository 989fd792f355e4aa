# SPDX-License-Identifier: Apache-2.0
"""Prints when tensors die, as weak references tell, and what the process holds: the same with the tool and without it.

    {"alive": [...]}        of each tensor, at each point of the script
    {"rss_grows": bool}     whether steps that save results of exp() leave memory behind
    {"swapped": bool}       PyTorch refuses to swap tensors that have weak references
"""
import gc
import json
import weakref

import torch
from torch import nn
from torch.nn import functional as F


def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def main():
    torch.set_num_threads(1)
    gc.disable()  # what reference counts free must be freed at once
    alive, watched = [], {}

    def watch(**tensors):
        watched.update({name: weakref.ref(tensor) for name, tensor in tensors.items()})

    def look():
        alive.append(sorted(name for name, known in watched.items() if known() is not None))

    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(32, 64)
    out = model(x)
    grown = torch.exp(out)
    loss = grown.sum()
    watch(x=x, out=out, grown=grown, loss=loss)
    look()
    del out
    look()
    del grown
    look()
    loss.backward()
    look()
    del loss
    look()
    grads = {f"grad{at}": parameter.grad for at, parameter in enumerate(model.parameters())}
    watch(**grads)
    del grads
    optimizer.step()
    watch(state=optimizer.state[model[0].weight]["exp_avg"])
    optimizer.zero_grad()
    look()
    del optimizer
    look()
    del x
    look()
    with torch.no_grad():
        result = F.softmax(model(torch.randn(8, 64)), -1)
    watch(result=result)
    del result
    look()
    whole = weakref.ref(model)
    del model
    look()
    print(json.dumps({"alive": alive, "model": whole() is None}))

    weight = torch.randn(512, 512, requires_grad=True)
    sizes = []
    for _ in range(60):
        torch.exp(torch.exp(weight * 0.01)).sum().backward()
        weight.grad = None
        sizes.append(resident())
    # What is left behind adds up: then the least of the last steps is above the most of the first ones.
    print(json.dumps({"rss_grows": min(sizes[40:]) - max(sizes[:20]) > 8 << 20}))

    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    first(torch.randn(2, 8)).sum().backward()
    first.zero_grad()
    torch.utils.swap_tensors(first.weight, second.weight)
    torch.__future__.set_swap_module_params_on_conversion(True)
    first.double()
    print(json.dumps({"swapped": first.weight.dtype == torch.float64}))


main()
