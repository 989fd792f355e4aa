# SPDX-License-Identifier: Apache-2.0
"""The collector in this process, as ctypes sees it: one entry per line of src/collector/api.def.

The collector is there when the program was started by the command or with the library preloaded; `collector` is None
otherwise, and so is everything that needs it.
"""
import ctypes
import os

_SIGNATURES = {
    "mscope_recording": (ctypes.c_uint32,),
    "mscope_wants": (ctypes.c_uint32,),
    "mscope_note": (None, ctypes.c_char_p),
    "mscope_package": (None, ctypes.c_char_p),
    "mscope_trace_start": (ctypes.c_int32, ctypes.c_uint32),
    "mscope_trace_stop": (ctypes.c_int32,),
    "mscope_trace_thread": (None, ctypes.py_object),
    "mscope_trace_module": (None, ctypes.py_object),
    "mscope_range": (None, ctypes.c_char_p, ctypes.c_uint32),
    "mscope_access": (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p,
                      ctypes.c_char_p),
    "mscope_label": (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p),
}


def _find():
    # PyDLL keeps the interpreter's lock: these calls are shorter than giving it up and taking it again.
    library = ctypes.PyDLL(None)
    try:
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    # Told no types, ctypes takes a fifth of the time for an argument: an int is an int and bytes are a pointer.
    library.mscope_op.restype = ctypes.c_int
    library.mscope_package(os.fsencode(os.path.dirname(__file__)) + b"/")
    return library


collector = _find()
