# SPDX-License-Identifier: Apache-2.0
"""What pytest offers to the tests of this folder is described in lib/fixtures.py. NUMBERS are how much of something is tried: each
is an option and a fixture.

Helpers live in lib/, where every test finds them by name. No test module imports another one (tests/lint/check_tests.py).
"""
import sys
from pathlib import Path

import pytest

LIB = Path(__file__).resolve().parent / "lib"
sys.path.insert(0, str(LIB))
# Rewriting the assertions takes most of the time before the first test: the result is kept, whatever the developer's own setting.
sys.dont_write_bytecode = False
sys.pycache_prefix = str(LIB.parents[2] / "build" / "pycache")
pytest.register_assert_rewrite(*(path.stem for path in LIB.glob("*.py")))

from fixtures import *  # noqa: E402, F401, F403

# What `make test` tries, and of what; `make soak` asks for more.
NUMBERS = {
    "armada": (48, "ranks of one run that end in the same second (test_fleet.py)"),
    "asked": (12, "random files and programs of each kind (test_analyze.py)"),
    "crowd": (100, "processes of one launch (test_processes.py)"),
    "culprits": (24, "times that watched memory is overwritten (test_culprits.py)"),
    "events": (400000, "events of one launch (test_processes.py)"),
    "fillings": (3, "programs that fill a device slowly (test_forecast.py)"),
    "fleets": (4, "runs of synthetic ranks with planted outliers (test_fleet.py)"),
    "forks": (12, "forks of each kind while the loader is busy (test_fork_walks.py)"),
    "gpus": (6, "random programs on CUDA's driver (test_cuda.py)"),
    "keepers": (19, "random programs with a planted keeper of tensors (test_keepers.py)"),
    "networks": (12, "random networks that are decomposed (test_networks.py)"),
    "ooms": (12, "programs that run out of memory (test_oom.py)"),
    "pairs": (28, "pairs of runs with a planted difference (test_compare_pairs.py)"),
    "parquets": (12, "random Parquet files that other software reads back (test_parquet.py)"),
    "pasts": (40, "runs of a history with a planted commit (test_fleet.py)"),
    "processes_seen": (300, "processes of one page (test_view.py)"),
    "sights": (3, "random histories that the page is asked about (test_view_truth.py)"),
    "sparks": (4, "ranks whose events a Spark cluster reads (soak_spark.py)"),
    "storm": (200, "forks amid allocating threads (test_processes.py)"),
    "ways": (4, "of 16 ways to run the manuals' examples (test_matrix.py)"),
}


def pytest_addoption(parser):
    parser.addoption("--listed", help="run only the tests that this file names (tests/check.list)")
    parser.addoption("--waiting", action="store_true", help="with --listed: and those that wait for another process")
    for name, (default, what) in NUMBERS.items():
        parser.addoption(f"--{name}", type=int, default=default, help=what)


def _fixture(name):
    return pytest.fixture(scope="session", name=name)(lambda request: request.config.getoption(f"--{name}"))


for _name in NUMBERS:
    globals()[f"number_of_{_name}"] = _fixture(_name)
