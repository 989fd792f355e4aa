# SPDX-License-Identifier: Apache-2.0
"""When the program is asked what keeps its memory: at the end of a step when it grows (src/collector/torch/keeping.c), at stop(), at
take_snapshot(), when `msmemscope ctl PID who` asks, when the program's own code has ended, and while a program without steps runs, when the
engine asks by itself. _keeper.py finds the answer.
"""
import struct
import sys

from ._api import DUE_ASK, DUE_NOTHING
from ._boot import note
from ._native import collector, ctypes, waiting

_STEP_MS = 1000  # that a step waits for the engine's verdict, when memory grows
_END_MS = 3000  # and the end of the program, or stop()
_TEXT_MAX = 400  # characters of each text
_busy = False  # a scan is in progress


on_step = None  # called after each step with whether the program marked it itself; of a dry run


def step_ended(marked):
    """To be called at the end of each step; costs one call while memory does not grow. `marked`: by the program, not by an optimizer."""
    if on_step is not None:
        on_step(marked)
    due = collector.mscope_due()
    if due != DUE_NOTHING:
        _guarded(_STEP_MS if due == DUE_ASK else None)


step_ended._torchdynamo_disable = True  # type: ignore[attr-defined]


def look():
    """Asks the engine and answers it, in a window of a program that uses PyTorch; a process without a trace gets none."""
    if collector is not None and waiting is not None and "torch" in sys.modules:
        _guarded(_END_MS)


def answer():
    """Answers a question that the engine has asked by itself, of a program without steps; the collector calls it."""
    if "torch" in sys.modules:
        _guarded(None)


def _guarded(wait_ms):
    global _busy
    if _busy or sys.is_finalizing():
        return
    _busy = True
    try:
        _answer(wait_ms)
    except Exception as error:
        note(f"what keeps memory could not be found out: {type(error).__name__}: {error}")
    finally:
        _busy = False


def _answer(wait_ms):
    if wait_ms is not None and waiting.mscope_judge(wait_ms) != 0:
        return  # the answer to a later one has it all
    sites = _question()
    if not sites:
        return
    from . import _keeper
    for answer in _keeper.scan(sites):
        if answer is not None:
            texts = b"".join(_text(text) for text in (answer.kind, answer.what, answer.name, answer.root, answer.holds, answer.path,
                                                      answer.cure))
            collector.mscope_keeper(answer.address, answer.items, answer.full, answer.held, answer.looked, texts, len(texts))


def _text(text):
    return text[:_TEXT_MAX].replace("\0", "").encode("utf-8", "replace") + b"\0"


def _question():
    """Addresses of blocks of the call sites that the engine asks about, a list for each."""
    buffer = ctypes.create_string_buffer(8192)
    count = collector.mscope_question(buffer, len(buffer))
    words = struct.unpack_from(f"{max(0, count)}Q", buffer)
    sites, at = [], 0
    while at < len(words):
        sites.append(words[at + 1:at + 1 + words[at]])
        at += 1 + words[at]
    return sites
