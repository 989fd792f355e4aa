# SPDX-License-Identifier: Apache-2.0
"""What bad luck gets: the program is never the one to suffer, and one sentence says what happened."""
import contextlib
import json
import os
import random
import resource
import shutil
import signal
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from harness import engine_of


def sentences(run):
    """What the tool itself said on stderr."""
    return [line for line in run.stderr.splitlines() if line.startswith("msmemscope")]


# The output path cannot be used.

@pytest.fixture(params=["below a file", "in /proc", "a file"])
def unusable(request, tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way\n")
    return {"below a file": file / "sub", "in /proc": Path("/proc/nowhere"), "a file": file}[request.param]


def test_nothing_is_started_when_the_output_path_is_not_writable(msmemscope, program, unusable):
    run = msmemscope("--", *program("plain", 7), output=unusable)
    assert (run.returncode, run.stdout) == (1, ""), run
    assert "plain stderr" not in run.stderr
    assert len([line for line in sentences(run) if str(unusable) in line]) == 1, run


def test_best_effort_runs_the_program_anyway(msmemscope, program, unusable):
    run = msmemscope("--best-effort", "--", *program("plain", 7), output=unusable)
    assert (run.returncode, run.stdout) == (7, "plain stdout\n"), run
    assert str(unusable) in run.stderr


def test_best_effort_runs_a_program_that_takes_memory(traced, unusable):
    result = traced("threads", 2, 500, options=["--best-effort"], output=unusable)
    result.run.check()
    assert result.processes


@pytest.mark.parametrize("descriptors", [6, 9, 12, 20])
def test_best_effort_runs_the_program_with_few_descriptors(msmemscope, program, descriptors):
    run = msmemscope("--best-effort", "--", *program("plain", 7),
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors)))
    assert (run.returncode, run.stdout) == (7, "plain stdout\n"), run


def test_verbs_work_with_little_address_space(msmemscope, program, out):
    """`ulimit -v` of 128 MiB, as batch systems set it: what a small run needs is small. Below, one sentence says why it failed."""
    def limit(mebibytes):
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20, mebibytes << 20)), "output": False}

    project = msmemscope("--", *program("leaky_steps"), output=out / "run").check().project().path
    for number, words in enumerate([["info", project], ["export", project, "-o", out / "csv"], ["report", project, "-o", out / "report.html"],
                                    ["export", project, "-o", out / "perfetto", "--format=perfetto"], ["info", project, "--json"]]):
        run = msmemscope(*words, **limit(128))
        assert run.returncode == 0, (number, str(run))
        run = msmemscope(*words, **limit(12))
        assert run.returncode == 0 or (run.returncode == 1 and "memory" in " ".join(sentences(run))), (number, str(run))


# A small stack: the program has what it was given, the command takes what it needs.

SMALL_STACK = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_STACK, (64 << 10, 64 << 10))}


def test_a_small_stack_is_the_programs_own_affair(traced, msmemscope, program):
    """RLIMIT_STACK is inherited: command, engine and program have 64 KiB each."""
    traced("threads", 4, 1000, options=["--call-stack=c:20"], **SMALL_STACK).exact()
    run = msmemscope("--", "sh", "-c", "ulimit -s; ulimit -Hs", output=msmemscope.out / "limits", **SMALL_STACK).check()
    assert run.stdout == "64\n64\n"


def test_verbs_work_with_a_small_stack(traced, msmemscope, out):
    project = traced("threads", 4, 1000).exact().run.project().path
    store = f"sqlite:{out / 'store.db'}"
    for number, words in enumerate([["info", project], ["analyze", "leaks", project], ["export", project, "-o", out / "db", "--format=db"],
                                    ["export", project, "-o", out / "perfetto", "--format=perfetto"], ["doctor"], ["--help"],
                                    ["report", project, "-o", out / "report.html"], ["bundle", project.parent, "-o", out / "bundle"],
                                    ["store", "add", project, "--to", store], ["fleet", "show", "--store", store],
                                    ["recover", project.parent]]):
        assert msmemscope(*words, output=False, **SMALL_STACK).returncode == 0, (number, words)


