# SPDX-License-Identifier: Apache-2.0
"""No file names a directory of somebody's machine or leaves a note for later."""
import re

import lint

# Spelled so that this file does not find itself.
MACHINE = re.compile(r"(?<![\w.$}~*])/(?:" + "|".join(["work", "farm", "home", "root"]) + r")/[\w.]+")
LATER = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")


def problems(name, data):
    r"""Failures in one file. Notes are looked for in text only; paths also in binary files such as recorded traces.

    >>> problems("a.c", b"mkstemp(\"/var/tmp/aXXXXXX\"); /* $HOME/work/x, https://host/work/x, a/root/b */")
    []
    >>> [line[:27] for line in problems("a.md", b"first\nsee " + b"/" + b"work/main/x\n")]
    ['a.md:2: path of one machine']
    >>> [line[:21] for line in problems("a.c", b"/* TO" + b"DO: later */")]
    ['a.c:1: note for later']
    >>> [line[:26] for line in problems("a.msc", b"\0\n" + b"/" + b"home/someone/lib.so\0 X" + b"XX ")]
    ['a.msc: path of one machine']
    """
    text = data.decode("latin-1")
    if "\0" in text:
        return [f"{name}: path of one machine: {found!r}" for found in MACHINE.findall(text)]
    failures = []
    for number, line in enumerate(text.split("\n"), 1):
        for what, pattern in (("path of one machine", MACHINE), ("note for later", LATER)):
            failures += [f"{name}:{number}: {what}: {found!r}" for found in pattern.findall(line)]
    return failures


def check(_dists):
    names = lint.tree_files()
    return len(names), [line for name in names for line in problems(name, (lint.ROOT / name).read_bytes())]


if __name__ == "__main__":
    lint.main(check)
