# SPDX-License-Identifier: Apache-2.0
"""The collector in a script that was started without it: `python script.py`.

The library is opened from beside this package, by nobody but us. That alone changes nothing; begin() redirects the functions that
are watched in all that the process has loaded, and in what comes (src/collector/got), and end() gives all of them back.
"""
import os
import sys

from ._place import HOME

try:
    import ctypes
except ImportError:  # then nothing is opened
    ctypes = None  # type: ignore[assignment]

FILE = "libascend_kernel_hook.so"

path = None  # of the collector that open_library() opened
_redirected = False
_real_dlopen = getattr(ctypes, "_dlopen", None)  # ctypes' own
_said = None  # of the process that was told what is not seen


def _loaded():
    """Path of a collector that another part of this process has opened for itself."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                if line.endswith(FILE + "\n"):
                    return line.split(maxsplit=5)[5].rstrip("\n")
    except OSError:
        pass
    return None


def find():
    """Path of the library; None when there is none, or the user has switched us off."""
    if os.environ.get("MSMEMSCOPE_DISABLE", "") not in ("", "0"):
        return None
    for place in (_loaded(), os.path.join(HOME, "lib64", FILE)):
        if place and os.path.isfile(place):
            return place
    return None


def open_library():
    """(library, library for calls that wait), or (None, None)."""
    global path
    found = find()
    if found is None:
        return None, None
    try:
        opened = ctypes.PyDLL(found), ctypes.CDLL(found)
    except (AttributeError, OSError, TypeError):
        return None, None  # of another machine, or there is no ctypes
    path = found
    return opened


def _redirecting_dlopen(name, mode=0):
    """A library that registers itself when it is loaded is never asked for a function."""
    from ._native import waiting
    handle = _real_dlopen(name, mode)
    if _redirected:
        waiting.mscope_redirect()
    return handle


def has_unseen_pool():
    return "torch_npu" in sys.modules or "mindspore" in sys.modules


def blind():
    """What cannot be seen without a preload, a sentence each: notes of a trace have room for 255 bytes."""
    parts = ["recorded without a preload, so these are not seen: memory older than start(), child programs, and functions looked "
             "up by dlsym()"]
    if has_unseen_pool():
        parts.append("the pools of torch_npu and MindSpore report to a preloaded collector only, so only memory of the driver is seen")
    return parts


def begin(say):
    """Redirects; when it was done already, what came meanwhile. True when the process' calls are seen."""
    global _redirected, _said
    if path is None:
        return True  # preloaded
    from . import _native
    result = _native.waiting.mscope_redirect()
    if result < 0:
        say(f"nothing is recorded: functions cannot be redirected: {os.strerror(-result)}", once=True)
        return False
    _redirected = True
    if _real_dlopen is not None and ctypes._dlopen is _real_dlopen:
        ctypes._dlopen = _redirecting_dlopen
    if has_unseen_pool():
        _native.collector.mscope_pool_unseen()
    if _said != os.getpid():
        _said = os.getpid()
        say("; ".join(blind()))
        for part in blind():
            _native.collector.mscope_note(part.encode())
    return True


def end(say):
    """Gives everything back. True when calls were redirected."""
    global _redirected
    if not _redirected:
        return False
    from . import _native
    _redirected = False
    if _real_dlopen is not None and ctypes._dlopen is _redirecting_dlopen:
        ctypes._dlopen = _real_dlopen
    left = _native.waiting.mscope_restore()
    if left > 0:
        say(f"unload(): {left} functions were redirected again by another tool and stay redirected")
    elif left < 0:
        say(f"unload(): {os.strerror(-left)}")
    return True
