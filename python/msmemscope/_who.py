# SPDX-License-Identifier: Apache-2.0
"""When the program is asked what keeps its memory: at the end of a step when it grows (src/collector/torch/keeping.c), at stop(), at
take_snapshot(), when `msmemscope ctl PID who` asks, when the program's own code has ended, and while a program without steps runs, when the
engine asks by itself. _keeper.py finds the answer. A process whose host memory grows is asked as well; _containers.py answers.
"""
import os
import struct
import sys
import time

from ._api import DUE_ASK, DUE_NOTHING
from ._boot import note
from ._native import collector, ctypes, waiting

_STEP_MS = 1000  # that a step waits for the engine's verdict, when memory grows
_END_MS = 3000  # and the end of the program, or stop()
_TEXT_MAX = 400  # characters of each text
_CONTAINER_TEXT_BYTES = 199  # of each of six texts about a container: together at most ASKED_TEXT_MAX
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


def containers():
    """Answers the engine's question which containers grow, also in a process without a trace; the collector calls it."""
    _guarded(None, _answer_containers)


def _guarded(wait_ms, answer_it=None):
    global _busy
    if _busy or sys.is_finalizing():
        return
    _busy = True
    try:
        if answer_it is not None:
            answer_it()
        else:
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
    with _Look():
        from . import _keeper
        for answer in _keeper.scan(sites):
            if answer is not None:
                texts = b"".join(_text(text) for text in (answer.kind, answer.what, answer.name, answer.root, answer.holds, answer.path,
                                                          answer.cure))
                collector.mscope_keeper(answer.address, answer.items, answer.most, answer.full, answer.renewed, answer.held,
                                        answer.looked, texts, len(texts))


def _resident():
    """Bytes; 0: not known."""
    try:
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 256).split()[1]) * os.sysconf("SC_PAGE_SIZE")
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return 0


class _Look:
    """Around code that looks among the program's objects: what that takes is not growth of the program."""

    def __enter__(self):
        self.start, self.before = time.monotonic(), _resident()
        return self

    def __exit__(self, *_error):
        after = _resident()
        collector.mscope_looked(after, max(after - self.before, 0), int((time.monotonic() - self.start) * 1000))


def _answer_containers():
    with _Look() as look:
        from . import _containers
        grown, milliseconds, rise = _containers.look(look.before)
        for index, one in enumerate(grown):
            texts = b"".join(_cut(_text(text)) for text in (one.what, one.name, one.owner, one.filled, one.holds, one.cure))
            collector.mscope_container(index, one.items, one.gained, one.gained_bytes, texts, len(texts))
        collector.mscope_containers_told(len(grown), milliseconds, rise)


def _cut(text):
    return text[:-1][:_CONTAINER_TEXT_BYTES].decode("utf-8", "ignore").encode("utf-8") + b"\0"


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
