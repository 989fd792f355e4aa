# SPDX-License-Identifier: Apache-2.0
"""The program killed right after each store of the collector that a reader can see (TESTPOINT in src/collector), at its first
passages and at later ones: reading never fails, and every call that had returned is there. With an engine that follows, and
with one that died first, so that everything comes from the raw trace."""
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

import harness
from crash import Crash

SOURCES = Path(__file__).resolve().parents[2] / "src" / "collector"
POINTS = sorted({name for path in SOURCES.rglob("*.[ch]") for name in re.findall(r"^\s+TESTPOINT\((\w+)\);", path.read_text(), re.M)})

# Passages to die at. Points of a record are passed by each of 2 x 30,000 events, those of a chunk by each of about six.
OF_A_RECORD = (1, 2, 3, 4, 5, 6, 100, 12345, 50000)
PASSAGES = {"header": (1,), "named": (1,), "sealed": (1, 2, 3), "opened": (1, 2, 3, 5), "published": (1, 2, 3, 5)}

# Finds the engine among its siblings, kills it, and becomes the program.
WITHOUT_ENGINE = """
import os, pathlib, signal, sys, time
parent = os.getppid()
while True:
    for pid in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if pathlib.Path(f"/proc/{pid}/comm").read_text() == "mscope-engine\\n":
            os.kill(int(pid), signal.SIGKILL)
            os.execv(sys.argv[1], sys.argv[1:])
    time.sleep(0.001)
"""


@pytest.fixture(scope="session")
def testing_dist(dist, targets, tmp_path_factory):
    """The staged tree with the collector of the crash tests in the place of the real one."""
    library = targets.parents[1] / "src" / "collector" / "testpoints" / "libascend_kernel_hook.so"
    assert library.exists(), f"no {library}: build the target collector_testpoints"
    place = tmp_path_factory.mktemp("testing") / "dist"
    shutil.copytree(dist, place, symlinks=True)
    shutil.copy(library, (place / "lib64" / "libascend_kernel_hook.so").resolve())
    return place


@pytest.fixture
def testing(testing_dist, out, runner, program):
    command = harness.Command(testing_dist, out, runner)
    yield Crash(command, program, out)
    command.close()


def test_there_are_points():
    assert {"header", "named", "sealed", "opened", "published", "busy", "filled", "committed", "idle"} <= set(POINTS)


@pytest.mark.parametrize("follower", ["engine", "nobody"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_this_point_loses_no_call_that_had_returned(testing, point, follower):
    for number, passage in enumerate(PASSAGES.get(point, OF_A_RECORD)):
        # A program without an engine needs more chunks; the same number of events is enough to need some.
        victim = testing.start(lanes=2, events=30000, spread_ms=0, env={"MSMEMSCOPE_TESTPOINT": f"{point}:{passage}"},
                               wrap=lambda words: words if follower == "engine" else
                               [sys.executable, "-c", WITHOUT_ENGINE, *words])
        run = victim.finish()
        assert run.returncode == -signal.SIGKILL, f"{point}:{passage} was not reached\n{run}"
        if follower == "nobody":
            assert "recover" in run.stderr, run
            testing.recover(victim)
        rows = victim.check()
        assert rows > 0 or passage < 10 or point in ("sealed", "opened", "published"), run
        shutil.rmtree(victim.out)
