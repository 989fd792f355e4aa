# SPDX-License-Identifier: Apache-2.0
"""A program that installs a seccomp filter: no system call of ours ends it, and what could not be recorded is counted."""
import pytest


@pytest.mark.parametrize("how", ["prctl", "seccomp"])
@pytest.mark.parametrize("before", [100, 0])
def test_a_filter_does_not_meet_our_system_calls(traced, how, before):
    result = traced("sandbox", how, before, 1, 30000, driver="bare", stdout=True)
    result.balance("sandboxed")


def test_threads_that_come_after_the_filter_are_recorded(traced):
    result = traced("sandbox", "prctl", 10, 8, 5000, driver="bare", stdout=True)
    result.balance("sandboxed")


def test_few_events_under_a_filter_are_all_recorded(traced):
    """The space that was taken when the filter came lasts, whatever the engine does."""
    result = traced("sandbox", "prctl", 10, 8, 1000, driver="bare", stdout=True)
    assert result.balance() == 0


def test_a_child_forked_under_a_filter_is_counted(traced):
    result = traced("sandbox", "prctl", 10, 1, 100, 7, driver="bare", stdout=True)
    assert result.run.returncode == 0, result.run
    [(project, _)] = result.pairs()
    assert result.info(project)["losses"]["sandboxed"] == 7
    assert "7 events, a seccomp filter" in result.run.stderr, result.run


@pytest.mark.parametrize("before", [0, 50])
def test_nor_does_it_in_a_program_that_only_has_the_collector_preloaded(msmemscope, program, targets, dist, before):
    """Before its first start() live blocks are kept in a table, which then grows no more; in a child, too."""
    env = {"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so", "LD_LIBRARY_PATH": f"{targets / 'bare'}:{targets}"}
    run = msmemscope.bare(*program("sandbox", "prctl", before, 4, 20000, 7), env=env).check()
    assert run.stderr == "" and run.stdout.count('"pid"') == 4
