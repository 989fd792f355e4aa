# SPDX-License-Identifier: Apache-2.0
"""Every C file is laid out as .clang-format says, so that reviews never discuss it. `--fix` (make format) does it."""
import re
import shutil
import subprocess
import sys

import lint

# Versions disagree about details; this is Debian 12's.
VERSION = "14"


def misplaced(messages):
    """Files that clang-format complained about, once each, out of its messages.

    >>> misplaced("src/a.c:3:1: error: code should be clang-formatted [-Wclang-format-violations]\\nint  a;\\n"
    ...           "src/a.c:9:1: error: code should be clang-formatted [-Wclang-format-violations]\\n")
    ['src/a.c: layout differs from .clang-format; run make format']
    """
    names = re.findall(r"^(.+?):\d+:\d+: error: code should be clang-formatted", messages, re.M)
    return [f"{name}: layout differs from .clang-format; run make format" for name in dict.fromkeys(names)]


def formatter():
    for name in (f"clang-format-{VERSION}", "clang-format"):
        path = shutil.which(name)
        if path:
            text = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
            if re.search(rf"version {VERSION}\.", text):
                return path
    raise SystemExit(f"clang-format {VERSION} is missing: run tools/install-packages.sh test")


def c_files():
    return [name for name in lint.tree_files() if name.endswith(lint.C_SUFFIXES)]


def check(_dists):
    names = c_files()
    command = [formatter(), "--dry-run", "-Werror", *names]
    run = subprocess.run(command, cwd=lint.ROOT, capture_output=True, text=True)
    failures = misplaced(run.stderr)
    if run.returncode != 0 and not failures:
        failures = [f"clang-format: {run.stderr.strip()}"]
    return len(names), failures


if __name__ == "__main__":
    if sys.argv[1:] == ["--fix"]:
        sys.exit(subprocess.run([formatter(), "-i", *c_files()], cwd=lint.ROOT).returncode)
    lint.main(check)
