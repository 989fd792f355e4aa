# SPDX-License-Identifier: Apache-2.0
"""All bytes of a run have a bound: --max-disk counts trace, dumps and reports, --min-free leaves space; dumps give way first, and say so."""
import csv
from pathlib import Path

import pytest

LIMIT = 4 << 20
PAIRS = 40000  # of each of four threads: 17 MB of csv, 0.7 MB of trace
NOTE = "INCOMPLETE.txt"


def size_of(directory):
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


def rows_of(project):
    """The ids of all rows of a csv dump; every line is whole."""
    ids = set()
    for path in project.rglob("*.csv"):
        with path.open(newline="") as file:
            lines = list(csv.reader(file))
        assert all(len(line) == len(lines[0]) for line in lines), path
        ids |= {int(line[0]) for line in lines[1:]}
    return ids


# A database and a part of Parquet hold some rows back until they are near the bound.
@pytest.mark.parametrize("form, slack", [("csv", 1 << 20), ("db", 4 << 20)])
def test_max_disk_counts_trace_dumps_and_reports(msmemscope, program, form, slack):
    run = msmemscope(f"--max-disk={LIMIT}", f"--format={form}", "--", *program("threads", 4, PAIRS)).check()
    project, info = run.project().path, msmemscope.info(run.project())
    assert size_of(run.out) < LIMIT + slack
    assert info["dropped_events"] == 0
    [said] = [line for line in run.stderr.splitlines() if "incomplete" in line]
    assert "because the run has reached --max-disk; run: msmemscope export " in run.stderr, said
    assert "--max-disk" in (project / NOTE).read_text() and "msmemscope export ." in (project / NOTE).read_text()
    # What the note says, done as it says it.
    made = msmemscope("export", ".", "--format=csv", output=False, cwd=project).check()
    rows = rows_of(Path(made.stdout.strip()))
    assert len(rows) == info["rows"] == max(rows) + 1, "the trace has all"
    if form == "csv":
        kept = rows_of(project)
        assert 0 < len(kept) < len(rows) and kept == set(range(len(kept))), "the first rows, and whole"


def test_dumps_leave_free_space(msmemscope, program):
    run = msmemscope("--min-free=8000T", "--", *program("threads", 2, 20000)).check()
    project = run.project().path
    assert "because the disk has less than --min-free left; run: msmemscope export " in run.stderr
    assert "--min-free" in (project / NOTE).read_text()
    assert len(rows_of(project)) < 80000


def test_a_dump_within_the_bound_has_no_note(msmemscope, program):
    run = msmemscope("--", *program("threads", 2, 2000)).check()
    assert "incomplete" not in run.stderr and not (run.project().path / NOTE).exists()


def test_the_page_keeps_the_bound(msmemscope, program):
    """Here the trace and the dump leave less than a page takes."""
    run = msmemscope("--max-disk=1M", "--", *program("threads", 4, PAIRS)).check()
    assert not (run.project().path / "report.html").exists()
    assert "no page within --max-disk" in run.stderr
    assert size_of(run.out) < (1 << 20) + (2 << 20)
