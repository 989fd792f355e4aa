# SPDX-License-Identifier: Apache-2.0
"""Pages say what the code says: tables that come from lists are as their generator prints them, and files they name exist."""
import doctest
import re
import sys

import lint

sys.path.insert(0, str(lint.ROOT / "tools"))

import event_table  # noqa: E402

FOLDERS = "src|tests|tools|docs|simnpu|simcuda|examples|bench|include|python|cmake"


def stale(page, made):
    """Names of tables that the page does not have as they are made now.

    >>> page = "<!-- table: x -->\\nold\\n<!-- end -->"
    >>> stale(page, {"x": "old"})
    []
    >>> stale(page, {"x": "new"})
    ['x']
    >>> stale("no table at all", {"x": "new"})
    ['x']
    """
    return [name for name, text in made.items() if f"<!-- table: {name} -->\n{text}\n<!-- end -->" not in page]


def missing(page, exists):
    """Files and folders that a page names and that are not there. Patterns and parts to be filled in are not looked for.

    >>> missing("see `src/a.c`, `src/*.c`, `tests/<name>/x` and `src/b.c`.", lambda name: name == "src/a.c")
    ['src/b.c']
    """
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]+)(?:::\w+)?`", page)
    return sorted({name for name in named if not exists(name.rstrip("/"))})


def undescribed(definition, schema):
    """Fields of findings (src/findings/findings.def) that the schema of the JSON document does not have.

    >>> undescribed('FINDING(a,\\n\\tFIELD(u64, bytes, "")\\n\\tHIDDEN(u64, mine, "")\\n\\tFIELD(text, name, ""),', '"bytes": {}')
    ['name']
    """
    return sorted({name for name in re.findall(r"^\tFIELD\(\w+, (\w+),", definition, re.M) if f'"{name}"' not in schema})


def check(_dists):
    failures = ["tools/event_table.py: its own doctests failed"] if doctest.testmod(event_table).failed else []
    failures += [f"docs/trace-format.md: the table of {name} is stale: run tools/event_table.py --write"
                 for name in stale(event_table.PAGE.read_text(encoding="utf-8"), event_table.tables())]
    failures += [f"docs/summary.schema.json: has no {name}, a field of src/findings/findings.def"
                 for name in undescribed(lint.read("src/findings/findings.def"), lint.read("docs/summary.schema.json"))]
    pages = [name for name in lint.tree_files() if name.endswith(".md") and name != "tests/features.md"]
    for name in pages:
        page = lint.read(name)
        failures += [f"{name}: names {path}, which is not there"
                     for path in missing(page, lambda path: (lint.ROOT / path).exists())]
    return len(pages), failures


if __name__ == "__main__":
    lint.main(check)