@pytest.mark.skipif(os.geteuid() != 0, reason="a user cannot make a directory that is closed to that user only")
def test_a_directory_of_somebody_else_is_not_writable(msmemscope, program, dist):
    """Root may write everywhere, so this one runs as nobody, on copies that nobody can reach."""
    place = Path("/var/tmp") / f"msmemscope-test-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        shutil.copytree(dist, place / "dist", symlinks=True)
        shutil.copy(program("plain")[-1], place)
        command = [place / "dist/bin/msmemscope", "-o", place / "out", "--", place / "plain", "7"]
        run = subprocess.run(command, user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (1, ""), run
        assert str(place / "out") in run.stderr
        (place / "out").mkdir()
        (place / "out").chmod(0o777)
        run = subprocess.run(command, user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True)
        assert (run.returncode, run.stdout) == (7, "plain stdout\n"), run
    finally:
        shutil.rmtree(place)


# The disk is full.

@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MiB: room for one step of the trace and not for two."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_under_the_trace_harms_nobody(traced, small_disk):
    """While the engine sleeps nothing of the trace is given back: the second act does not fit, and that is counted."""
    def wake(engine):
        with contextlib.suppress(ProcessLookupError):
            os.kill(engine, signal.SIGCONT)

    def pause(started):
        engine = engine_of(started.pid)
        os.kill(engine, signal.SIGSTOP)
        threading.Timer(2, wake, [engine]).start()

    result = traced("two_acts", 100, 130000, 9, options=["--trace-dir", small_disk], between=pause)
    assert result.balance("no_space", status=9) > 0
    assert result.run.stderr.count("Recording ended early: the disk was full") == 1, str(result.run)


def test_a_disk_that_is_full_from_the_start_is_told(msmemscope, program, small_disk):
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(bytes(8 << 20))
    run = msmemscope("--trace-dir", small_disk, "--", *program("plain", 7))
    assert (run.returncode, run.stdout) == (1, ""), run
    assert any("space" in line for line in sentences(run)), run
    run = msmemscope("--best-effort", "--trace-dir", small_disk, "--", *program("plain", 7))
    assert (run.returncode, run.stdout) == (7, "plain stdout\n"), run


def test_a_full_disk_under_the_results_keeps_the_trace(traced, msmemscope, small_disk, tmp_path):
    """The rows do not fit; the program's status stands, and the trace can be finished once there is room."""
    traces = tmp_path / "traces"
    traces.mkdir()
    result = traced("threads", 4, 20000, options=["--trace-dir", traces], output=small_disk)
    result.run.check()
    assert any("space" in line or "full" in line for line in sentences(result.run)), result.run
    assert any(traces.rglob("*")), "nothing of the trace was kept"
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
    recovered = msmemscope("recover", small_disk, output=False)
    assert recovered.returncode == 0, recovered
    result.exact()


# A directory vanishes during the run.

def vanish(path):
    """Removes a directory in which somebody makes files meanwhile."""
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)


def test_the_output_directory_vanishes_during_the_run(traced, out):
    result = traced("two_acts", 10000, 10000, 9, between=lambda _: vanish(out))
    assert result.run.returncode == 9, result.run
    assert len(result.processes) == 1
    assert len(sentences(result.run)) >= 1, result.run


def test_an_output_directory_that_vanishes_before_the_engine_looks_is_told(msmemscope, program, out):
    """The engine sleeps until a trace was made and removed: nothing of it is left, and that is not "used no device memory"."""
    script = """engines=
for pid in $(cat /proc/$PPID/task/$PPID/children); do [ $pid = $$ ] || { kill -STOP $pid; engines="$engines $pid"; }; done
shift; "$@" > /dev/null < /dev/null; status=$?
rm -rf "$0"; kill -CONT $engines; exit $status"""
    run = msmemscope("--", "sh", "-c", script, out / "run", "--", *program("two_acts", 100, 100, 9), output=out / "run")
    assert run.returncode == 9, run
    [sentence] = [line for line in sentences(run) if "nothing was recorded" in line]
    assert sentence.endswith("was removed while the program ran") and str(out / "run") in sentence, run


def test_the_trace_directory_vanishes_during_the_run(traced, tmp_path):
    traces = tmp_path / "traces"
    traces.mkdir()
    result = traced("two_acts", 10000, 10000, 9, options=["--trace-dir", traces],
                    between=lambda _: vanish(traces))
    assert result.run.returncode == 9, result.run
    if result.run.projects():
        result.balance("no_space", status=9)


# There is no such program, or it cannot be executed.

def test_no_such_program(msmemscope, out):
    for name in ("no-such-program-anywhere", "./no/such/program"):
        run = msmemscope("--", name)
        assert (run.returncode, run.stdout) == (127, ""), run
        assert len([line for line in sentences(run) if name in line]) == 1, run
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("what", ["file", "directory"])
def test_not_executable(msmemscope, tmp_path, what):
    path = tmp_path / "thing"
    path.mkdir() if what == "directory" else path.write_text("text\n")
    run = msmemscope("--", path)
    assert run.returncode == 126, run
    assert len([line for line in sentences(run) if str(path) in line]) == 1, run


def test_a_script_runs_as_it_does_without_us(msmemscope, tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho \"$1\"\nexit 4\n")
    script.chmod(0o755)
    run = msmemscope("--", script, "hello")
    assert (run.returncode, run.stdout) == (4, "hello\n"), run


