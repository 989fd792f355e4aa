# SPDX-License-Identifier: Apache-2.0
"""Three tensors, each of which is there when nobody uses it in one of the three ways, and one that is used well. On a GPU with DEVICE=cuda
in the environment."""
import json
import os

import torch

SIZE = 64 * 1024
SIZES = {"early_allocation": SIZE, "late_deallocation": SIZE + 512, "temporary_idleness": SIZE + 1024}  # by which they are told apart
if "DEVICE" in os.environ:
    torch.set_default_device(os.environ["DEVICE"])


def block(kind):
    return torch.empty(SIZES[kind], dtype=torch.uint8)


# Allocated, then something else is freed, and only then is it used.
other = torch.zeros(32)
early = block("early_allocation")
del other
early.fill_(1)
del early
held = []

# Used, then something else is allocated, and only then is it freed.
late = block("late_deallocation")
late.fill_(1)
held.append(torch.zeros(4096))
del late
held.append(torch.empty(SIZE, dtype=torch.uint8).fill_(0))

# Used, then not for thousands of operators, and used again.
small = torch.zeros(1)
idle = block("temporary_idleness")
idle.fill_(1)
for _ in range(3100):
    small.fill_(2)
idle.fill_(2)
print(json.dumps({"size": SIZE}))
print(json.dumps({"blocks": SIZES}))
