# SPDX-License-Identifier: Apache-2.0
"""What a program tells PyTorch's pool on CUDA, or torch_npu's, besides requests: settings, memory fractions, calls of empty_cache(). whatif plays a run
under these.

PyTorch calls the functions of torch._C by their names there, so that wrappers in their place see every call of Python code. Each calls
the original and gives back what it gave. Calls of C++ code are not seen. Nothing is recorded before the program uses CUDA.
"""
import functools
import os
import re
import struct
import sys

from ._api import (POOL_FACT_CAPACITY, POOL_FACT_CHANGED, POOL_FACT_EMPTY_CACHE, POOL_FACT_FRACTION, POOL_FACT_RELEASE, POOL_FACT_SETTINGS,
                   POOL_FACT_WATCHED)
from ._boot import _guarded, when_cuda_is_ready
from ._native import collector

_START = "PYTORCH_ALLOC_CONF="  # of every text of settings

_environment = None  # settings that the environment gave when the pool was made
_changes = []  # settings of calls, in order
_fractions = {}  # device -> fraction


_CUDA = 1  # of c10's types of devices


def _tell(kind, device=0, value=0, device_bytes=0, settings=None, c10_type=_CUDA):
    text = b"" if settings is None else (_START + settings).encode("utf-8", "replace")
    collector.mscope_pool_fact(c10_type << 8 | device, kind, value, device_bytes, text)


def _capacity(device):
    """Memory of a device as PyTorch counts it; 0 if it does not say. PyTorch makes this function when it makes CUDA ready."""
    properties = getattr(sys.modules["torch"].cuda, "_get_device_properties", None)
    return 0 if properties is None else properties(device).total_memory


def _release(package="torch"):
    numbers = re.match(r"(\d+)\.(\d+)\.?(\d*)", str(getattr(sys.modules.get(package), "__version__", "")))
    return tuple(int(number or 0) for number in numbers.groups()) if numbers else (0, 0, 0)


def _tell_fraction(device):
    _tell(POOL_FACT_FRACTION, device, _bits(_fractions[device]), _capacity(device))


def _bits(number):
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def _tell_release(package, c10_type):
    major, minor, patch = _release(package)
    _tell(POOL_FACT_RELEASE, value=major << 32 | min(minor, 0xffff) << 16 | min(patch, 0xffff), c10_type=c10_type)


def _tell_all():
    """Everything that is known now; a trace that knows it already takes no harm."""
    _tell_release("torch", _CUDA)
    _tell(POOL_FACT_SETTINGS, settings=_environment or "")
    for settings in _changes:
        _tell(POOL_FACT_CHANGED, settings=settings)
    # PyTorch has asked for the properties of all devices by now: no device gets a context for this.
    for device in range(sys.modules["torch._C"]._cuda_getDeviceCount()):
        if device in _fractions:
            _tell_fraction(device)
        else:
            _tell(POOL_FACT_CAPACITY, device, device_bytes=_capacity(device))
    _tell(POOL_FACT_WATCHED)


def _cuda_is_used():
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda is not None and cuda.is_initialized()


def tell():
    """A window begins: what the program told the pool before."""
    if _cuda_is_used():
        _guarded(_tell_all)


def _read_environment():
    """PyTorch reads the variable once, when it makes the pool; from 2.9 on the new name comes first."""
    global _environment
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if _release() >= (2, 9) else ("PYTORCH_CUDA_ALLOC_CONF",)
    _environment = next((os.environ[name] for name in names if name in os.environ), "")


def _begin():
    """CUDA has been made ready. PyTorch holds a lock meanwhile: nothing here makes it ready again."""
    _read_environment()
    _tell_all()


def _empties(*_args):
    if _cuda_is_used():
        _tell(POOL_FACT_EMPTY_CACHE)


def _limits(fraction, device, *_args):
    _fractions[device] = float(fraction)
    _tell_fraction(device)


