# SPDX-License-Identifier: Apache-2.0
"""The collector in this process, as ctypes sees it, by the functions of src/collector/api.def (_api.py).

The collector is there when the program was started by the command or with the library preloaded; otherwise it is opened here
(_load.py), and does nothing before the first start(); `preloaded` tells. `collector` is None where there is no library, or no
ctypes; modules that need ctypes with a collector take it from here. `waiting` is the same library for calls that wait: the
interpreter runs other threads meanwhile.
"""
import os

try:
    import ctypes
except ImportError:  # an interpreter that was built without it
    ctypes = None  # type: ignore[assignment]

from . import _load
from ._api import FUNCTIONS


def _type(name):
    if name is None:
        return None
    plain = getattr(ctypes, name.rstrip(" *"))
    return ctypes.POINTER(plain) if name.endswith("*") else plain


def _find(library, waits):
    if library is None:
        return None
    try:
        for name, (how, result, *parameters) in FUNCTIONS.items():
            if (how == "WAITS") == waits:
                function = getattr(library, name)
                function.restype, function.argtypes = _type(result), [_type(parameter) for parameter in parameters]
    except AttributeError:
        return None
    return library


def _loaded(kind, waits):
    try:
        return _find(getattr(ctypes, kind)(None), waits)
    except (AttributeError, OSError, TypeError):  # no ctypes, or a system without names that are seen everywhere
        return None


# PyDLL keeps the interpreter's lock: these calls are shorter than giving it up and taking it again.
collector = _loaded("PyDLL", waits=False)
waiting = _loaded("CDLL", waits=True)
preloaded = collector is not None
if collector is None:
    _opened = _load.open_library()
    collector, waiting = _find(_opened[0], waits=False), _find(_opened[1], waits=True)
if collector is not None:
    collector.mscope_python_package(os.fsencode(os.path.dirname(__file__)) + b"/")


def text(function):
    """What mscope_engine() or mscope_session() fills in, "" when there is nothing."""
    buffer = ctypes.create_string_buffer(8192)
    return "" if function(buffer, len(buffer)) != 0 else os_text(buffer.value)


def os_text(value):
    """Bytes of a path as Python names files."""
    return value.decode("utf-8", "surrogateescape")
