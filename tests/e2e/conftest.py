# SPDX-License-Identifier: Apache-2.0
"""What pytest offers to the tests of this folder is described in fixtures.py; and --forks N, for test_fork_walks.py."""
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fixtures import *  # noqa: E402, F401, F403


def pytest_addoption(parser):
    parser.addoption("--forks", type=int, default=12, help="forks of each kind while the loader is busy")


@pytest.fixture(scope="session")
def forks(request):
    return request.config.getoption("--forks")
