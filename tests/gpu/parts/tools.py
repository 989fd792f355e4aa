# SPDX-License-Identifier: Apache-2.0
"""torch.profiler inside a traced run has the events that it has alone; NVTX"""
import json
import sys

from checks import PROGRAMS, Traced, build, call, check


def run(place):
    @check("torch.profiler has all its events")
    def _():
        counts = json.loads(call([sys.executable, PROGRAMS / "profiled.py"]).stdout.splitlines()[-1])
        traced = Traced(place / "profiler", [], [sys.executable, PROGRAMS / "profiled.py"])
        if traced.value() != counts or counts["cuda"] == 0:
            raise AssertionError(f"alone {counts}, traced {traced.value()}")
        return f"{counts}; {traced.note()}"

    @check("another subscriber of CUPTI")
    def _():
        program = build(place, "cuda_tools")
        alone = json.loads(call([program, "profiler"], {"TRUTH": "/dev/null"}).stdout)
        traced = Traced(place / "subscriber", [], [program, "profiler"])
        if traced.value() != alone:
            raise AssertionError(f"alone {alone}, traced {traced.value()}; {traced.note()}")
        return f"{alone}; {traced.note()}"

    @check("NVTX of PyTorch")
    def _():
        traced = Traced(place / "nvtx", [], [sys.executable, PROGRAMS / "train.py", "transformer", "foreach"])
        steps = [row for row in traced.rows if row.event == "MSTX" and row.name == "step start"]
        if len(steps) != 8:
            raise AssertionError(f"{len(steps)} ranges named step start")
        return f"{len(steps)} steps"
