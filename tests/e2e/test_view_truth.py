# SPDX-License-Identifier: Apache-2.0
"""What the page shows is what the command computes, at random moments of random histories: every answer is computed anew here, from
the rows that `export` writes and from what `info --json` says."""
import json
import pickle
import random
import re
from collections import Counter
from pathlib import Path

import pytest

import rows as dump
import torch_snapshots as snapshots


class Truth:
    """The blocks of a dump, and what lives when."""

    def __init__(self, rows):
        self.rows = rows
        self.zero = min(row.time_ns for row in rows)
        self.to = max(row.time_ns for row in rows) - self.zero
        self.blocks = dump.blocks(rows)

    def of(self, pool, device):
        return [block for block in self.blocks if (block.malloc.type, block.malloc.device) == (pool, device)]

    def alive(self, pool, device, at):
        """{allocation id: (address, size)}"""
        return {block.malloc.attr["allocation_id"]: (block.malloc.ptr, block.size) for block in self.of(pool, device)
                if block.malloc.time_ns - self.zero <= at and (block.free is None or block.free.time_ns - self.zero > at)}

    def moments(self, rng, count):
        times = [row.time_ns - self.zero for row in self.rows]
        return [0, self.to, *(rng.choice(times) for _ in range(count)), *(rng.randrange(self.to + 1) for _ in range(count))]


@pytest.fixture
def imported(msmemscope, out):
    """A history of a caching allocator as a snapshot of PyTorch, and its rows."""
    def make(seed, **options):
        path = out / f"{seed}.pickle"
        path.write_bytes(pickle.dumps(snapshots.random_snapshot(seed, **options), protocol=4))
        msmemscope("export", "--format=csv", "--call-stack=python", path, "-o", out / f"csv{seed}", output=False).check()
        found = [row for file in Path(out / f"csv{seed}").rglob("memscope_dump_*.csv") for row in dump.read_rows(file)]
        return path, Truth(found)
    return make


def segments_of(driver, inside):
    """{address: (size, used, holes, largest hole)} of driver blocks, by what lies in them; and what lies in none."""
    result, loose = {}, dict(inside)
    for address, size in driver:
        own = sorted((at, length) for ident, (at, length) in inside.items() if address <= at < address + size)
        for ident, (at, _) in inside.items():
            if address <= at < address + size:
                loose.pop(ident, None)
        holes, end = [], address
        for at, length in own:
            holes.append(at - end)
            end = at + length
        holes = [hole for hole in [*holes, address + size - end] if hole > 0]
        result[address] = size, sum(length for _, length in own), len(holes), max(holes, default=0)
    return result, sum(length for _, length in loose.values())


def test_random_histories_at_random_moments(view, imported, sights):
    for seed in range(sights):
        path, truth = imported(seed)
        page, rng = view(path), random.Random(seed)
        summary = page.ask("summary", process=0)
        pools = {(pool["pool"], pool["device"]): pool for pool in summary["pools"]}
        assert {key: pool["blocks"] for key, pool in pools.items()} == Counter((block.malloc.type, block.malloc.device) for block in truth.blocks)
        for (name, device), pool in pools.items():
            for at in truth.moments(rng, 6):
                alive = truth.alive(name, device, at)
                used = sum(size for _, size in alive.values())
                for by in ("owner", "place"):
                    moment = page.ask("moment", process=0, pool=pool["index"], by=by, at=at)
                    assert moment.get("used", 0) == used == moment["others"] + sum(group["bytes"] for group in moment["groups"])
                    assert sum(group["blocks"] for group in moment["groups"]) == len(alive)
                table = page.ask("table", process=0, pool=pool["index"], at=at, to=truth.to + 1, count=1000)
                assert {row["id"]: (int(row["address"], 16), row["bytes"]) for row in table["blocks"]} == alive
                assert page.ask("tree", process=0, pool=pool["index"], at=at)["nodes"][0][4:] == [used, len(alive)]


