# SPDX-License-Identifier: Apache-2.0
"""A comment stands above a declaration, or behind it on the same line. One that is too long for its line makes clang-format tear
the declaration in two, `type` on one line and `name; /* ... */` on the next."""
import re

import lint

TORN = re.compile(r"^[ \t]+[^\n;{}()#]*[\w*\])]\n[ \t]+[^;\n]*;[ \t]*/\*", re.M)


def problems(name, text):
    r"""Failures in one file.

    >>> problems("src/a.h", "struct a {\n\t/* Above. */\n\tuint64_t bytes;\n\tint fd; /* behind */\n};\n")
    []
    >>> problems("src/a.h", "struct a {\n\tuint64_t\n\t\tbytes; /* a long comment */\n};\n")
    ['src/a.h:2: the comment tears a declaration in two; put it above']
    >>> problems("src/a.h", "struct a {\n\tchar name\n\t\t[200]; /* a long comment */\n};\n")
    ['src/a.h:2: the comment tears a declaration in two; put it above']
    >>> problems("src/a.c", "\treturn f(a) +\n\t       b; /* both */\n")
    []
    """
    return [f"{name}:{text.count(chr(10), 0, found.start()) + 1}: the comment tears a declaration in two; put it above"
            for found in TORN.finditer(text)]


def check(_dists):
    names = [name for name in lint.source_files() if name.endswith((*lint.C_SUFFIXES, ".def"))]
    return len(names), [line for name in names for line in problems(name, lint.read(name))]


if __name__ == "__main__":
    lint.main(check)
