# SPDX-License-Identifier: Apache-2.0
"""The command is one static executable: it asks for no loader and no library, so that it runs wherever it is copied. And it
carries no client of debuginfod, with which elfutils would load libraries and open connections."""
import re

import lint

COMMAND = "bin/msmemscope"


def problems(segments, dynamic, symbols):
    """Failures given what readelf says (-l, -d, -s).

    >>> problems("  LOAD           0x000000", "There is no dynamic section in this file.", "   1: 0 1 FUNC GLOBAL main")
    []
    >>> problems("  INTERP         0x000318", " 0x1 (NEEDED)  Shared library: [libc.so.6]", "")
    ['asks for a program interpreter', 'needs libc.so.6']
    >>> problems("", "", "   7: 0 9 FUNC LOCAL DEFAULT 7 __libdwfl_debuginfod_init")
    ['contains __libdwfl_debuginfod_init']

    Any ordinary program of the system fails.

    >>> problems(lint.readelf("-l", "/bin/sh"), lint.readelf("-d", "/bin/sh"), lint.readelf("-s", "/bin/sh"))
    ['asks for a program interpreter', 'needs libc.so.6']
    """
    failures = ["asks for a program interpreter"] if "INTERP" in segments else []
    failures += [f"needs {name}" for name in lint.needed(dynamic)]
    return failures + [f"contains {name}" for name in sorted(set(re.findall(r"\S*debuginfod\S*", symbols)))]


def check(dists):
    failures = []
    for dist in dists:
        path = dist / COMMAND
        if not path.is_file():
            failures.append(f"{path}: no such file")
            continue
        failures += [f"{path}: {line}" for line in problems(*(lint.readelf(option, path) for option in ("-l", "-d", "-s")))]
    return len(dists), failures


if __name__ == "__main__":
    lint.main(check)
