# SPDX-License-Identifier: Apache-2.0
"""Compares what was recorded with what the programs of tests/targets say they did (target.h tells how they say it).

    traced("threads", 4, 1000).exact()     runs the target under the tool; none missing, none doubled, all of it right
    traced(..., options=["--call-stack=c:20"], env={...}, driver="bare")

exact() knows the order in which every thread called, so it checks each row of each thread by its place, and each FREE
against the one MALLOC that it must belong to. Where recording may lose events by rule, balance() does the counting instead.
"""
import itertools
import json
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

import harness
import rows as rows_module

# The wall clock of a row comes from one pair of clock readings; it is off by as much as the clock was adjusted since.
CLOCK_SLACK_NS = 20_000_000


@dataclass(frozen=True)
class Block:
    """One allocation as the program saw it."""
    id: int
    address: int
    size: int
    device: str
    kind: str
    page: str

    @property
    def type(self):
        return "HOST_PINNED" if self.kind == "host" else "HAL"


@dataclass
class Process:
    """What one process did between two exec's: for each thread, in its order, ("MALLOC" or "FREE", block)."""
    pid: int
    part: int
    threads: dict = field(default_factory=lambda: defaultdict(list))
    blocks: dict = field(default_factory=dict)

    def events(self):
        return [event for events in self.threads.values() for event in events]

    def live(self):
        freed = {block.id for op, block in self.events() if op == "FREE"}
        return [block for block in self.blocks.values() if block.id not in freed]


def parse(text):
    """The lines of all processes, by (pid, part)."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    processes = {}
    for line in lines:
        key = line["pid"], line["part"]
        process = processes.setdefault(key, Process(*key))
        for op, ident, *rest in line["events"]:
            if op == "malloc":
                address, size, device, kind, page = rest
                assert ident not in process.blocks, "the target gave an id twice"
                process.blocks[ident] = Block(ident, address, size, "cpu" if device < 0 else str(device), kind, page)
    for line in lines:
        process = processes[line["pid"], line["part"]]
        process.threads[line["tid"]] += [(op.upper(), process.blocks[ident]) for op, ident, *_ in line["events"]]
    return processes


def check_rows(rows, process):
    """Every thread's rows are what that thread did, and every FREE is of the right block."""
    assert {row.event for row in rows} <= {"MALLOC", "FREE"}
    assert {row.pid for row in rows} <= {process.pid}
    found = defaultdict(list)
    for row in rows:
        found[row.tid].append(row)
    wanted = {tid: events for tid, events in process.threads.items() if events}
    assert {tid: len(events) for tid, events in found.items()} == {tid: len(events) for tid, events in wanted.items()}
    pairs = [(row, *event) for tid in wanted for row, event in zip(found[tid], wanted[tid])]
    for row, op, block in pairs:
        seen = row.event, row.type, row.device, row.ptr, row.attr["size"]
        wanted_row = op, block.type, block.device, block.address, block.size
        assert seen == wanted_row, f"{row}, but the program did {op} {block}"
    allocation = {block.id: row.attr["allocation_id"] for row, op, block in pairs if op == "MALLOC"}
    for row, op, block in pairs:
        assert row.attr["allocation_id"] == allocation[block.id], f"{row} is of another block than {block}"
    assert sorted(allocation.values()) == list(range(1, len(allocation) + 1))
    for row, op, block in pairs:
        check_attr(row, block)


def check_attr(row, block):
    """Keys, their order, and what only a MALLOC says."""
    keys = [key for key in row.attr if key not in ("process_used", "device_used")]
    pinned = ["pinned"] if block.kind == "host" else []
    last = ["page_type", "alloc_type"] if row.event == "MALLOC" and block.kind != "host" else []
    assert keys == ["allocation_id", "addr", "size", *pinned, "used", *last], row
    if last:
        assert (row.attr["page_type"], row.attr["alloc_type"]) == (block.page, block.kind), row


def check_order(rows, window):
    """IDs follow time within the run; an address is taken and given back in turn; `used` is its device's running sum."""
    live, used = set(), Counter()
    for row, following in itertools.zip_longest(rows, rows[1:]):
        assert window[0] - CLOCK_SLACK_NS <= row.time_ns <= window[1] + CLOCK_SLACK_NS, f"{row} is outside of the run"
        assert following is None or row.time_ns <= following.time_ns, f"{following} is before {row}"
        place = row.type, row.device, row.ptr
        assert (place in live) == (row.event == "FREE"), f"{row}: the address is {'' if place in live else 'not '}taken"
        live ^= {place}
        used[row.device] += row.attr["size"] if row.event == "MALLOC" else -row.attr["size"]
        assert row.attr["used"] == used[row.device], row


