# SPDX-License-Identifier: Apache-2.0
"""Many processes of one launch, few descriptors, and processes of other pid namespaces: every row of every one of them.

`--crowd=2000`, `--events=100000000` and `--storm=100000` for the full numbers (make soak PART=processes, events, forks).
"""
import os
import resource
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

PAIRS = 3  # a pair is two rows, and each process makes them twice


def limit_descriptors(count):
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
    return lower


def count_rows(project):
    """Rows of allocations and frees, of any form and quickly."""
    count = 0
    for path in Path(project.path).glob("device_*/dump/*"):
        if path.suffix == ".db":
            with closing(sqlite3.connect(path)) as db:
                count += db.execute("select count(*) from memscope_dump where Event in ('MALLOC', 'FREE')").fetchone()[0]
        else:
            with open(path, "rb") as lines:
                count += sum(b",MALLOC," in line or b",FREE," in line for line in lines)
    return count


def check_complete(run, processes, pairs=PAIRS):
    """Every process has a project with all of its rows, and nothing is left to recover."""
    assert run.returncode == 0, run
    projects = run.projects()
    assert len(projects) == processes, f"{len(projects)} projects\n{run.stderr[-2000:]}"
    for project in projects:
        assert count_rows(project) == 4 * pairs, f"{count_rows(project)} rows in {project.path}"
        assert (Path(project.path) / "trace.msc").is_file(), project.path
    assert not list(Path(run.out).glob(".msmemscope_*")), "something was left to recover"
    assert "damaged" not in run.stderr and "lost" not in run.stderr, run.stderr[-2000:]


@pytest.mark.parametrize("limit, form", [(128, "csv"), (128, "db"), (1024, "csv")])
def test_living_processes_outnumber_the_descriptors(msmemscope, program, limit, form):
    """Hard and soft limit are the same. All processes live at one time and go on after the engine has seen them all."""
    alive = 60 if limit == 128 else 90
    run = msmemscope("--format", form, "--", *program("crowd", alive, alive, PAIRS), preexec_fn=limit_descriptors(limit))
    check_complete(run, alive)


def test_the_program_keeps_its_own_limit(msmemscope):
    """The engine raises its soft limit to the hard one; the program has what it was started with."""
    def lower():
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 4096))

    run = msmemscope("--", "/bin/sh", "-c", "ulimit -Sn; ulimit -Hn", preexec_fn=lower)
    assert run.stdout.split() == ["200", "4096"], run


