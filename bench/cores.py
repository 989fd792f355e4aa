#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cores.py: what recording costs inside the traced process on a machine with many cores. Needs no compiler.

    bench/cores.py [DIST ...] [--programs DIR] [--place DIR] [--python FILE ...] [--threads N] [--rounds N]

DIST is what `make` stages (build/dist by default); several take turns and stand side by side. Rows, each the median of the rounds:

    a traced call of a Python function, of a C function    CPU time beyond the bare call, for each --python
    an event with one thread, with N at full speed         CPU time beyond the plain function, the kernel's part of it, page faults of
                                                           1,000 events (those that a writer asks for in one call count, too)
    N threads over one                                     in the same round, less what the plain function got slower; the bar is 2
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = Path(__file__).resolve().parent
EVENTS = 8_000_000


def run(dist, options, argv, place, environment):
    """The line of JSON that a program prints, traced by `dist` or bare when that is None."""
    out = tempfile.mkdtemp(prefix="msmemscope-cores-", dir=place)
    tool = [] if dist is None else [f"{dist}/bin/msmemscope", "--log-level=error", "--no-keep-trace", *options, "-o", f"{out}/o", "--"]
    try:
        ended = subprocess.run([*tool, *map(str, argv)], env={**os.environ, **environment, "TMPDIR": str(place)}, check=True,
                               stdout=subprocess.PIPE, text=True)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return json.loads(ended.stdout.strip().splitlines()[-1])


def python_rows(dist, found, interpreter, place):
    words = [interpreter, BENCH / "python_calls.py"]
    bare, traced = run(None, [], words, place, {}), run(dist, ["--events=traceback"], words, place, {})
    version = subprocess.run([interpreter, "-V"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    for kind, name in (("python_ns", "Python"), ("c_ns", "C")):
        found.setdefault(f"{version}: a traced call of a {name} function, ns", []).append(traced[kind] - bare[kind])


def thread_rows(dist, found, threads, place, programs):
    one, many = (run(dist, [], [programs / "threads", count, 0, EVENTS], place, {"LD_LIBRARY_PATH": str(programs / "bare")})
                 for count in (1, threads))
    for count, line in ((1, one), (threads, many)):
        for field, name in (("cpu_ns", "CPU time of an event, ns"), ("system_ns", "of it the kernel's, ns"),
                            ("faults_per_1000", "page faults of 1,000 events")):
            found.setdefault(f"{count} thread{'s' * (count > 1)}: {name}", []).append(line[field])
    found.setdefault(f"{threads} threads over 1", []).append(many["cpu_ns"] / one["cpu_ns"])
    found.setdefault(f"{threads} threads over 1, the plain function", []).append(many["plain_ns"] / one["plain_ns"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", nargs="*", type=Path, default=[BENCH.parent / "build" / "dist"])
    parser.add_argument("--programs", type=Path, default=BENCH.parent / "build" / "release" / "bench", help="where threads and bare/ lie")
    parser.add_argument("--place", type=Path, default=Path("/var/tmp"), help="where files go while measuring; a local disk")
    parser.add_argument("--python", action="append", help="an interpreter; the one that runs this by default")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    found = [{} for _ in args.dist]
    for _ in range(args.rounds):
        for dist, rows in zip(args.dist, found):
            for interpreter in args.python or [sys.executable]:
                python_rows(dist, rows, interpreter, args.place)
            thread_rows(dist, rows, args.threads, args.place, args.programs)
    for name in found[0]:
        print(f"{name:60}", *(f"{statistics.median(rows[name]):9.2f}" for rows in found))


if __name__ == "__main__":
    main()
