# SPDX-License-Identifier: Apache-2.0
"""Large buffers of a first phase leave segments that the features of the second cut up: most of the pool is free, and no piece is large enough."""
import json

import torch

MIB = 1 << 20
torch.cuda.set_per_process_memory_fraction((4 << 30) / torch.cuda.get_device_properties(0).total_memory)
print(json.dumps({"cause": "fragmentation"}), flush=True)


def room(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def second_phase():
    features = []
    for number in range(32):
        features.append(room(100))
    return features[::4]


large = [room(400) for _ in range(8)]
del large
features = second_phase()
print(json.dumps({"unused": torch.cuda.memory_reserved() - torch.cuda.memory_allocated()}), flush=True)
volume = room(1100)  # @refused
print(json.dumps({"passed": True}), flush=True)
