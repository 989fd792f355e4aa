# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

from torch import _C

_initialized = False


def is_initialized():
    return _initialized


def init():
    global _initialized
    _C._cuda_init()
    _initialized = True


def current_device():
    return 0


def get_device_properties(_device):
    return SimpleNamespace(total_memory=64 << 30)


def memory_snapshot():
    """Of a program whose live blocks are whole segments."""
    return [{"device": 0, "address": address, "total_size": size, "stream": stream, "segment_pool_id": (0, 0),
             "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated"}]}
            for address, (size, stream) in sorted(_C.live.items())]


from torch.cuda.memory import _set_allocator_settings, empty_cache, set_per_process_memory_fraction
