# SPDX-License-Identifier: Apache-2.0
"""msmemscope: memory analysis for AI accelerators, from inside the program that is looked at.

    import msmemscope
    msmemscope.config(events="alloc,free,launch", output="results")
    msmemscope.start()
    ...                      # what is recorded
    msmemscope.stop()        # the files are complete

Works with any Python from 3.8 on, without an accelerator and without a framework; what needs one of them is imported when it
is used.
"""
# Public names, imported at first use: every Python process of a launch imports this file, and most need none of them.
_HOMES = {
    "config": "_control",
    "start": "_control",
    "stop": "_control",
    "step": "_control",
    "RecordFunction": "tracer",
    "analyze": "analyzer",
    "check_inefficient": "analyzer",
    "check_leaks": "analyzer",
    "get_analyzer_config": "analyzer",
    "list_analyzers": "analyzer",
}

__all__ = ["RecordFunction", "analyze", "analyzer", "check_inefficient", "check_leaks", "config", "describe", "get_analyzer_config",
           "list_analyzers", "start", "step", "stop", "tracer", "watcher"]


def __getattr__(name):
    import importlib
    import importlib.util
    home = _HOMES.get(name, name)
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{home}") is not None:
        module = importlib.import_module(f"{__name__}.{home}")
        return module if home == name else getattr(module, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