# Programs that cannot be traced are told before they start (static and sanitized ones: test_living_inside.py).

@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_setuid_program(msmemscope, program, tmp_path):
    path = tmp_path / "plain"
    shutil.copy(program("plain")[-1], path)
    os.chown(path, 65534, 65534)
    path.chmod(0o755 | stat.S_ISUID)
    run = msmemscope("--", path, "5")
    assert (run.returncode, run.stdout) == (5, "plain stdout\n"), run
    [sentence] = [line for line in sentences(run) if "setuid" in line]
    assert str(path) in sentence
    assert run.stderr.index("setuid") < run.stderr.index("plain stderr"), "said before it starts"


# Damaged, cut and foreign traces.

@pytest.fixture
def trace(traced):
    """A kept trace, whole."""
    return next(iter(traced("threads", 4, 1000).exact().run.project().path.glob("trace.msc")))


def info(msmemscope, path):
    """What `info` says about a damaged or foreign trace: (exit status, JSON or None); the JSON or stderr tells what is wrong."""
    run = msmemscope("info", path, "--json", output=False, timeout=30)
    answer = json.loads(run.stdout)["processes"][0] if run.stdout else None
    assert run.returncode in (0, 1, 3), run
    if answer is None:
        assert len([line for line in sentences(run) if str(path) in line]) == 1, run
    else:
        assert answer["damaged"] == (run.returncode == 3), run
    return run.returncode, answer


def test_a_cut_trace_gives_what_is_there(msmemscope, trace, tmp_path):
    status, whole = info(msmemscope, trace)
    assert status == 0
    data = trace.read_bytes()
    cut = tmp_path / "cut.msc"
    found = []
    for length in sorted({1, 100, 4096, len(data) // 4, len(data) // 2, len(data) - 4096, len(data) - 1}):
        cut.write_bytes(data[:length])
        status, answer = info(msmemscope, cut)
        assert status != 0, f"{length} of {len(data)} bytes"
        found.append(answer["events"] if answer else 0)
    assert found == sorted(found), "more of the trace gave less"
    assert 0 < found[-1] <= whole["events"]


def test_a_damaged_trace_gives_what_is_there(msmemscope, trace, tmp_path):
    """Bits changed anywhere: an answer, quickly, and never a wrong one that looks right."""
    _, whole = info(msmemscope, trace)
    generator = random.Random(7)
    damaged = tmp_path / "damaged.msc"
    answered = 0
    for _ in range(30):
        data = bytearray(trace.read_bytes())
        for _ in range(generator.choice([1, 10, 1000])):
            data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        damaged.write_bytes(data)
        status, answer = info(msmemscope, damaged)
        if status == 0:
            assert answer["events"] == whole["events"], "damage went unnoticed"
        answered += answer is not None
    assert answered > 0


@pytest.mark.parametrize("content", [b"", b"\0" * 100000, b"ID,Event\n1,MALLOC\n", "elf"],
                         ids=["empty", "zeros", "csv", "elf"])
def test_a_foreign_file_is_not_a_trace(msmemscope, program, tmp_path, content):
    path = tmp_path / "foreign.msc"
    path.write_bytes(Path(program("plain")[-1]).read_bytes() if content == "elf" else content)
    status, answer = info(msmemscope, path)
    assert status in (1, 3) and answer is None


def test_a_trace_that_is_not_there(msmemscope, tmp_path):
    assert info(msmemscope, tmp_path / "nothing.msc") == (1, None)


def test_recover_of_a_directory_without_traces(msmemscope, tmp_path):
    """Nothing to do is not a failure to do it; a directory that is not there is."""
    assert msmemscope("recover", tmp_path, output=False).returncode == 0
    assert msmemscope("recover", tmp_path / "nowhere", output=False).returncode == 1


def test_recover_of_a_file_says_what_it_is(msmemscope, trace, tmp_path):
    """A trace that is whole is in order; a file that is none was not meant."""
    whole = msmemscope("recover", trace, output=False).check()
    assert f"nothing to recover in {trace}" in whole.stderr
    for content in (b"", b"ID,Event\n", b"\0" * 4096):
        path = tmp_path / "file"
        path.write_bytes(content)
        run = msmemscope("recover", path, output=False)
        assert (run.returncode, run.stdout) == (1, ""), run
        assert sentences(run) == [f"msmemscope: {path} is not a trace; give the output directory of the launch"]
    (tmp_path / "raw").write_bytes(b"MSCTRACE" + bytes(4096))
    run = msmemscope("recover", tmp_path / "raw", output=False)
    assert run.returncode == 1 and "msmemscope info reads it" in run.stderr, run
