# SPDX-License-Identifier: Apache-2.0
"""steps.py [N]: N steps (15) of a training as the manual marks them, each with memory of device 0. Every third step leaves a
block behind. Writes the truth as the targets in C do (client.h)."""
import ctypes
import json
import os
import sys
import threading

import mstx

FLAG = 33 << 56 | 0x904400  # what aclrtMalloc passes for normal pages

# Functions are looked up as the linker does for a program in C, so that what is preloaded comes first.
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
hal.halMemFree.argtypes = [ctypes.c_void_p]


def work(step, events):
    size = (step + 1) * 1000
    address = ctypes.c_void_p()
    assert hal.halMemAlloc(ctypes.byref(address), size, FLAG) == 0
    events.append(["malloc", step + 1, address.value, size, 0, "alloc", "normal"])
    if step % 3 != 2:
        events.append(["free", step + 1])
        assert hal.halMemFree(address) == 0


def main():
    events = []
    for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 15):
        id = mstx.range_start("step start", None)
        events.append(["range_start", id, None, "step start"])
        work(step, events)
        mstx.range_end(id)
        events.append(["range_end", id, None])
    line = json.dumps({"pid": os.getpid(), "tid": threading.get_native_id(), "part": 0, "client": "steps",
                       "reports": any(event[1] for event in events if event[0] == "range_start"), "events": events})
    if "TRUTH" in os.environ:
        with open(os.environ["TRUTH"], "a", encoding="utf-8") as file:
            file.write(line + "\n")
    else:
        print(line)


main()
