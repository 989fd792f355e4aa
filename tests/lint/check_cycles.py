# SPDX-License-Identifier: Apache-2.0
"""No folder of src needs itself through others: followed from folder to folder, includes never come back. Every folder counts by
itself, also one inside another. (check_includes.py says which way the arrows between the layers point.)"""
import re
from collections import defaultdict

import lint
from check_includes import includes


def arrows(files):
    """{folder: {other folder: (file, what it includes), the first of them}} of a {path: text}."""
    found = defaultdict(dict)
    for path, text in sorted(files.items()):
        folder = path[len("src/"):].rpartition("/")[0]
        for _, name in includes(text):
            other = name.rpartition("/")[0]
            if other not in ("", folder) and f"src/{name}" in files:
                found[folder].setdefault(other, (path, name))
    return found


def way(graph, start, end):
    """Folders from start to end, by the fewest arrows; None when there is no way."""
    ways, seen = [[start]], {start}
    for path in ways:
        for following in sorted(graph.get(path[-1], ())):
            if following == end:
                return [*path, end]
            if following not in seen:
                seen.add(following)
                ways.append([*path, following])
    return None


def problems(files):
    r"""Failures in a {path: text} of source files: each cycle once, with an include for each of its arrows.

    >>> problems({"src/a/x.c": '#include "b/y.h"', "src/b/y.h": '#include "c/z.h"', "src/c/z.h": ""})
    []
    >>> problems({"src/a/x.h": '#include "a/in/y.h"', "src/a/in/y.h": '#include "a/w.h"', "src/a/w.h": ""})
    ['folders a -> a/in -> a: src/a/x.h includes a/in/y.h, src/a/in/y.h includes a/w.h']
    """
    graph = arrows(files)
    failures, seen = [], set()
    for folder in sorted(graph):
        cycle = way(graph, folder, folder)
        if cycle and frozenset(cycle) not in seen:
            seen.add(frozenset(cycle))
            reasons = ", ".join("{} includes {}".format(*graph[a][b]) for a, b in zip(cycle, cycle[1:]))
            failures.append(f"folders {' -> '.join(cycle)}: {reasons}")
    return failures


def check(_dists):
    names = [name for name in lint.source_files() if re.search(r"\.(c|h|def)$", name)]
    return len(names), problems({name: lint.read(name) for name in names})


if __name__ == "__main__":
    lint.main(check)
