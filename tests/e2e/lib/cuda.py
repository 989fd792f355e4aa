# SPDX-License-Identifier: Apache-2.0
"""Programs on the stand-in CUDA driver of tests/fakes, and what they say that they did.

    run = cuda("cuda_random", 1, 4, 200)          traced; keywords: options of the command, env
"""
import pytest

# The driver from Python: gpu.take(bytes) and gpu.give(address) while it is noted, as a program of tests/targets does.
SCRIPT = """
import ctypes, json, os, threading
import msmemscope
msmemscope.config(output=os.environ["OUT"], call_stack="python")


class Gpu:
    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
        assert self.driver.cuCtxSetCurrent(context) == 0
        self.events, self.noted = [], True

    def take(self, bytes):
        address = ctypes.c_uint64()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(bytes)) == 0
        if self.noted:
            self.events.append(("MALLOC", address.value, bytes, 1, "HAL"))
        return address.value

    def give(self, address):
        assert self.driver.cuMemFree_v2(ctypes.c_uint64(address)) == 0
        if self.noted:
            self.events.append(("FREE", address))

    def tell(self):
        with open(os.environ["TRUTH"], "w") as file:
            json.dump({"pid": os.getpid(), "tid": threading.get_native_id(), "events": self.events}, file)


"""


@pytest.fixture
def cuda_env(targets, out):
    """Variables by which a program finds the stand-in, a machine of its own."""
    return {
        "LD_LIBRARY_PATH": str(targets.parent / "fakes"),
        "FAKE_CUDA_STATE": str(out / "gpus"),
        "TRUTH": str(out / "truth"),
        "CUDA_INJECTION64_PATH": None, "NVTX_INJECTION64_PATH": None, "CUDA_VISIBLE_DEVICES": None, "CUPTI_LIBRARY": None,
    }


@pytest.fixture
def cuda(msmemscope, program, cuda_env):
    def run(name, *arguments, options=("--call-stack=c:20",), env=None):
        return msmemscope(*options, "--", *program(name, *arguments), env={**cuda_env, **(env or {})}).check()
    return run
