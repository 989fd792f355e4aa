# SPDX-License-Identifier: Apache-2.0
"""The line that puts something into a container, by the text of the program's own files. It is said only if there is one such line:
what a name refers to cannot be known from text, but a program that fills `losses` in one place fills it there.

Files are read once until forget(), up to _BYTES in all; nothing of the program is called or imported."""
import dis
import os
import re
import sys
import types
from importlib.machinery import SourceFileLoader

_BYTES = 4 << 20
_CALLS = "append|appendleft|extend|add|insert|update|setdefault|put|put_nowait"
_NOT_OWN = tuple(os.path.realpath(path) + os.sep for path in {sys.prefix, sys.base_prefix, os.path.dirname(os.__file__),
                                                               os.path.dirname(__file__)}) + (f"{os.sep}usr{os.sep}lib{os.sep}",)
# What is not code: a comment, a string of three quotes, one of a line. Whichever starts first is it.
_STRINGS = r"QQQ[^Q\\]*(?:(?:\\.|Q(?!QQ))[^Q\\]*)*QQQ|Q[^Q\\\n]*(?:\\.[^Q\\\n]*)*Q"
_NOT_CODE = re.compile("|".join((r"#[^\n]*", _STRINGS.replace("Q", '"'), _STRINGS.replace("Q", "'"))), re.DOTALL)
_NOT_LINE_END = re.compile(r"[^\n]")
_texts = {}


def is_own(path):
    """Whether a file is the program's own, not one of the interpreter or of an installed package."""
    return type(path) is str and path.endswith(".py") and "site-packages" not in path and "dist-packages" not in path and \
        not os.path.realpath(path).startswith(_NOT_OWN)


def is_library(path):
    """Whether a file is one of the interpreter or of an installed package; what was typed or made by exec() is the program's own."""
    return path.startswith("<frozen ") or not path.startswith("<") and not is_own(path)


def _blank(match):
    text = match[0]
    inner = _NOT_LINE_END.sub(" ", text[1:-1])
    return f"{text[0]}{inner}{text[-1]}" if text[0] != "#" else " " * len(text)


def _code_alone(text):
    """A file's text with spaces for comments and for what strings have in them: nothing is filled there."""
    return _NOT_CODE.sub(_blank, text)


def _files(where):
    """Paths of the program's own modules; the interpreter takes __file__ away from a script that has ended, and runpy the module."""
    paths = {where[0]: None} if where is not None and os.path.isabs(where[0]) else {}
    for module in list(sys.modules.values()):
        if type(module) is not types.ModuleType:
            continue
        path = module.__dict__.get("__file__")
        if path is None and type(module.__dict__.get("__loader__")) is SourceFileLoader:
            path = module.__dict__["__loader__"].path
        paths[path if type(path) is str else ""] = None
    return filter(is_own, paths)


def forget():
    """Gives back what was read."""
    _texts.clear()


def _lines(where):
    left = _BYTES - sum(map(len, _texts.values()))
    for path in _files(where):
        if path not in _texts:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    _texts[path] = _code_alone(file.read(max(left, 0)))
            except OSError:
                _texts[path] = ""
            left -= len(_texts[path])
        for number, line in enumerate(_texts[path].split("\n"), 1):
            yield path, number, line


def function_lines(code):
    """(first, last) line of a function, with those that are defined in it."""
    last = max((line for _at, line in dis.findlinestarts(code) if line is not None), default=code.co_firstlineno)
    return code.co_firstlineno, max([last, *(function_lines(inner)[1] for inner in code.co_consts if type(inner) is types.CodeType)])


def _is_meant(path, number, dotted, attribute, where):
    """Whether a name at a line of a file can be the one that is meant, not another of the same letters."""
    if dotted or attribute:  # an attribute is one everywhere, and a global of one module in others
        return dotted and (attribute or where is None or where[1] is None)
    if where is None or not where[0]:
        return True
    file, lines = where
    if lines is None:
        return os.path.basename(path) == os.path.basename(file)
    return os.path.realpath(path) == os.path.realpath(file) and lines[0] <= number <= lines[1]


def _only(name, form, where):
    """(path, number, what follows) of the only line that has a name in a form; None: there is none, or there are several."""
    words = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", name))
    if not words:
        return None
    pattern = re.compile(form.replace("NAME", words[-1]))
    found = {}
    for path, number, line in _lines(where):
        match = pattern.search(line) if words[-1] in line else None
        if match is not None:
            at = max(map(match.start, pattern.groupindex))
            if _is_meant(path, number, line[:at].rstrip().endswith("."), len(words) > 1, where):
                found[path, number] = line[match.end():]
    if len(found) != 1:
        return None
    [((path, number), rest)] = found.items()
    return path, number, rest


def _said(only):
    if only is None:
        return "", ""
    path, number, rest = only
    value = re.fullmatch(r"\s*([^\W\d][\w.]*)\s*\)?\s*", rest)
    return f"{os.path.basename(path)}:{number}", value.group(1) if value is not None else ""


def filled(name, where=None):
    """("train.py:18", "loss") of "trainer.losses" or "seen['Conv2d']": the line that fills it, and the variable that is put in, "" if it
    is none. Two empty texts if no line fills it, or several do. `where`: the file of a bare name, and its lines if it is a function's."""
    return _said(_only(name, rf"\b(?P<name>NAME)\b(\[[^\]]*\])*\s*(\.({_CALLS})\s*\(|\+=|\[[^\]]*\]\s*=(?!=))|"
                             r"heappush\(\s*([\w.]+\.)?(?P<pushed>NAME)\b", where))


def added(name, where=None):
    """The same of the line that adds something to a number or tensor: "loss" of "total += loss" and "total = total + loss"."""
    return _said(_only(name, r"\b(?P<name>NAME)\s*(\+=|=\s*([\w.]+\.)?NAME\s*\+)", where))
