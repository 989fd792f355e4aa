# SPDX-License-Identifier: Apache-2.0
"""The Python trace: which functions run when, on the time line of the memory events.

    msmemscope.tracer.start()
    train()
    msmemscope.tracer.stop()

    with msmemscope.RecordFunction("forward"):
        ...

Calls are recorded by the collector (src/collector/python/call_trace.c); this is the switch. A thread that another profiler has
is left to it.
"""
import errno
import sys
import threading

from . import _control, _native
from ._boot import note, when_imported
from ._scope import Scope

# Everything is imported here and not where it is used: what the interpreter does for an import would be in the trace.

NAME_MAX = 128

_on = False
_by_window = False  # a launch or a window began it, and ends it


def _new_thread(frame, event, _arg):
    # Called once in each thread that the module threading starts: the collector puts itself in the place of this function.
    if event == "call":
        _native.collector.mscope_trace_thread(frame)


def _module_call(torch):
    call = torch.nn.Module.__call__
    code = getattr(getattr(call, "__wrapped__", call), "__code__", None)  # ours may be around it
    if code is not None:
        _native.collector.mscope_trace_module(code)


def _begin():
    """Starts tracing; a sentence about what went wrong, or None."""
    # A profiler that threading starts its threads with has precedence.
    free = threading._profile_hook in (None, _new_thread)
    if free:
        threading._profile_hook = _new_thread
    when_imported("torch", _module_call)
    result = _native.collector.mscope_trace_start(free)
    if result == -errno.ENOSYS:
        return f"the Python trace cannot read this interpreter (Python {sys.version_info[0]}.{sys.version_info[1]})"
    if result == -errno.ESRCH:
        return "the Python trace is off: nothing records in this process"
    if result == -errno.EBUSY or not free:
        return "another profiler is active: its threads are not in the Python trace"
    return None


def _end():
    _native.collector.mscope_trace_stop()
    if threading._profile_hook is _new_thread:
        threading._profile_hook = None


def window_begins():
    """A launch or a window wants the trace. Problems are a note in the trace; a tracing that is on stays on."""
    global _on, _by_window
    if not _on:
        _on = _by_window = True
        problem = _begin()
        if problem is not None:
            note(problem)


def window_ends():
    global _on, _by_window
    if _by_window:
        _on = _by_window = False
        _end()


def start():
    """Records calls of all threads until stop(). Needs no msmemscope.start()."""
    global _on
    if _on:
        _control.say("tracer.start(): tracing is on already")
    elif _control.ready():
        _on = True
        problem = _begin()
        if problem is not None:
            _control.say(f"tracer.start(): {problem}")


def stop():
    """Ends what start() began. When it returns, the file has everything that was traced."""
    global _on, _by_window
    if _on:
        _on = _by_window = False
        _end()
        _control.flush()
    elif _native.collector is None:
        _control.say_absent()
    else:
        _control.say("tracer.stop(): tracing is not on")


class RecordFunction(Scope):
    """A range of the program's own in the Python trace; a context manager and a decorator. Needs no start()."""

    def __init__(self, name):
        if not isinstance(name, str):
            raise TypeError("the name of a RecordFunction is a str")
        if len(name) > NAME_MAX:
            raise ValueError(f"the name of a RecordFunction has at most {NAME_MAX} characters, not {len(name)}")
        self.name = name
        self._text = name.encode("utf-8", "replace")
        self._range = None

    def _mark(self, begins):
        if self._range is None:
            self._range = _native.collector.mscope_range if _control.ready() else _nothing
        self._range(self._text, begins)

    def __enter__(self):
        self._mark(1)
        return self

    def __exit__(self, *_what):
        self._mark(0)
        return False


def _nothing(_text, _begins):
    pass
