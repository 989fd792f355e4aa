# SPDX-License-Identifier: Apache-2.0
"""a training step with and without the driver's calls, by alternation"""
import json
import sys

from checks import COMMAND, PROGRAMS, ROOT, Traced, call, check, left


def run(place):
    @check("driver's calls on and off, by alternation")
    def _():
        traced = Traced(place / "driver", [], [sys.executable, PROGRAMS / "cost.py", str(int(left() * 0.45))])
        return json.dumps(traced.value())

    @check("ways of recording, by alternation (bench/gpu/operators.py)")
    def _():
        done = call([COMMAND, "--collect-mode=deferred", "-o", place / "operators", "--", sys.executable,
                    ROOT / "bench/gpu/operators.py", "--device", "cuda", "--seconds", str(int(left() * 0.8)), "--json"])
        print(done.stdout[-3000:])
        return "above"
