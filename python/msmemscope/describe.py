# SPDX-License-Identifier: Apache-2.0
"""Your own labels in the owner of memory blocks, with or without analysis decompose.

    import msmemscope.describe as describe

    @describe.describer(owner="attention")          # memory allocated while the function runs
    def forward(x): ...

    with describe.describer(owner="kv_cache"):      # or inside the block, on this thread
        ...

    describe.describer(tensor, owner="table")       # the block of a tensor or of an address

Labels nest: the owner lists them in the order in which they were entered, each once. A generator or a coroutine has its label
while it runs, not while it waits.
"""
import functools
import inspect

from ._api import LABEL_POP, LABEL_PUSH, LABEL_TENSOR
from ._native import collector
from ._tensors import device_number, extent, is_tensor, used_device

OWNER_MAX = 128
_ANY_DEVICE = 2**32 - 1


def _text(owner):
    if not isinstance(owner, str):
        raise TypeError(f"describer(): owner is a text, not {type(owner).__name__}")
    if len(owner) > OWNER_MAX:
        raise ValueError(f"describer(): owner has {len(owner)} characters, {OWNER_MAX} are allowed")
    # Control characters would break lines of reports, and a NUL would end the text.
    return "".join(character if character.isprintable() else character.encode("unicode_escape").decode()
                   for character in owner).encode(errors="backslashreplace")


def _label(kind, text, device=0, address=0, size=0):
    if collector is not None and text:
        collector.mscope_label(kind, device, address, size, text)


def _label_block(what, text):
    if isinstance(what, int) and not isinstance(what, bool):
        if not 0 < what < 2**64:
            raise ValueError(f"describer(): {what:#x} is not an address")
        # The engine looks on that accelerator first: each NPU has the same addresses.
        device = used_device()
        _label(LABEL_TENSOR, text, _ANY_DEVICE if device is None else device, what)
    elif is_tensor(what):
        device = device_number(what.device)
        if device is not None:
            _label(LABEL_TENSOR, text, device, what.data_ptr(), extent(what))
    else:
        raise NotImplementedError(f"describer() takes a tensor or an address, not {type(what).__name__}")


class describer:
    """As a decorator and in `with`: labels what this thread allocates inside. With a tensor or an address: that block, at once.

    An object may be entered again, and left by another object with the same label: what counts is the label.
    """

    def __init__(self, obj=None, owner=""):
        self._label = _text(owner)
        if obj is not None:
            _label_block(obj, self._label)

    def __enter__(self):
        _label(LABEL_PUSH, self._label)
        return self

    def __exit__(self, *_raised):
        _label(LABEL_POP, self._label)

    def __call__(self, function):
        if inspect.isasyncgenfunction(function):
            @functools.wraps(function)
            async def inner(*args, **kwargs):
                generator, resume, value = function(*args, **kwargs), None, None
                try:
                    while True:
                        try:
                            item = await _Resumed(self, (resume or generator.asend)(value).__await__())
                        except StopAsyncIteration:
                            return
                        try:
                            resume, value = None, (yield item)
                        except GeneratorExit:
                            raise
                        except BaseException as raised:
                            resume, value = generator.athrow, raised
                finally:
                    await _Resumed(self, generator.aclose().__await__())
        elif inspect.iscoroutinefunction(function):
            @functools.wraps(function)
            async def inner(*args, **kwargs):
                return await _Resumed(self, function(*args, **kwargs).__await__())
        elif inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                return (yield from _resumed(self, function(*args, **kwargs)))
        else:
            @functools.wraps(function)
            def inner(*args, **kwargs):
                with self:
                    return function(*args, **kwargs)
        return inner


def _resumed(label, generator):
    """The same as the generator, which has the label while it runs and not while it waits for its caller."""
    resume, value = generator.send, None
    while True:
        try:
            with label:
                item = resume(value)
        except StopIteration as ended:
            return ended.value
        try:
            resume, value = generator.send, (yield item)
        except GeneratorExit:
            with label:
                generator.close()
            raise
        except BaseException as raised:
            resume, value = generator.throw, raised


class _Resumed:
    """The same for what is awaited: tasks take turns on one thread."""

    def __init__(self, label, steps):
        self._label = label
        self._steps = steps

    def __await__(self):
        return _resumed(self._label, self._steps)
