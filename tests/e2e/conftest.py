# SPDX-License-Identifier: Apache-2.0
"""What pytest offers to the tests of this folder is described in lib/fixtures.py; and --forks N, for test_fork_walks.py, --ooms N,
for test_oom.py, --networks N, for test_networks.py, --crowd, --events, --storm N, for test_processes.py.

Helpers live in lib/, where every test finds them by name. No test module imports another one (tests/lint/check_tests.py).
"""
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parent / "lib"
sys.path.insert(0, str(LIB))
pytest.register_assert_rewrite(*(path.stem for path in LIB.glob("*.py")))

from fixtures import *  # noqa: E402, F401, F403


def pytest_addoption(parser):
    parser.addoption("--crowd", type=int, default=100, help="processes of one launch")
    parser.addoption("--events", type=int, default=400000, help="events of one launch")
    parser.addoption("--storm", type=int, default=200, help="forks amid allocating threads")
    parser.addoption("--ooms", type=int, default=12, help="programs that run out of memory")
    parser.addoption("--networks", type=int, default=12, help="random networks that are decomposed")
    parser.addoption("--forks", type=int, default=12, help="forks of each kind while the loader is busy")


@pytest.fixture(scope="session")
def events(request):
    return request.config.getoption("--events")


@pytest.fixture(scope="session")
def storm(request):
    return request.config.getoption("--storm")


@pytest.fixture(scope="session")
def crowd(request):
    return request.config.getoption("--crowd")


@pytest.fixture(scope="session")
def networks(request):
    return request.config.getoption("--networks")


@pytest.fixture(scope="session")
def ooms(request):
    return request.config.getoption("--ooms")


@pytest.fixture(scope="session")
def forks(request):
    return request.config.getoption("--forks")
