# SPDX-License-Identifier: Apache-2.0
"""PyTorch's pool in detail: requested sizes, streams, segments, private pools and frees that wait, against PyTorch's own snapshot"""
import json
import sys

from checks import PROGRAMS, ROOT, Traced, call, check
import rows as row_files
from pool_truth import at, driver_differences, pool_differences, totals

EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
NO_CUPTI = {"CUPTI_LIBRARY": "/nonexistent/libcupti.so"}


def told(wrong, good):
    if wrong:
        print("\n".join(wrong), flush=True)
        raise AssertionError(f"{len(wrong)} differ; " + "; ".join(wrong))
    return good


def shape(place, name, seed, env=None, exactly=False):
    traced = Traced(place, [], [sys.executable, PROGRAMS / "pool.py", name, seed], env)
    said = traced.value()
    wrong = pool_differences(traced.rows, said) + driver_differences(traced.rows, said, exactly)
    notes = [line.strip() for line in traced.done.stderr.splitlines() if "PyTorch's pool" in line]
    return told(wrong + [note for note in notes if "not recorded" in note], totals(said))


def reserved_rows(place, seed):
    """What the rows of segments that go back say is left, at the last of them."""
    traced = Traced(place, [], [sys.executable, PROGRAMS / "pool.py", "plain", seed])
    said, wrong = traced.value(), []
    before, _ = at(traced.rows, "emptied")
    frees = [row for row in before if row.type == "HAL" and row.event == "FREE" and "reserved" in row.attr]
    if not frees or frees[-1].attr["reserved"] != said["emptied"]["reserved"]:
        wrong.append(f"reserved {frees[-1].attr if frees else 'of no row'} and not {said['emptied']['reserved']}")
    if said["half"]["reserved"] == said["emptied"]["reserved"]:
        wrong.append("empty_cache() gave nothing back")
    return told(wrong, f"{said['half']['reserved']} -> {said['emptied']['reserved']}")


def late(place, seed):
    """start() in a program that has used the pool: what is older comes from PyTorch's own list."""
    place.mkdir(parents=True)
    env = {"PYTHONPATH": str(ROOT / "build/dist/python")}
    done = call([sys.executable, "-c", "import msmemscope, sys, runpy; msmemscope.config(output=sys.argv[1]); sys.argv = sys.argv[2:]; "
                 "runpy.run_path(sys.argv[0], run_name='__main__')", place, PROGRAMS / "pool.py", "late", seed], env)
    said = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
    rows = [row for project in row_files.projects(place) for row in project.rows()]
    return told(pool_differences(rows, said, only_known=True), totals(said))


def block_cost(place):
    """Not a check: a launch each, alone and recorded, in turns."""
    alone, recorded = [], []
    for i in range(2):
        alone.append(json.loads(call([sys.executable, PROGRAMS / "pool_cost.py"]).stdout.splitlines()[-1])["ns"])
        recorded.append(Traced(place / str(i), [], [sys.executable, PROGRAMS / "pool_cost.py"]).value()["ns"])
    return f"alone {min(alone):.0f} ns, recorded {min(recorded):.0f} ns"


def run(place):
    for seed, (name, env) in enumerate((("plain", {}), ("plain", EXPANDABLE), ("streams", {}), ("streams", EXPANDABLE), ("threads", {}),
                                        ("graphs", {}), ("graphs", EXPANDABLE), ("mempool", {})), 1):
        words = f"{name}{', expandable segments' if env else ''}"

        @check(words)
        def _(name=name, env=env, seed=seed):
            return shape(place / f"{name}-{seed}", name, seed, env)

    @check("reserved behind empty_cache()")
    def _():
        return reserved_rows(place / "reserved", 11)

    for seed, env in ((21, {}), (22, EXPANDABLE)):
        @check(f"rows of segments without CUPTI{', expandable segments' if env else ''}")
        def _(seed=seed, env=env):
            return shape(place / f"no-cupti-{seed}", "plain", seed, {**NO_CUPTI, **env}, exactly=True)

    @check("another tool takes CUPTI")
    def _():
        return shape(place / "profiler", "profiler", 31)

    @check("start() when the pool is in use")
    def _():
        return late(place / "late", 41)

    @check("one block of the pool")
    def _():
        return block_cost(place / "cost")

    @check("cudaMallocAsync is left alone")
    def _():
        done = Traced(place / "async", [], [sys.executable, "-c", "import torch; x = torch.ones(1 << 20, device='cuda'); print(x.sum().item())"],
                      {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}).done
        return told([] if "1048576.0" in done.stdout else [done.stderr[-300:]], "runs")
