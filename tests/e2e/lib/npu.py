# SPDX-License-Identifier: Apache-2.0
"""What scripts under test import: device memory of the (simulated) driver, and a note of everything they do.

    import npu
    block = npu.alloc(4096); npu.free(block); npu.start(); npu.step(); npu.stop()

Each call is a line in the file $TRUTH: [pid, what, arguments...]. The driver's functions are looked up as the loader would for
a program that is linked with the driver, so that a preloaded library comes first.
"""
import ctypes
import json
import mmap
import os
import threading

ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
_driver = ctypes.CDLL(None)
_driver.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_uint64]
_driver.halMemFree.argtypes = [ctypes.c_void_p]
_truth = open(os.environ["TRUTH"], "a", buffering=1, encoding="utf-8")  # pylint: disable=consider-using-with
_ON_DEVICE = 1 << 10
_pinned = []  # stays mapped


def did(what, *arguments):
    _truth.write(json.dumps([os.getpid(), threading.get_native_id(), what, *arguments]) + "\n")


def alloc(size, device=0, note=True):
    block = ctypes.c_void_p()
    assert _driver.halMemAlloc(ctypes.byref(block), size, _ON_DEVICE | device) == 0
    if note:
        did("alloc", block.value, size, device)
    return block.value


def free(block, note=True):
    # Noted first: another thread may get the address at once.
    if note:
        did("free", block)
    assert _driver.halMemFree(block) == 0


class _Wish(ctypes.Structure):
    """struct drv_mem_prop"""
    _fields_ = [("side", ctypes.c_uint32), ("device", ctypes.c_uint32), ("module", ctypes.c_uint32), ("page", ctypes.c_uint32),
                ("kind", ctypes.c_uint32), ("reserved", ctypes.c_uint64)]


def create(size, device=0):
    """Physical memory by a handle; the side of the device is 1."""
    handle = ctypes.c_void_p()
    wish = _Wish(side=1, device=device)
    assert _driver.halMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(wish), ctypes.c_uint64(0)) == 0
    return handle.value


def pin(size):
    """Registers memory of our own with the driver, pinned."""
    ctypes.CDLL("libascendcl.so", mode=ctypes.RTLD_GLOBAL)
    acl = ctypes.CDLL(None)
    assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(0) == 0
    memory = ctypes.c_char.from_buffer(mmap.mmap(-1, size))
    _pinned.append(memory)
    address = ctypes.addressof(memory)
    assert acl.aclrtHostRegisterV2(ctypes.c_void_p(address), ctypes.c_uint64(size), ctypes.c_uint32(0x10000000)) == 0
    return address


def start():
    import msmemscope
    did("start")
    msmemscope.start()


def stop():
    import msmemscope
    msmemscope.stop()
    did("stop")


def step():
    import msmemscope
    did("step")
    msmemscope.step()


def engines():
    """Numbers of the engines that follow this process. A child of an engine that is about to run the sampler is none."""
    parents = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except OSError:
            continue
        if words[1:3] == [b"api-engine", str(os.getpid()).encode()]:
            parents[int(entry)] = parent
    return [engine for engine, parent in parents.items() if parent not in parents]
