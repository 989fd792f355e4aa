# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run the real command (harness.py and rows.py do the work).

    dist         staged tree under test: build/dist, or $MSMEMSCOPE_DIST
    targets      compiled tests/targets: build/release/tests/targets, or $MSMEMSCOPE_TARGETS
    runner       words in front of every program under test: $MSMEMSCOPE_RUNNER, an emulator for a cross build, else none
    out          fresh directory on a real disk, removed when the test passed
    msmemscope   runs the command, see harness.Command
    program      program("threads", 4): the words that run a target with arguments

Whatever is missing is a failure, never a skip: these tests only mean something when they run. Another folder of tests gets
all this by a conftest.py that puts tests/e2e into sys.path and says `from fixtures import *`.
"""
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "tmp-e2e"


def pytest_configure(config):
    config.addinivalue_line("markers", "qemu: also run against the aarch64 build under qemu-user")
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        item.passed = report.passed


def _existing(variable, default, proof):
    path = Path(os.environ.get(variable) or default).resolve()
    if not (path / proof).exists():
        pytest.fail(f"no {path / proof}: run make, or set {variable}", pytrace=False)
    return path


@pytest.fixture(scope="session")
def dist():
    return _existing("MSMEMSCOPE_DIST", ROOT / "build" / "dist", "bin/msmemscope")


@pytest.fixture(scope="session")
def targets():
    return _existing("MSMEMSCOPE_TARGETS", ROOT / "build" / "release" / "tests" / "targets", ".")


@pytest.fixture(scope="session")
def runner():
    return os.environ.get("MSMEMSCOPE_RUNNER", "").split()


@pytest.fixture
def out(request):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name)[:60]
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH))
    yield path
    if getattr(request.node, "passed", False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def msmemscope(dist, out, runner):
    command = harness.Command(dist, out, runner)
    yield command
    command.close()


@pytest.fixture
def program(targets, runner):
    def words(name, *arguments):
        path = targets / name
        assert path.is_file(), f"no target {path}"
        return [*runner, str(path), *map(str, arguments)]

    return words
