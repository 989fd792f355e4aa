# SPDX-License-Identifier: Apache-2.0
"""A dry run (`msmemscope dryrun`): the program runs on the simulated NPU, which computes only what is small, and ends after a few steps.

What the command must know of it are notes of the trace that start with "dry run: ": where the program died, which values it read that
nobody had computed. src/cli/dry_notes.h has the same words.
"""
import linecache
import os
import sys

from . import _who
from ._boot import finish_labels, note
from ._native import collector, ctypes

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_TEXT_MAX = 60  # characters of a line of source that a note shows

_wanted = 0  # steps after which the program ends; 0: it ends by itself
_taken = 0
_marked = False  # the program marks steps itself: those of its optimizers do not count
_ended = None  # tells the trace that the program has ended
_listener = None  # of mstx; ctypes does not keep it


def _is_users(filename):
    return not (filename.startswith(_PACKAGE) or f"{os.sep}site-packages{os.sep}" in filename or
                f"{os.sep}dist-packages{os.sep}" in filename or filename.startswith(("<", os.path.dirname(os.__file__) + os.sep)))


def _expression(code, instruction, line):
    """The source of what runs: the expression where the interpreter knows its columns (from 3.11 on), else its line."""
    positions = getattr(code, "co_positions", None)
    if positions is not None:
        for index, (first, last, start, end) in enumerate(positions()):
            if index * 2 == instruction and first == last == line and start is not None and end is not None:
                text = linecache.getline(code.co_filename, line).encode()[start:end].decode("utf-8", "replace")
                if text:
                    return text
                break
    return linecache.getline(code.co_filename, line).strip()


def _site(frames):
    """"train.py:31 optimizer.step()" of the innermost function that is the user's own, else of the innermost; frames from the inside out."""
    chosen = None
    for code, instruction, line in frames:
        if line is None:
            continue
        chosen = chosen or (code, instruction, line)
        if _is_users(code.co_filename):
            chosen = (code, instruction, line)
            break
    if chosen is None:
        return "?"
    code, instruction, line = chosen
    text = " ".join(_expression(code, instruction, line).split())
    if len(text) > _TEXT_MAX:
        text = text[:_TEXT_MAX - 3] + "..."
    return f"{os.path.basename(code.co_filename)}:{line} {text}".rstrip()


def _died_at():
    """Where an exception came from that nobody caught; None if there was none."""
    traceback = getattr(sys, "last_traceback", None)
    if traceback is None:
        return None
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame.f_code, traceback.tb_lasti, traceback.tb_lineno))
        traceback = traceback.tb_next
    return _site(reversed(frames))


def finished():
    """The program's own code has ended, by itself."""
    where = _died_at()
    if where is not None:
        lines = str(sys.last_value).strip().splitlines()
        wrong = next((line.strip() for line in lines if "simnpu: " in line), lines[0] if lines else "")
        note(f"dry run: died at {where}")
        note(f"dry run: because of {type(sys.last_value).__name__}: {wrong[:200]}")


def _end():
    """Ends the process here. Neither handlers of the program nor its `finally` run: they would save a model that was never trained."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass
    finish_labels()
    if _ended is not None:
        _ended()
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.terminate()
    os._exit(0)


def _step(marked):
    global _taken, _marked
    if marked and not _marked:
        _marked, _taken = True, 0
    if marked or not _marked:
        _taken += 1
        if _taken == _wanted:
            _end()


def _range(ends):
    """A range 'step start' of mstx starts or has ended."""
    global _taken, _marked
    if ends:
        _step(True)
    elif not _marked:
        _marked, _taken = True, 0


def begin(ended):
    """Before the first line of the script; `ended` as in _boot.begin()."""
    global _wanted, _ended, _listener
    _wanted, _ended = int(os.environ.get("MSMEMSCOPE_DRY_STEPS", "0")), ended
    _who.on_step = _step
    if ctypes is not None:
        _listener = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(_range)
        collector.mscope_step_listener(ctypes.cast(_listener, ctypes.c_void_p).value)
