# SPDX-License-Identifier: Apache-2.0
"""A stand-in for PyTorch: the functions by which programs change its pool on CUDA, on the stand-in pool of libpool_calls.so."""
__version__ = "2.11.0+cu130"

from torch import _C, cuda
