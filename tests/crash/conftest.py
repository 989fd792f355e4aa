# SPDX-License-Identifier: Apache-2.0
"""What pytest offers to the tests of this folder: everything of tests/e2e (lib/fixtures.py there), and

    --kills N       how many random kills, over all kinds of victims (default 100)
    --kill-seed S   the same kills again; a failure prints its seed
    crash           runs tests/targets/crash_target and checks what is left of it, see crash.Crash
"""
import random
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parents[1] / "e2e" / "lib"
sys.path.insert(0, str(LIB))
# Rewriting the assertions takes most of the time before the first test: the result is kept, whatever the developer's own setting.
sys.dont_write_bytecode = False
sys.pycache_prefix = str(LIB.parents[2] / "build" / "pycache")
pytest.register_assert_rewrite("crash", *(path.stem for path in LIB.glob("*.py")))

from fixtures import *  # noqa: E402, F401, F403

import crash as crash_module  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--kills", type=int, default=100, help="random kills in all")
    parser.addoption("--kill-seed", type=int, default=None, help="seed of the random kills")


@pytest.fixture(scope="session")
def kills(request):
    return request.config.getoption("--kills")


@pytest.fixture(scope="session")
def kill_seed(request):
    seed = request.config.getoption("--kill-seed")
    return random.SystemRandom().randrange(1 << 32) if seed is None else seed


@pytest.fixture
def crash(msmemscope, program, out):
    return crash_module.Crash(msmemscope, program, out)
