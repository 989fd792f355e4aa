# SPDX-License-Identifier: Apache-2.0
"""A file name of src means one file, so that a name in a stack, a log or a review says which: no two files of src have the same
name."""
from collections import defaultdict
from pathlib import PurePosixPath

import lint

# Names that several files may have, and why.
ALLOWED = {
    "CMakeLists.txt": "CMake asks for it by this name in every folder",
    "hooks.def": "each folder of the collector lists its own hooks",
    "slots.def": "and what is redirected only without a preload",
}


def problems(names):
    """Failures of these paths.

    >>> problems(["src/a/one.c", "src/a/one.h", "src/b/two.c", "src/a/CMakeLists.txt", "src/b/CMakeLists.txt"])
    []
    >>> problems(["src/a/one.c", "src/b/one.c", "src/b/one.h"])
    ['one.c: 2 files have this name: src/a/one.c, src/b/one.c']
    """
    by_name = defaultdict(list)
    for path in map(PurePosixPath, names):
        if path.name not in ALLOWED:
            by_name[path.name].append(str(path))
    return [f"{name}: {len(paths)} files have this name: {', '.join(paths)}"
            for name, paths in sorted(by_name.items()) if len(paths) > 1]


def check(_dists):
    names = lint.source_files()
    return len(names), problems(names)


if __name__ == "__main__":
    lint.main(check)
