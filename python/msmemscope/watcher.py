# SPDX-License-Identifier: Apache-2.0
"""Watches blocks of memory: dumps their contents before and after each operator, as a checksum or byte by byte.

    from msmemscope import watcher
    watcher.watch(tensor, name="weight", dump_nums=10)
    watcher.watch(address, length=1000, name="buffer")
    watcher.remove(tensor)
    watcher.remove(address, length=1000)

Wrong arguments raise, with and without the collector; nothing else does. Code that sees operators calls begin() and end() around
each of them.
"""
import errno
import re
import sys
import weakref

from . import _boot, _native
from ._control import say, say_absent
from ._native import ctypes
from ._tensors import CUDA, PRIVATE, device_number, extent, is_tensor, present_device

NAME_MAX = 64

_STREAM_UNKNOWN = 2**64 - 1

_collector = _native.collector
_unlocked = _native.waiting


def _is_int(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _block(function, args, length):
    """(address, bytes, device, whether that is sure) of what a call is about."""
    if len(args) != 1:
        raise TypeError(f"{function}() takes exactly one positional argument, a tensor or an address ({len(args)} given)")
    (what,) = args
    if length is None:
        if _is_int(what) or not is_tensor(what):
            raise TypeError(f"{function}() takes a tensor, or an integer address with length=; not {type(what).__name__}")
        return what.data_ptr(), extent(what), device_number(what.device), True
    if not _is_int(what):
        raise TypeError(f"{function}() with length= takes an integer address, not {type(what).__name__}")
    if not _is_int(length) or length < 1:
        raise TypeError(f"{function}(): length is a number of bytes, 1 or more")
    if what < 1 or what + length > 2**64:
        raise TypeError(f"{function}(): {what:#x} is not an address")
    return what, length, present_device(), False


_storages = {}  # address -> what tells that the storage there is gone
_limited = set()  # addresses whose watch ends by itself, so that to remove them afterwards is no mistake


def _gone(address, length):
    # The allocator may hand out the memory of a freed storage at once.
    _storages.pop(address, None)
    _collector.mscope_watch_gone(address, length)


def _storages_tell():
    """Until PyTorch 2.2 a storage is freed without clearing its weak references, and the interpreter crashes on them at its end."""
    version = re.findall(r"\d+", getattr(sys.modules.get("torch"), "__version__", ""))
    return not version or tuple(map(int, version[:2])) >= (2, 3)


def _follow(tensor):
    """Ends a watch with the storage of its tensor: frameworks do not report all of their memory."""
    if not _storages_tell():
        return
    try:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address not in _storages:
            _storages[address] = weakref.finalize(storage, _gone, address, storage.nbytes())
            _storages[address].atexit = False
    except (AttributeError, TypeError, RuntimeError):
        pass  # of an older version, or without memory of its own


def watch(*args, length=None, name=None, dump_nums=None):
    """Watches a tensor, or `length` bytes at an address, for `dump_nums` dumps: None or negative is any number."""
    address, size, device, sure = _block("watch", args, length)
    if not isinstance(name, str) or not name:
        raise TypeError("watch() needs name=, a text")
    if len(name) > NAME_MAX:
        raise ValueError(f"watch(): name has {len(name)} characters, {NAME_MAX} are allowed")
    if dump_nums is not None and not _is_int(dump_nums):
        raise TypeError("watch(): dump_nums is a number of dumps, -1 for any number")
    limit = -1 if dump_nums is None or dump_nums < 0 else min(dump_nums, 2**62)
    if size == 0:
        say(f"watcher: {name} is empty: nothing to watch")
        return
    if _collector is None:
        say_absent()
        return
    if device is None:
        say(f"watcher: {name} is not watched: the memory of a device of type {args[0].device.type} cannot be read")
        return
    result = _collector.mscope_watch_add(address, size, name.encode(errors="backslashreplace"), limit, device, sure)
    if result == -errno.ENOSPC:
        say(f"watcher: too many blocks are watched; {name} is not")
    elif result < 0:
        say(f"watcher: {name} is not watched: nothing is recorded in this process")
    else:
        if limit >= 0:
            _limited.add(address)
        if sure:
            _follow(args[0])
        _boot.watch()


def remove(*args, length=None):
    """No longer watches what watch() was given."""
    address, size, _, sure = _block("remove", args, length)
    limited = address in _limited
    _limited.discard(address)
    if _collector is None:
        say_absent()
    elif _collector.mscope_watch_remove(address, 0 if sure else size) < 0 and not limited:
        say(f"watcher: nothing is watched at {address:#x}")


# ---- for code that sees operators ----

def active():
    """Whether begin() and end() are to be called."""
    return _collector is not None and _collector.mscope_watch_active() != 0


def _stream(device):
    torch = sys.modules.get("torch")
    kind = {CUDA: "cuda", PRIVATE: "npu"}.get(device >> 8)
    if kind is None:
        # An operator of the host. Without a stream the collector would wait for all of the device, and that breaks a capture.
        cuda = getattr(torch, "cuda", None)
        if hasattr(torch, "npu") or not getattr(cuda, "is_initialized", bool)():
            return _STREAM_UNKNOWN
        return cuda.current_stream().cuda_stream
    stream = getattr(torch, kind).current_stream(device & 0xff)
    return getattr(stream, f"{kind}_stream", _STREAM_UNKNOWN)


def _tensors(value, found):
    if is_tensor(value):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _tensors(item, found)
    return found


def begin(name, device, alias=b""):
    """An operator starts; `device` in c10's numbers, `alias` another name of it. Pass the result to end()."""
    return _unlocked.mscope_watch_op_begin(device, name, alias, _stream(device))


def writes(spans, lasting=False):
    """The operator that this thread is in writes this memory, a list of address, size, address, size and so on: changes of it are
    expected. `lasting`: its work goes on after it has ended."""
    count = len(spans) // 2
    if count:
        numbers = ctypes.c_uint64 * count
        _collector.mscope_watch_writes(numbers(*spans[0::2]), numbers(*spans[1::2]), count, lasting)


def _spans(tensors):
    return [number for tensor in tensors for number in (tensor.data_ptr(), extent(tensor))]


def end(number, name, device, result, alias=b"", declared=False):
    """It has ended with this result: a tensor, or tensors in lists. `declared`: writes() has the memory it wrote; otherwise it wrote
    the result."""
    wanted = _collector.mscope_watch_wants(name, alias)
    tensors = _tensors(result, []) if wanted or not declared else ()
    if not declared:
        writes(_spans(tensors))
    if not wanted:
        tensors = ()
    for tensor in tensors:
        _follow(tensor)
    addresses = (ctypes.c_uint64 * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    sizes = (ctypes.c_uint64 * len(tensors))(*map(extent, tensors))
    _unlocked.mscope_watch_op_end(number, device, name, alias, _stream(device), addresses, sizes, len(tensors))
