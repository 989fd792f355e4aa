# SPDX-License-Identifier: Apache-2.0
"""Outputs that cannot be written: every verb says so in one sentence and fails; none dies, none leaves half a file."""
import json
import re
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]
# The words of --format, from the two lists that the command is built from.
FORMATS = [word for name in ("forms.def", "views.def")
           for word in re.findall(r'^(?:FORM|VIEW)\(\d+, \w+, "(\w+)"', (ROOT / "src/base" / name).read_text(), re.M) if word != "none"]


@pytest.fixture(scope="module")
def recorded(dist, targets, runner, tmp_path_factory):
    """Results of a small program with leaks, steps and owners that rows learn late."""
    directory = tmp_path_factory.mktemp("recorded")
    run = harness.Command(dist, directory, runner)("--", *runner, targets / "leaky_steps").check()
    return run.project().path


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB; resize() changes that."""
    place = tmp_path / "full"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def resize(place, size):
    subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)


def fill(place):
    with open(place / "filler", "wb", buffering=0) as filler, pytest.raises(OSError):
        while True:
            filler.write(bytes(4096))


@pytest.fixture
def full_disk(small_disk):
    """A file system without a free byte."""
    fill(small_disk)
    return small_disk


def failed_in_one_sentence(run):
    said = [line for line in run.stderr.splitlines() if line.startswith("msmemscope: ")]
    assert run.returncode == 1, str(run)
    assert len([line for line in said if "space" in line or "full" in line]) == 1, str(run)
    return run


@pytest.mark.parametrize("form", FORMATS)
def test_an_export_to_a_full_disk_says_so(msmemscope, recorded, full_disk, form):
    failed_in_one_sentence(msmemscope("export", recorded, f"--format={form}", output=full_disk))
    assert [path.name for path in full_disk.rglob("*") if path.is_file()] == ["filler"]


def test_a_store_on_a_small_disk_is_whole_or_not_there(msmemscope, recorded, small_disk):
    """Wherever the writing stops: no file is left, no run without its process, and the same command works once there is room."""
    store, results = f"sqlite:{small_disk / 'store.db'}", set()
    for size in range(4, 132, 8):
        resize(small_disk, f"{size}k")
        run = msmemscope("store", "add", recorded, "--to", store, output=False)
        results.add(run.returncode)
        if run.returncode != 0:
            failed_in_one_sentence(run)
        else:
            fill(small_disk)
            refused = msmemscope("fleet", "show", "--store", store, output=False)
            assert refused.returncode == 0 or "full" in refused.stderr and refused.returncode == 1, str(refused)
            (small_disk / "filler").unlink()
            resize(small_disk, "1m")
            assert json.loads(msmemscope("fleet", "show", "--store", store, "--json", output=False).check().stdout)["rank_count"] == 1
        assert [path.name for path in small_disk.iterdir()] == ([] if run.returncode else ["store.db"]), str(run)
        for path in small_disk.iterdir():
            path.unlink()
    assert results == {0, 1}


def test_a_process_that_does_not_fit_leaves_a_store_as_it_was(msmemscope, program, recorded, small_disk, out):
    other = msmemscope("--", *program("leaky_steps"), output=out / "other").check().project().path
    store = f"sqlite:{small_disk / 'store.db'}"
    resize(small_disk, "1m")
    msmemscope("store", "add", recorded, "--to", store, output=False).check()
    shown = msmemscope("fleet", "show", "--store", store, "--json", output=False).check().stdout
    fill(small_disk)
    failed_in_one_sentence(msmemscope("store", "add", other, "--to", store, "--run=second", output=False))
    (small_disk / "filler").unlink()
    assert msmemscope("fleet", "show", "--store", store, "--json", output=False).check().stdout == shown
    with sqlite3.connect(small_disk / "store.db") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
    msmemscope("store", "add", other, "--to", store, "--run=second", output=False).check()


def test_rows_of_a_store_as_files_on_a_full_disk(msmemscope, recorded, full_disk):
    failed_in_one_sentence(msmemscope("store", "add", recorded, "--to", f"rows:{full_disk / 'rows'}", output=False))
    assert [path.name for path in full_disk.rglob("*") if path.is_file()] == ["filler"]


def test_a_report_on_a_full_disk_says_so(msmemscope, recorded, full_disk):
    failed_in_one_sentence(msmemscope("report", recorded, output=full_disk))
    failed_in_one_sentence(msmemscope("bundle", recorded.parent, output=full_disk))
    assert [path.name for path in full_disk.rglob("*") if path.is_file()] == ["filler"]


def test_a_report_without_room_for_temporary_files_is_whole(msmemscope, recorded, full_disk, out):
    """What does not fit the disk is kept in memory, and the file is the same."""
    for name, env in (("a", {}), ("b", {"TMPDIR": full_disk})):
        msmemscope("report", recorded, output=out / name, env=env).check()
    assert (out / "a").read_bytes() == (out / "b").read_bytes()


def test_a_launch_on_a_full_disk_leaves_nothing(msmemscope, program, full_disk):
    run = failed_in_one_sentence(msmemscope("--", *program("leaky_steps"), output=full_disk))
    assert "was not run" not in run.stderr
    assert [path.name for path in full_disk.rglob("*")] == ["filler"]


def under_a_file_size_limit(msmemscope, *words):
    return subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$0" "$@"', *msmemscope.runner, msmemscope.path, *words],
                          env=harness.environment(msmemscope.dist), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)


def test_files_that_may_not_grow_are_told_of(msmemscope, recorded, out):
    """RLIMIT_FSIZE ends a process by a signal unless it takes that for a failed write."""
    for words, sentence in ((["bundle", recorded.parent, "-o", out / "b"], "File too large"),
                            (["store", "add", recorded, "--to", f"sqlite:{out / 'store.db'}"], "disk I/O error"),
                            (["export", recorded, "-o", out / "x"], "File too large"),
                            (["report", recorded, "-o", out / "r.html"], "File too large"),
                            (["-o", out / "launch", "--", "true"], "File too large")):
        run = under_a_file_size_limit(msmemscope, *words)
        assert run.returncode == 1 and sentence in run.stderr, (words, run)


def test_a_program_keeps_the_signal_of_its_file_size_limit(msmemscope, out):
    run = under_a_file_size_limit(msmemscope, "--best-effort", "-o", out / "launch", "--", "sh", "-c", f"echo x > {out / 'file'}")
    assert run.returncode == -signal.SIGXFSZ, run


# What each verb prints on a stdout that takes nothing. RUN is a recorded run, STORE has it, RUNS runs.
PRINTING = ["info RUN", "info RUN --json", "export RUN --json", "export RUN --format=jsonl", "analyze leaks RUN", "analyze leaks RUN --json",
            "report RUN --text", "report RUN --markdown", "recover RUN/.. --json", "bundle RUN/.. --json",
            "doctor", "doctor --json", "top RUNS --once", "top RUNS --json", "store add RUN --to STORE --json", "fleet show --store STORE", "fleet show --store STORE --json",
            "--help", "info --help", "--version", "--print-prefix", "print-man", "print-completion bash", "print-python"]


def printed(msmemscope, words, to):
    return subprocess.run([*msmemscope.runner, msmemscope.path, *words], env=harness.environment(msmemscope.dist), stdin=subprocess.DEVNULL,
                          stdout=to, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


def test_every_verb_fails_when_its_data_cannot_be_written(msmemscope, program, recorded, out):
    """A script that only looks at the exit status must not take half a document for the whole."""
    store = f"sqlite:{out / 'store.db'}"
    msmemscope("store", "add", recorded, "--to", store, output=False).check()
    running = msmemscope.start("--", *program("two_acts", 100, 100), output=out / "runs", stdin=subprocess.PIPE)
    assert running.process.stdout.readline() == b"ready\n"
    wrong = []
    for line in PRINTING:
        words = [word.replace("RUNS", str(out / "runs")).replace("RUN", str(recorded)).replace("STORE", store) for word in line.split()]
        words += ["--output", str(out / words[0])] if words[0] in ("export", "bundle") else []
        alone = printed(msmemscope, words, subprocess.PIPE)
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = printed(msmemscope, words, full)
        if alone.stdout == "" or run.returncode != 1 or run.stderr.count("cannot write to stdout: No space left on device") != 1:
            wrong.append((line, alone.returncode, alone.stdout[:80], run.returncode, run.stderr))
    running.process.stdin.close()
    assert wrong == []


def test_a_summary_that_cannot_be_written_takes_the_place_of_success(msmemscope, program, out):
    """The program's own failure stands."""
    for status, expected in ((0, 1), (9, 9)):
        run = msmemscope("--summary-json=/dev/full", "--", *program("two_acts", 10, 10, status), output=out / str(status), stdin=subprocess.DEVNULL)
        assert run.returncode == expected, str(run)
        assert run.stderr.count("cannot write /dev/full: No space left on device") == 1, str(run)
        assert json.loads(msmemscope("info", run.project().path, "--json", output=False).check().stdout)["processes"]
