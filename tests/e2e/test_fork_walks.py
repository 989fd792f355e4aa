# SPDX-License-Identifier: Apache-2.0
"""Forks while other threads hold the loader's lock: no child waits for a thread that it does not have."""
import pytest

STACKS = ["--call-stack=c:20"]


def _have_stacks(result):
    """Every process, and every row of it, down to the program's own functions."""
    for project in result.run.projects():
        assert not result.info(project)["notes"]
        for row in result.rows(project):
            assert "main" in str(row.c_stack), row


@pytest.mark.parametrize("loads", [[], ["loads"]], ids=["lookups", "loads"])
@pytest.mark.parametrize("kind", ["fork", "_Fork", "clone", "constructor"])
def test_a_child_finds_originals_that_its_parent_never_needed(traced, forks, kind, loads):
    result = traced("fork_walks", kind, forks, *loads, driver="bare", timeout=30 + forks).exact()
    assert len(result.run.projects()) == forks + 1


@pytest.mark.parametrize("kind", ["handler", "signal"])
def test_a_fork_that_the_lookup_itself_waits_for_is_late_and_not_stuck(traced, forks, kind):
    """Each may take as long as the one waits for the other: a tenth of a second."""
    rounds = max(forks // 6, 3)
    result = traced("fork_walks", kind, rounds, driver="bare", timeout=30 + forks).exact()
    assert len(result.run.projects()) == rounds + 1


@pytest.mark.parametrize("loads", [[], ["loads"]], ids=["lookups", "loads"])
@pytest.mark.parametrize("kind", ["fork", "_Fork", "clone"])
def test_a_child_has_stacks_whatever_lock_its_parent_left(traced, forks, kind, loads):
    """No handler runs before _Fork and raw clone, so some children come amid a walk of the loader's list, or a dlopen()."""
    rounds = max(forks, 20)
    _have_stacks(traced("fork_walks", kind, rounds, *loads, driver="bare", options=STACKS, timeout=30 + forks).exact())


@pytest.mark.parametrize("lock", [[], ["locked"]], ids=["free", "locked"])
def test_a_child_forked_amid_a_walk_of_the_stack_has_stacks(traced, lock):
    """That thread's walk of the loader's list, and the lock that it may hold, will not end in the child."""
    result = traced("fork_unwinding", *lock, driver="bare", options=STACKS, timeout=30).exact()
    assert len(result.run.projects()) == 3
    _have_stacks(result)
