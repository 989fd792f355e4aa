# SPDX-License-Identifier: Apache-2.0
"""networks and optimizers: rows against torch.cuda.memory_stats() and cudaMemGetInfo"""
import sys

from checks import PROGRAMS, Traced, before_mark, check, live


def torch_totals(place, *words, env=None):
    traced = Traced(place, [], [sys.executable, PROGRAMS / "train.py", *words], env)
    said, then = traced.value(), before_mark(traced.rows, "measured")
    pool, driver = live(then, "PTA"), live(then, "HAL")
    detail = (f"pool {pool} of {said['allocated']}, driver {driver}, reserved {said['reserved']}, used {said['used']}, "
              f"outside of the pool {driver - said['reserved']}")
    if pool != said["allocated"]:
        raise AssertionError("pool differs: " + detail)
    if driver < said["reserved"]:
        raise AssertionError("driver rows are missing: " + detail + "; " + traced.note())
    return detail


def run(place):
    for model in ("transformer", "cnn"):
        for optimizer in ("plain", "foreach", "fused"):
            @check(f"{model}, AdamW {optimizer}")
            def _(model=model, optimizer=optimizer):
                return torch_totals(place / f"{model}-{optimizer}", model, optimizer)

    @check("transformer, expandable segments")
    def _():
        return torch_totals(place / "expandable", "transformer", "foreach",
                            env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})

    @check("transformer, CUDA graphs")
    def _():
        return torch_totals(place / "graphs", "transformer", "foreach", "graphs")

    @check("transformer, compiled")
    def _():
        return torch_totals(place / "compiled", "transformer", "foreach", "compiled")

    @check("a leak outside of the pool")
    def _():
        traced = Traced(place / "leak", [], [sys.executable, PROGRAMS / "train.py", "transformer", "foreach", "leak"])
        report = "".join(path.read_text() for path in traced.out.rglob("report.txt"))
        if "leak_outside" not in traced.done.stderr + report:
            raise AssertionError("leak_outside is not named: " + traced.done.stderr[-300:])
        return "its function is named"
