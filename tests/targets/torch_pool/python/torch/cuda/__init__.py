# SPDX-License-Identifier: Apache-2.0
import os
import threading

from torch import _C

_initialized = False
_initialization_lock = threading.Lock()
_tls = threading.local()
_queued_calls = []  # that wait until CUDA is ready, with the stack of who asked for them


def is_initialized():
    return _initialized


def _lazy_init():
    """As PyTorch does it: a call of this meanwhile would wait for ever."""
    global _initialized
    if _initialized or hasattr(_tls, "is_initializing"):
        return
    if not _initialization_lock.acquire(timeout=5):
        os.abort()
    _C._cuda_init()
    _tls.is_initializing = True
    for call, _stack in _queued_calls:
        call()
    del _tls.is_initializing
    _initialized = True
    _initialization_lock.release()


init = _lazy_init


def current_device():
    _lazy_init()
    return _C._cuda_getDevice()


def get_device_properties(device):
    _lazy_init()
    return _get_device_properties(device)


def memory_snapshot():
    """Of a program whose live blocks are whole segments."""
    return [{"device": 0, "address": address, "total_size": size, "stream": stream, "segment_pool_id": (0, 0),
             "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated"}]}
            for address, (size, stream) in sorted(_C.live.items())]


from torch.cuda.memory import _set_allocator_settings, empty_cache, set_per_process_memory_fraction
