# SPDX-License-Identifier: Apache-2.0
"""The user manual, in both languages, names everything that a user can meet: options, verbs, columns, rows, keys of Attr, pools,
functions of the package."""
import re

import lint

PAGES = ("docs/manual.md", "docs/manual.zh.md")

# (what it is, file, pattern whose groups are the names). Hidden verbs and the columns of python_trace included or not as written.
LISTS = (
    ("option", "src/options/options.def", r'\.name = "([\w-]+)"'),
    ("verb", "src/options/verbs.def", r'^VERB\(\w+, "([\w-]+)", .*, false, '),
    ("column", "src/dump/columns.def", r'^(?:CALL_)?COLUMN\((?:\w+, )?"([^"]+)"'),
    ("key of Attr", "src/dump/rows.def", r"^KEY\((\w+)\)"),
    ("Event", "src/dump/rows.def", r'^ROW\(\w+, "(\w+)"'),
    ("Event Type", "src/dump/rows.def", r'^ROW\(\w+, "\w+", "(\w+)"'),
    ("Event Type", "src/trace/pools.def", r'^POOL\(\d+, \w+, "(\w+)"'),
    ("function", "python/msmemscope/__init__.py", r'^    "(\w+)": "\w+",$'),
    ("word", "src/options/options.def", r'^(?:WORD|NUMBERED)\(\w+, \w+, \d+, "([\w-]+)"'),
)


def unnamed(page, names):
    """Names that the page does not have, as words of their own between backquotes or in a code block.

    >>> unnamed("`--steps` and `op[:K]`", ["steps", "op", "ste", "level"])
    ['ste', 'level']
    >>> unnamed("Timestamp(ns) is plain text", ["Timestamp(ns)"])
    ['Timestamp(ns)']
    """
    code = "\n".join(re.findall(r"```.*?```|`[^`]+`", page, re.S))
    return [name for name in names if not re.search(rf"(?<![\w]){re.escape(name)}(?![\w-])", code)]


def check(_dists):
    failures, count = [], 0
    for kind, source, pattern in LISTS:
        names = sorted(set(re.findall(pattern, lint.read(source), re.M)))
        if not names:
            failures.append(f"{source}: no {kind} found; tests/lint/check_manual.py has to follow it")
        for page in PAGES:
            count += len(names)
            failures += [f"{page}: does not tell of {kind} {name}" for name in unnamed(lint.read(page), names)]
    return count, failures


if __name__ == "__main__":
    lint.main(check)
