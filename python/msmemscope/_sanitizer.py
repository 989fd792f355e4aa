# SPDX-License-Identifier: Apache-2.0
"""torch_npu's sanitizer for operators that it does not see: those that a program launches by itself and announces by a mark

    sanitizer-op: name=my.kernel;read=x:0x12c0:4096,y:4800:64;write=out:0x3400:4096

of mstx on their stream. Each becomes a kernel launch for the sanitizer, which finds accesses of two streams that do not wait for
each other. An address in both lists is used in place.
"""
import re
import sys

from . import _native
from ._control import say, say_absent
from ._native import ctypes

PREFIX = "sanitizer-op:"
TEXT_MAX = 1024
ALIAS_MAX = 31

_ITEM = re.compile(r"([^:,;]*):(0[xX][0-9a-fA-F]+|\d+):(\d+)")

_listener = None  # keeps the C function alive


class Malformed(ValueError):
    """A mark that does not say what an operator does."""


def _blocks(text):
    """[(alias, address)] of "alias:address:bytes,..."."""
    found = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise Malformed(f"'{item}' is not alias:address:bytes")
        alias, address, _ = match.groups()
        if len(alias.encode()) > ALIAS_MAX:
            raise Malformed(f"the alias '{alias}' is longer than {ALIAS_MAX} bytes")
        found.append((alias, int(address, 0 if address[:2] in ("0x", "0X") else 10)))
    return found


def parse(text):
    """(name, read, written) of a mark, the last two as _blocks() gives them.

    >>> parse("sanitizer-op: name=a.b;read=x:0x10:4;write=y:32:8,z:48:8")
    ('a.b', [('x', 16)], [('y', 32), ('z', 48)])
    """
    if len(text.encode()) > TEXT_MAX:
        raise Malformed(f"it is longer than {TEXT_MAX} bytes")
    fields = {"read": "", "write": "", "name": ""}
    for part in filter(None, (part.strip() for part in text[len(PREFIX):].split(";"))):
        key, equals, value = part.partition("=")
        if not equals or key.strip() not in fields:
            raise Malformed(f"'{part}' is not name=, read= or write=")
        fields[key.strip()] = value.strip()
    if not fields["name"]:
        raise Malformed("it has no name=")
    return fields["name"], _blocks(fields["read"]), _blocks(fields["write"])


def _launch(handler, current, text, stream):
    name, read, written = parse(text)
    aliases = {}
    for alias, address in read + written:
        aliases.setdefault(address, []).append(alias)
    outputs = {address for _, address in written}
    # NULL is the stream of the moment. One that the sanitizer never met is no stream: Python's mstx passes the address of an object.
    known = getattr(getattr(handler, "syncs", None), "current_sync_states", {})
    if stream == 0 or stream not in known:
        stream = current()
    for error in handler._handle_kernel_launch(stream, {address for _, address in read} - outputs, outputs, outputs, name, aliases):
        print(error, file=sys.stderr, flush=True)


def enable_npu_sanitizer() -> None:
    """Switches torch_npu's sanitizer on, also for operators announced by marks "sanitizer-op: name=...;read=...;write=...".

    What is found is printed to the standard error. Eager mode only.
    """
    global _listener
    try:
        import torch_npu
        from torch_npu.npu import _sanitizer
        _sanitizer.enable_npu_sanitizer()
        handler = _sanitizer.npu_sanitizer.event_handler
    except (ImportError, AttributeError) as error:
        say(f"enable_npu_sanitizer(): torch_npu has no sanitizer here: {error}", once=True)
        return
    if _native.collector is None:
        say_absent()
        return
    if not _native.preloaded:
        say("enable_npu_sanitizer(): marks are not seen: start the program with msmemscope, or preload the collector", once=True)
        return
    if handler is None or not hasattr(handler, "_handle_kernel_launch"):
        say("enable_npu_sanitizer(): marks are not used: this sanitizer looks at kernels, not at streams", once=True)
        return

    def current():
        return int(torch_npu.npu.current_stream().npu_stream)

    def listen(text, stream):
        text = text.decode(errors="replace")
        try:
            _launch(handler, current, text, stream)
        except Malformed as error:
            say(f"enable_npu_sanitizer(): a mark is ignored: {error}: {text[:100]}", once=True)
        except Exception as error:  # pylint: disable=broad-exception-caught  # the program goes on, whatever the sanitizer does
            say(f"enable_npu_sanitizer(): {type(error).__name__}: {error}", once=True)

    import atexit
    _listener = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)(listen)
    _native.collector.mscope_sanitizer(ctypes.cast(_listener, ctypes.c_void_p).value)
    atexit.register(_native.collector.mscope_sanitizer, 0)
