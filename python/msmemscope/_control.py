# SPDX-License-Identifier: Apache-2.0
"""What config() (_config.py) chooses, start(), stop(), step(): which parts of a run are recorded, and how.

In a program that the command started there is a session already; in one that only has the collector preloaded, the first
start() makes one, with an engine process of its own. Nothing here raises because of that: a program must run the same with
and without the tool. Only a wrong argument of config() is an error of the program.
"""
from __future__ import annotations

import errno
import os
import sys
import threading
from typing import Any, Dict

from . import _boot, _load, _native, _values, _who
from ._api import POOL_BLOCK_EXISTS, POOL_BLOCK_WAITS, RECORDING_OFF, RECORDING_ON, RECORDING_SHADOW, SEGMENT_EXISTS
from ._native import ctypes
from ._options import ALIASES, CONFIG, OPTIONS, SETTINGS

KEYS = tuple(name.replace("-", "_") for name in (*CONFIG, *(alias for name in CONFIG for alias in ALIASES if ALIASES[alias] == name)))
_ONCE = sorted(set(CONFIG) - {setting.option for setting in SETTINGS})  # cannot change once they have been used


# "unnamed" is not here. How a setting comes from what an option was given, {bit: number} of a list or the value of a word; see src/trace/settings.def.
_SOURCES = {
    "words": lambda words, mask: sum(1 << bit for bit in words) & mask,
    "has": lambda words, bit: bit in words,
    "number": lambda words, bit: words.get(bit, 0),
    "every": lambda words, bit: words.get(bit, 0) == 0xffffffff,
    "otherwise": lambda words, bits: words.get(bits >> 8, 0) ^ words.get(bits & 0xff, 0),
    "value": lambda value, _: value,
}



class _Unset:
    """The default of config()'s parameters."""

    def __repr__(self):
        return "unset"


UNSET: Any = _Unset()

# States of blocks of PyTorch's pool.
_BLOCKS = {"active_allocated": POOL_BLOCK_EXISTS, "active_awaiting_free": POOL_BLOCK_WAITS, "active_pending_free": POOL_BLOCK_WAITS}

_lock = threading.RLock()
_named = None  # {option name: text} of the latest config() with arguments
_fixed = {}  # {option name: text} of _ONCE
_free = set()  # of these, those that may be chosen again: unload() was called since
_own = False  # the session is one that we made
_recorder = 0  # the process that called start(), which a forked child is not
_command = "msmemscope"  # which the results are to look like
_said = set()  # what is said once
_INJECTIONS = {"CUDA_INJECTION64_PATH": "calls of the CUDA driver", "NVTX_INJECTION64_PATH": "marks and ranges of NVTX"}
attached = False  # `attach` made us start: the engine writes to its log, and leaves our standard error alone
quiet = False  # the engine that we start says nothing but problems: a notebook shows the rest


