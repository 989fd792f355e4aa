# SPDX-License-Identifier: Apache-2.0
"""torch_watch.py [windows] [api]: a tensor that operators work on, one of which changes it, and what it holds before and after each.

Without an argument it is the output of mul, until neg has ended; with `api` it is given to watcher.watch() for two dumps. With
`windows` all of it happens in the second window, with the settings of the variables WATCH and OUT where they are given.
"""
import ctypes
import json
import os
import sys

import torch

said = {}
count = {}


def holds(tensor):
    """Its bytes, without an operator that would be one more of them."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes).hex()


def run(operator, watched, name, *arguments, library="aten"):
    """Calls an operator; notes what the watched tensor holds around it, if there is one."""
    count[operator] = count.get(operator, 0) + 1
    function, overload = operator.split(".")
    data = None if watched is None else holds(watched)
    result = getattr(getattr(getattr(torch.ops, library), function), overload)(*arguments)
    if watched is not None:
        dump = f"torch._ops.{library}.{operator}_{count[operator]}-{name}_0"
        said[f"{dump}_before"] = data
        said[f"{dump}_after"] = holds(watched)
    return result


a, b = torch.arange(12.0).reshape(4, 3), torch.full((4, 3), 2.0)
if "windows" in sys.argv:
    import msmemscope
    if "WATCH" in os.environ:
        msmemscope.config(watch=os.environ["WATCH"], output_path=os.environ["OUT"])
    msmemscope.start()
if "api" in sys.argv:
    from msmemscope import watcher
    watcher.watch(a, name="mine", dump_nums=2)
if "windows" in sys.argv:
    msmemscope.stop()
    torch.ops.aten.mul.Tensor(a, b)  # nobody looks
    msmemscope.start()
if "api" in sys.argv:
    run("mul.Tensor", a, "mine", a, b)
    run("add_.Tensor", None, None, a, 5)
    watcher.remove(b)  # was never watched: one line, nothing else
else:
    c = run("mul.Tensor", None, None, a, b)
    said["torch._ops.aten.mul.Tensor_1-START_0_after"] = holds(c)
    d = run("add.Tensor", c, "START", c, 1)
    run("add_.Tensor", c, "START", c, 5)
    e = run("relu.default", c, "START", d)
    run("_record_function_enter_new.default", c, "START", "a mark of PyTorch's profiler", None, library="profiler")
    f = run("neg.default", c, "START", e)
    run("neg.default", None, None, f)
print(json.dumps({"dumps": said}))