class Traced:
    """A target that ran under the tool, with what it said and what was recorded."""

    def __init__(self, command, run, window, text):
        self.command = command
        self.run = run
        self.window = window
        self.processes = parse(text)
        self._rows = {}

    def rows(self, project):
        """The rows of a finished project, read once."""
        if project.path not in self._rows:
            self._rows[project.path] = project.rows()
        return self._rows[project.path]

    def info(self, project):
        return self.command.info(project)

    def pairs(self):
        """(project, process) for each process that did anything; those that did not must have left no project."""
        projects = defaultdict(list)
        for project in self.run.projects():
            projects[project.pid].append(project)
        wanted = defaultdict(list)
        for (pid, part), process in sorted(self.processes.items()):
            if process.events():
                wanted[pid].append(process)
        assert {pid: len(found) for pid, found in projects.items()} == \
            {pid: len(parts) for pid, parts in wanted.items()}, f"projects by pid\n{self.run}"
        for found in (found for found in projects.values() if len(found) > 1):
            found.sort(key=lambda project: self.rows(project)[0].time_ns)
        return [pair for pid in sorted(wanted) for pair in zip(projects[pid], wanted[pid])]

    def exact(self, status=0):
        """The whole claim, for every process of the launch. Gives self."""
        assert self.run.returncode == status, str(self.run)
        for project, process in self.pairs():
            # Requests that were refused are no blocks; test_oom.py looks at their rows.
            rows = [row for row in self.rows(project) if row.event not in ("SNAPSHOT", "OOM_DETAIL")]
            check_rows(rows, process)
            check_order(rows, self.window)
            info = self.info(project)
            assert info["pid"] == process.pid
            assert not any(info["losses"].values()), info["losses"]
            live = Counter((int(block["address"], 16), block["size"], block["device"], block["event_type"])
                           for block in info["live_blocks"] if not block["freed_after_end"])
            wanted = Counter((block.address, block.size, block.device, block.type) for block in process.live())
            # What an exit handler took is not alive at the end of the program's own code, and is counted alone.
            assert live == wanted if info["end"] == "last event" else live <= wanted
            assert sum(usage["live_blocks"] for usage in info["pools"]) == wanted.total()
        return self

    def balance(self, *causes, status=0):
        """For one process that may lose events for these causes: what is recorded is true, what is not is counted. Gives
        the number of events lost."""
        assert self.run.returncode == status, str(self.run)
        [(project, process)] = self.pairs()
        rows = self.rows(project)
        made = Counter((tid, op, block.type, block.device, block.address, block.size)
                       for tid, events in process.threads.items() for op, block in events)
        recorded = Counter((row.tid, row.event, row.type, row.device, row.ptr, row.attr["size"]) for row in rows)
        assert not recorded - made, f"rows of what never happened: {list((recorded - made).items())[:5]}"
        info = self.info(project)
        losses = info["losses"]
        assert {name for name, count in losses.items() if count} <= set(causes), losses
        lost = sum(losses.values())
        # A block whose allocation was lost has no row for its free either; the trace counts such frees.
        assert recorded.total() + lost + info["oddities"]["frees_unknown"] == made.total(), (losses, info["oddities"])
        rows_module.blocks(rows)
        check_order(rows, self.window)
        return lost


@pytest.fixture
def traced(msmemscope, program, targets, dist, tmp_path):
    """traced(target, arguments...): runs it to its end under the tool, on the simulated driver or a stand-in. `between`
    is called with the running command while two_acts waits; `stdout` says that the truth is there."""
    def run(name, *arguments, options=(), env=None, driver="simulated", stdout=False, between=None,
            timeout=harness.TIMEOUT_S, **more):
        if between is not None:
            more["stdin"] = subprocess.PIPE
        truth = tmp_path / "truth"
        truth.unlink(missing_ok=True)
        places = {"simulated": dist / "simnpu" / "lib64", "old": dist / "simnpu" / "lib64-old"}
        library = places.get(driver, targets / driver)
        assert (library / "libascend_hal.so").exists(), f"no driver in {library}"
        changes = {"TRUTH": truth, "LD_LIBRARY_PATH": f"{library}:{targets}", **(env or {})}
        start = time.time_ns()
        started = msmemscope.start(*options, "--", *program(name, *arguments), env=changes, **more)
        if between is not None:
            assert started.process.stdout.readline() == b"ready\n", str(started.finish(timeout))
            between(started)
        result = started.finish(timeout)
        window = start, time.time_ns()
        said = result.stdout if stdout else truth.read_text() if truth.exists() else ""
        return Traced(msmemscope, result, window, said)

    return run


@pytest.fixture
def collector(dist):
    """The real file of the injected library."""
    return (dist / "lib64" / "libascend_kernel_hook.so").resolve()


@pytest.fixture
def copies(collector, tmp_path):
    """Three copies of the collector under other names, as wheels and cp -L make them."""
    paths = [tmp_path / name for name in ("libleaks_ascend_hal_hook.so", "libmsmemscope.so", "third.so")]
    for path in paths:
        shutil.copy(collector, path)
    return paths
