# SPDX-License-Identifier: Apache-2.0
"""planted leaks in the pool, in the driver and in pinned memory among healthy twins: 20 random programs that know their truth"""
import json
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, PROGRAMS, call, check
from leak_programs import line_of, mistakes

SEEDS = 20
TOGETHER = 5  # starting PyTorch takes most of the time


def trace(place, seed, device):
    place.mkdir(parents=True)
    done = call([COMMAND, *(["--device=cpu"] if device == "cpu" else []), "-o", place / "out", f"--summary-json={place / 'summary'}", "--",
                 sys.executable, PROGRAMS / "leaks.py", seed, device])
    said = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    with open(place / "summary", encoding="utf-8") as file:
        [process] = [process for process in json.load(file)["processes"] if process["steps"]]
    return said, process, done.stderr


def run(place, device="cuda"):
    with ThreadPoolExecutor(TOGETHER) as pool:
        runs = {seed: pool.submit(trace, place / str(seed), seed, device) for seed in range(SEEDS)}
    found = {}

    for seed, job in runs.items():
        @check(f"random program {seed}")
        def _(seed=seed, job=job):
            said, process, screen = job.result()
            missed, false = mistakes(said, process)
            leaking = [thing["name"] for thing in said["things"] if thing["leaks"]]
            for name in leaking:
                found.setdefault(name, []).append(name not in missed)
            if missed or false:
                places = [(place["verdict"], place["pool"], line_of(place), place.get("sentence")) for place in process["places"]]
                print(f"         things {[(thing['name'], thing['leaks'], thing['lines'][0]) for thing in said['things']]}, steps by {said['marks']}")
                print("\n".join(f"         {place}" for place in places[:14]))
                print(screen[-1800:], flush=True)
                raise AssertionError(f"missed {missed}, false {false}")
            if leaking and process["verdict"] != "leak":
                raise AssertionError(f"the verdict is {process['verdict']}")
            return f"{', '.join(leaking) or 'no leak'} among {len(said['things'])} things, steps by {said['marks']}"

    @check("kinds of leaks")
    def _():
        return ", ".join(f"{name} {sum(right)} of {len(right)}" for name, right in sorted(found.items()))
