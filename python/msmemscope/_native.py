# SPDX-License-Identifier: Apache-2.0
"""The collector in this process, as ctypes sees it: one entry per line of src/collector/api.def.

The collector is there when the program was started by the command or with the library preloaded; `collector` is None
otherwise, and so is everything that needs it.
"""
import ctypes

_SIGNATURES = {
    "mscope_recording": (ctypes.c_uint32,),
    "mscope_watch_active": (ctypes.c_uint32,),
    "mscope_watch_wants": (ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p),
    "mscope_watch_add": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int64, ctypes.c_uint32,
                         ctypes.c_uint32),
    "mscope_watch_remove": (ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64),
    "mscope_watch_gone": (None, ctypes.c_uint64, ctypes.c_uint64),
    "mscope_watch_op_begin": (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64),
    "mscope_watch_op_end": (None, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64,
                            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32),
}


def _find(kind):
    library = kind(None)
    try:
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError:
        return None
    return library


# PyDLL keeps the interpreter's lock: most calls are shorter than giving it up and taking it again.
collector = _find(ctypes.PyDLL)
# The same without it, for calls that may wait for a device.
unlocked = _find(ctypes.CDLL)
