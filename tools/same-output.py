#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what two builds make of the same kept traces: every file of `export`, as csv and as databases, and what `export`, `info`
and `--compare` say and answer. Everything must be the same to the byte; of a database the rows must be, and the schema.

    tools/same-output.py OLD_DIST NEW_DIST TRACE...      a TRACE is a file, or a directory with kept traces anywhere below it

Sentences that are meant to differ are named by --reworded OLD NEW: a regular expression, replaced in what the old build says.
Exit status 0: all the same; 1: something differs, each with its first lines that do. tools/make-corpus.py makes traces.
"""
import argparse
import filecmp
import itertools
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EVERYTHING = ["--analysis=leaks,decompose,inefficient,oom:5", "--device=npu,cpu", "--level=op,kernel",
              "--events=alloc,free,launch,access,traceback", "--call-stack=c:20,python:20"]
# %OUT is a directory of the build's own, %NEXT the trace after this one.
COMMANDS = {
    "info": ["info", "%TRACE"],
    "info as JSON": ["info", "%TRACE", "--json", "--analysis=leaks,decompose,inefficient,oom:5"],
    "csv": ["export", "-o", "%OUT", "%TRACE"],
    "db": ["export", "-o", "%OUT", "--format=db", "%TRACE"],
    "csv of everything": ["export", "-o", "%OUT", *EVERYTHING, "--insight-close-live", "%TRACE"],
    "db of everything": ["export", "-o", "%OUT", "--format=db", *EVERYTHING, "%TRACE"],
    "csv of two steps": ["export", "-o", "%OUT", "--steps=2,3", "%TRACE"],
    "comparison": ["--compare", "-i", "%TRACE,%NEXT", "-o", "%OUT"],
}
# The name of a comparison has the time of today in it.
COMPARED = re.compile(rb"(?<=memory_compare)_\d{14}")
SHOWN_LINES = 12


def run(dist, words, place):
    """One command of one build. What it made lies in `place`: its files, what it said, its exit status."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MSMEMSCOPE_", "LD_"))}
    with (place / "stdout").open("wb") as stdout, (place / "stderr").open("wb") as stderr:
        done = subprocess.run([dist / "bin" / "msmemscope", *(word.replace("%OUT", str(place / "out")) for word in words)],
                              stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment, cwd=place, timeout=600,
                              check=False)
    (place / "exit status").write_text(str(done.returncode))
    for path in place.glob("out/compare/memory_compare_*.csv"):
        path.rename(path.with_name(COMPARED.sub(b"", os.fsencode(path.name)).decode()))


def lines_of(path, place, reworded=()):
    """A file as it is compared: of a database its schema and rows, of everything else its lines, without the build's own place."""
    if not path.exists():
        yield b"(no such file)"
    elif path.suffix == ".db":
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            database.text_factory = bytes
            yield repr(database.execute("PRAGMA user_version").fetchone()).encode()
            schema = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
            yield from (repr(entry).encode() for entry in schema)
            for name in (name.decode() for kind, name, _, _ in schema if kind == b"table"):
                yield from (f"{name} {row}".encode() for row in database.execute(f'SELECT * FROM "{name}"'))
    else:
        with path.open("rb") as file:
            for line in file:
                line = COMPARED.sub(b"", line.replace(os.fsencode(place), b"DIR"))
                for before, after in reworded:
                    line = before.sub(after, line)
                yield line


def shown(mark, line):
    return [] if line is None else [mark + line.decode("utf-8", "backslashreplace").rstrip("\n")[:300]]


def difference(old, new):
    """The first lines that differ, of two iterators over lines."""
    found = []
    for before, after in itertools.zip_longest(old, new):
        if before != after:
            found += shown("- ", before) + shown("+ ", after)
            if len(found) >= SHOWN_LINES:
                break
    return found


class Comparison:
    """The two builds, and a directory to work in."""

    def __init__(self, old, new, reworded, place):
        self.old, self.new = old, new
        self.reworded = [(re.compile(before.encode()), after.encode()) for before, after in reworded]
        self.place = place

    def trace(self, trace, following):
        """Failures of one trace, how many outputs were compared, and how many databases are equal to the byte, out of all."""
        place = Path(tempfile.mkdtemp(dir=self.place))
        failures, outputs, equal, databases = [], 0, 0, 0
        old, new = place / "old", place / "new"
        for name, words in COMMANDS.items():
            words = [word.replace("%TRACE", str(trace)).replace("%NEXT", str(following)) for word in words]
            run(self.old, words, old)
            run(self.new, words, new)
            if name == "info" and (old / "exit status").read_text() not in ("0", "3"):
                failures.append(f"{trace}: the old build cannot read it: {(old / 'stderr').read_text(errors='replace')}")
                break
            for file in sorted({path.relative_to(side) for side in (old, new) for path in side.rglob("*") if path.is_file()}):
                outputs += 1
                same = (old / file).exists() and (new / file).exists() and filecmp.cmp(old / file, new / file, shallow=False)
                databases += file.suffix == ".db"
                equal += file.suffix == ".db" and same
                lines = [] if same else difference(lines_of(old / file, old, self.reworded), lines_of(new / file, new))
                if lines:
                    failures.append("\n    ".join([f"{trace}: {name}: {file}", *lines]))
        shutil.rmtree(place)
        return failures, outputs, equal, databases


def traces_of(paths):
    found = []
    for path in paths:
        found += sorted(path.rglob("*.msc")) if path.is_dir() else [path]
    return [path.resolve() for path in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reworded", nargs=2, action="append", default=[], metavar=("OLD", "NEW"))
    parser.add_argument("--failures", type=int, default=20, help="how many are shown (%(default)s)")
    parser.add_argument("old", type=Path, metavar="OLD_DIST")
    parser.add_argument("new", type=Path, metavar="NEW_DIST")
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    arguments = parser.parse_args()
    traces = traces_of(arguments.traces)
    if not traces:
        parser.error("no trace there")
    with tempfile.TemporaryDirectory() as place:
        comparison = Comparison(arguments.old.resolve(), arguments.new.resolve(), arguments.reworded, Path(place))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(comparison.trace, traces, [*traces[1:], traces[0]]))
    failures = [failure for result in results for failure in result[0]]
    for failure in failures[:arguments.failures]:
        print(failure)
    if len(failures) > arguments.failures:
        print(f"... and {len(failures) - arguments.failures} more")
    outputs, equal, databases = (sum(result[place] for result in results) for place in (1, 2, 3))
    print(f"{len(traces)} traces, {outputs} outputs: {len(failures)} differ; {equal} of {databases} databases are the same file")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
