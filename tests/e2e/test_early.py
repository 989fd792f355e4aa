# SPDX-License-Identifier: Apache-2.0
"""Programs that have the collector preloaded and call start() late: what lives then is known. late_start.c opens the window in
programs that know nothing of it; they tell by themselves what they have (target.h)."""
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import harness
import rows as rows_module
import said
import truth

ROOT = Path(__file__).resolve().parents[2]


class Late:
    """A target whose first window opens at an allocation."""

    def __init__(self, command, program, targets, dist, out):
        self.command, self.program, self.targets, self.dist, self.out = command, program, targets, dist, out
        self.results = out / "results"
        self.processes, self.starters = {}, []

    def run(self, start_at, name, *arguments, parse=truth.parse):
        log, started = self.out / "truth", self.out / "started"
        preload = f"{self.dist / 'lib64' / 'libascend_kernel_hook.so'}:{self.targets / 'liblate_start.so'}"
        env = {"TRUTH": log, "STARTED": started, "OUT": self.results, "START_AT": str(start_at), "LD_PRELOAD": preload,
               "LD_LIBRARY_PATH": f"{self.dist / 'simnpu' / 'lib64'}:{self.targets}"}
        run = self.command.bare(*self.program(name, *arguments), env=env).check()
        self.processes = parse(log.read_text())
        if started.exists():
            self.starters = [tuple(map(int, line.split())) for line in started.read_text().splitlines()]
        return harness.Run(run.argv, run.returncode, run.stdout, run.stderr, self.results)

    def check_end(self, project):
        """What lives at the end is what the program has, nothing was lost, no free was of an unknown block."""
        info = self.command.info(project)
        [process] = [process for (pid, _), process in self.processes.items() if pid == project.pid]
        live = Counter((int(block["address"], 16), block["size"], block["device"], block["event_type"])
                       for block in info["live_blocks"])
        assert live == Counter((block.address, block.size, block.device, block.type) for block in process.live())
        assert not any(info["losses"].values()) and not any(info["oddities"].values()), info
        return info


@pytest.fixture
def late(msmemscope, program, targets, dist, out):
    return Late(msmemscope, program, targets, dist, out)


def before_allocation(process, number):
    """Blocks that live before the process, which has one thread, makes its halMemAlloc of that number."""
    [events] = [events for events in process.threads.values() if events]
    live, calls = {}, 0
    for op, block in events:
        calls += op == "MALLOC" and block.kind != "create"
        if calls == number:
            return list(live.values())
        if op == "MALLOC":
            live[block.id] = block
        else:
            del live[block.id]
    raise AssertionError("so many allocations were not made")


@pytest.mark.parametrize("start_at", [1, 2, 100, 1000])
def test_blocks_that_live_at_the_first_start_are_there_with_all_that_they_are(late, start_at):
    """In the order of their allocation, with their thread; later rows count on from them."""
    run = late.run(start_at, "threads", 1, 3000)
    [project] = run.projects()
    [process] = late.processes.values()
    rows = project.rows()
    wanted = before_allocation(process, start_at)
    older = [row for row in rows if row.event == "MALLOC" and row.attr.get("shadow")]
    assert [(row.type, row.device, row.ptr, row.attr["size"], row.attr.get("page_type"), row.attr.get("alloc_type"))
            for row in older] == [(block.type, block.device, block.address, block.size,
                                   *((None, None) if block.kind == "host" else (block.page, block.kind))) for block in wanted]
    [worker] = {tid for tid, events in process.threads.items() if events}
    assert {row.tid for row in older} <= {worker}
    assert [row.attr["allocation_id"] for row in older] == list(range(1, len(older) + 1))
    used = Counter()
    for block in wanted:
        used[block.device] += block.size
    for row in rows[1 + len(older):]:
        used[row.device] += row.attr["size"] if row.event == "MALLOC" else -row.attr["size"]
        assert row.attr["used"] == used[row.device], row
    assert late.check_end(project)["events_by_type"].get("block_before", 0) == len(wanted)


@pytest.mark.parametrize("threads, start_at", [(4, 2000), (16, 500), (16, 5000), (16, 10000)])
def test_a_window_that_opens_amid_sixteen_threads_has_every_block_once(late, threads, start_at):
    """They free each other's blocks before, while and after it opens; older blocks have their own thread."""
    run = late.run(start_at, "threads", threads, 2000)
    [project] = run.projects()
    late.check_end(project)
    rows = project.rows()
    rows_module.blocks(rows)
    [process] = late.processes.values()
    takers = {(block.address, block.size): set() for block in process.blocks.values()}
    for tid, events in process.threads.items():
        for op, block in events:
            if op == "MALLOC":
                takers[block.address, block.size].add(tid)
    older = [row for row in rows if row.event == "MALLOC" and row.attr.get("shadow")]
    assert older and all(row.tid in takers[row.ptr, row.attr["size"]] for row in older)


def test_a_child_of_the_time_before_goes_on_with_its_copy(late):
    """Each has its own first start(), its own engine, and what it has of its own and from before the fork."""
    run = late.run(5, "early_fork")
    assert len(late.starters) == 2 and len(run.projects()) == 2
    found = {}
    for project in run.projects():
        found[project.pid] = [(row.event, row.attr["size"]) for row in project.rows() if row.event in ("MALLOC", "FREE")]
        assert not any(late.command.info(project)["oddities"].values())
    child, parent = (pid for pid, _ in late.starters)
    assert found == {child: [("MALLOC", 4096), ("MALLOC", 16384), ("MALLOC", 65536)],
                     parent: [("MALLOC", 4096), ("MALLOC", 12288), ("MALLOC", 16384), ("MALLOC", 65536)]}


