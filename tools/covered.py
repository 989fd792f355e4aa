#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which lines each end-to-end test runs, and the list of tests that `make check` takes from it.

    tools/covered.py run [PYTEST WORDS...]   builds the preset `coverage`, runs the tests with it (about 30 minutes of CPU time for all;
                                             what is there already is kept, so it can be done folder by folder)
    tools/covered.py lines                   lines of each folder of src that the tests run, and of those the ones of `make check`
    tools/covered.py choose [COUNT]          writes tests/check.list anew: COUNT tests (150), each time the one that adds most lines per
                                             second of CPU time. What stands above the mark in the list is kept by hand.

Data are in build/covered: `tests` has a line of JSON for each test (tests/e2e/lib/costs.py), PID-N.M the blocks that it ran of the
program with M - 1 blocks (tests/coverage/blocks.c), lines.M where these are in the source. What a test ran of an earlier build counts on,
by the lines of then; remove build/covered to start anew.
"""
import itertools
import json
import os
import re
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COVERED = ROOT / "build" / "covered"
DIST = ROOT / "build" / "dist-coverage"
BUILD = ROOT / "build" / "coverage"
LIST = ROOT / "tests" / "check.list"
MARK = "# chosen by tools/covered.py"
TARGETS = ["dist", "collector_testpoints", "examples/all", "tests/fakes/all", "tests/targets/all"]
# What starting a test costs beside its own CPU time: a test that runs nothing of ours must not be free.
LEAST_S = 0.02
# Names of these tests have the versions of Python in them that a machine has; other names are not kept that are whole files.
NOT_EVERYWHERE = ("tests/e2e/test_python_stacks.py", "tests/e2e/test_python_monitor.py")
NAME = re.compile(r"[ -\[\]-~]{1,160}")


def run(words):
    """Builds, runs, and keeps what is found."""
    COVERED.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cmake", "--preset", "coverage"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", BUILD, "--target", *TARGETS, "--", "--quiet"], check=True)
    subprocess.run(["cmake", "--install", BUILD, "--prefix", DIST], check=True, stdout=subprocess.DEVNULL)
    keep_lines()
    env = {**os.environ, "MSMEMSCOPE_DIST": str(DIST), "MSMEMSCOPE_TARGETS": str(BUILD / "tests" / "targets"),
           "MSMEMSCOPE_COVERED": str(COVERED)}
    return subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", *(words or ["tests/e2e"])], cwd=ROOT, env=env,
                          check=False).returncode


def section_bytes(path, name):
    for line in subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout.splitlines():
        words = line.split("]")[-1].split()
        if words[:1] == [name]:
            return int(words[4], 16)
    return 0


def first_address(path):
    """Where the ELF header is linked to."""
    loads = [line.split() for line in subprocess.run(["readelf", "-lW", path], capture_output=True, text=True, check=True).stdout.splitlines()
             if line.split()[:1] == ["LOAD"]]
    return int(loads[0][2], 16)


def lines_of(program, pcs, count):
    """[(file, line) or None of each block, by its ordinal] of a program that has count - 1 blocks and wrote their addresses to pcs."""
    base = first_address(program)
    addresses = "\n".join(f"{base + address:x}" for (address,) in struct.iter_unpack("Q", pcs.read_bytes()))
    said = subprocess.run(["addr2line", "-e", program], input=addresses, capture_output=True, text=True, check=True).stdout
    lines = [None]
    for where in said.splitlines():
        file, _, number = where.split(" (")[0].rpartition(":")
        file = os.path.normpath(file)
        inside = file.startswith(f"{ROOT}/src/") and number.isdigit()
        lines.append((file[len(str(ROOT)) + 1:], int(number)) if inside else None)
    return lines[:count]


def keep_lines():
    """Writes them for the command and for the collector as they are now."""
    pcs = COVERED / "pcs"
    pcs.mkdir(exist_ok=True)
    subprocess.run([DIST / "bin" / "msmemscope", "-q", "-o", pcs / "out", "--", "/usr/bin/python3", "-c", "pass"], check=True,
                   env={**os.environ, "MSCOPE_COVERAGE_PCS": str(pcs)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for program in (DIST / "bin" / "msmemscope", DIST / "lib64" / "libascend_kernel_hook.so"):
        count = section_bytes(program, "__sancov_guards") // 4 + 1
        (COVERED / f"lines.{count}").write_text(json.dumps(lines_of(program, pcs / str(count), count)), encoding="utf-8")


def block_lines():
    """{M: what lines_of() says} of every program that was kept."""
    return {int(path.suffix[1:]): [where and tuple(where) for where in json.loads(path.read_text(encoding="utf-8"))]
            for path in COVERED.glob("lines.*")}


def tests(failed=False):
    """[(name, CPU seconds, the lines that it runs)] of those that passed, or of all; of one that ran twice, the last."""
    lines, found = block_lines(), {}
    for said in map(json.loads, (COVERED / "tests").read_text(encoding="utf-8").splitlines()):
        ran = set()
        for count, where in lines.items():
            file = COVERED / f"{said['files']}.{count}"
            if file.exists():
                ran.update(itertools.compress(where, file.read_bytes()))
        found.pop(said["test"], None)
        if said["passed"] or failed:
            found[said["test"]] = said["cpu_s"], ran - {None}
    return [(name, *rest) for name, rest in found.items()]


def listed():
    """The lines of the list above its mark, and all tests that it names."""
    text = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    by_hand = text[:text.index(MARK)] if MARK in text else text
    return by_hand, [line for line in text if line and not line.startswith("#")]


def choose(count):
    by_hand, _ = listed()
    left = {name: (seconds, ran) for name, seconds, ran in tests()
            if NAME.fullmatch(name) and not name.startswith(NOT_EVERYWHERE)}
    covered = set().union(*(left[name][1] for name in by_hand if name in left))
    chosen, spent = [], 0.0
    names = [name for name in left if name not in by_hand]
    while names and len(chosen) < count:
        best = max(names, key=lambda name: len(left[name][1] - covered) / (left[name][0] + LEAST_S))
        new = left[best][1] - covered
        if not new:
            break
        chosen.append(best)
        names.remove(best)
        covered |= new
        spent += left[best][0]
    LIST.write_text("\n".join([*by_hand, MARK, *sorted(chosen)]) + "\n", encoding="utf-8")
    print(f"{len(chosen)} tests, {spent:.0f} s of CPU time, {len(covered)} lines")


def lines():
    _, names = listed()
    everything, chosen = defaultdict(set), defaultdict(set)
    known = defaultdict(set)
    for where in filter(None, (line for found in block_lines().values() for line in found)):
        known[where[0].split("/")[1]].add(where)
    for name, _, ran in tests():
        for where in ran:
            folder = where[0].split("/")[1]
            everything[folder].add(where)
            if name in names:
                chosen[folder].add(where)
    known["all"], everything["all"], chosen["all"] = (set().union(*found.values()) for found in (known, everything, chosen))
    print(f"{'folder':12}{'lines':>8}{'run by tests':>14}{'by make check':>15}")
    for folder, where in known.items():
        print(f"{folder:12}{len(where):8}{len(everything[folder]):14}{len(chosen[folder]):15}")


def main():
    verb, *words = sys.argv[1:] or ["help"]
    if verb == "run":
        sys.exit(run(words))
    elif verb == "lines":
        lines()
    elif verb == "choose":
        choose(int(words[0]) if words else 150)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
