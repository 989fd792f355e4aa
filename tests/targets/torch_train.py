# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on the CPU and prints what it did, one JSON object per line, as PyTorch itself saw it:

    {"memory": [[address, bytes], ...]}     every report of the allocator on this thread: bytes < 0 is a free (torch.profiler)
    {"operators": [name, ...]}              what a dispatch mode of the script's own saw
    {"tensors": [[address, bytes], ...]}    memory of the tensors that live at the end
    {"labels": {class: count}}              blocks that a step has to do with, counted when they are new
    {"weights": bytes}                      of all parameters
    {"modes": n}                            dispatch modes that were there when the script began
"""
import json
import sys

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Listener(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != "profiler":
            self.names.append(f"{func.__module__}.{func.__name__}")
        return func(*args, **(kwargs or {}))


def say(**what):
    print(json.dumps(what))


def memory_reports(profile):
    """Of the profiler's own tree of events, those of the allocator, in order of time."""
    found, todo = [], list(profile.profiler.kineto_results.experimental_event_tree())
    while todo:
        event = todo.pop()
        todo.extend(event.children)
        if event.tag == torch._C._profiler._EventType.Allocation:
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return [[ptr, size] for _, ptr, size in sorted(found, key=lambda event: event[0])]


def main(steps):
    say(modes=torch._C._len_torch_dispatch_stack())
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    say(weights=sum(parameter.nbytes for parameter in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    listener, labels = Listener(), {"weight": 0, "gradient": 0, "optimizer_state": 0}

    def step():
        inputs, wanted = torch.randn(32, 64), torch.randint(0, 10, (32,))
        loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
        loss.backward()
        optimizer.step()
        labels["gradient"] += sum(1 for parameter in model.parameters() if parameter.grad is not None)
        optimizer.zero_grad()
        return loss

    step()
    labels["weight"] = sum(1 for _ in model.parameters())
    labels["optimizer_state"] = sum(1 for state in optimizer.state.values() for value in state.values()
                                    if isinstance(value, torch.Tensor))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        for _ in range(steps - 1):
            step()
    say(memory=memory_reports(profile))
    with listener:
        step()
    say(operators=listener.names)
    tensors = [*model.parameters()] + [value for state in optimizer.state.values() for value in state.values()]
    say(tensors=[[tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()] for tensor in tensors])
    say(labels=labels)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