TAKES = """
import ctypes, os
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
for size in (64 << 20, 4096, 8192, 16384):
    assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), size, 33 << 56 | 0x904400) == 0
"""


def test_the_drivers_figures_count_older_blocks_once(msmemscope, targets, dist, out, tmp_path):
    """The driver is first asked when these blocks are there already. No other process uses the device, so its
    figure is the process's own, in whole MiB; the two are asked for one after the other."""
    share = tmp_path / "share"
    share.mkdir()
    results = out / "results"
    env = {"SIMNPU_SHARE": share, "STARTED": tmp_path / "started", "OUT": results, "START_AT": "3",
           "LD_PRELOAD": f"{dist / 'lib64' / 'libascend_kernel_hook.so'}:{targets / 'liblate_start.so'}"}
    msmemscope.bare("/usr/bin/python3", "-c", TAKES, env=env).check()
    [project] = harness.Run([], 0, "", "", results).projects()
    rows = [row for row in project.rows() if row.event == "MALLOC" and not row.attr.get("shadow")]
    assert [row.attr["used"] for row in rows] == [(64 << 20) + 12288, (64 << 20) + 28672]
    for row in rows:
        assert row.attr["process_used"] == row.attr["used"], row
        assert 0 <= row.attr["device_used"] - row.attr["process_used"] < 2 << 20, row


def test_a_program_that_never_starts_leaves_nothing(late):
    run = late.run(1 << 40, "threads", 16, 2000)
    assert run.stderr == run.stdout == "" and not late.results.exists() and not late.starters


@pytest.mark.parametrize("start_at, name, options", [
    (4, "client_pta", ["--threads=1"]), (4, "client_pta", ["--threads=3", "--devices=2"]), (3, "client_workspace", ["--threads=2"]),
    (3, "client_mindspore", ["--threads=3", "--devices=3"]), (4, "client_atb", ["--threads=3"])], ids=str)
def test_pools_are_known_with_what_they_have_and_hold(late, start_at, name, options):
    """Regions by address and by handle. Rows after the start have sums that count what was there before. A thread registers
    regions of what it has before it allocates again, and MindSpore's pool does both under one lock: at these allocations there is one."""
    run = late.run(start_at, name, *options, "--rounds=300", parse=said.parse)
    [project], [process] = run.projects(), late.processes.values()
    want = said.wanted(process, False)
    found = defaultdict(list)
    for row in project.rows():
        if (row.type, row.device) in want.pools and not row.attr.get("shadow"):
            found[row.type, row.device].append(said.seen(row))
    assert found
    for place, rows in found.items():
        assert rows == [row for _, row in sorted(want.pools[place])][-len(rows):], place
    info = late.command.info(project)
    assert not any(info["losses"].values()) and info["oddities"]["frees_unknown"] == want.unknown, info
    live = Counter((block["event_type"], int(block["address"], 16), block["size"], block["device"])
                   for block in info["live_blocks"])
    assert live == Counter(want.live)
    assert sum(map(len, found.values())) < sum(map(len, want.pools.values())), "the window opened too early"


@pytest.fixture
def torch_before(msmemscope, python, dist, out):
    """Runs torch_before.py with the collector preloaded; the results are in `out`."""
    def run(device, start):
        env = {"OUT": out, "DEVICE": device, "START": start, "PYTHONPATH": dist / "python",
               "LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so"}
        done = msmemscope.bare(*python, ROOT / "tests" / "targets" / "torch_before.py", env=env, cwd=out).check()
        assert "unknown size" not in done.stderr, "PyTorch noticed"
        return harness.Run(done.argv, done.returncode, done.stdout, done.stderr, out)

    return run


def test_a_model_that_was_built_before_the_first_start_has_its_weights(torch_before, msmemscope):
    run = torch_before("cpu", "1")
    [project] = run.projects()
    older = {row.ptr: row for row in project.rows() if row.event == "MALLOC" and row.attr.get("shadow")}
    ended = {row.attr["allocation_id"] for row in project.rows() if row.event == "FREE"}
    for owner in ("model@weight", "model@optimizer_state"):
        for address, size in run.value(owner):
            assert older[address].attr["size"] == size and older[address].attr["owner"] == f"HOST@{owner}"
            assert older[address].attr["allocation_id"] in ended
    info = msmemscope.info(project, "--analysis=decompose")
    assert not any(info["oddities"].values()) and not any(info["losses"].values())
    [host] = info["decompose"]
    shares = {one["owner"]: one["peak_bytes"] for one in host["owners"]}
    for owner in ("model@weight", "model@optimizer_state"):
        assert shares[f"HOST@{owner}"] == sum(size for _, size in run.value(owner))


def test_tensors_of_the_host_that_nobody_asked_for_have_no_rows(torch_before):
    run = torch_before("npu", "1")
    assert not [row for project in run.projects() for row in project.rows() if row.event in ("MALLOC", "FREE")]


def test_pytorch_with_the_collector_preloaded_and_nothing_else_says_nothing(torch_before, out):
    assert torch_before("cpu", "").stderr == "" and not list(out.iterdir())
