# SPDX-License-Identifier: Apache-2.0
"""config(), start(), stop(), step(): which parts of a run are recorded, and how.

In a program that the command started there is a session already; in one that only has the collector preloaded, the first
start() makes one, with an engine process of its own. Nothing here raises because of that: a program must run the same with
and without the tool. Only a wrong argument of config() is an error of the program.
"""
import ctypes
import os
import sys
import threading

from . import _boot, _native, _values
from ._options import ALIASES, OPTIONS

KEYS = ("call_stack", "level", "events", "device", "analysis", "watch", "format", "output_path", "data_format", "output")
_ONCE = ("format", "output-path", "watch")  # cannot change once they have been used
_ALLOC, _FREE, _LAUNCH, _ACCESS, _TRACEBACK = 1, 2, 4, 8, 16  # --events, as bits
_INEFFICIENT, _OOM = 2, 3  # words of --analysis
_NPU, _CPU = 0, 1  # words of --device
_STACK_C, _STACK_PYTHON = 0, 1  # words of --call-stack

_lock = threading.RLock()
_named = None  # {option name: text} of the latest config() with arguments
_fixed = {}  # {option name: text} of _ONCE
_own = False  # the session is one that we made
_command = "msmemscope"  # which the results are to look like
_said = set()


def _renew_lock():
    """A thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def say(text, once=False):
    if once:
        if text in _said:
            return
        _said.add(text)
    try:
        sys.stderr.write(f"msmemscope: {text}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass  # a program without a standard error


def call_as(command):
    """The results are named as this command names them, unless a command was there before us."""
    global _command
    _command = command


def _disabled():
    return os.environ.get("MSMEMSCOPE_DISABLE", "") not in ("", "0")


def _recording():
    return _native.collector.mscope_recording()


# ---- settings ----

def _check(arguments):
    """{option name: text} of config()'s arguments, every value looked at."""
    checked = {}
    for key, value in arguments.items():
        if key not in KEYS:
            raise ValueError(f"config() has no argument '{key}'; allowed: {', '.join(KEYS)}")
        if not isinstance(value, str):
            raise TypeError(f"config(): {key} must be a string, not {type(value).__name__}")
        name = key.replace("_", "-")
        option = OPTIONS[ALIASES.get(name, name)]
        try:
            meaning = _values.parse(option, value)
        except _values.Refused as refused:
            raise ValueError(f"config(): {key}: {refused}; allowed: {option.allowed}") from None
        checked[option.name] = _native.os_text(meaning) if option.kind == "path" else value
    return checked


def _mask(words):
    return sum(1 << bit for bit in words)


def _numbers():
    """What mscope_start() is given, or None when the session says it all."""
    if _named is None and not _own:
        return None
    numbers = _native.Settings()
    if not _own:
        _native.collector.mscope_settings(numbers)
    at = {name: index for index, name in enumerate(_native.SETTINGS)}
    named = _named or {}
    values = {name: _values.parse(OPTIONS[name], named.get(name, OPTIONS[name].initial))
              for name in ("events", "level", "analysis", "device", "call-stack") if _own or name in named}
    if "events" in values:
        mask = _mask(values["events"])
        numbers[at["events"]], numbers[at["traceback"]] = mask & ~_TRACEBACK, mask >> 4 & 1
    if "level" in values:
        numbers[at["level"]] = _mask(values["level"])
    if "analysis" in values:
        numbers[at["analysis"]] = _mask(values["analysis"])
        numbers[at["oom_top"]] = values["analysis"].get(_OOM, 0)
    if "device" in values:
        devices = values["device"].get(_NPU, 0)
        numbers[at["devices"]], numbers[at["all_devices"]] = devices, devices == 0xffffffff
        numbers[at["host"]] = _CPU in values["device"]
    if "call-stack" in values:
        numbers[at["c_depth"]] = values["call-stack"].get(_STACK_C, 0)
        numbers[at["python_depth"]] = values["call-stack"].get(_STACK_PYTHON, 0)
    # Only an analysis that was named adds what it needs; an allocation without its free says nothing.
    if named.get("analysis") and values["analysis"]:
        numbers[at["events"]] |= _ALLOC | _FREE | (_ACCESS | _LAUNCH if _INEFFICIENT in values["analysis"] else 0)
    if numbers[at["events"]] & (_ALLOC | _FREE | _ACCESS):
        numbers[at["events"]] |= _ALLOC | _FREE
    return numbers


def config(**arguments):
    """Chooses what is recorded and written from the next start() on.

    Each argument is a string that says what the option of that name says on the command line; "" switches off. What is not
    named is again as the command said, or by default; without arguments nothing changes. The directory and form of the
    results and what is watched can be chosen once, before the first start(), and only where no command has.
    """
    global _named
    checked = _check(arguments)
    if not checked:
        return
    with _lock:
        late = _native.collector is not None and _recording() != _native.OFF
        for name in _ONCE:
            if name not in checked:
                continue
            value = checked.pop(name)
            if not late and name not in _fixed:
                _fixed[name] = value
            elif _fixed.get(name) != value:
                say(f"config(): {name.replace('-', '_')} stays as it is: it can be chosen once, before the first start()")
        _named = checked


# ---- sessions ----

def _engine_words():
    words = [_command, "api-engine", str(os.getpid())]
    for name, value in {**(_named or {}), **_fixed}.items():
        words.append(f"--{name}={value}")
    return words


def ready():
    """True when there is a session to record in; makes one where no command has."""
    global _own
    if _native.collector is None or _native.waiting is None:
        if not _disabled():
            say("nothing is recorded: start the program by 'msmemscope python ...', or with LD_PRELOAD set to "
                 "libascend_kernel_hook.so of msmemscope", once=True)
        return False
    state = _recording()
    if state in (_native.ON, _native.SHADOW):
        return True
    if _disabled():
        return False
    if state != _native.OFF:
        say("recording ended early: no space for the trace", once=True)
        return False
    engine = os.environ.get("MSMEMSCOPE_ENGINE") or _native.text(_native.collector.mscope_engine)
    words = [os.fsencode(word) for word in _engine_words()]
    result = _native.waiting.mscope_open(os.fsencode(engine), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    if result != 0:
        say(f"nothing is recorded: the engine {engine} did not start: {os.strerror(-result)}", once=True)
        return False
    _own = True
    return True


def start():
    """Begins a window: from here on, events are recorded and written."""
    with _lock:
        if not ready():
            return
        result = _native.collector.mscope_start(_numbers())
        if result != 0:
            say(f"start(): {os.strerror(-result)}", once=True)
        else:
            _boot.run(_native.collector.mscope_wants())


def stop():
    """Ends a window. When it returns, the files have everything that the window recorded."""
    with _lock:
        _boot.run(0)
        if _native.collector is None or _native.collector.mscope_stop() != 1:
            return
        flush()


def flush():
    """Waits until the files have everything that was recorded so far."""
    with _lock:
        result = _native.waiting.mscope_flush()
    if result == 0:
        return
    session = _native.text(_native.collector.mscope_session)
    reason = "the engine is gone" if result == -3 else "the engine does not answer"
    say(f"{reason}; nothing is lost, finish the files when the program has ended: msmemscope recover {session}", once=True)


def step():
    """Ends a step of the program and begins the next one; the first one began with start()."""
    if _native.collector is not None:
        _native.collector.mscope_step()
