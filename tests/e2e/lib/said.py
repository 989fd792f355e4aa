# SPDX-License-Identifier: Apache-2.0
"""Compares the rows with what the clients of tests/targets say they did (client.h, acl_train.c): blocks of the driver, regions
of pools, marks and ranges, launches, the runtime's beginning and end.

    said = client("client_pta", "--threads=4")     runs it under the tool, on the simulated NPU
    said.exact()                                   every process: each thread's rows are what it did, in its order

A row is right when everything in it is: what it is about, sums after the step, and the allocation_id of its own block. What
only the device knows, tasks and times, is in the log of the simulated device: test_kernels.py.
"""
import itertools
import json
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

import rows as rows_module

# As in truth.py: the wall clock of a row comes from one pair of readings.
CLOCK_SLACK_NS = 20_000_000


@dataclass
class Process:
    """One process: for each thread its events, in its order, as client.h describes them."""
    pid: int
    client: str
    reports: bool
    threads: dict = field(default_factory=lambda: defaultdict(list))

    def events(self, *ops):
        return [event for events in self.threads.values() for event in events if event[0] in ops]


def parse(text):
    """The processes by pid."""
    processes = {}
    for line in map(json.loads, text.splitlines()):
        process = processes.setdefault(line["pid"], Process(line["pid"], line["client"], line["reports"]))
        process.threads[line["tid"]] += line["events"]
    return processes


@dataclass
class Wanted:
    """The rows that a process must have: by thread, as tuples, with the block that each is about."""
    rows: dict = field(default_factory=lambda: defaultdict(list))   # tid: [(tuple, block id or None)]
    pools: dict = field(default_factory=lambda: defaultdict(list))  # (pool, device): [(order, tuple)]
    live: list = field(default_factory=list)                        # (pool, address, size, device) at the end
    over: int = 0      # registrations of an address that was registered
    unknown: int = 0   # and unregistrations of one that was not


def blocks_of(process):
    """What each id stands for: (pool, address, size, device), and for the driver's (page, kind) behind it."""
    blocks = {}
    for op, ident, *rest in process.events("malloc", "register"):
        if op == "malloc":
            address, size, device, kind, page = rest
            blocks[ident] = ("HOST_PINNED", address, size, "cpu") if kind == "host" else \
                ("HAL", address, size, str(device), page, kind)
        else:
            pool, address, size, device, *_ = rest
            blocks[ident] = pool, address, size, str(device)
    return blocks


def wanted(process, kernels):
    """What the rows of the process must be; launches only when kernels are asked for."""
    result = Wanted()
    blocks = blocks_of(process)
    freed = Counter(event[1] for event in process.events("free", "unregister"))
    result.unknown = sum(count - 1 for count in freed.values())
    given_back = set()

    def put(tid, op, ident, *more):
        pool, address, size, device, *_ = blocks[ident]
        row = op, pool, address, device, size, *more
        result.rows[tid].append((row, ident))
        if op == "FREE":
            given_back.add(ident)
        return row

    for tid, events in process.threads.items():
        places = {}
        for op, ident, *rest in events:
            if op == "malloc":
                put(tid, "MALLOC", ident, *blocks[ident][4:])
            elif op == "free":
                put(tid, "FREE", ident)
            elif op == "register":
                pool, address, _, device = blocks[ident]
                before = places.get((pool, device, address), ident)
                if before != ident and freed[before] == 0:
                    # A region of this thread is still there: it has ended, and nobody said when.
                    put(tid, "FREE", before, "shadow")
                    result.over += 1
                places[pool, device, address] = ident
                *_, used, total, order = rest
                result.pools[pool, device].append((order, put(tid, "MALLOC", ident, used, total)))
            elif op == "unregister" and ident not in given_back:
                pool, _, _, device = blocks[ident]
                used, total, order = rest
                result.pools[pool, device].append((order, put(tid, "FREE", ident, used, total)))
            elif op in ("mark", "range_start"):
                # In a csv file the message N/A cannot be told from none.
                name = None if rest[1] == "N/A" else rest[1]
                result.rows[tid].append((("MSTX", op.capitalize(), name), None))
            elif op == "range_end":
                result.rows[tid].append((("MSTX", "Range_end", f"Range end from id {ident}"), None))
            elif op == "acl":
                result.rows[tid].append((("SYSTEM", f"ACL_{rest[0].upper()}", None), None))
            elif op == "launch" and kernels:
                device, stream, name = rest
                result.rows[tid].append((("KERNEL_LAUNCH", "KERNEL_LAUNCH", name, str(device), stream), None))
    result.live = [block[:4] for ident, block in blocks.items() if ident not in given_back]
    return result


def seen(row):
    """The same tuple of a row."""
    if row.event in ("MALLOC", "FREE"):
        place = row.event, row.type, row.ptr, row.device, row.attr["size"]
        if row.attr.get("shadow"):
            return (*place, "shadow")
        if row.type not in ("HAL", "HOST_PINNED"):
            return (*place, row.attr.get("used"), row.attr.get("total"))
        how = (row.attr["page_type"], row.attr["alloc_type"]) if place[:2] == ("MALLOC", "HAL") else ()
        return (*place, *how)
    if row.event == "KERNEL_LAUNCH":
        return row.event, row.type, row.name, row.device, row.attr["streamId"]
    return row.event, row.type, row.name