def _renew_lock():
    """A thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
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


def say_absent():
    """The one line of a program that uses the package and has no collector, whatever it calls."""
    if not _disabled():
        say("nothing is recorded: start the program with 'msmemscope python ...', or with LD_PRELOAD set to "
            "libascend_kernel_hook.so of msmemscope", once=True)


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
        if option.name == "store" and _values.has_secret(value):
            raise ValueError(f"config(): {key}: do not write a password in the URL: put it in ~/.pgpass or $PGPASSWORD")
        checked[option.name] = _native.os_text(meaning) if option.kind == "path" else value
    return checked


def _chosen():
    """What mscope_start() is given: settings, and a bit for each that was named. (None, 0): the session says it all."""
    if _named is None and not _own:
        return None, 0
    numbers, named = (ctypes.c_uint32 * len(SETTINGS))(), 0
    if not _own:
        _native.collector.mscope_settings(numbers)
    for place, setting in enumerate(SETTINGS):
        option = OPTIONS[setting.option]
        if setting.how == "unnamed":
            if _named and not {option.name, "level"}.isdisjoint(_named):
                numbers[place], named = 0, named | 1 << place
            elif _own:
                numbers[place] = 1
            continue
        text = (_named or {}).get(option.name)
        if text is not None:
            named |= 1 << place
        elif _own:
            text = option.initial
        if text is not None:
            numbers[place] = _SOURCES[setting.how](_values.parse(option, text), setting.argument)
    return numbers, named


def _watch_off():
    """config(watch=""): nothing is asked for any more, also where an earlier config() did; what watcher.watch() named is."""
    _fixed.pop("watch", None)
    if _own:
        _native.collector.mscope_watch_off()


def choose(arguments: Dict[str, Any]) -> None:
    """What config() of _config.py does; values that are UNSET were not given."""
    global _named
    checked = _check({key: value for key, value in arguments.items() if value is not UNSET})
    if not checked:
        return
    with _lock:
        late = _native.collector is not None and _recording() != RECORDING_OFF
        for name in _ONCE:
            if name not in checked:
                continue
            value = checked.pop(name)
            if name == "watch" and not value and (not late or _own or not _native.collector.mscope_watch_active()):
                _watch_off()
            elif not late and (name not in _fixed or name in _free):
                _fixed[name] = value
                _free.discard(name)
            elif _fixed.get(name) != value:
                say(f"config(): {name.replace('-', '_')} is unchanged: it can be set only before the first start()")
        _named = checked


# ---- sessions ----

def _engine_words():
    words = [_command, "api-engine", str(os.getpid())]
    if attached:
        words.append("attached")
    for name, value in {**(_named or {}), **_fixed}.items():
        words.append(f"--{name}={value}")
    if quiet:
        words.append("--log-level=error")
    return words


def chose_cpu():
    """True when CPU tensors are recorded because no device was named and there is none (src/cli/machine.c decides)."""
    if _native.collector is None or not _own or "device" in (_named or {}):
        return False
    numbers = (ctypes.c_uint32 * len(SETTINGS))()
    _native.collector.mscope_settings(numbers)
    return any(setting.name == "host" and numbers[place] for place, setting in enumerate(SETTINGS))


def output():
    """Where results go that config() chose, or the default."""
    return os.path.abspath(_fixed.get("output-path") or OPTIONS["output-path"].initial or "memscopeDumpResults")


def ready() -> bool:
    """True when there is a session to record in; makes one where no command has."""
    with _lock:
        return _ready() and _load.begin(say)


def _ready():
    global _own
    if _native.collector is None or _native.waiting is None:
        say_absent()
        return False
    state = _recording()
    if state in (RECORDING_ON, RECORDING_SHADOW):
        return True
    if _disabled():
        return False
    if state != RECORDING_OFF:
        say("recording has stopped: no space for the trace, or its directory is unreachable", once=True)
        return False
    engine = os.environ.get("MSMEMSCOPE_ENGINE") or _native.text(_native.collector.mscope_engine)
    words = [os.fsencode(word) for word in _engine_words()]
    result = _native.waiting.mscope_open(os.fsencode(engine), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    if result != 0:
        say(f"nothing is recorded: the engine {engine} did not start: {os.strerror(-result)}", once=True)
        return False
    _own = True
    _free.clear()
    return True


def start() -> None:
    """Starts a window: from here on, events are recorded and written."""
    global _recorder
    with _lock:
        if not ready():
            return
        result = _native.collector.mscope_start(*_chosen())
        if result != 0:
            say(f"start(): {os.strerror(-result)}", once=True)
        else:
            _recorder = os.getpid()
            _watch_cuda()
            # Before the Python trace begins, which is not to have it. An interpreter inside another program, which has no command
            # line, may end long before the program.
            if getattr(sys, "orig_argv", True):
                _boot.at_end(_ended)
            _boot.run(_native.collector.mscope_wants())


def _watch_cuda():
    """Calls of the CUDA driver. A driver that is not used yet loads the tool that the environment names."""
    _boot.allocator()
    if f"{__package__}._allocator" in sys.modules:
        sys.modules[f"{__package__}._allocator"].tell()
    if _native.collector.mscope_pool():
        _boot._guarded(_tell_pool)
    if _native.collector.mscope_cuda(1):
        return
    path = _load.find()
    for name, lost in _INJECTIONS.items():
        before = os.environ.get(name)
        if before is None and path:
            os.environ[name] = path
        elif before is not None and os.path.basename(before) != _load.FILE:
            say(f"{lost} are not recorded: {name}={before} is kept as it is", once=True)


def _tell_pool():
    """Segments and blocks of PyTorch's pool on CUDA that are older than the trace, as PyTorch itself lists them."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    tell = _native.collector.mscope_pool_part
    for segment in cuda.memory_snapshot():
        first, second = segment.get("segment_pool_id", (0, 0))
        part = (segment.get("stream", 0), first << 32 | second)
        tell(segment["device"], SEGMENT_EXISTS, segment["address"], segment["total_size"], 0, *part)
        address = segment["address"]
        for block in segment["blocks"]:
            kind = _BLOCKS.get(block["state"])
            if kind is not None:
                tell(segment["device"], kind, block.get("address", address), block["size"], block.get("requested_size", 0), *part)
            address += block["size"]


def _ended():
    """The interpreter begins to end. The engine that we started completes the files and tells what it found while we are here."""
    _native.collector.mscope_ended()
    if _own and _recorder == os.getpid() and _recording() in (RECORDING_ON, RECORDING_SHADOW):
        _wait_for(_native.waiting.mscope_complete, 1)


def stop() -> None:
    """Ends a window. When it returns, the files are complete: rows, report and trace."""
    _who.look()
    with _lock:
        _boot.run(0)
        if _native.collector is None or _native.collector.mscope_stop() != 1:
            return
        _wait_for(_native.waiting.mscope_complete, 0)


def unload() -> None:
    """Ends the window and recording in this process. Its files are then complete.

    In a program without the preloaded collector, all functions that start() redirected are restored. A later start() starts
    another run, with its own files.
    """
    global _own
    with _lock:
        stop()
        if _load.end(say):
            _native.collector.mscope_cuda(0)  # a call of another tool would not come to us any more
            _wait_for(_native.waiting.mscope_leave)
            _own = False
            _free.update(_fixed)
        if _native.collector is not None and _recording() == RECORDING_OFF:
            _said.clear()  # what goes wrong with another run is told again


def flush():
    """Waits until the files have every row of what was recorded so far."""
    with _lock:
        _wait_for(_native.waiting.mscope_flush)


_REASONS = {-errno.ESRCH: "the engine is gone", -errno.ETIMEDOUT: "the engine does not answer"}


def _wait_for(request, *arguments):
    """The engine's answer; without one, the one line that tells what is missing and how it is made, once for each session."""
    session = _native.text(_native.collector.mscope_session)
    result = request(*arguments)
    if result in (0, -errno.ENOENT):
        return
    if result == -errno.EAGAIN:
        say("the engine has not caught up with this program, which waited as long as $MSMEMSCOPE_STOP_WAIT says (60 s). Nothing is lost: report, trace and "
            "rows are complete when the program has ended", once=True)
        return
    reason = _REASONS.get(result) or f"cannot reach the engine: {os.strerror(-result)}"
    say(f"{reason}; report, trace and rows may be missing. Nothing is lost; run this when the program has ended: "
        f"msmemscope recover {session}", once=True)


def step() -> None:
    """Ends a step of the program and starts the next one; the first step starts with start()."""
    if _native.collector is not None:
        _boot.finish_labels()
        _native.collector.mscope_step()
        _who.step_ended(True)
