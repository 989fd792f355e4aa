# SPDX-License-Identifier: Apache-2.0
"""msmemscope: memory analysis for AI accelerators, from inside the program.

    import msmemscope
    msmemscope.config(events="alloc,free,launch", output="results")
    msmemscope.start()
    ...                      # recorded
    msmemscope.stop()        # the files are complete

    msmemscope.take_snapshot(name="after load")     # memory of the devices now; needs no start()

    %load_ext msmemscope     # in a notebook; then a cell that starts with %%msmemscope shows its memory

Works with any Python from 3.8 on, without an accelerator and without a framework; the package imports them only
when they are used.
"""
import sys

if sys.version_info < (3, 8):
    raise ImportError("msmemscope needs Python 3.8 or newer; this is Python %d.%d" % sys.version_info[:2])

# Public names, imported at first use: every Python process of a launch imports this file, and most need none of them.
_HOMES = {
    "config": "_config",
    "start": "_control",
    "stop": "_control",
    "step": "_control",
    "unload": "_control",
    "take_snapshot": "_snapshot",
    "TakeSnapshot": "_snapshot",
    "RecordFunction": "tracer",
    "enable_npu_sanitizer": "_sanitizer",
    "init_framework_hooks": "_hooks",
    "cleanup_framework_hooks": "_hooks",
    "analyze": "analyzer",
    "check_inefficient": "analyzer",
    "check_leaks": "analyzer",
    "get_analyzer_config": "analyzer",
    "list_analyzers": "analyzer",
    "whatif": "analyzer",
    "load_ipython_extension": "_notebook",
    "unload_ipython_extension": "_notebook",
    "__version__": "_options",
}

__all__ = ["RecordFunction", "TakeSnapshot", "__version__", "analyze", "analyzer", "check_inefficient", "check_leaks",
           "cleanup_framework_hooks", "config", "describe", "enable_npu_sanitizer", "get_analyzer_config", "init_framework_hooks",
           "list_analyzers", "load_ipython_extension", "start", "step", "stop", "take_snapshot", "tracer", "unload",
           "unload_ipython_extension", "watcher", "whatif"]

# What editors and type checkers see, since they cannot follow imports at first use. They take a variable of this name as true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import analyzer as analyzer, describe as describe, tracer as tracer, watcher as watcher
    from ._config import config as config
    from ._control import start as start, step as step, stop as stop, unload as unload
    from ._hooks import cleanup_framework_hooks as cleanup_framework_hooks, init_framework_hooks as init_framework_hooks
    from ._notebook import load_ipython_extension as load_ipython_extension, unload_ipython_extension as unload_ipython_extension
    from ._options import __version__ as __version__
    from ._sanitizer import enable_npu_sanitizer as enable_npu_sanitizer
    from ._snapshot import TakeSnapshot as TakeSnapshot, take_snapshot as take_snapshot
    from .analyzer import (analyze as analyze, check_inefficient as check_inefficient, check_leaks as check_leaks,
                           get_analyzer_config as get_analyzer_config, list_analyzers as list_analyzers, whatif as whatif)
    from .tracer import RecordFunction as RecordFunction


def __getattr__(name):
    home = _HOMES.get(name, name)
    # A module that is there is not looked for: what the import system calls would be in the Python trace.
    module = sys.modules.get(f"{__name__}.{home}") if name in _HOMES else None
    if module is not None and getattr(module.__spec__, "_initializing", False):
        module = None  # another thread imports it; importing it too waits for that
    if module is None and (name in _HOMES or not name.startswith("_")):
        import importlib
        import importlib.util
        if importlib.util.find_spec(f"{__name__}.{home}") is not None:
            module = importlib.import_module(f"{__name__}.{home}")
    if module is not None:
        return module if home == name else getattr(module, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__():
    """Names that are imported at first use are there for completion, too."""
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})
