# SPDX-License-Identifier: Apache-2.0
"""`recover` and sessions that others made or can change: nothing outside of the named directory is written or removed."""
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

NOBODY = 65534
ROUNDS = 25


@pytest.fixture
def left(msmemscope, program, out):
    """A session whose engine and program were killed, in an output directory of its own."""
    results, stop = out / "results", out / "stop"
    started = msmemscope.start("--", *program("waits", stop), output=results)
    end = time.monotonic() + 60
    while not Path(f"{stop}.ready").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    started.kill()
    started.process.communicate()
    [session] = results.glob(".msmemscope_[0-9]*")
    return session


def retarget(session, output):
    """Lets a session file name another output directory."""
    path = session / "session"
    data = bytearray(path.read_bytes())
    at = data.index(str(session.parent).encode() + b"\0")
    text = str(output).encode() + b"\0"
    data[at:at + len(text)] = text
    path.write_bytes(data)


def copy_of(session, place):
    place.mkdir(parents=True)
    return Path(shutil.copytree(session, place / session.name))


def projects(directory):
    return sorted(directory.glob("msmemscope_*")) if directory.exists() else []


def test_a_session_of_the_caller_is_recovered_where_it_lies(msmemscope, left):
    run = msmemscope("recover", left, output=False)
    assert run.returncode == 0, run
    assert len(projects(left.parent)) == 1
    assert not left.exists()


@pytest.mark.parametrize("word", ["session", "output"])
def test_a_session_of_another_user_is_refused(msmemscope, left, out, word):
    victim = out / "victim"
    retarget(left, victim)
    os.chown(left, NOBODY, NOBODY)
    for path in left.iterdir():
        os.chown(path, NOBODY, NOBODY)
    before, begun = sorted(path.name for path in left.iterdir()), projects(left.parent)
    run = msmemscope("recover", left if word == "session" else left.parent, output=False)
    assert run.returncode == 1, run
    assert "belongs to another user" in run.stderr, run
    assert not victim.exists()
    assert sorted(path.name for path in left.iterdir()) == before
    assert projects(left.parent) == begun


def test_another_user_cannot_recover_ours(msmemscope, left):
    for path in [left.parent.parent, left.parent]:
        path.chmod(0o755)
    left.chmod(0o755)
    msmemscope.runner = ["setpriv", "--reuid", str(NOBODY), "--clear-groups", "--"]
    run = msmemscope("recover", left, output=False)
    assert run.returncode != 0, run
    assert list(left.glob("*.raw"))


def test_a_session_that_others_can_write_to_is_refused(msmemscope, left):
    left.chmod(0o770)
    run = msmemscope("recover", left, output=False)
    assert run.returncode == 1 and "others can write to it" in run.stderr, run
    left.chmod(0o700)
    msmemscope("recover", left, output=False).check()


def test_results_of_a_session_go_beside_it_unless_its_output_points_back(msmemscope, left, out):
    """A session that was copied, as from a colleague, names an output directory that knows nothing of it."""
    victim, place = out / "victim", out / "copied"
    copied = copy_of(left, place)
    retarget(left, victim)
    msmemscope("recover", left, output=False).check()
    assert not victim.exists()
    assert len(projects(left.parent)) == 1
    msmemscope("recover", copied, output=False).check()
    assert len(projects(place)) == 1 and len(projects(left.parent)) == 1


def test_a_session_elsewhere_keeps_its_output(msmemscope, program, out):
    """With --trace-dir the output directory has a pointer file to the session, and so points back."""
    results, stop, traces = out / "results", out / "stop", out / "traces"
    started = msmemscope.start("--trace-dir", traces, "--", *program("waits", stop), output=results)
    end = time.monotonic() + 60
    while not Path(f"{stop}.ready").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    started.kill()
    started.process.communicate()
    msmemscope("recover", results, output=False).check()
    assert len(projects(results)) == 1 and not projects(traces)
    assert not list(results.glob(".msmemscope_*")) and not list(traces.glob(".msmemscope_*"))


def test_a_symbolic_link_is_no_session(msmemscope, left, out):
    elsewhere = out / "elsewhere"
    left.rename(elsewhere)
    left.symlink_to(elsewhere)
    before = sorted(path.name for path in elsewhere.iterdir())
    for word in (left.parent, left):
        run = msmemscope("recover", word, output=False)
        assert "nothing to recover" in run.stderr, run
        assert sorted(path.name for path in elsewhere.iterdir()) == before


class Swapper(threading.Thread):
    """Lets a name mean the session, then a link to another directory, and so on until it is told to stop."""

    def __init__(self, session, target):
        super().__init__()
        self.session, self.aside, self.target = session, session.with_name("aside"), target
        self.link = session.with_name("link")
        self.ended = False

    def run(self):
        self.link.symlink_to(self.target)
        while not self.ended:
            try:
                os.rename(self.session, self.aside)
                os.rename(self.link, self.session)
                os.rename(self.session, self.link)
                os.rename(self.aside, self.session)
            except OSError:
                break

    def stop(self):
        self.ended = True
        self.join()
        if self.session.is_symlink():
            self.session.unlink()
        if self.aside.exists():
            self.aside.rename(self.session)


def test_a_directory_that_becomes_a_link_while_recover_works_is_not_followed(msmemscope, left, out):
    victim = out / "victim"
    for number in range(ROUNDS):
        shutil.rmtree(victim, ignore_errors=True)
        victim.mkdir()
        names = [f"file{i}" for i in range(20)]
        for name in names:
            (victim / name).write_text("precious")
        session = copy_of(left, out / f"round{number}")
        swapper = Swapper(session, victim)
        started = subprocess.Popen([msmemscope.path, "recover", session], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        swapper.start()
        try:
            started.wait(60)
        finally:
            swapper.stop()
        assert sorted(path.name for path in victim.iterdir()) == sorted(names), f"round {number}"
        # Whatever it saw, nothing is lost: the session is finished, or still there.
        if session.exists() and list(session.glob("*.raw")):
            msmemscope("recover", session, output=False).check()
        assert len(projects(session.parent)) == 1, f"round {number}"
