# SPDX-License-Identifier: Apache-2.0
"""The command is one static executable: it asks for no loader and no library, so that it runs wherever it is copied."""
import lint

COMMAND = "bin/msmemscope"


def problems(segments, dynamic):
    """Failures given what readelf says (-l, -d).

    >>> problems("  LOAD           0x000000", "There is no dynamic section in this file.")
    []
    >>> problems("  INTERP         0x000318", " 0x1 (NEEDED)  Shared library: [libc.so.6]")
    ['asks for a program interpreter', 'needs libc.so.6']

    Any ordinary program of the system fails.

    >>> problems(lint.readelf("-l", "/bin/sh"), lint.readelf("-d", "/bin/sh"))
    ['asks for a program interpreter', 'needs libc.so.6']
    """
    failures = ["asks for a program interpreter"] if "INTERP" in segments else []
    return failures + [f"needs {name}" for name in lint.needed(dynamic)]


def check(dists):
    failures = []
    for dist in dists:
        path = dist / COMMAND
        if not path.is_file():
            failures.append(f"{path}: no such file")
            continue
        failures += [f"{path}: {line}" for line in problems(lint.readelf("-l", path), lint.readelf("-d", path))]
    return len(dists), failures


if __name__ == "__main__":
    lint.main(check)
