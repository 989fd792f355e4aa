# SPDX-License-Identifier: Apache-2.0
"""programs that fill the whole device, or find it full: growth in the driver, a leak beside the pool, a private pool, another process"""
import contextlib
import json
import subprocess
import sys

from checks import COMMAND, PROGRAMS, ROOT, Traced, build, call, check, row_files
from oom_truth import judge, lines_of, told, trace


@contextlib.contextmanager
def hog(left):
    """Another process has all of the device but some GiB."""
    words = [sys.executable, str(PROGRAMS / "ledger.py"), "hog", str(left)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            if other.stdout.readline() != "ready\n":
                raise RuntimeError("the other process has no memory")
            yield
        finally:
            other.stdin.close()


def private_oom(place):
    traced = Traced(place, [], [sys.executable, PROGRAMS / "pool_oom.py"])
    said = traced.value()
    [project] = row_files.projects(place)
    document = json.loads(call([COMMAND, "info", "--json", project.path]).stdout)["processes"][0]
    found, wrong = document["oom"], []
    if not said["refused"] or not found:
        wrong.append(f"refused {said['refused']}, {len(found)} verdicts")
    elif found[0]["cause"] != "private pools" or found[0]["private_pools_unused_bytes"] != said["private"]:
        wrong.append(f"cause {found[0]['cause']}: {found[0]['why']}; private {found[0]['private_pools_unused_bytes']} of {said['private']}")
    pools = [pool for device in document.get("devices", []) for pool in device["peak"]["pools"]]
    if not pools or pools[0].get("private_pools_bytes") != said["private"]:
        wrong.append(f"ledger: {pools}")
    line = [line.strip() for line in traced.done.stderr.splitlines() if "private pools" in line]
    if wrong:
        raise AssertionError("; ".join(wrong))
    return (line or ["no line on the screen"])[0]


def run(place):
    programs = {}

    @check("the program builds")
    def _():
        programs["steps"] = build(place, "cuda_steps")

    @check("driver program: requests larger than what is left")
    def _():
        said, verdicts, text = trace(place / "refused", [programs["steps"], "refused"], {"TRUTH": str(place / "truth")})
        found = [(verdict["requested_bytes"], verdict["cause"]) for verdict in verdicts]
        if found != [(size, "spike") for size in said["refused"]] or "refused (" not in text:
            raise AssertionError(f"{found} of {said}: {text[-500:]}")
        return verdicts[0]["why"]

    @check("driver program: growth until the device is full")
    def _():
        said, [verdict, *_], text = trace(place / "grows", [programs["steps"], "grows"], {"TRUTH": str(place / "truth2")})
        lines = (ROOT / "tests/targets/cuda_steps.c").read_text().splitlines()
        [line] = [number for number, line in enumerate(lines, 1) if "/* kept */" in line]
        frames = verdict.get("growing", {}).get("frames", [])
        if verdict["cause"] != "growth" or verdict["requested_bytes"] != said["refused"][0] or line not in lines_of(frames, "cuda_steps.c"):
            raise AssertionError(f"{told(verdict)} of {said}, line {line}: {text[-600:]}")
        return verdict["why"]

    @check("outside, seed 1")
    def _():
        return judge("outside", *trace(place / "outside-1", [sys.executable, PROGRAMS / "oom.py", "outside", 1]))

    @check("a private pool has most of the device")
    def _():
        return private_oom(place / "private")

    @check("another process has the device")
    def _():
        with hog(6):
            return judge("others", *trace(place / "others", [sys.executable, PROGRAMS / "oom.py", "others", 1]))
