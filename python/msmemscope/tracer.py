# SPDX-License-Identifier: Apache-2.0
"""The Python trace: which functions run when, on the time line of the memory events.

    msmemscope.tracer.start()
    train()
    msmemscope.tracer.stop()

    with msmemscope.RecordFunction("forward"):
        ...

Calls are recorded by the collector (src/collector/python/call_trace.c); this is the switch. From Python 3.12 on sys.monitoring
calls it, in all threads and beside other profilers; before, or when no tool id is free, it is the profile function, and a thread
that another profiler has is left to that one. Imports of the standard library and of site-packages are left out unless asked for.
"""
import errno
import os
import sys
import threading

from . import _api, _control, _native
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


_tool = None  # our id in sys.monitoring; None: the profile function traces
_EVENTS = {"PY_START": _api.TRACE_ON_ENTER, "PY_RESUME": _api.TRACE_ON_ENTER, "PY_THROW": _api.TRACE_ON_ENTER,
           "PY_RETURN": _api.TRACE_ON_LEAVE, "PY_YIELD": _api.TRACE_ON_LEAVE, "PY_UNWIND": _api.TRACE_ON_LEAVE,
           "CALL": _api.TRACE_ON_C_ENTER, "C_RETURN": _api.TRACE_ON_C_LEAVE, "C_RAISE": _api.TRACE_ON_C_LEAVE}


def _take_tool(monitoring):
    """(id, remark): that of profilers, or one that has no meaning; (None, remark): all are taken."""
    taken = []
    for tool in (monitoring.PROFILER_ID, 3, 4):
        try:
            monitoring.use_tool_id(tool, "msmemscope")
        except ValueError:
            taken.append(f"{monitoring.get_tool(tool)} has tool id {tool} of sys.monitoring")
        else:
            return tool, f"{taken[0]}, so the Python trace uses {tool}" if taken else None
    return None, ", ".join(taken) + ": the Python trace uses the profile function, which is slower"


def _monitor(monitoring, tool):
    """Starts by sys.monitoring; the result of mscope_trace_start()."""
    global _tool
    callbacks = [_native.collector.mscope_trace_callback(which) for which in range(4)]
    result = -errno.ENOSYS if None in callbacks else _native.collector.mscope_trace_start(_api.TRACE_MONITORED)
    if result != 0:
        monitoring.free_tool_id(tool)
        return result
    _tool = tool
    events = 0
    for name, which in _EVENTS.items():
        event = getattr(monitoring.events, name)
        monitoring.register_callback(tool, event, callbacks[which])
        if not name.startswith("C_"):  # those come with CALL
            events |= event
    monitoring.set_events(tool, events)
    return 0


def _unmonitor():
    global _tool
    monitoring, tool = sys.monitoring, _tool
    _tool = None
    monitoring.set_events(tool, 0)
    for name in _EVENTS:
        monitoring.register_callback(tool, getattr(monitoring.events, name), None)
    monitoring.free_tool_id(tool)


def _begin(imports=False):
    """Starts tracing; a sentence about what went wrong or is otherwise, or None."""
    when_imported("torch", _module_call)
    _native.collector.mscope_trace_libraries(os.fsencode(os.path.dirname(os.__file__)) + b"/",
                                             imports or os.environ.get("MSMEMSCOPE_TRACE_IMPORTS", "") not in ("", "0"))
    remark = None
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        tool, remark = _take_tool(monitoring)
        if tool is not None:
            result = _monitor(monitoring, tool)
            if result in (0, -errno.ESRCH):
                return _problem(result) or remark
    problem = _profile()
    return "; ".join(filter(None, (remark, problem))) or None


def _problem(result):
    if result == -errno.ENOSYS:
        return f"the Python trace cannot read this interpreter (Python {sys.version_info[0]}.{sys.version_info[1]})"
    if result == -errno.ESRCH:
        return "the Python trace is off: nothing is recorded in this process"
    return None


def _profile():
    """Starts by the profile function."""
    # A profiler that threading starts its threads with has precedence.
    free = threading._profile_hook in (None, _new_thread)
    if free:
        threading._profile_hook = _new_thread
    result = _native.collector.mscope_trace_start(_api.TRACE_ALL_THREADS if free else _api.TRACE_ONE_THREAD)
    if result == -errno.EBUSY or (result == 0 and not free):
        return "another profiler is active: its threads are not in the Python trace"
    return _problem(result)


def _end():
    if _tool is not None:
        _unmonitor()
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


def start(imports=False):
    """Records calls of all threads until stop(). Needs no msmemscope.start(). With `imports`, also what the standard library and
    packages of site-packages do when they are imported."""
    global _on
    if _on:
        _control.say("tracer.start(): tracing is on already")
    elif _control.ready():
        _on = True
        problem = _begin(imports)
        if problem is not None:
            _control.say(f"tracer.start(): {problem}")


def stop():
    """Stops tracing. When it returns, the file is complete."""
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
