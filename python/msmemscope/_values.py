# SPDX-License-Identifier: Apache-2.0
"""Values of config(): the words, lists, paths and ranges that the command takes, by its own table (_options.py) and in its own
words when it refuses one. Everything is bytes here, as it is for the command.
"""
import os
import re

from ._options import PATH_DEPTH, PATH_MAX, PATH_NAME_MAX, TEXT_MAX, WATCH_NAME_MAX

_COMMA = re.compile(b",|\xef\xbc\x8c")  # half-width, and full-width as one character
_BLANKS = b" \t\n\v\f\r"
_SHOWN = 64  # bytes of a value in a message
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Refused(ValueError):
    """A value that the option cannot mean; says which part of it and why."""

    def __init__(self, value, fault):
        super().__init__(f"{quote(value)} {fault}" if value else "the value is empty")


def quote(value):
    """A value as messages show it: control characters, backslashes and what is not UTF-8 as escapes, long ones cut."""
    shown, at = "", 0
    while at < len(value) and at < _SHOWN:
        for size in (1, 2, 3, 4):
            try:
                character = value[at:at + size].decode()
                break
            except UnicodeDecodeError:
                character = ""
        if character and character != "\\" and not _CONTROL.match(character):
            shown += character
        else:
            size = size if character else 1
            shown += "".join({0x5c: "\\\\", 0x0a: "\\n", 0x09: "\\t"}.get(byte, f"\\x{byte:02x}")
                             for byte in value[at:at + size])
        at += size
    return f"'{shown}...' ({len(value)} bytes)" if at < len(value) else f"'{shown}'"


def _number(digits, most):
    """Digits only, no leading zero, at most `most`; None otherwise."""
    if not re.fullmatch(b"0|[1-9][0-9]*", digits) or len(digits) > 20 or int(digits) > most:
        return None
    return int(digits)


def _text_fault(value, blanks):
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        before = value[:error.start].decode()
        return "contains a control character" if _control(before, blanks) else "is not UTF-8"
    return "contains a control character" if _control(text, blanks) else None


def _control(text, blanks):
    return any(not (blanks and character.encode() in (bytes([blank]) for blank in _BLANKS))
               for character in _CONTROL.findall(text))


def _faults(text, name):
    """Letters that differ, are missing, are too many, or stand in the place of their neighbour; as src/base/nearest.c counts."""
    before, last = [], list(range(len(name) + 1))
    for i, letter in enumerate(text):
        now = [i + 1]
        for k, known in enumerate(name):
            now.append(min(last[k + 1] + 1, now[k] + 1, last[k] + (letter != known)))
            if i and k and letter == name[k - 1] and text[i - 1] == known:
                now[-1] = min(now[-1], before[k - 1] + 1)
        before, last = last, now
    return last[-1]


def _unknown(option, value, name):
    """A word that the option does not have, and the one that was meant if it is near to one."""
    text, allowed, near = name.lower().replace(b"_", b"-"), (len(name) + 2) // 3, None
    for word in option.words if 4 <= len(name) <= 40 else ():
        faults = _faults(text, word)
        if faults <= allowed and (near is None or faults < near[0]):
            near = faults, word
    return Refused(value, f"is not allowed, did you mean {near[1].decode()}?" if near else "is not allowed")


def _word(option, value):
    if value not in option.words:
        raise _unknown(option, value, value)
    return option.words[value].value


def _set(option, value):
    """Words of a list: {bit: number that the word carries}; of a word that stands for several, a bit for each."""
    named, none, any_item = {}, False, False
    for item in filter(None, _COMMA.split(value)):
        name, colon, digits = item.partition(b":")
        word = option.words.get(name)
        if word is None:
            raise _unknown(option, item, name)
        number = word.initial
        if colon:
            if word.kind not in ("numbered", "each"):
                raise Refused(item, "has a number but takes none")
            number = _number(digits, word.max)
            if number is None or number < word.min:
                raise Refused(item, "has a bad number")
        any_item = True
        if word.kind == "none":
            none = True
        elif word.kind == "each":
            named[word.value] = named.get(word.value, 0) | (1 << number if colon else 0xffffffff)
        else:
            named[word.value] = number
    if not any_item and not option.may_be_empty:
        raise Refused(b"", "")
    return {} if none else named


