# SPDX-License-Identifier: Apache-2.0
"""when kernels ran, against events of the program; what the driver's pools and graphs keep; torch.profiler at the kernel level"""
import json
import os
import signal
import subprocess
import sys

import rows as row_files
from checks import COMMAND, PROGRAMS, Traced, build, call, check, exact
from kernel_truth import compare_graph, compare_times, executions, launches

SLACK_NS = 4000  # of the device's own timer and of events


def ledger(traced):
    """The parts of GPU 0 over time; unknown is at most 1 % of what is used at the peak and at the end."""
    found = []
    for project in row_files.projects(traced.out):
        said = json.loads(call([COMMAND, "info", "--json", project.path]).stdout)
        found += [one for process in said["processes"] for one in process.get("devices", []) if one["device"] == "0"]
    device = max(found, key=lambda one: one["peak"]["used_bytes"])
    worst = max(device["over_time"], key=lambda moment: moment["unknown_bytes"] / moment["used_bytes"])
    share = {}
    for name, moment in (("peak", device["peak"]), ("last", device["last"]), ("worst", worst)):
        print(name, {key: round(value / 2**20, 1) for key, value in moment.items() if key.endswith("_bytes")})
        share[name] = 100 * moment["unknown_bytes"] / moment["used_bytes"]
    detail = ", ".join(f"unknown {name} {value:.2f} %" for name, value in share.items())
    if max(share.values()) > 1:
        raise AssertionError(detail)
    return detail


def run(place):
    programs = {}

    @check("the program builds")
    def _():
        programs["kernels"] = build(place, "cuda_kernels")

    for seed, threads, count in ((1, 1, 100), (2, 4, 200), (3, 8, 300)):
        @check(f"times of kernels, {threads} threads")
        def _(seed=seed, threads=threads, count=count):
            traced = Traced(place / f"times-{seed}", ["--level=kernel"], [programs["kernels"], "times", seed, threads, count])
            return compare_times(traced.out, traced.rows, SLACK_NS)

    @check("times of kernels of graphs")
    def _():
        traced = Traced(place / "graph", ["--level=kernel"], [programs["kernels"], "graph", 5, 40])
        return compare_graph(traced.out, traced.rows, traced.value()["nodes"], SLACK_NS)

    @check("no times without launches")
    def _():
        traced = Traced(place / "none", [], [programs["kernels"], "times", 1, 1, 20])
        if executions(traced.rows):
            raise AssertionError(len(executions(traced.rows)))

    @check("a process that is killed has its launches")
    def _():
        out = place / "killed"
        with subprocess.Popen([str(COMMAND), "-o", str(out), "--level=kernel", "--", str(programs["kernels"]), "times", "4", "2", "3000", "kill"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TRUTH": str(place / "killed-truth")}) as process:
            os.kill(int(process.stdout.readline().split()[1]), signal.SIGKILL)
            said = process.communicate(timeout=120)[1]
        rows = [row for project in row_files.projects(out) for row in project.rows()]
        told = [line for line in said.splitlines() if "Not recorded" in line]
        if len(launches(rows)) != 6000:
            raise AssertionError(f"{len(launches(rows))} launches; {told}")
        return f"6000 launches, {len(executions(rows))} times; {told}"

    for order in ("register", "enable"):
        @check(f"another tool's activity records, {order} first")
        def _(order=order):
            alone = json.loads(call([programs["kernels"], "profiler", order], {"TRUTH": "/dev/null"}).stdout)
            traced = Traced(place / f"tool-{order}", ["--level=kernel"], [programs["kernels"], "profiler", order])
            detail = f"alone {alone}, traced {traced.value()}, ours {len(launches(traced.rows))} launches, {len(executions(traced.rows))} times"
            if traced.value() != alone or alone["got"] != 10 or len(launches(traced.rows)) != 20 or len(executions(traced.rows)) != 10:
                raise AssertionError(detail)
            return detail

    @check("PyTorch: every launch ran once, under its name")
    def _():
        traced = Traced(place / "torch", ["--level=kernel"], [sys.executable, PROGRAMS / "train.py", "transformer", "foreach"])
        started, ran = launches(traced.rows), executions(traced.rows)
        tasks = {row.attr["taskId"]: row.name for row in started if row.name != "cuGraphLaunch"}
        of = {run[2]: run[0] for run in ran}
        missing = [name for task, name in tasks.items() if task not in of]
        other = [run for run in ran if run[2] not in tasks]
        renamed = [(tasks[task], name) for task, name in of.items() if task in tasks and tasks[task] != name]
        detail = (f"{len(started)} launches, {len(ran)} times, {len(missing)} launches without one {missing[:2]}, "
                  f"{len(other)} times without launch {other[:2]}, {len(renamed)} other names {renamed[:2]}; {traced.note()}")
        if missing or other or renamed or not started:
            raise AssertionError(detail)
        return detail

    @check("torch.profiler has all its events at the kernel level")
    def _():
        counts = json.loads(call([sys.executable, PROGRAMS / "profiled.py"]).stdout.splitlines()[-1])
        traced = Traced(place / "profiler", ["--level=kernel"], [sys.executable, PROGRAMS / "profiled.py"])
        if traced.value() != counts or counts["cuda"] == 0:
            raise AssertionError(f"alone {counts}, traced {traced.value()}")
        return f"{counts}; {len(launches(traced.rows))} launches before it; {traced.note()}"

    for what in ("pools", "nodes"):
        for seed in (1, 2):
            @check(f"ledger: memory of {what}, seed {seed}")
            def _(what=what, seed=seed):
                traced = Traced(place / f"{what}-{seed}", [], [programs["kernels"], what, seed])
                print(traced.done.stdout, traced.done.stderr[-1500:])
                return f"{ledger(traced)}; {exact(traced)}"

    @check("ledger: PyTorch on cudaMallocAsync")
    def _():
        traced = Traced(place / "async", [], [sys.executable, PROGRAMS / "train.py", "transformer", "foreach"],
                        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
        return ledger(traced)
