# SPDX-License-Identifier: Apache-2.0
"""Tensors of the device, each of which is there when nobody uses it in one of the three ways or in two, and one that is used well."""
import json

import torch
import torch_npu  # pylint: disable=unused-import

SIZE = 3 << 20  # of no other tensor
kinds = []  # of the blocks of that size, in the order in which they are allocated


def block(kind):
    kinds.append(kind)
    return torch.empty(SIZE, dtype=torch.uint8, device="npu")


# Allocated, used and freed with nothing between.
well = block(None)
well.fill_(1)
del well

# Allocated, then something else is freed, and only then is it used.
other = torch.zeros(32, device="npu")
early = block("early_allocation")
del other
early.fill_(1)
del early

# Used, then something else is allocated, and only then is it freed.
late = block("late_deallocation")
late.fill_(1)
held = torch.zeros(4096, device="npu")
del late

# Used, then not for thousands of operators, and used again.
small = torch.zeros(1, device="npu")
idle = block("temporary_idleness")
idle.fill_(1)
for _ in range(3100):
    small.fill_(2)
idle.fill_(2)
del idle

# Twice in need of care.
other = torch.zeros(32, device="npu")
both = block("early_allocation,late_deallocation")
del other
both.fill_(1)
more = torch.zeros(4096, device="npu")
del both
torch.npu.synchronize()
print(json.dumps({"size": SIZE, "kinds": kinds}))
