# SPDX-License-Identifier: Apache-2.0
"""take_snapshot(): what devices and their memory pools hold at a moment, as rows SNAPSHOT of the dump.

The framework's own counters are asked first. Where it has none (tensors of the host, a program without PyTorch), the collector
asks the driver, and the engine knows from the blocks it has seen what their pool holds. No device is initialised for a snapshot:
that would take hundreds of MB of a device which this process does not use.
"""
from __future__ import annotations

import sys
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _control, _native, _who
from ._native import ctypes
from ._scope import Scope
from ._tensors import CPU, CUDA, PRIVATE

DEFAULT_NAME = "Memory Snapshot"
NAME_MAX = 1024

_UNKNOWN = 2**64 - 1
_KINDS = {"npu": PRIVATE, "cuda": CUDA}


class Accelerator(NamedTuple):
    """The devices that ints mean: of the framework, or of the runtime alone."""
    kind: str  # "npu", "cuda"
    module: Any  # torch.npu, torch.cuda; None: PyTorch does not know the devices
    count: int


def _asked(function, *arguments):
    """What it answers; None when it cannot: a driver that is gone, a forked child that must not use the device."""
    try:
        return function(*arguments)
    except Exception:  # whatever a framework raises
        return None


def _accelerator() -> Optional[Accelerator]:
    torch = sys.modules.get("torch")
    for kind in _KINDS:
        module = getattr(torch, kind, None)
        # Not is_available(): it may begin the driver, and children that are forked then could not use it.
        count = None if module is None else _asked(module.device_count)
        if count:
            return Accelerator(kind, module, count)
    for kind, number in _KINDS.items():
        count = _native.waiting.mscope_devices(number)
        if count:
            return Accelerator(kind, None, count)
    return None


# ---- which devices ----

def _refuse(what: str) -> None:
    _control.say(f"take_snapshot(): {what}", once=True)


def _current(devices: Accelerator) -> int:
    """The device that is meant without a number. The framework would begin one to answer."""
    begun = devices.module is not None and _asked(devices.module.is_initialized)
    return _asked(devices.module.current_device) or 0 if begun else 0


def _one(item: Any, devices: Optional[Accelerator]) -> Optional[int]:
    """The device that an item of the mask means, in the collector's numbers; None: there is no such device."""
    if isinstance(item, str):
        kind, _, index = item.partition(":")
        if kind == "cpu":
            return CPU
        if devices is None or kind != devices.kind or index and not index.isdecimal():
            return None
        item = int(index) if index else _current(devices)
    elif hasattr(item, "type") and hasattr(item, "index"):
        if item.type == "cpu":
            return CPU
        if devices is None or item.type != devices.kind:
            return None
        item = _current(devices) if item.index is None else item.index
    elif hasattr(item, "__index__"):
        item = item.__index__()
    if not isinstance(item, int):
        return None
    if devices is None:
        return CPU if item == 0 else None  # the host is the only device there is
    return _KINDS[devices.kind] << 8 | item if 0 <= item < min(devices.count, 256) else None


def _chosen(mask: Any, devices: Optional[Accelerator]) -> Tuple[List[int], bool]:
    """The devices of a mask, each once, and whether the program named them."""
    if isinstance(mask, bool) or not (mask is None or isinstance(mask, (int, str)) or hasattr(mask, "__iter__") or
                                      hasattr(mask, "__index__") or hasattr(mask, "type")):
        _refuse(f"device_mask is a device or a list of devices, not {type(mask).__name__}; all devices are taken")
        mask = None
    if mask is None:
        if devices is None:
            return [CPU], False
        return [_KINDS[devices.kind] << 8 | index for index in range(min(devices.count, 256))], False
    found = []
    for item in mask if hasattr(mask, "__iter__") and not isinstance(mask, str) else (mask,):
        number = None if isinstance(item, bool) else _one(item, devices)
        if number is None:
            there = f"there are {devices.count} of {devices.kind}" if devices else "the host is the only one"
            _refuse(f"there is no device {item!r}: {there}")
        elif number not in found:
            found.append(number)
    return found, True


