# SPDX-License-Identifier: Apache-2.0
"""Random numbers of the NPU: they have the distribution they should, a seed repeats them, and no two calls give the same."""
import torch
import torch.nn.functional as F
import torch_npu  # pylint: disable=unused-import

COUNT = 100000


def near(value, wanted, tolerance):
    assert abs(value - wanted) < tolerance, f"{value}, not {wanted}"


torch.npu.manual_seed(1)
normal = torch.randn(COUNT, device="npu").cpu()
near(normal.mean().item(), 0, 0.02)
near(normal.std().item(), 1, 0.02)
near((normal.abs() < 1.96).float().mean().item(), 0.95, 0.01)

uniform = torch.rand(COUNT, device="npu").cpu()
assert uniform.min() >= 0 and uniform.max() < 1
near(uniform.mean().item(), 0.5, 0.01)
near(uniform.var().item(), 1 / 12, 0.01)

dice = torch.randint(1, 7, (COUNT,), device="npu").cpu()
assert dice.unique().tolist() == [1, 2, 3, 4, 5, 6]
near((dice == 3).float().mean().item(), 1 / 6, 0.01)

assert torch.randperm(1000, device="npu").sort().values.tolist() == list(range(1000))
near(torch.full((COUNT,), 0.3, device="npu").bernoulli().mean().item(), 0.3, 0.01)

dropped = F.dropout(torch.ones(COUNT, device="npu"), 0.25).cpu()
near((dropped == 0).float().mean().item(), 0.25, 0.01)
near(dropped.mean().item(), 1, 0.02)
near(dropped.max().item(), 1 / 0.75, 1e-5)

ones = torch.ones(1000, device="npu", requires_grad=True)
out = F.dropout(ones, 0.5)
out.sum().backward()
assert torch.equal(ones.grad, out.detach()), "what was dropped forwards is dropped backwards"

torch.npu.manual_seed(7)
first, second = torch.randn(100, device="npu"), torch.randn(100, device="npu")
torch.npu.manual_seed(7)
again = torch.randn(100, device="npu")
assert torch.equal(first, again) and not torch.equal(first, second)
print('{"chance": "fair"}')
