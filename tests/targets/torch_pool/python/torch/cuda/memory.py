# SPDX-License-Identifier: Apache-2.0
from torch import _C


def empty_cache():
    _C._cuda_emptyCache()


def set_per_process_memory_fraction(fraction, device=0):
    _C._cuda_setMemoryFraction(fraction, device)


def _set_allocator_settings(settings):
    _C._accelerator_setAllocatorSettings(settings)
