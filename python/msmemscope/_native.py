# SPDX-License-Identifier: Apache-2.0
"""The collector in this process, as ctypes sees it: one entry per line of src/collector/api.def.

The collector is there when the program was started by the command or with the library preloaded; `collector` is None
otherwise, and so is everything that needs it. `waiting` is the same library for calls that wait: the interpreter runs other
threads meanwhile.
"""
import ctypes
import os

# enum recording of src/trace/session.h
OFF, SHADOW, ON, BROKEN = 1, 2, 3, 4

_SIGNATURES = {
    "mscope_recording": (ctypes.c_uint32,),
    "mscope_wants": (ctypes.c_uint32,),
    "mscope_note": (None, ctypes.c_char_p),
    "mscope_python_package": (ctypes.c_int32, ctypes.c_char_p),
    "mscope_trace_start": (ctypes.c_int32, ctypes.c_uint32),
    "mscope_trace_stop": (ctypes.c_int32,),
    "mscope_trace_thread": (None, ctypes.py_object),
    "mscope_trace_module": (None, ctypes.py_object),
    "mscope_range": (None, ctypes.c_char_p, ctypes.c_uint32),
    # Without types, an int is an int and bytes are a pointer, and ctypes takes a fifth of the time for each.
    "mscope_op": (ctypes.c_int,),
    "mscope_access": (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p,
                      ctypes.c_char_p),
    "mscope_label": (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p),
    "mscope_engine": (ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint32),
    "mscope_session": (ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint32),
    "mscope_settings": (None, ctypes.POINTER(ctypes.c_uint32)),
    "mscope_start": (ctypes.c_int32, ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32),
    "mscope_stop": (ctypes.c_int32,),
    "mscope_step": (ctypes.c_uint32,),
    "mscope_watch_active": (ctypes.c_uint32,),
    "mscope_watch_wants": (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p),
    "mscope_watch_add": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_uint32,
                         ctypes.c_uint32),
    "mscope_watch_remove": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
    "mscope_watch_gone": (None, ctypes.c_uint64, ctypes.c_uint64),
}

_WAITING = {
    "mscope_watch_op_begin": (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64),
    "mscope_watch_op_end": (None, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64,
                            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
    "mscope_open": (ctypes.c_int32, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char_p)),
    "mscope_flush": (ctypes.c_int32,),
}


def _find(library, signatures):
    try:
        for name, (result, *arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    return library


# PyDLL keeps the interpreter's lock: these calls are shorter than giving it up and taking it again.
collector = _find(ctypes.PyDLL(None), _SIGNATURES)
waiting = _find(ctypes.CDLL(None), _WAITING)
if collector is not None:
    collector.mscope_python_package(os.fsencode(os.path.dirname(__file__)) + b"/")


def text(function):
    """What mscope_engine() or mscope_session() fills in, "" when there is nothing."""
    buffer = ctypes.create_string_buffer(8192)
    return "" if function(buffer, len(buffer)) != 0 else os_text(buffer.value)


def os_text(value):
    """Bytes of a path as Python names files."""
    return value.decode("utf-8", "surrogateescape")
