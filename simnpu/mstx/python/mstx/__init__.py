# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges for tools, from Python.

    import mstx
    mstx.mark("epoch 2")
    step = mstx.range_start("step start")
    ...
    mstx.range_end(step)

Without a tool all of this does nothing. It behaves as the native module of the same name, with its limits: a range is known by
the low 32 bits of its id; `stream` other than None reaches the tool as the address of the Python object, of which the tool can
make nothing. Other Python threads run while the tool is called.

The functions are those of libms_tools_ext.so in $ASCEND_HOME_PATH/lib64, else in the lib64 beside this module's folder, else
wherever the loader finds it.
"""
import ctypes
import operator
import os

__all__ = ["mark", "range_start", "range_end", "get_tool_id"]

_LIBRARY = "libms_tools_ext.so"
_ID_MASK = 0xFFFFFFFF


def _open():
    here = os.path.dirname(os.path.abspath(__file__))
    roots = [os.environ.get("ASCEND_HOME_PATH"), os.path.dirname(os.path.dirname(here))]
    for root in roots:
        path = os.path.join(root, "lib64", _LIBRARY) if root else ""
        if os.path.exists(path):
            break
    else:
        path = _LIBRARY
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"mstx: {error}") from None


def _function(name, result, *arguments):
    function = getattr(_lib, name)
    function.restype = result
    function.argtypes = arguments
    return function


_lib = _open()
_mark = _function("mstxMarkA", None, ctypes.c_char_p, ctypes.c_void_p)
_range_start = _function("mstxRangeStartA", ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p)
_range_end = _function("mstxRangeEnd", None, ctypes.c_uint64)
_get_tool_id = _function("mstxGetToolId", None, ctypes.POINTER(ctypes.c_uint64))


def _text(message):
    if message is None:
        return None
    if not isinstance(message, str):
        raise TypeError(f"message must be str or None, not {type(message).__name__}")
    if "\0" in message:
        raise ValueError("embedded null character")
    return message.encode()


def _address(stream):
    return None if stream is None else id(stream)


def mark(message=None, stream=None):
    """Marks this moment."""
    _mark(_text(message), _address(stream))


def range_start(message=None, stream=None):
    """Starts a range and gives its id, 0 when nobody listens. A range named "step start" is a step of the training."""
    return _range_start(_text(message), _address(stream)) & _ID_MASK


def range_end(range_id):
    """Ends the range with this id, on any thread."""
    _range_end(operator.index(range_id) & _ID_MASK)


def get_tool_id():
    """The number of the tool that listens, 0 when none does or it does not say."""
    tool = ctypes.c_uint64(0)
    _get_tool_id(ctypes.byref(tool))
    return tool.value
