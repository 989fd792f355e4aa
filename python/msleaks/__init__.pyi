# SPDX-License-Identifier: Apache-2.0
from msmemscope import *
from msmemscope import __version__ as __version__