def test_processes_of_one_launch_are_complete(msmemscope, program, crowd):
    """Within the default --max-disk."""
    run = msmemscope("--", *program("crowd", crowd, max(20, crowd // 4), PAIRS), timeout=1800)
    check_complete(run, crowd)
    figures = {key: run.value(key) for key in ("seconds", "engine_kib")}
    print(f"{crowd} processes, {max(20, crowd // 4)} at a time: {figures['seconds']} s, engine {figures['engine_kib']} KiB")


def test_max_disk_counts_all_processes(msmemscope, program):
    """Eight processes that write 0.4 MiB each stay within 1 MiB together, but for what is being written."""
    pairs = 30000
    run = msmemscope("--max-trace=1M", "--", *program("crowd", 8, 8, pairs)).check()
    taken = sum((Path(project.path) / "trace.msc").stat().st_size for project in run.projects())
    assert len(run.projects()) == 8
    assert taken < 3 << 19, f"{taken} bytes"
    for project in run.projects():
        assert count_rows(project) == 4 * pairs


def test_many_events_are_all_there(msmemscope, program, events):
    """Of four processes at full speed."""
    began = time.monotonic()
    pairs = events // 16
    run = msmemscope("--", *program("crowd", 4, 4, pairs), timeout=2200)
    seconds = time.monotonic() - began
    check_complete(run, 4, pairs)
    for project in run.projects():
        assert not any(msmemscope.info(project)["losses"].values())
    print(f"{16 * pairs} events: {seconds:.1f} s, {16 * pairs / seconds / 1e6:.2f} M/s with all files")


def test_forks_amid_allocating_threads_lose_nothing(msmemscope, program, storm):
    """Every tenth child records; of the rest nothing is seen. The parent's own rows are all there."""
    began = time.monotonic()
    every = max(10, storm // 2000)
    run = msmemscope("--", *program("fork_storm", storm, every), timeout=2200).check()
    seconds = time.monotonic() - began
    counts = sorted(count_rows(project) for project in run.projects())
    assert counts == [4] * run.value("children") + [2 * run.value("pairs")], counts[-5:]
    assert not list(Path(run.out).glob(".msmemscope_*"))
    print(f"{storm} forks, {run.value('children')} of them record, {run.value('pairs')} pairs meanwhile: {seconds:.1f} s")


# ---- other pid namespaces ----

UNSHARE = {
    "their own /proc": ["unshare", "--pid", "--fork", "--mount-proc"],
    "our /proc": ["unshare", "--pid", "--fork"],
    "nested": ["unshare", "--pid", "--fork", "unshare", "--pid", "--fork", "--mount-proc"],
}


@pytest.mark.parametrize("words", UNSHARE.values(), ids=UNSHARE)
def test_a_program_in_another_pid_namespace_is_complete(msmemscope, program, words):
    run = msmemscope("--", *words, *program("crowd", 2, 2, PAIRS))
    check_complete(run, 2)
    assert "still run" not in run.stderr, run


def test_a_launch_whose_proc_is_of_another_namespace_is_complete(msmemscope, program):
    """The command itself runs in a namespace that its /proc is not of: no process can be found there."""
    msmemscope.runner = ["unshare", "--pid", "--fork"]
    check_complete(msmemscope("--", *program("crowd", 3, 3, PAIRS)), 3)


def test_a_kill_inside_another_namespace_loses_nothing(msmemscope, program):
    run = msmemscope("--", "unshare", "--pid", "--fork", "/bin/sh", "-c", " ".join([*program("ends_by", "kill"), "; exit 0"])).check()
    [project] = run.projects()
    assert count_rows(project) == run.stdout.count('["malloc"') + run.stdout.count('["free"')
    assert not list(Path(run.out).glob(".msmemscope_*"))


def engines(out):
    """Engines that work on a session in this directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "cmdline").read_bytes().startswith(b"mscope-engine") and any(
                    os.readlink(fd).startswith(str(out)) for fd in (entry / "fd").iterdir()):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def wait_until(holds, what, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.fixture
def outliving(msmemscope, program, out):
    """A program whose process goes on in another namespace, until the file `stop` is there."""
    stop = out / "stop"
    script = (f"unshare --pid --fork {' '.join(program('waits', stop))} </dev/null >/dev/null 2>&1 & "
              f"while ! [ -e {stop}.ready ]; do sleep 0.02; done")
    results = out / "results"
    run = msmemscope("--", "/bin/sh", "-c", script, output=results)
    yield run, stop
    stop.touch()


def test_a_process_that_outlives_the_program_is_followed_to_its_end(outliving):
    run, stop = outliving
    assert "1 process of the program still runs" in run.stderr, run
    assert engines(run.out)
    stop.touch()
    wait_until(lambda: not engines(run.out), "the engine does not end")
    check_complete(run, 1)


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT])
def test_an_engine_in_the_background_obeys_signals(msmemscope, outliving, signo):
    """It ends at once, what was recorded stays, and recover leaves the living process alone until it has ended."""
    run, stop = outliving
    wait_until(lambda: len(engines(run.out)) == 1, "no engine, or more than one")  # a child of its own looks like it until exec
    [engine] = engines(run.out)
    os.kill(engine, signo)
    wait_until(lambda: not engines(run.out), "the engine does not end")
    early = msmemscope("recover", run.out, output=False)
    assert "still running" in early.stderr, early
    assert list(Path(run.out).glob(".msmemscope_*/*.raw")), "the trace of a living process was taken away"
    stop.touch()
    wait_until(Path(f"{stop}.done").exists, "the program does not end")
    wait_until(lambda: "still running" not in msmemscope("recover", run.out, output=False).stderr, "nothing is recovered")
    check_complete(run, 1)