# ---- their figures ----

def _figures(number: int, devices: Optional[Accelerator]) -> List[int]:
    """Reserved, its peak, allocated, its peak, total, free; _UNKNOWN: the collector and the engine know more."""
    if number == CPU or devices is None or devices.module is None:
        return [_UNKNOWN] * 6
    module, index = devices.module, number & 0xff
    if not _asked(module.is_initialized):
        return [_UNKNOWN] * 4 + _left(devices, index)
    pool = [_asked(getattr(module, name, None), index) for name in
            ("memory_reserved", "max_memory_reserved", "memory_allocated", "max_memory_allocated")]
    figures = [_UNKNOWN if figure is None else figure for figure in pool]
    memory = None
    if pool[0] or _asked(module.current_device) == index:
        memory = _asked(getattr(module, "mem_get_info", None), index)
    if memory is None:
        return figures + _left(devices, index)
    return figures + [memory[1], memory[0]]


def _left(devices: Accelerator, index: int) -> List[int]:
    """Total and free of a device that this process does not use. An NPU's driver tells the collector."""
    memory = None
    if devices.kind == "cuda":
        from . import _nvml
        memory = _nvml.memory(devices.module, index)
    return [_UNKNOWN] * 2 if memory is None else list(memory)


# ---- what programs call ----

DeviceMask = Union[None, int, str, Any, Iterable[Any]]


def _text(name: Optional[str]) -> bytes:
    if name is None:
        name = DEFAULT_NAME
    if not isinstance(name, str):
        raise TypeError(f"take_snapshot(): name is a text, not {type(name).__name__}")
    # A NUL would end the text.
    return name[:NAME_MAX].replace("\0", "\\0").encode(errors="backslashreplace")


def _record(number, named, text, devices):
    figures = (ctypes.c_uint64 * 6)(*_figures(number, devices))
    _native.waiting.mscope_snapshot(number, named, text, figures)


def of_current(name):
    """A snapshot of the device that is in use, or of the host, for hooks (_hooks.py). Does not wait until the row is in the file."""
    if _control.ready():
        devices = _accelerator()
        number = CPU if devices is None else _KINDS[devices.kind] << 8 | _current(devices)
        _record(number, True, _text(name), devices)


def take_snapshot(device_mask: DeviceMask = None, name: str = DEFAULT_NAME) -> None:
    """Writes the memory of devices and their pools now: one row SNAPSHOT per device, in the dump when the call returns.

    device_mask: a device number, or a list or tuple of them; also a torch.device or a text such as "cpu". By default all devices
    that this process sees; without an accelerator that is the host.
    name: name of the rows.

    Needs no start() and no window. The row has the memory that the pool has reserved and allocated, the peaks of both, and the
    total and free memory of the device. Devices that do not exist are reported on the standard error and left out.
    """
    text = _text(name)
    if not _control.ready():
        return
    devices = _accelerator()
    numbers, named = _chosen(device_mask, devices)
    for number in numbers:
        _record(number, named, text, devices)
    _who.look()
    if numbers:
        _control.flush()


# torch.compile() calls it as it is, and does not look inside.
take_snapshot._torchdynamo_disable = True  # type: ignore[attr-defined]


class TakeSnapshot(Scope):
    """Two snapshots, when a block or function starts and when it ends, named with " Start" and " End".

        with msmemscope.TakeSnapshot(name="forward"): ...

        @msmemscope.TakeSnapshot(device_mask=0, name="backward")
        def backward(): ...
    """

    def __init__(self, device_mask: DeviceMask = None, name: str = DEFAULT_NAME) -> None:
        _text(name)
        self.device_mask = device_mask
        self.name = DEFAULT_NAME if name is None else name

    def __enter__(self) -> TakeSnapshot:
        take_snapshot(self.device_mask, f"{self.name} Start")
        return self

    def __exit__(self, *_raised: object) -> None:
        take_snapshot(self.device_mask, f"{self.name} End")
