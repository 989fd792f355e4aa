# SPDX-License-Identifier: Apache-2.0
"""Several pytest that share the files of tests, a plugin that conftest.py files register: $MSMEMSCOPE_QUEUE is DIRECTORY:first or
DIRECTORY:last (`pair` in tools/common.sh). One begins at the first file, the other at the last.
"""
import os
import signal
from pathlib import Path

import pytest

_queue, _, _from = os.environ.get("MSMEMSCOPE_QUEUE", "").partition(":")
_ours = {}  # {file of tests: whether it is this process that runs them}
# A shell lets what it runs in the background ignore these, and our programs would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    if _queue:
        items.sort(key=lambda item: str(item.path), reverse=_from == "last")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """The first to take a file runs all of its tests; the other passes over them, and they are no part of its results."""
    if not _queue:
        return None
    if item.path not in _ours:
        try:
            (Path(_queue) / "-".join(item.path.parts[-2:])).mkdir()
            _ours[item.path] = True
        except FileExistsError:
            _ours[item.path] = False
    return None if _ours[item.path] else True
