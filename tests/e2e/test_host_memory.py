# SPDX-License-Identifier: Apache-2.0
"""Memory of the host: resident memory of a program and of the processes that it starts, growth of it, and a container's limit."""
import json
import re
from pathlib import Path

import pytest

import viewed

KEEP = 512 << 10  # of tests/targets/host_tree.c, in each step
LIMIT = 96 << 20


def host_of(msmemscope, run):
    """The document of the only process that has a trace, and its processes by pid."""
    info = msmemscope.info(run.project())
    return info, {process["pid"]: process for process in info["host_processes"]}


def growth_words(growth):
    """Of a growth by steps, as the screen has it."""
    return growth["sentence"].split(" grows: +")[1].split(". ")[0]


def test_growth_of_a_worker_is_found_with_its_process(msmemscope, program):
    """Two of six children grow; they call no hook and have no trace, and have the name of PyTorch's. Others swing, fill a cache, end early, or stand still."""
    run = msmemscope("--", *program("host_tree", 16, "pt_data_worker", "swings", "pt_data_worker", "fills", "ends", "still")).check()
    truth = json.loads(run.stdout)
    info, processes = host_of(msmemscope, run)
    children = dict(truth["children"])
    assert {pid: process["name"] for pid, process in processes.items() if not process["own"]} == children
    assert {pid for pid, process in processes.items() if process["grows"]} == {pid for pid, kind in children.items() if kind == "pt_data_worker"}
    assert all(process["parent"] == info["pid"] for process in processes.values() if not process["own"])
    (growth,) = info["host_growth"]
    assert growth["name"] == "pt_data_worker" and growth["processes"] == 2 and not growth["own"]
    assert growth["pids"] == ", ".join(str(pid) for pid, kind in children.items() if kind == "pt_data_worker")
    assert growth["bytes_per_step"] == pytest.approx(2 * KEEP, rel=0.25)
    assert info["verdict"] == "suspect"
    said = " ".join(run.stderr.split())
    assert f"HOST MEMORY GROWS: RSS of 2 DataLoader workers +{growth_words(growth)} (pids {growth['pids']}). " in said, run.stderr
    assert "Look at the lists, dicts and caches that the Dataset fills." in said, run.stderr
    # Nothing below contradicts it.
    assert re.search(r" Recorded memory does not grow: \d+ block sizes? checked over steps 2 to \d+\. ", said), run.stderr
    assert not re.search("No leak|steady", said), run.stderr
    assert growth["sentence"].startswith(f"RSS of 2 DataLoader workers (pids {growth['pids']}) grows: +"), growth
    report = (Path(run.project().path) / "report.txt").read_text(encoding="utf-8")
    assert "Host memory of 7 processes" in report and growth["sentence"] in report
    assert processes[info["pid"]]["pinned_peak_bytes"] == 1 << 20
    page = Path(run.out) / "page.html"
    msmemscope("report", run.project().path, "-o", page, output=False).check()
    answers = viewed.answers(page, ("summary/", "series/"))
    assert answers["summary/0///"]["host_findings"] == [{"severity": "warning", "title": "Growth of host memory", "text": growth["sentence"]}]
    # The timeline of pinned memory has what the process has resident.
    [pool] = [one for one in answers["summary/0///"]["pools"] if "resident" in one["figures"]]
    resident = [value for value in answers[f"series/0/{pool['index']}/place/"]["resident"] if value is not None]
    assert resident and max(resident) <= processes[info["pid"]]["peak_bytes"]
    # What each had, to within what a sample may miss.
    for pid, kind in children.items():
        least = {"pt_data_worker": truth["steps"] * KEEP, "fills": truth["steps"] // 3 * KEEP, "swings": 16 << 20}.get(kind, 0)
        assert 0.85 * least <= processes[pid]["peak_bytes"] <= 1.2 * least + (8 << 20), (kind, processes[pid])
    assert {processes[pid]["ended"] for pid, kind in children.items() if kind == "ends"} == {True}


RISING = """
import multiprocessing, time, torch
def rise(rounds):
    kept = [torch.zeros(8)]
    for _ in range(rounds):
        kept.append(bytearray(16 << 20))
        time.sleep(0.02)
if __name__ == "__main__":
    torch.zeros(8)
    started = [multiprocessing.get_context("spawn").Process(target=rise, args=(40,)) for _ in range(2)]
    for one in started:
        one.start()
    for one in started:
        one.join()
"""


def test_workers_that_rise_in_a_short_run_are_in_the_head_and_in_the_table(msmemscope, python, out):
    """Nothing says that they grow without end; but "no problem found" is not what a reader may take along."""
    out.mkdir(exist_ok=True)
    script = out / "rising.py"
    script.write_text(RISING, encoding="utf-8")
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert re.search(r"^\d+ processes(: no leak found)?; host memory of 2 processes rose(; .*)?$", run.stderr, re.M), run.stderr
    assert re.search(r"^  rank       pid  program +pool peak  at the end    host RSS  verdict$", run.stderr, re.M), run.stderr
    rows = re.findall(r"^ +-  +(\d+)  rising\.py +[\d.]+ \w+  +[\d.]+ \w+  +([\d.,]+) (\w+)  ", run.stderr, re.M)
    assert sum(unit == "MiB" and float(size) > 640 for _, size, unit in rows) == 2, run.stderr


def test_growth_of_the_program_itself_is_found(msmemscope, program):
    """Also from the trace alone, in the same words."""
    run = msmemscope("--", *program("host_tree", 16, "parent")).check()
    info, processes = host_of(msmemscope, run)
    (growth,) = info["host_growth"]
    assert growth["own"] and growth["processes"] == 1 and growth["bytes_per_step"] == pytest.approx(KEEP, rel=0.25)
    assert processes[info["pid"]]["grows"] and sum(process["grows"] for process in processes.values()) == 1
    trace = Path(run.project().path) / "trace.msc"
    (again,) = json.loads(msmemscope("info", trace, "--json", output=False).check().stdout)["processes"]
    assert again["host_growth"] == info["host_growth"] and again["host_processes"] == info["host_processes"]


def test_a_healthy_tree_has_no_verdict(msmemscope, program):
    run = msmemscope("--", *program("host_tree", 12, "swings", "fills", "ends", "still")).check()
    info, processes = host_of(msmemscope, run)
    assert info["host_growth"] == [] and info["host_kills"] == [] and len(processes) == 5
    assert "GROWS" not in run.stderr


def test_a_kill_by_the_containers_limit_is_told(msmemscope, program, memory_group):
    """The engine is outside of the container, as the supervisor of a launch that starts one would be."""
    run = msmemscope("--", "/bin/sh", "-c", f'echo $$ > {memory_group(LIMIT)}/cgroup.procs; exec "$@"', "sh",
                     *program("host_tree", 60, "parent"))
    assert run.returncode == -9, run
    info, _ = host_of(msmemscope, run)
    (kill,) = info["host_kills"]
    assert kill["limit_bytes"] == LIMIT and kill["kills"] == 1
    said = " ".join(run.stderr.split())
    assert "OUT OF HOST MEMORY: Killed: the container's limit of 96.0 MiB was reached" in said, run.stderr
    assert info["verdict"] == "oom" and kill["own"]
