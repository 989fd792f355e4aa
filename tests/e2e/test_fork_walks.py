# SPDX-License-Identifier: Apache-2.0
"""Forks while other threads hold the loader's lock: no child waits for a thread that it does not have."""
import pytest

STACKS = ["--call-stack=c:20"]


def _without_stacks(result):
    """Projects of the children that were forked while a thread was in the loader."""
    return [project for project in result.run.projects()
            if any("in the loader" in note for note in result.info(project)["notes"])]


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


def test_lookups_of_ours_leave_no_child_of_fork_without_its_stacks(traced, forks):
    """A busy machine may keep a thread from going on for a tenth of a second; without the gate it is every other child."""
    result = traced("fork_walks", "fork", forks, driver="bare", options=STACKS, timeout=30 + forks).exact()
    assert len(_without_stacks(result)) <= max(forks // 10, 2)


def test_a_child_without_the_loader_tells_that_it_has_no_stacks(traced, forks):
    """No handler runs before a raw clone, so some come amid lookups; every event is there all the same."""
    rounds = max(forks, 40)
    result = traced("fork_walks", "clone", rounds, driver="bare", options=STACKS, timeout=30 + forks).exact()
    without = _without_stacks(result)
    assert without
    for project in result.run.projects():
        for row in result.rows(project):
            assert bool(row.c_stack) == (project not in without), row
