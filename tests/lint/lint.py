# SPDX-License-Identifier: Apache-2.0
"""What the checks in this folder share: the tree's files, and ELF facts as readelf tells them.

A check is a module check_<name>.py with a function check(dists) that returns how many things it looked at and a list of
failures, one line each. `dists` are staged trees (build/dist); checks of the source ignore it. The rule itself is a pure
function whose doctests show that it can fail; run.py runs these first. Only the standard library is used, so that
`make lint` needs nothing but Python.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

C_SUFFIXES = (".c", ".h")


def tree_files():
    """Every file of the project, committed or about to be, as paths relative to its root."""
    command = ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
        names = [name for name in os.fsdecode(out).split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        # A tarball has no git; everything but what is built belongs to it.
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
        names = [name for name in names if not re.match(r"(build|\.git)/|.*__pycache__", name)]
    return sorted(name for name in names if (ROOT / name).is_file())


def source_files():
    """The files of src."""
    return [name for name in tree_files() if name.startswith("src/")]


def read(name):
    """The text of one file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def readelf(*arguments):
    """Output of readelf, which unlike objdump reads ELF files of every machine."""
    run = subprocess.run(["readelf", "-W", *map(str, arguments)], capture_output=True, text=True)
    if run.returncode != 0 or "Error:" in run.stderr:
        raise SystemExit(f"readelf {arguments[-1]}: {run.stderr.strip()}")
    return run.stdout


def needed(dynamic):
    """Names of the NEEDED entries in the output of `readelf -d`.

    >>> needed(" 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]")
    ['libc.so.6']
    """
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)


def main(check):
    """Runs one check by itself: `python3 tests/lint/check_x.py [build/dist ...]`."""
    counted, failures = check([Path(argument) for argument in sys.argv[1:]])
    for line in failures:
        print(line)
    print(f"{counted} checked, {len(failures)} failures")
    sys.exit(1 if failures else 0)
