# SPDX-License-Identifier: Apache-2.0
"""The Python trace: which functions run when, on the time line of the memory events.

    msmemscope.tracer.start()
    train()
    msmemscope.tracer.stop()

    with msmemscope.RecordFunction("forward"):
        ...

Calls are recorded by the collector (src/collector/python/calls.c); this is the switch. A thread that another profiler looks at
is left to it.
"""
import errno
import functools
import sys
import warnings

NAME_MAX = 128

_on = False


def _collector():
    """The collector with a session to record into, or None. Without a session one is opened."""
    from ._native import collector
    if collector is None:
        return None
    try:
        from ._session import ensure
    except ImportError:
        return collector
    return collector if ensure() else None


def _new_thread(frame, event, _arg):
    # Called once in each thread that the module threading starts: the collector puts itself in the place of this function.
    from ._native import collector
    if event == "call":
        collector.mscope_trace_thread(frame)


def _module_call(torch):
    from ._native import collector
    code = getattr(torch.nn.Module.__call__, "__code__", None)
    if code is not None:
        collector.mscope_trace_module(code)


def _begin(collector):
    """Starts tracing; a sentence about what went wrong, or None."""
    import threading
    from ._boot import when_imported
    # Whoever has told threading to profile its threads comes first.
    free = threading._profile_hook in (None, _new_thread)
    result = collector.mscope_trace_start(free)
    if result == -errno.ENOSYS:
        return f"the Python trace cannot read this interpreter ({sys.version.split()[0]})"
    if result == -errno.ESRCH:
        return "the Python trace is off: nothing records in this process"
    if free:
        threading._profile_hook = _new_thread
    when_imported("torch", _module_call)
    if result == -errno.EBUSY or not free:
        return "another profiler is active: its threads are not in the Python trace"
    return None


def _end(collector):
    import threading
    if threading._profile_hook is _new_thread:
        threading._profile_hook = None
    collector.mscope_trace_stop()


def begin_quietly():
    """For a launch or a window that wants the trace: problems are a note in the trace, a tracing that is on stays on."""
    global _on
    from ._boot import note
    from ._native import collector
    if collector is None or _on:
        return
    _on = True
    problem = _begin(collector)
    if problem is not None:
        note(problem)


def end_quietly():
    """For a window that ends."""
    global _on
    from ._native import collector
    if collector is not None and _on:
        _on = False
        _end(collector)


def start():
    """Records calls of all threads until stop(). Needs no msmemscope.start()."""
    global _on
    if _on:
        warnings.warn("msmemscope.tracer.start(): tracing is on already", RuntimeWarning, stacklevel=2)
        return
    collector = _collector()
    if collector is None:
        warnings.warn("msmemscope.tracer.start(): nothing records in this process", RuntimeWarning, stacklevel=2)
        return
    _on = True
    problem = _begin(collector)
    if problem is not None:
        warnings.warn(f"msmemscope.tracer.start(): {problem}", RuntimeWarning, stacklevel=2)


def stop():
    """Ends what start() began."""
    global _on
    if not _on:
        warnings.warn("msmemscope.tracer.stop(): tracing is not on", RuntimeWarning, stacklevel=2)
        return
    _on = False
    from ._native import collector
    _end(collector)


class RecordFunction:
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
            collector = _collector()
            self._range = collector.mscope_range if collector is not None else _nothing
        self._range(self._text, begins)

    def __enter__(self):
        self._mark(1)
        return self

    def __exit__(self, *_what):
        self._mark(0)
        return False

    def __call__(self, function):
        import inspect
        if inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def wrapper(*arguments, **named):
                with self:
                    return await function(*arguments, **named)
        elif inspect.isasyncgenfunction(function):
            @functools.wraps(function)
            async def wrapper(*arguments, **named):
                with self:
                    async for value in function(*arguments, **named):
                        yield value
        elif inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                with self:
                    return (yield from function(*arguments, **named))
        else:
            @functools.wraps(function)
            def wrapper(*arguments, **named):
                with self:
                    return function(*arguments, **named)
        return wrapper


def _nothing(_text, _begins):
    pass
