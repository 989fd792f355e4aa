# SPDX-License-Identifier: Apache-2.0
import ctypes
import sys
from types import SimpleNamespace

_pool = ctypes.CDLL("libpool_calls.so")
_pool.calls_malloc.restype = ctypes.c_void_p
_pool.calls_malloc.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
_pool.calls_free.argtypes = [ctypes.c_void_p]
_pool.calls_refuse.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64]


def _cuda_init():
    _pool.calls_init()
    sys.modules["torch.cuda"]._get_device_properties = lambda _device: SimpleNamespace(total_memory=64 << 30)


def _cuda_getDevice():
    """As PyTorch's: it makes CUDA ready first."""
    sys.modules["torch.cuda"]._lazy_init()
    return 0


def _cuda_getDeviceCount():
    return 1


def _cuda_emptyCache():
    _pool.pool_empty_cache()


def _cuda_setMemoryFraction(fraction, device):
    if not 0 <= fraction <= 1:
        raise ValueError("Invalid fraction value")


def _accelerator_setAllocatorSettings(settings):
    _pool.pool_expand("expandable_segments:True" in settings)


live = {}  # address -> requested bytes, stream


def request(bytes_, stream=0):
    block = _pool.calls_malloc(bytes_, stream)
    live[block] = bytes_, stream
    return block


def free(block):
    del live[block]
    _pool.calls_free(block)


def refuse(bytes_, allocated, reserved):
    """A request that the pool refuses for good."""
    _pool.calls_refuse(bytes_, allocated, reserved)
