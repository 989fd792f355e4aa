# SPDX-License-Identifier: Apache-2.0
"""pytest, with two variables more (tools/common.sh). $MSMEMSCOPE_FAILED names a file: tests that fail are written into it, a line each.
$MSMEMSCOPE_AGAIN names such a file: only the tests in it run."""
import os
import sys
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config, items):
    again = os.environ.get("MSMEMSCOPE_AGAIN")
    if again:
        names = set(Path(again).read_text(encoding="utf-8").splitlines())
        chosen = [item for item in items if item.nodeid in names]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in names])
        items[:] = chosen


def pytest_runtest_logreport(report):
    failed = os.environ.get("MSMEMSCOPE_FAILED")
    if failed and report.failed:
        with open(failed, "a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")


if __name__ == "__main__":
    sys.path.insert(1, os.getcwd())  # as `python -m pytest` does
    sys.exit(pytest.main(["-p", "again", *sys.argv[1:]]))