def test_segments_and_holes_at_random_moments(view, imported, sights):
    for seed in range(sights):
        path, truth = imported(100 + seed)
        page, rng = view(path), random.Random(seed)
        pools = {(pool["pool"], pool["device"]): pool["index"] for pool in page.ask("summary", process=0)["pools"]}
        for device in ("0", "1"):
            for at in truth.moments(rng, 8):
                inside = truth.alive("PTA", device, at)
                driver = list(truth.alive("HAL", device, at).values())
                # A segment is the pool's if a block of the pool ever lay in it while it lived; here all of them become so.
                ever = [(low, size) for low, size in driver if any(low <= block.malloc.ptr < low + size for block in truth.of("PTA", device))]
                expected, loose = segments_of(ever, inside)
                answer = page.ask("segments", process=0, pool=pools["PTA", device], by="place", at=at)
                found = {int(one["address"], 16): (one["bytes"], one["used"], one["holes"], one["largest_hole"])
                         for one in answer["segments"] if not one["loose"]}
                assert found == expected and answer["loose_bytes"] == loose
                assert answer["bytes"] == sum(size for size, *_ in expected.values())
                shown = {one["blocks"][i]: int(one["address"], 16) + one["blocks"][i + 1] for one in answer["segments"]
                         for i in range(0, len(one["blocks"]), 4)}
                assert shown == {ident: address for ident, (address, _) in inside.items()}
                # The driver's own pool has them all.
                whole = page.ask("segments", process=0, pool=pools["HAL", device], by="place", at=at)
                assert whole["bytes"] == sum(size for _, size in driver)
                # One that no framework divides is a block of its own, with a colour.
                alone = {low for low, size in driver if (low, size) not in ever}
                assert {int(one["address"], 16) for one in whole["segments"] if "group" in one} == alone
                assert all(one["used"] == one["bytes"] and one["group"] < len(whole["groups"]) for one in whole["segments"] if "group" in one)


def test_the_end_is_what_the_snapshot_itself_says(view, imported, out):
    """Against the file alone, without our reader of rows."""
    path, truth = imported(7)
    snapshot = pickle.loads((out / "7.pickle").read_bytes())
    page = view(path)
    for pool in page.ask("summary", process=0)["pools"]:
        if pool["pool"] != "PTA":
            continue
        answer = page.ask("segments", process=0, pool=pool["index"], at=truth.to)
        wanted = {segment["address"]: segment for segment in snapshot["segments"] if str(segment["device"]) == pool["device"]}
        assert {int(one["address"], 16): one["bytes"] for one in answer["segments"]} == \
            {address: segment["total_size"] for address, segment in wanted.items()}
        for one in answer["segments"]:
            blocks = [block for block in wanted[int(one["address"], 16)]["blocks"] if block["state"] == "active_allocated"]
            assert one["count"] == len(blocks) and one["used"] == sum(block["requested_size"] for block in blocks)
            for ident in [one["id"], *one["blocks"][:4:4]]:
                [shown] = page.ask("block", process=0, id=ident)["blocks"]
                assert shown["stream"] == wanted[int(one["address"], 16)]["stream"]


def grouped(page, pool, at, process=0):
    moment = page.ask("moment", process=process, pool=pool, by="place", at=at)
    assert moment["others"] == 0
    return {group["name"]: group["bytes"] for group in moment["groups"]}


def functions(name):
    """Of "train.py:9 main -> net.py:41 forward": main, forward."""
    return [re.sub(r"^\S+:\d+ ", "", frame) for frame in name.split("  (")[0].split(" -> ")]


def test_two_moments_and_two_runs_differ_by_what_each_holds(view, imported):
    (one, truth), (other, other_truth) = imported(21), imported(22)
    page, rng = view(one, other), random.Random(4)
    assert [(process["input"], process["name"]) for process in page.ask("processes")["processes"]] == [(0, str(one)), (1, str(other))]
    sides = [next(pool for pool in page.ask("summary", process=process)["pools"] if (pool["pool"], pool["device"]) == ("PTA", "0")) for process in (0, 1)]
    for _ in range(10):
        two_runs = rng.random() < 0.5
        at, then = rng.randrange(truth.to + 1), rng.randrange((other_truth if two_runs else truth).to + 1)
        with_other = {"with": 1, "with_pool": sides[1]["index"]} if two_runs else {}
        question = {"process": 0, "pool": sides[0]["index"], "at": at, "and": then, "by": "place", **with_other}
        before = grouped(page, sides[0]["index"], at)
        after = grouped(page, sides[1 if two_runs else 0]["index"], then, process=1 if two_runs else 0)
        answer = page.ask("difference", **question)
        said = {name: (first, second) for name, first, _, second, _ in answer["groups"]}
        if two_runs:
            moved = {name: first - before.get(name, 0) for name, (first, _) in said.items() if first != before.get(name, 0)}
            gone = {name: size for name, size in before.items() if name not in said}
            # A call site that only one run has at this line is the one with the same functions in the other, under its later name.
            assert sorted((functions(name), size) for name, size in moved.items()) == sorted((functions(name), size) for name, size in gone.items())
            assert not gone.keys() & after.keys() and moved.keys() <= after.keys() - before.keys()
            before = {**{name: size for name, size in before.items() if name not in gone}, **{name: said[name][0] for name in moved}}
        assert said == {name: (before.get(name, 0), after.get(name, 0)) for name in before.keys() | after.keys()}
        changes = [abs(second - first) for _, first, _, second, _ in answer["groups"]]
        assert changes == sorted(changes, reverse=True)
        assert answer["b"].get("used", 0) - answer["a"].get("used", 0) == sum(row[3] - row[1] for row in answer["groups"])
        root = page.ask("tree", of="moment", **question)["nodes"][0]
        assert (root[4], root[6]) == (sum(before.values()), sum(after.values()))


