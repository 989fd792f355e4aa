# SPDX-License-Identifier: Apache-2.0
"""Runs operators one by one and prints what each reads and writes: {"name": ..., "reads": [tensor...], "writes": [...]} with each
tensor as [address, bytes, dtype, shape]. What it says comes from what the operators are known to do, not from their schemas."""
import json
import threading

import torch


def tensor(value):
    if value.is_contiguous():
        size = value.numel() * value.element_size()
    else:
        size = (1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))) * value.element_size()
    return [value.data_ptr(), size, str(value.dtype), str(value.shape)]


def say(name, reads=(), writes=()):
    print(json.dumps({"name": "torch._ops.aten." + name, "thread": threading.get_native_id(),
                      "reads": [tensor(value) for value in reads], "writes": [tensor(value) for value in writes]}))


def main():
    a = torch.ones(2, 3)
    say("ones.default", writes=[a])
    b = torch.arange(6, dtype=torch.float64)
    say("arange.default", writes=[b])
    half = torch.zeros(4, dtype=torch.float16)
    say("zeros.default", writes=[half])
    c = torch.mul(a, a)
    say("mul.Tensor", reads=[a, a], writes=[c])
    c.add_(a)
    say("add_.Tensor", reads=[a], writes=[c])
    out = torch.empty(0)
    say("empty.memory_format")
    torch.add(a, c, out=out)
    say("add.out", reads=[a, c], writes=[out])
    turned = a.t()
    say("t.default")
    whole = a.view(6)
    say("view.default")
    column = turned[1]
    say("select.int")
    doubled = column * 2
    say("mul.Tensor", reads=[column], writes=[doubled])
    column.unsqueeze_(0)
    say("unsqueeze_.default")
    like = torch.zeros_like(a)
    say("zeros_like.default", writes=[like])
    untouched = torch.empty_like(a)
    say("empty_like.default")
    new = a.new_full((5,), 7)
    say("new_full.default", writes=[new])
    blank = a.new_empty(5)
    say("new_empty.default")
    joined = torch.cat([whole, doubled])
    say("cat.default", reads=[whole, doubled], writes=[joined])
    values, where = torch.max(a, dim=1)
    say("max.dim", reads=[a], writes=[values, where])
    many = [torch.full((3,), float(number)) for number in range(12)]
    for value in many:
        say("full.default", writes=[value])
    torch._foreach_mul_(many, 2.0)
    say("_foreach_mul_.Scalar", writes=many)
    parts = torch.split(joined, 4)
    say("split.Tensor")
    try:
        torch.mm(a, a)
    except RuntimeError:
        say("mm.default", reads=[a, a])

    def other():
        say("neg.default", reads=[half], writes=[torch.neg(half)])

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    del untouched, blank, parts


main()
