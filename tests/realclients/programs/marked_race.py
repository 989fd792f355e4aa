# SPDX-License-Identifier: Apache-2.0
"""An operator that torch_npu does not see, announced by marks, uses a tensor on a stream that does not wait for its writer.

marked_race.py [--wait] [--python]: marks by C with the stream, or by Python's mstx without.
"""
import ctypes
import json
import os
import sys

import torch
import torch_npu  # pylint: disable=unused-import

import msmemscope

msmemscope.enable_npu_sanitizer()
library = ctypes.CDLL("libms_tools_ext.so")
library.mstxMarkA.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
data, result = torch.rand(1000, device="npu"), torch.rand(1000, device="npu")
torch.npu.synchronize()
data.mul_(2)
side = torch.npu.Stream()
if "--wait" in sys.argv:
    side.wait_stream(torch.npu.current_stream())
text = f"sanitizer-op: name=my.kernel;read=data:{data.data_ptr():#x}:4000;write=result:{result.data_ptr()}:4000"
if "--python" in sys.argv:
    import mstx
    with torch.npu.stream(side):
        mstx.mark(text, None)
else:
    library.mstxMarkA(text.encode(), side.npu_stream)
library.mstxMarkA(b"sanitizer-op: read=nothing", side.npu_stream)
library.mstxMarkA(b"sanitizer-op", side.npu_stream)
print(json.dumps({"data": data.data_ptr(), "pid": os.getpid()}))