def _path(_option, value):
    value = value.strip(_BLANKS)
    if value and value[:1] in (b"=", b"+", b"-", b"@"):
        raise Refused(value, "starts with one of = + - @")
    if len(value) > PATH_MAX:
        raise Refused(value, "is too long")
    fault = _text_fault(value, blanks=True)
    if not value or fault:
        raise Refused(value, fault)
    names = []
    for name in (value if value[:1] == b"/" else os.getcwdb() + b"/" + value).split(b"/"):
        if name == b"..":
            del names[-1:]
        elif name not in (b"", b"."):
            names.append(name)
    path = b"/" + b"/".join(names)
    if len(path) > PATH_MAX:
        raise Refused(value, "is too long")
    for depth, name in enumerate(names, 1):
        if len(name) > PATH_NAME_MAX:
            raise Refused(value, "contains a name that is too long")
        if depth > PATH_DEPTH:
            raise Refused(value, "has too many levels")
    return path


_OUTPUT = re.compile(b"(.*):(?:out)?([0-9]+)", re.S)


def _watch_start(item):
    found = _OUTPUT.fullmatch(item)
    name = item
    if found:
        if _number(found[2], 0xffffffff) is None:
            raise Refused(item, "has a bad output number")
        name = found[1]
    elif b":" in item and item.rpartition(b":")[2] in (b"", b"out", b"outid"):
        raise Refused(item, "has no output number, which is written as :0 or :out0")
    if not name or item.rfind(b":") == 0:
        raise Refused(item, "has no operator before the colon")
    return name


def _watch(_option, value):
    fault = _text_fault(value, blanks=False)
    if fault:
        raise Refused(value, fault)
    if not value:
        return value  # off
    items = _COMMA.split(value, 3)
    if b"," in items[-1] or b"\xef\xbc\x8c" in items[-1]:
        items[-1] = _COMMA.split(items[-1])[0]
    if items[-1] == b"full-content":
        items.pop()
    elif len(items) == 3 and not items[2]:
        items.pop()
    if len(items) > 2:
        raise Refused(value, "has too many parts")
    if not items or not items[-1]:
        raise Refused(value, "has no END")
    names = [items[-1]]
    if len(items) == 2 and items[0]:
        names.insert(0, _watch_start(items[0]))
    elif _OUTPUT.fullmatch(items[-1]):
        raise Refused(value, "has the number of an output but no START")
    for name in names:
        if len(name) > WATCH_NAME_MAX:
            raise Refused(name, "is too long")
    return value


def _text(_option, value):
    fault = _text_fault(value, blanks=True)
    if fault or not value.strip(_BLANKS):
        raise Refused(value, fault or "is blank")
    if len(value) > TEXT_MAX:
        raise Refused(value, "is too long")
    return value


def _one_number(option, value):
    number = _number(value, option.max)
    if number is None or number < option.min:
        raise Refused(value, "is not such a number")
    return number


_PARSERS = {"word": _word, "set": _set, "path": _path, "watch": _watch, "text": _text, "number": _one_number}
_SECRET = re.compile(r"postgres(?:ql)?://(?:[^/?@]*:[^/?@]*@|[^?]*\?(?:.*&)?(?:ssl)?password=)", re.I | re.S)


def has_secret(url):
    """Whether the URL of a store carries a password, which the command line of the engine would show to everybody."""
    return _SECRET.match(url) is not None


def parse(option, value):
    """The meaning of a value, or Refused."""
    try:
        raw = os.fsencode(value)
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    return _PARSERS[option.kind](option, raw)
