# SPDX-License-Identifier: Apache-2.0
"""Whoever finishes the files, killed at each of its system calls that change files, leaves what the next one needs: nothing is
lost, nothing is there twice. `recover` is killed at every one of them, the engine of a launch at every one after the program
has begun. tests/targets/kill_at counts and kills."""
import shutil
import subprocess
import time

import pytest

import harness
from crash import wait_until


@pytest.fixture
def kill_at(targets):
    def words(number, *argv):
        return [str(targets / "kill_at"), str(number), *map(str, argv)]

    return words


def can_trace(kill_at):
    """Containers may forbid ptrace; then this cannot be tested there."""
    return subprocess.run(kill_at(1000000, "/bin/true"), capture_output=True).returncode == 3


@pytest.fixture(autouse=True)
def tracing(kill_at):
    if not can_trace(kill_at):
        pytest.skip("ptrace is not allowed here")


@pytest.mark.parametrize("left", ["raw", "raw with undone frees", "raw and packed"])
def test_recover_killed_at_any_call_can_be_run_again(crash, kill_at, left):
    """One launch whose engine and program were killed; each try works on a copy of what it left."""
    victim = crash.start(lanes=1, events=60000) if left == "raw and packed" else \
        crash.start(lanes=2, events=2000, refuses=left == "raw with undone frees")
    if left != "raw and packed":
        victim.kill("engine")
    else:
        wait_until(lambda: any(path.stat().st_size > 10000 for path in victim.out.rglob("*.part")), "nothing was packed")
        victim.kill("engine", "visible")
    victim.finish()
    original = victim.out
    kept = original.with_name("kept")
    shutil.copytree(original, kept)
    expected = None
    for number in range(1, 1000):
        shutil.rmtree(original)
        shutil.copytree(kept, original)
        argv = kill_at(number, crash.command.path, "recover", original)
        status = subprocess.run(argv, capture_output=True, env=harness.environment(crash.command.dist)).returncode
        assert status in (0, 3), f"kill_at ended with {status}"
        if status == 0:
            crash.recover(victim)
        rows = victim.check(ended=left != "raw and packed")
        assert expected in (None, rows), f"killed at call {number}: {rows} rows instead of {expected}"
        expected = rows
        if status == 3:
            break
    print(number, "calls")
    assert number > 20, "recover makes fewer calls than it can"


@pytest.mark.parametrize("refuses", [False, True])
def test_the_engine_killed_at_any_call_leaves_all_to_recover(crash, kill_at, refuses):
    """From the moment it has opened the trace until it has said what it found."""
    over = 0
    for number in range(1, 1000):
        victim = crash.start(lanes=1, events=15000, spread_ms=30, refuses=refuses)
        engine = victim.engine()
        tracer = subprocess.Popen(kill_at(number, f"-{engine}"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        tracer.stdout.read()
        run = victim.finish()
        status = tracer.wait()
        assert run.returncode == 0, run
        if victim.sessions():
            crash.recover(victim)
        victim.check(ended=True)
        shutil.rmtree(victim.out)
        # How many calls it makes differs a little from run to run.
        over = over + 1 if status != 0 else 0
        if over == 3:
            break
    print(number, "calls")
    assert number > 20, "the engine makes fewer calls than it can"