def executed(row):
    return row.type.startswith("KERNEL_EXECUTE")


def check_threads(rows, want):
    """Each thread's rows, in the order of their IDs, are what that thread did. Gives the allocation_id of each block."""
    found = defaultdict(list)
    for row in rows:
        found[row.tid].append(row)
    assert set(found) == set(tid for tid, events in want.rows.items() if events)
    allocations = {}
    for tid, events in want.rows.items():
        for row, (expected, ident) in itertools.zip_longest(found[tid], events, fillvalue=(None, None)):
            assert isinstance(row, rows_module.Row), f"thread {tid} has no row for {expected}"
            assert seen(row) == expected, str(row)
            if row.event == "MALLOC":
                allocations[ident] = row.attr["allocation_id"]
    for tid, events in want.rows.items():
        for row, (_, ident) in zip(found[tid], events):
            if ident is not None:
                assert row.attr["allocation_id"] == allocations[ident], f"{row} is of another block"
    assert sorted(allocations.values()) == list(range(1, len(allocations) + 1))
    return allocations


def check_order(rows, window):
    """IDs follow time, within the run. `used` of the driver's memory is the running sum of its device."""
    used = Counter()
    for row, following in itertools.zip_longest(rows, rows[1:]):
        assert window[0] - CLOCK_SLACK_NS <= row.time_ns <= window[1] + CLOCK_SLACK_NS, f"{row} is outside of the run"
        assert following is None or row.time_ns <= following.time_ns, f"{following} is before {row}"
        if row.type in ("HAL", "HOST_PINNED"):
            used[row.type, row.device] += row.attr["size"] if row.event == "MALLOC" else -row.attr["size"]
            assert row.attr["used"] == used[row.type, row.device], row


def check_pools(rows, want):
    """A pool calls under its lock, so its rows on a device come in the order of its own count."""
    found = defaultdict(list)
    for row in rows:
        if (row.type, row.device) in want.pools and not row.attr.get("shadow"):
            found[row.type, row.device].append(seen(row))
    assert found == {place: [row for _, row in sorted(steps)] for place, steps in want.pools.items()}


class Said:
    """A client that ran under the tool, with what it said and what was recorded."""

    def __init__(self, command, run, window, truth, options):
        self.command = command
        self.run = run
        self.window = window
        self.kernels = any(option.startswith("--level") and ("kernel" in option or "1" in option) for option in options)
        self.processes = parse(truth)
        self._rows = {}

    def rows(self, project=None):
        """The rows of a project, of the only one by default; read once."""
        project = project or self.run.project()
        if project.path not in self._rows:
            self._rows[project.path] = project.rows()
        return self._rows[project.path]

    def info(self, project=None):
        return self.command.info(project or self.run.project())

    def process(self):
        [process] = self.processes.values()
        return process

    def pairs(self):
        """(project, process) for each process: all of them did something, and each has one project."""
        projects = {project.pid: project for project in self.run.projects()}
        assert len(projects) == len(self.run.projects())
        assert projects.keys() == self.processes.keys(), str(self.run)
        return [(projects[pid], process) for pid, process in self.processes.items()]

    def exact(self):
        """The whole claim. Gives self."""
        for project, process in self.pairs():
            want = wanted(process, self.kernels)
            rows = [row for row in self.rows(project) if not executed(row)]
            check_threads(rows, want)
            check_order(rows, self.window)
            check_pools(rows, want)
            info = self.info(project)
            assert not any(info["losses"].values()), info["losses"]
            assert info["oddities"]["allocs_over"] == want.over
            assert info["oddities"]["frees_unknown"] == want.unknown
            assert info["oddities"]["contexts_unknown"] == info["oddities"]["stacks_unknown"] == 0
            live = Counter((block["event_type"], int(block["address"], 16), block["size"], block["device"])
                           for block in info["live_blocks"] if not block["freed_after_end"])
            assert live == Counter(want.live)
            assert info["events_by_type"]["kernel_launch"] == len(process.events("launch"))
        return self


@pytest.fixture
def client(msmemscope, program, dist, tmp_path):
    """client(name, arguments...): runs it to its end under the tool; `command` for what is no target."""
    def run(name, *arguments, options=(), env=None, command=None, status=0):
        truth = tmp_path / "truth"
        truth.unlink(missing_ok=True)
        changes = {"TRUTH": truth, "PYTHONPATH": dist / "simnpu" / "python", **(env or {})}
        start = time.time_ns()
        result = msmemscope(*options, "--", *(command or program(name, *arguments)), env=changes)
        window = start, time.time_ns()
        assert result.returncode == status, str(result)
        return Said(msmemscope, result, window, truth.read_text() if truth.exists() else "", options)

    return run
