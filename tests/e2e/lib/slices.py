# SPDX-License-Identifier: Apache-2.0
"""Reads Python traces, strictly: python_trace_{TID}_{stamp}.csv and the tables of the same in databases.

    threads(project)     {thread id: its slices in the order of the file}
    nested(slices)       fails unless each slice lies inside or outside of any other, inner ones first
"""
import csv
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

HEADER = ["FuncInfo", "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id"]


@dataclass(frozen=True)
class Slice:
    """One row; a time that is N/A is None."""
    text: str
    start: int
    end: int
    tid: int
    pid: int


def _time(text):
    if text == "N/A":
        return None
    assert re.fullmatch(r"\d{19}", text), text
    return int(text)


def _slice(fields):
    text, start, end, tid, pid = fields
    return Slice(text, _time(start), _time(end), int(tid), int(pid))


def files(project):
    return sorted(project.path.glob("device_*/dump/python_trace_*.csv"))


def threads(project):
    found = {}
    for path in files(project):
        match = re.fullmatch(r"python_trace_(\d+)_\d{14}\.csv", path.name)
        assert match, path
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, strict=True)
            assert next(reader) == HEADER
            slices = [_slice(fields) for fields in reader]
        assert {one.tid for one in slices} == {int(match[1])} and {one.pid for one in slices} == {project.pid}
        assert int(match[1]) not in found, "one file for each thread"
        found[int(match[1])] = slices
    return found


def tables(project):
    """The same from databases."""
    found = {}
    for path in project.path.glob("device_*/dump/memscope_dump_*.db"):
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        names = [name for (name,) in db.execute("select name from sqlite_master where name like 'python_trace%'")]
        assert names in ([], [f"python_trace_{project.pid}"]), names
        for name in names:
            types = [(column[1], column[2]) for column in db.execute(f"pragma table_info({name})")]
            assert types == list(zip(HEADER, ["TEXT", "TEXT", "TEXT", "INTEGER", "INTEGER"]))
            for fields in db.execute(f"select * from {name} order by rowid"):
                one = _slice(fields)
                found.setdefault(one.tid, []).append(one)
        db.close()
    return found


def nested(slices):
    """Slices that have both times, as a viewer draws them."""
    done = []
    for one in slices:
        if one.start is None or one.end is None:
            continue
        assert one.start <= one.end, one
        while done and done[-1].start >= one.start:
            assert done[-1].end <= one.end, (done[-1], one)
            done.pop()
        assert not done or done[-1].end <= one.start, (done[-1], one)
        done.append(one)


def within(path, slices):
    """Texts of what the script at `path` does itself: its functions and the places from which it calls C functions."""
    return [one.text for one in slices if Path(one.text.rpartition("(")[0]) == Path(path)]


def of_module(rows, path):
    """Texts of what happens between the script's first and last line: the interpreter has imports of its own around that."""
    module = next(row for row in rows if row[0] == f"{path}(1): <module>")
    return [text for text, start, _ in rows[:rows.index(module) + 1] if start >= module[1]]
