# SPDX-License-Identifier: Apache-2.0
"""Memory of an NVIDIA GPU that this process has not initialised, by the driver's management library, which takes nothing of the
GPU for the answer."""
import ctypes


class _Memory(ctypes.Structure):
    """nvmlMemory_t"""
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


_library = None  # False: there is none


def _open():
    global _library
    if _library is None:
        try:
            _library = ctypes.CDLL("libnvidia-ml.so.1")
            if _library.nvmlInit_v2() != 0:
                _library = False
        except (OSError, AttributeError):
            _library = False
    return _library


def memory(cuda, index):
    """(total, free) in bytes of the device that torch.cuda, the module, has by this number; None: unknown."""
    try:
        # PyTorch knows what $CUDA_VISIBLE_DEVICES makes of the numbers.
        number = cuda._get_nvml_device_index(index)
        library = _open()
        handle, figures = ctypes.c_void_p(), _Memory()
        if (not library or library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)) != 0 or
                library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(figures)) != 0):
            return None
    except Exception:  # an older PyTorch or driver
        return None
    return figures.total, figures.free
