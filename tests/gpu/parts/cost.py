# SPDX-License-Identifier: Apache-2.0
"""what recording costs a training step that mostly launches, by alternation inside one process, against the bars"""
import json
import sys

from checks import COMMAND, PROGRAMS, ROOT, Traced, call, check, left

BARS = {"memory events only": 1.02, "memory, 20 Python frames": 1.03, "memory, 20 C frames": 1.03, "names": 1.12, "names and accesses": 1.22}


def judge(found):
    """Ratios with their intervals; one is over its bar when all of its interval is."""
    words = ", ".join(f"{way} {ratio:.3f} [{low:.3f}, {high:.3f}]" for way, (ratio, low, high) in found.items())
    if any(low > BARS.get(way, 1.02) for way, (_, low, _) in found.items() if way in BARS or way in ("A/A", "driver calls")):
        raise AssertionError(words)
    return words


def operators(place, only, seconds):
    done = call([COMMAND, "--collect-mode=deferred", "-o", place, "--", sys.executable, ROOT / "bench/gpu/operators.py", "--device", "cuda",
                 "--models", "1", "--only", only, "--seconds", int(seconds), "--json"])
    said = json.loads(done.stdout.splitlines()[-1])
    return f"{said['rounds']} rounds of {said['ms']:.2f} ms: {judge(said['ratios'])}"


def run(place):
    @check("driver's calls on and off")
    def _():
        said = Traced(place / "driver", [], [sys.executable, PROGRAMS / "cost.py", str(left() * 0.13)]).value()
        return f"{said['pairs']} rounds of {said['step_ms']} ms: {judge({name: said[name] for name in ('driver calls', 'A/A')})}"

    # The ways of one call make a round: fewer of them, more rounds.
    for only, share in (("memory", 0.45), ("names", 0.45)):
        @check(f"ways of recording: {only}")
        def _(only=only, share=share):
            return operators(place / only, only, left() * share)
