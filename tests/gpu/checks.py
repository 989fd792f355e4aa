# SPDX-License-Identifier: Apache-2.0
"""What the parts of tests/gpu/run share: checks that make one table, and programs under the command."""
import json
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(ROOT / "tests" / "e2e" / "lib"))

import rows as row_files  # noqa: E402
from driver_truth import seen, truth  # noqa: E402

COMMAND = ROOT / "build" / "dist" / "bin" / "msmemscope"
PART_S = int(os.environ.get("PART_S", "470"))  # a shorter try of a part that measures time
started = time.monotonic()
table = []


def left():
    return max(20, PART_S - (time.monotonic() - started))


def check(name):
    """Runs a function now and makes a line of the table of it: what it returns, or how it failed."""
    def run(function):
        begin = time.monotonic()
        if begin - started > PART_S - 20:
            table.append((name, "not run", "no time left", 0))
            return function
        try:
            result, detail = "ok", str(function() or "")
        except Exception as error:  # noqa: BLE001 - the other checks go on
            traceback.print_exc()
            result, detail = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0][:150]
        table.append((name, result, detail, time.monotonic() - begin))
        print(f"{result:8} {name}: {detail}", flush=True)
        return function
    return run


def call(argv, env=None, check_status=True):
    done = subprocess.run([str(word) for word in argv], env={**os.environ, **(env or {})}, capture_output=True, text=True,
                          timeout=left(), check=False)
    if check_status and done.returncode != 0:
        print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
        raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return done


class Traced:
    """A program under the command, and the rows of all its processes."""

    def __init__(self, place, options, argv, env=None):
        self.out = place
        place.mkdir(parents=True)
        self.done = call([COMMAND, "-o", place, *options, "--", *argv], {"TRUTH": str(place / "truth"), **(env or {})})
        self.rows = [row for project in row_files.projects(place) for row in project.rows()]
        self.rows.sort(key=lambda row: (row.pid, row.id))

    def value(self):
        """The one line of JSON that the program printed last."""
        return json.loads([line for line in self.done.stdout.splitlines() if line.startswith("{")][-1])

    def note(self):
        for line in self.done.stderr.splitlines():
            if "CUDA driver" in line or "CUPTI" in line:
                return line.strip()
        return ""


def differences(run):
    """How many events of the truth and of the rows are not the same, and how many there are."""
    expected, found = truth(run.out), seen(run.rows)
    wrong = 0
    for thread in expected.keys() | found.keys():
        a, b = expected.get(thread, []), found.get(thread, [])
        if a != b:
            first = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            print(f"thread {thread}: truth {len(a)}, rows {len(b)}; first at {first}: {a[first:first + 2]} {b[first:first + 2]}")
            wrong += 1
    return wrong, sum(map(len, expected.values())), run.note()


def exact(run):
    wrong, events, note = differences(run)
    if wrong or not events:
        raise AssertionError(f"{wrong} threads differ, {events} events; {note}")
    return f"{events} events, all the same"


def build(place, name):
    path = place / name
    libraries = ["-lcupti"] if name in ("cuda_tools", "cuda_kernels") else []
    toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    where = [f"-L{toolkit}/extras/CUPTI/lib64", f"-L{toolkit}/lib64", f"-Wl,-rpath,{toolkit}/extras/CUPTI/lib64:{toolkit}/lib64"]
    call(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-fno-inline", "-pthread", ROOT / "tests/targets" / f"{name}.c", "-o", path,
          "-ldl", *(where if libraries else []), "-Wl,--no-as-needed", *libraries])
    return path


def live(rows, kind):
    """Bytes of a type that live behind these rows."""
    blocks = {}
    for row in rows:
        if row.type != kind or row.event not in ("MALLOC", "FREE"):
            continue
        if row.event == "MALLOC":
            blocks[row.ptr] = row.attr["size"]
        else:
            blocks.pop(row.ptr, None)
    return sum(blocks.values())


def before_mark(rows, name):
    [at] = [i for i, row in enumerate(rows) if row.event == "MSTX" and row.name == name]
    return rows[:at]


def print_table():
    """Exit status of the part."""
    width = max(len(line[0]) for line in table)
    print(f"\n{'check':{width}}  result   seconds  detail")
    for name, result, detail, seconds in table:
        print(f"{name:{width}}  {result:8} {seconds:6.1f}  {detail}")
    return 1 if any(line[1] == "FAILED" for line in table) else 0
