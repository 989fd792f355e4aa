# SPDX-License-Identifier: Apache-2.0
"""Processes that give up what recording needs, before they use a device for the first time: recorded where it can be, else
counted and named. Never does the report say that no device memory was used."""
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user or change its root directory")

NOBODY = "65534"
SETPRIV = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
MISSING = re.compile(r"process (\d+) \((\w+)\) was not recorded, (\d+) events are missing: (.*)")


def _open_to_others(path):
    return all(folder.stat().st_mode & 0o001 for folder in [path, *path.parents])


@pytest.fixture(scope="module")
def apart():
    """A directory that the other user can enter, for a clone below one that is closed to others."""
    found = [Path(path).resolve() for path in (tempfile.gettempdir(), "/tmp", "/var/tmp") if os.path.isdir(path) and _open_to_others(Path(path).resolve())]
    if not found:
        pytest.fail("needs a temporary directory that other users can enter, for the programs that they run", pytrace=False)
    with tempfile.TemporaryDirectory(dir=found[0]) as path:
        os.chmod(path, 0o755)
        yield Path(path)


def _within_reach(path, apart):
    return path if _open_to_others(path.resolve()) else Path(shutil.copytree(path, apart / path.name, symlinks=True, dirs_exist_ok=True))


@pytest.fixture(scope="module", name="dist")
def dist_within_reach(dist, apart):
    return _within_reach(dist, apart)


@pytest.fixture(scope="module", name="targets")
def targets_within_reach(targets, apart):
    return _within_reach(targets, apart)


@pytest.fixture(autouse=True)
def reachable(tmp_path_factory):
    """The other user has to reach the files of a test; pytest closes its folder to others."""
    os.chmod(tmp_path_factory.getbasetemp(), 0o711)


def _lost(result):
    """pid: (events, why) of what the report names; it says nothing wrong besides."""
    assert "the program used no device memory" not in result.run.stderr
    return {int(pid): (int(events), why) for pid, _, events, why in MISSING.findall(result.run.stderr)}


def _events(result):
    return {pid: len(process.events()) for (pid, _), process in result.processes.items() if process.events()}


@pytest.mark.parametrize("words", [["setuid"], ["chroot"], ["nofile=3"], ["nofile=0"], ["fsize=4096"]], ids=" ".join)
@pytest.mark.parametrize("child", [[], ["fork"], ["_Fork"], ["clone"], ["live", "fork"]], ids=lambda words: "-".join(words) or "itself")
def test_rights_given_up_before_the_first_event(traced, words, child):
    result = traced("confine", *child, *words, "live", driver="bare", stdout=True).exact()
    assert len(result.run.projects()) == (2 if "live" in child else 1)
    assert not _lost(result)


def test_what_a_confined_process_records_later_is_there_or_counted(msmemscope, program, targets):
    """The engine reserves space for it; when it comes too late, recording goes on all the same."""
    run = msmemscope("--events=alloc", "--", *program("confine", "setuid", "many"), env={"LD_LIBRARY_PATH": targets / "bare"}).check()
    info = msmemscope.info(run.project())
    seen = info["events_by_type"]["block_alloc"] + info["events_by_type"]["block_free"]
    assert seen + sum(info["losses"].values()) == 1600000, info["losses"]
    assert seen > 800000
    assert not info["stopped"]


@pytest.mark.parametrize("words", [["setuid", "exec"], ["raw_setuid"], ["live", "setuid", "fork"], ["live", "chroot", "_Fork"],
                                   ["live", "setuid", "clone"], ["live", "nofile=0", "fork"], ["live", "raw_setuid", "exec"]],
                         ids=" ".join)
def test_what_cannot_be_recorded_is_counted_and_named(traced, words):
    result = traced("confine", *words, "live", driver="bare", stdout=True)
    result.run.check()
    made = _events(result)
    lost = _lost(result)
    for project in result.run.projects():
        recorded = len(result.rows(project))
        if project.pid in lost:  # an exec under the same pid
            continue
        assert recorded == made.pop(project.pid)
    assert {pid: events for pid, (events, _) in lost.items()} == made
    [(_, why)] = lost.values()
    assert ("as user 65534 it cannot reach" in why) == ("nofile" not in " ".join(words) and "chroot" not in words), why


def test_a_program_of_another_user(msmemscope, program, targets):
    run = msmemscope("--", *SETPRIV, *program("confine", "live"), env={"LD_LIBRARY_PATH": targets / "bare"}).check()
    [(_, name, events, why)] = MISSING.findall(run.stderr)
    assert (name, events) == ("confine", "188")
    assert why.startswith("as user 65534 it cannot reach /") and why.endswith(": Permission denied")
    assert "the program used no" not in run.stderr
    assert not run.projects()
    assert not list(run.out.iterdir()) if run.out.exists() else True


def test_many_processes_of_another_user_are_summed_up(msmemscope, program, targets):
    words = " ".join(str(word) for word in program("confine", "live"))
    run = msmemscope("--", *SETPRIV, "sh", "-c", f"for i in $(seq 15); do {words}; done",
                     env={"LD_LIBRARY_PATH": targets / "bare"}).check()
    assert len(MISSING.findall(run.stderr)) == 5
    assert "10 more processes were not recorded, 1880 events are missing" in run.stderr


def test_a_process_that_gives_up_rights_and_records_nothing_leaves_nothing(msmemscope, program):
    run = msmemscope("--", *program("confine", "setuid")).check()
    assert not run.projects()
    assert "the program used no device memory" in run.stderr
    assert not list(run.out.iterdir()) if run.out.exists() else True


def test_doctor_tells_that_another_user_is_not_recorded(msmemscope, program):
    run = msmemscope.bare(msmemscope.path, "doctor", "--", *SETPRIV, *program("confine"))
    assert re.search(r"setpriv runs its command as user 65534, who cannot write to the trace .*: put msmemscope after it", run.stdout), run.stdout
    assert "setpriv can be recorded" not in run.stdout