def test_events_are_the_rows_of_the_dump(view, imported):
    path, truth = imported(31)
    page, rng = view(path), random.Random(5)
    pools = {(pool["pool"], pool["device"]): pool["index"] for pool in page.ask("summary", process=0)["pools"]}
    wanted = [row for row in truth.rows if (row.type, row.device) == ("PTA", "1")]
    whole = page.ask("events", process=0, pool=pools["PTA", "1"], to=truth.to + 1, count=1000)
    assert [(event["time_ns"], event["event"], event["block"], event["bytes"]) for event in whole["events"] if "block" in event] == \
        [(row.time_ns - truth.zero, row.event, row.attr["allocation_id"], row.attr["size"]) for row in wanted]
    assert whole["kinds"]["MALLOC"] == sum(row.event == "MALLOC" for row in truth.rows)
    for _ in range(8):
        begin, end = sorted(rng.randrange(truth.to + 1) for _ in range(2))
        least, event = rng.choice([0, 4096, 1 << 20]), rng.choice(["MALLOC", "FREE"])
        fits = [row for row in wanted if row.event == event and begin <= row.time_ns - truth.zero <= end and row.attr["size"] >= least]
        found = page.ask("events", process=0, pool=pools["PTA", "1"], event=event, least=least, **{"from": begin, "to": end}, count=7)
        assert found["found"] == len(fits) and [one["block"] for one in found["events"]] == [row.attr["allocation_id"] for row in fits[:7]]


def test_search_by_stack_and_size_finds_what_the_rows_have(view, imported):
    path, truth = imported(41)
    page = view(path)
    [index] = [pool["index"] for pool in page.ask("summary", process=0)["pools"] if (pool["pool"], pool["device"]) == ("PTA", "0")]
    blocks = truth.of("PTA", "0")
    for word in ("loss.py", "FORWARD", "前向", "main.py"):
        fits = {block.malloc.attr["allocation_id"] for block in blocks if word.lower() in str(block.malloc.python_stack).lower()}
        found = page.ask("table", process=0, pool=index, to=truth.to + 1, count=1000, text=word)
        # The dump has lines as "file(line): function", the page as "function file:line".
        assert {row["id"] for row in found["blocks"]} == fits and fits, word
    for low, high in ((1, 4096), (4096, 1 << 20), (5 << 20, 8 << 20)):
        fits = [block for block in blocks if low <= block.size <= high]
        found = page.ask("table", process=0, pool=index, to=truth.to + 1, least=low, most=high)
        assert (found["found"], found["bytes"]) == (len(fits), sum(block.size for block in fits))
    never = page.ask("table", process=0, pool=index, to=truth.to + 1, alive=1)
    assert never["found"] == sum(block.free is None for block in blocks)


