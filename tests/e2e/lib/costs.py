# SPDX-License-Identifier: Apache-2.0
"""What each test costs and what it runs: a plugin of pytest that fixtures.py registers.

CPU time of a test, of this process and of all that it waited for, is the property `cpu_s` of the test in the junit file
(tools/count-tests.py adds them up). $MSMEMSCOPE_COVERED, a directory, is for a build with the preset `coverage`: the blocks that a
test ran are there, beside a line of `tests` for each that passed (tools/covered.py reads them).
"""
import json
import os
import resource
from pathlib import Path

import pytest

_covered = os.environ.get("MSMEMSCOPE_COVERED")
_started = 0.0
_outcomes = {}


def spent():
    """Seconds of CPU time of this process and of its children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    global _started  # pylint: disable=global-statement
    if _covered:
        number = f"{os.getpid()}-{len(_outcomes)}"
        _outcomes[item.nodeid] = number, []
        os.environ["MSCOPE_COVERAGE"] = os.path.join(_covered, number)
    _started = spent()
    yield


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if _covered:
        _outcomes[item.nodeid][1].append(report.passed)
    if report.when != "teardown":
        return
    seconds = round(spent() - _started, 3)
    report.user_properties.append(("cpu_s", seconds))
    if _covered:
        number, outcomes = _outcomes[item.nodeid]
        with open(Path(_covered) / "tests", "a", encoding="utf-8") as file:
            file.write(json.dumps({"test": item.nodeid, "files": number, "cpu_s": seconds, "passed": all(outcomes)}) + "\n")
