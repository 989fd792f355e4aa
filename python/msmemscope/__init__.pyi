# SPDX-License-Identifier: Apache-2.0
# What editors and type checkers see of the package: at run time names are imported at first use (__init__.py), which they cannot
# follow. Private modules have their types in the code, public ones in a .pyi of their own; tests/e2e/test_python_types.py compares
# them with what is there at run time.
from . import analyzer as analyzer, describe as describe, tracer as tracer, watcher as watcher
from ._config import config as config
from ._control import start as start, step as step, stop as stop, unload as unload
from ._hooks import cleanup_framework_hooks as cleanup_framework_hooks, init_framework_hooks as init_framework_hooks
from ._notebook import load_ipython_extension as load_ipython_extension, unload_ipython_extension as unload_ipython_extension
from ._snapshot import TakeSnapshot as TakeSnapshot, take_snapshot as take_snapshot
from ._sanitizer import enable_npu_sanitizer as enable_npu_sanitizer
from .analyzer import (
    analyze as analyze,
    check_inefficient as check_inefficient,
    check_leaks as check_leaks,
    get_analyzer_config as get_analyzer_config,
    list_analyzers as list_analyzers,
    whatif as whatif,
)
from .tracer import RecordFunction as RecordFunction

__version__: str