def test_the_highest_moment_of_a_span(view, imported):
    path, truth = imported(51)
    page, rng = view(path), random.Random(6)
    for pool in page.ask("summary", process=0)["pools"]:
        levels = [(time, sum(size for _, size in truth.alive(pool["pool"], pool["device"], time).values()))
                  for time in sorted({row.time_ns - truth.zero for row in truth.rows if (row.type, row.device) == (pool["pool"], pool["device"])})]
        for _ in range(10):
            begin, end = sorted(rng.randrange(truth.to + 1) for _ in range(2))
            before = [level for time, level in levels if time <= begin][-1:]
            values = before + [level for time, level in levels if begin < time <= end]
            answer = page.ask("highest", process=0, pool=pool["index"], **{"from": begin, "to": end})
            if not values:
                assert "error" in answer
                continue
            assert answer["bytes"] == max(values) and begin <= answer["at_ns"] <= end
            assert page.ask("moment", process=0, pool=pool["index"], by="place", at=answer["at_ns"])["used"] == max(values)


PROGRAM = """
import random, sys, torch, msmemscope
rng = random.Random(int(sys.argv[1]))
kept = []
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Linear(32, rng.randrange(8, 64))
    def forward(self, x):
        return torch.relu(self.one(x)).sum()
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(12):
    msmemscope.step()
    with msmemscope.describe.describer(owner=rng.choice(["cache", "scratch"])):
        kept += [torch.zeros(rng.randrange(1, 40_000)) for _ in range(rng.randrange(4))]
    net(torch.ones(rng.randrange(1, 200), 32)).backward()
    optimizer.step()
    while kept and rng.random() < 0.6:
        kept.pop(rng.randrange(len(kept)))
"""


def test_a_random_training_is_told_as_info_tells_it(msmemscope, view, python, out):
    script = out / "train.py"
    script.write_text(PROGRAM, encoding="utf-8")
    seed = 3
    run = msmemscope("--device=cpu", "--analysis=leaks,decompose", "--events=alloc,free,launch,access", "--call-stack=python", "--",
                     *python, script, seed, output=out / "run").check()
    project = run.project()
    info, truth, page = msmemscope.info(project), Truth(project.rows()), view(project.path)
    summary = page.ask("summary", process=0)
    [pool] = summary["pools"]
    assert (pool["peak_bytes"], len(summary["steps"])) == (info["pools"][0]["peak_bytes"], 13)
    peak = page.ask("moment", process=0, pool=0, by="owner", at=pool["peak_ns"])
    told = {one["owner"]: one["peak_bytes"] for one in info["decompose"][0]["owners"] if one["peak_bytes"] > 0}
    assert {group["name"]: group["bytes"] for group in peak["groups"]} == told
    # Each block: its stacks, its accesses, its operator.
    accesses = Counter(row.attr["allocation_id"] for row in truth.rows if row.event == "ACCESS" and row.attr.get("allocation_id") is not None)
    starts = [row for row in truth.rows if row.event == "OP_LAUNCH"]
    for block in random.Random(8).sample(truth.blocks, 25):
        ident = block.malloc.attr["allocation_id"]
        [shown] = page.ask("block", process=0, id=ident)["blocks"]
        assert (shown["bytes"], shown["start_ns"], int(shown["address"], 16)) == (block.size, block.malloc.time_ns - truth.zero, block.malloc.ptr)
        assert shown["end_ns"] == (None if block.free is None else block.free.time_ns - truth.zero)
        assert shown["accesses"] == accesses[ident] == len(shown["uses"])
        assert len(shown["frames"]) == len(block.malloc.python_stack) and len(shown["free_frames"]) == len(block.free.python_stack if block.free else [])
        open_now = []
        for row in starts:
            if row.id > block.malloc.id:
                break
            if row.tid != block.malloc.tid:
                continue
            if row.type == "ATEN_START":
                open_now.append(row.name)
            else:
                open_now.pop()
        assert shown["operator"] == (open_now[0] if open_now else "")
    word = next(row.name for row in starts if "relu" in row.name)
    assert page.ask("table", process=0, pool=0, to=truth.to + 1, text=word)["found"] > 0


def test_ranges_refusals_and_snapshots_are_marked(msmemscope, view, program, client, out):
    said = client("client_mstx", "--memory").exact()
    starts = [event[0:] for event in said.process().events("range_start")]
    ranges = view(said.run.project().path).ask("summary", process=0)["ranges"]
    assert len(ranges) == sum(row.type == "Range_start" and row.name is not None and row.name != "step start" for row in said.rows()), starts
    times = {(row.time_ns, row.name) for row in said.rows() if row.type == "Range_start"}
    zero = min(row.time_ns for row in said.rows())
    assert {(begin + zero, name) for begin, _, name in ranges} <= times and all(begin <= end for begin, end, _ in ranges)
    run = msmemscope("--", *program("oom_causes", "growth", 0), env={"SIMNPU_HBM": "512M"}, output=out / "oom")
    [verdict, *rest] = msmemscope.info(run.project())["oom"]
    summary = view(run.project().path).ask("summary", process=0)
    assert [one["cause"] for one in summary["ooms"]] == [one["cause"] for one in (verdict, *rest)]
    first = summary["ooms"][0]
    assert first["headline"] and first["text"] and first["advice"] and any(marker["kind"] == "oom" for marker in summary["markers"])


