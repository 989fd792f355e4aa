# SPDX-License-Identifier: Apache-2.0
"""frames.py FRAMES LIBRARY ARGUMENTS...: the program `calls`, built as a library, called below so many Python frames."""
import ctypes
import sys


def descend(frames, call):
    # The module's own frame is the first and the call's the last.
    return descend(frames - 1, call) if frames > 3 else call()


words = [word.encode() for word in sys.argv[2:]]
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(sys.argv[2])
sys.exit(descend(int(sys.argv[1]), lambda: library.main(len(words), (ctypes.c_char_p * len(words))(*words)))
         if int(sys.argv[1]) > 2 else "at least three frames")
