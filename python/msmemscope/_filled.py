# SPDX-License-Identifier: Apache-2.0
"""The line that puts something into a container, by the text of the program's own files. It is said only if there is one such line:
what a name refers to cannot be known from text, but a program that fills `losses` in one place fills it there.

Files are read once until forget(), up to _BYTES in all; nothing of the program is called or imported."""
import os
import re
import sys
import types
from importlib.machinery import SourceFileLoader

_BYTES = 4 << 20
_CALLS = "append|appendleft|extend|add|insert|update|setdefault|put|put_nowait"
_NOT_OWN = tuple(os.path.realpath(path) + os.sep for path in {sys.prefix, sys.base_prefix, os.path.dirname(os.__file__),
                                                               os.path.dirname(__file__)}) + (f"{os.sep}usr{os.sep}lib{os.sep}",)
_texts = {}


def _files():
    """Paths of the program's own modules; the interpreter takes __file__ away from a script that has ended."""
    for module in list(sys.modules.values()):
        if type(module) is not types.ModuleType:
            continue
        path = module.__dict__.get("__file__")
        if path is None and type(module.__dict__.get("__loader__")) is SourceFileLoader:
            path = module.__dict__["__loader__"].path
        if type(path) is str and path.endswith(".py") and "site-packages" not in path and "dist-packages" not in path and \
                not os.path.realpath(path).startswith(_NOT_OWN):
            yield path


def forget():
    """Gives back what was read."""
    _texts.clear()


def _lines():
    left = _BYTES - sum(map(len, _texts.values()))
    for path in _files():
        if path not in _texts:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    _texts[path] = file.read(max(left, 0))
            except OSError:
                _texts[path] = ""
            left -= len(_texts[path])
        for number, line in enumerate(_texts[path].split("\n"), 1):
            yield path, number, line.split("#", 1)[0]


def filled(name):
    """("train.py:18", "loss") of "trainer.losses" or "seen['Conv2d']": the line that fills it, and the variable that is put in, "" if it
    is none. Two empty texts if no line fills it, or several do."""
    words = re.findall(r"[^\W\d]\w*", re.sub(r"\[[^\]]*\]", "", name))
    if not words:
        return "", ""
    pattern = re.compile(rf"\b{words[-1]}\b(\[[^\]]*\])*\s*(\.({_CALLS})\s*\(|\+=|\[[^\]]*\]\s*=(?!=))|"
                         rf"heappush\(\s*([\w.]+\.)?{words[-1]}\b")
    found = {}
    for path, number, line in _lines():
        match = pattern.search(line) if words[-1] in line else None
        if match is not None:
            found[path, number] = line[match.end():]
    if len(found) != 1:
        return "", ""
    [((path, number), rest)] = found.items()
    value = re.fullmatch(r"\s*([^\W\d][\w.]*)\s*\)?\s*", rest)
    return f"{os.path.basename(path)}:{number}", value.group(1) if value is not None else ""
