# SPDX-License-Identifier: Apache-2.0
"""Whoever finishes the files, killed at each of its system calls that change files, leaves what the next one needs: nothing is
lost, nothing is there twice. `recover` is killed at every one of them, the engine of a launch at every one from when it first
looks for a trace. tests/targets/kill_at counts and kills.

`--kills=1000`, of `make soak`, kills at files that are opened for reading, too: they change nothing, so what a kill leaves is what one at
the next change leaves, but for when it comes."""
import itertools
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

import harness
from crash import wait_until

AT_A_TIME = 3
ENOUGH = 20  # calls; a finish that makes fewer was not a finish


@pytest.fixture
def kill_at(targets, kills):
    def words(number, *argv):
        return [str(targets / "kill_at"), f"{number}{'r' if kills >= 1000 else ''}", *map(str, argv)]

    # Containers may forbid to trace; then this cannot be tested there.
    if subprocess.run(words(1000000, "/bin/true"), capture_output=True).returncode != 3:
        pytest.skip("ptrace is not allowed here")
    return words


def recover_at_every_call(crash, kill_at, victim, numbers, ended):
    """Tries `numbers` on copies of what the victim left. Gives the first that was beyond the last call."""
    kept = victim.out.with_name(f"{victim.out.name}.kept")
    shutil.copytree(victim.out, kept)
    expected = None
    for number in numbers:
        # In the same place again: the session knows where its results go.
        shutil.rmtree(victim.out)
        shutil.copytree(kept, victim.out)
        argv = kill_at(number, crash.command.path, "recover", victim.out)
        status = subprocess.run(argv, capture_output=True, env=harness.environment(crash.command.dist)).returncode
        assert status in (0, 3), f"kill_at ended with {status}"
        if status == 0:
            crash.recover(victim)
        rows = victim.check(ended=ended)
        assert expected in (None, rows), f"killed at call {number}: {rows} rows instead of {expected}"
        expected = rows
        if status == 3:
            return number


@pytest.mark.parametrize("left", ["raw", "raw for a database", "raw with undone frees", "raw and packed"])
def test_recover_killed_at_any_call_can_be_run_again(crash, kill_at, kills, kill_seed, left):
    # SQLite makes hundreds of calls that are much alike; a sample, another one each time, unless the full number is asked for.
    step = 11 if left == "raw for a database" and kills < 1000 else 1

    def job(first):
        if left == "raw and packed":
            victim = crash.start(lanes=1, events=30000, spread_ms=600, number=first)
            wait_until(lambda: any(path.stat().st_size > 10000 for path in victim.out.rglob("*.part")), "nothing was packed")
            victim.kill("engine", "visible")
        else:
            victim = crash.start(lanes=2, events=1500, refuses=left == "raw with undone frees", number=first,
                                 options=["--format=db"] if left == "raw for a database" else [])
            victim.kill("engine")
        victim.finish()
        numbers = itertools.count(1 + kill_seed % step + (first - 1) * step, AT_A_TIME * step)
        return recover_at_every_call(crash, kill_at, victim, numbers, left != "raw and packed")

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        assert min(pool.map(job, range(1, AT_A_TIME + 1))) > ENOUGH


@pytest.mark.parametrize("refuses", [False, True], ids=["plain", "with undone frees"])
def test_the_engine_killed_at_any_call_leaves_all_to_recover(crash, kill_at, kills, refuses):
    events = 5000 if kills < 1000 else 15000  # more only repeat the write of a part of a dump

    def job(number):
        victim = crash.start(lanes=1, events=events, spread_ms=30, refuses=refuses, number=number)
        engine = victim.engine()
        tracer = subprocess.Popen(kill_at(number, f"-{engine}"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        run = victim.finish()
        tracer.communicate()
        assert run.returncode == 0, run
        if victim.sessions():
            crash.recover(victim)
        victim.check(ended=True)
        shutil.rmtree(victim.out)
        return tracer.returncode == 0

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        # How many calls it makes differs a little from run to run.
        for first in range(1, 1000, AT_A_TIME):
            if not any(pool.map(job, range(first, first + AT_A_TIME))):
                break
    assert first > ENOUGH