def _changes_settings(settings, *_args):
    _changes.append(str(settings))
    if _cuda_is_used():
        _tell(POOL_FACT_CHANGED, settings=str(settings))


def _wrapped(original, before, after):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if before is not None:
            _guarded(before, *args)
        result = original(*args, **kwargs)
        if after is not None:
            _guarded(after, *args)
        return result

    call._torchdynamo_disable = True  # torch.compile() calls it as it is
    call._msmemscope = True
    return call


# Name in torch._C: what is recorded before the call, and after a call that did not raise.
_CALLS = {
    "_cuda_emptyCache": (_empties, None),
    "_accelerator_emptyCache": (_empties, None),
    "_cuda_setMemoryFraction": (None, _limits),
    "_cuda_cudaCachingAllocator_set_allocator_settings": (None, _changes_settings),
    "_accelerator_setAllocatorSettings": (None, _changes_settings),
}


def _wrap_all(native, calls):
    for name, (before, after) in calls.items():
        original = getattr(native, name, None)
        if original is not None and not hasattr(original, "_msmemscope"):
            setattr(native, name, _wrapped(original, before, after))


def enable(_module):
    """torch.cuda.memory has been imported: from now on these calls are seen. A PyTorch without CUDA stays as it is."""
    native = sys.modules.get("torch._C")
    if not hasattr(native, "_cuda_emptyCache"):
        return
    _wrap_all(native, _CALLS)
    if _cuda_is_used():
        _read_environment()
    else:
        when_cuda_is_ready(_begin)


# ---- torch_npu ----

_NPU = 20  # of c10's types: PrivateUse1


def _npu_begin():
    """The NPU has been made ready. The environment was read when the pool was made."""
    settings = os.environ.get("PYTORCH_NPU_ALLOC_CONF") or os.environ.get("PYTORCH_ALLOC_CONF") or ""
    _tell_release("torch_npu", _NPU)
    _tell(POOL_FACT_SETTINGS, settings=settings, c10_type=_NPU)
    _tell(POOL_FACT_WATCHED, c10_type=_NPU)
    # It makes the NPU ready, so not before.
    observe = getattr(sys.modules["torch_npu._C"], "_npu_attach_out_of_memory_observer", None)
    if observe is not None:
        observe(lambda *figures: _guarded(_npu_refused, *figures))


def _npu_refused(device, size_bytes, allowed_bytes, free_bytes):
    """torch_npu has refused a request for good. What the driver refused is recorded there; what the pool's own limit refused is not."""
    if size_bytes <= free_bytes and allowed_bytes < _npu_total_bytes(device):
        collector.mscope_pool_refused(_NPU << 8 | device, size_bytes)


def _npu_total_bytes(device):
    return sys.modules["torch_npu.npu"].get_device_properties(device).total_memory


def _npu_empties(*_args):
    if sys.modules["torch_npu"].npu.is_initialized():
        _tell(POOL_FACT_EMPTY_CACHE, c10_type=_NPU)


def _npu_limits(fraction, device, *_args):
    _tell(POOL_FACT_FRACTION, device, _bits(float(fraction)), c10_type=_NPU)


def _npu_changes_settings(settings, *_args):
    _tell(POOL_FACT_CHANGED, settings=str(settings), c10_type=_NPU)


def enable_npu(_module):
    """torch_npu.npu.memory has been imported."""
    native = sys.modules.get("torch_npu._C")
    npu = sys.modules.get("torch_npu.npu")
    if native is None or not hasattr(npu, "_lazy_call"):
        return
    _wrap_all(native, {
        "_npu_emptyCache": (_npu_empties, None),
        "_npu_setMemoryFraction": (None, _npu_limits),
        "_npu_npuCachingAllocator_set_allocator_settings": (None, _npu_changes_settings),
    })
    npu._lazy_call(lambda: _guarded(_npu_begin))
