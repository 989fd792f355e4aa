# SPDX-License-Identifier: Apache-2.0
"""What tests/targets/cuda_kernels.c says of its kernels against what rows say. Without pytest, since tests/gpu runs where there is none."""
import json
import os
from collections import Counter, defaultdict

NAMES = {"spin_kernel": "spin_kernel", "_ZN5shape6kernel4spinIfLi4EEEvPT_m": "shape::kernel::spin", "cuGraphLaunch": "cuGraphLaunch"}


def told(place):
    with open(os.path.join(place, "truth"), encoding="ascii") as file:
        return [json.loads(line) for line in file]


def executions(rows):
    """[(name, stream, task, device, start, end)] of rows; each start has one end."""
    begun, found = defaultdict(list), []
    for row in sorted(rows, key=lambda row: (row.pid, row.id)):
        key = (row.pid, row.name, row.attr.get("streamId"), row.attr.get("taskId"), row.device) if row.event == "KERNEL_LAUNCH" else None
        if row.type == "KERNEL_EXECUTE_START":
            begun[key].append(row.time_ns)
        elif row.type == "KERNEL_EXECUTE_END":
            found.append((*key[1:], begun[key].pop(0), row.time_ns))
    assert not any(begun.values()), begun
    return found


def launches(rows):
    return [row for row in sorted(rows, key=lambda row: (row.pid, row.id)) if row.type == "KERNEL_LAUNCH"]


def compare_times(place, rows, slack_ns, clock_ns=1_000_000):
    """Every launch ran once, under its name, as long as the program's events say, and between the moments at which the program launched
    and had waited for it. Returns the largest differences."""
    threads, lines = defaultdict(list), defaultdict(list)
    for row in launches(rows):
        threads[row.tid].append(row)
    for line in told(place):
        lines[line["tid"]].append(line)
    ran = {run[2]: run for run in executions(rows)}
    counts = Counter(run[2] for run in executions(rows))
    assert set(counts.values()) <= {1}, counts.most_common(3)
    assert {tid: len(of) for tid, of in threads.items()} == {tid: len(of) for tid, of in lines.items()}
    longest = early = late = 0
    for tid, of in lines.items():
        for row, line in zip(threads[tid], of):
            assert row.name == NAMES[line["name"]], (row, line)
            assert row.attr["taskId"] in ran, f"no execution of {line}"
            name, _, _, _, start, end = ran[row.attr["taskId"]]
            assert name == row.name, (name, line)
            assert line["asked_ns"] - slack_ns <= end - start <= line["event_ns"] + slack_ns, (end - start, line)
            assert start >= line["before_ns"] - clock_ns and end <= line["behind_ns"] + clock_ns, (start, end, line)
            longest = max(longest, abs(line["event_ns"] - (end - start)))
            early = max(early, line["before_ns"] - start)
            late = max(late, end - line["behind_ns"])
    assert len(ran) == sum(map(len, lines.values()))
    return (f"{len(ran)} kernels; events - times at most {longest / 1000:.1f} us; begins at most {early / 1000:.1f} us before its launch, "
            f"ends at most {late / 1000:.1f} us behind the wait for it")


def compare_graph(place, rows, nodes, slack_ns, clock_ns=1_000_000):
    """Every launch of a graph ran all its kernels, one behind the other."""
    graphs = [row for row in launches(rows) if row.name == "cuGraphLaunch"]
    lines = told(place)
    assert len(graphs) == len(lines), (len(graphs), len(lines))
    for row, line in zip(graphs, lines):
        ran = sorted((run for run in executions(rows) if run[2] == row.attr["taskId"]), key=lambda run: run[4])
        assert [run[0] for run in ran] == [list(NAMES.values())[i % 2] for i in range(nodes)], ([run[0] for run in ran], nodes)
        assert all(a[5] <= b[4] for a, b in zip(ran, ran[1:])), ran
        assert line["asked_ns"] - nodes * slack_ns <= sum(run[5] - run[4] for run in ran) <= line["event_ns"] + slack_ns, (ran, line)
        assert ran[0][4] >= line["before_ns"] - clock_ns and ran[-1][5] <= line["behind_ns"] + clock_ns, (ran, line)
    return f"{len(graphs)} launches of {nodes} kernels"