def test_waste_is_what_info_tells(msmemscope, view, python, out):
    script = out / "late.py"
    script.write_text("import torch\nbig = torch.ones(500_000)\ny = big * 2\nz = torch.zeros(700_000)\nfor _ in range(5):\n    z = z + 1\ndel big\n", encoding="utf-8")
    run = msmemscope("--device=cpu", "--analysis=inefficient", "--events=alloc,free,launch,access", "--call-stack=python", "--", *python, script,
                     output=out / "late").check()
    wanted = msmemscope.info(run.project())["inefficient"]
    assert wanted and view(run.project().path).ask("waste", process=0)["inefficient"] == wanted


# ---- a block as users of memory_viz expect it ----

def test_a_block_has_its_neighbours_and_the_pools_history(view, out):
    """Three blocks, of which the middle one is freed, and a fourth that takes a part of the hole."""
    start, clock, trace = 0x7f0000000000, iter(range(1_700_000_000_000_000, 1_700_000_001_000_000, 10)), []

    def note(action, address, size, line):
        trace.append({"action": action, "addr": start + address, "size": size, "stream": 7, "time_us": next(clock),
                      "frames": [{"name": "step", "filename": "/srv/train.py", "line": line}]})

    note("segment_alloc", 0, 2 << 20, 1)
    note("alloc", 0, 1024, 1)
    note("alloc", 1024, 3072, 2)
    note("alloc", 4096, 512, 3)
    for action in ("free_requested", "free_completed"):
        note(action, 1024, 3072, 2)
    note("alloc", 1024, 2048, 4)
    blocks = [(0, 1024, 1024, 1), (1024, 2048, 2048, 4), (3072, 1024, 0, 0), (4096, 512, 512, 3), (4608, (2 << 20) - 4608, 0, 0)]
    segment = {"device": 0, "address": start, "total_size": 2 << 20, "stream": 7, "is_expandable": False, "allocated_size": 3584, "active_size": 3584,
               "requested_size": 3584, "segment_type": "small", "segment_pool_id": (0, 0), "frames": [], "blocks": [
                   {"address": start + address, "size": size, "requested_size": requested, "state": "active_allocated" if line else "inactive",
                    "frames": [{"name": "step", "filename": "/srv/train.py", "line": line}] if line else []} for address, size, requested, line in blocks]}
    (out / "snapshot.pickle").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace], "external_annotations": []}))
    page = view(out / "snapshot.pickle")
    summary = page.ask("summary", process=0)
    [index] = [pool["index"] for pool in summary["pools"] if not pool["driver"]]
    table = page.ask("table", process=0, pool=index, at=summary["to_ns"], to=summary["to_ns"] + 1, count=10)["blocks"]
    ids = {int(one["address"], 16) - start: one["id"] for one in table}
    [block] = page.ask("block", process=0, id=ids[1024])["blocks"]
    assert block["bytes"] == 2048
    inside = block["segment"]
    assert (int(inside["address"], 16), inside["bytes"], inside["offset"]) == (start, 2 << 20, 1024)
    assert (inside["before"]["id"], inside["before"]["bytes"], inside["before"].get("hole")) == (ids[0], 1024, None)
    assert (inside["after"]["id"], inside["after"]["bytes"], inside["after"]["hole"]) == (ids[4096], 512, 1024)
    assert [(one["event"], one["bytes"]) for one in block["around"]] == [
        ("MALLOC", 1024), ("MALLOC", 3072), ("MALLOC", 512), ("FREE", 3072), ("MALLOC", 2048)]
    assert block["around"][-1]["block"] == block["id"]
    state = page.ask("segments", process=0, pool=index, by="place", at=summary["to_ns"])
    assert state["hole_sizes"] == [[1 << 20, 1, (2 << 20) - 4608], [1024, 1, 1024]]
