# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of PyTorch: written for memory_viz by its own rules, and read from people who never ran our collector. Nothing in a
file is ever run."""
import json
import os
import pickle
import random
import re
from collections import Counter
from pathlib import Path

import pytest

import foreign
import said
import torch_snapshots as snapshots

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def export(msmemscope, out):
    def run(path, *options):
        result = msmemscope("export", "--format=torch", "-o", out / "exported", *options, path, output=False).check()
        assert result.stderr == ""
        [written] = result.stdout.splitlines()
        snapshot = snapshots.load(Path(written))
        snapshots.check(snapshot)
        return snapshot

    return run


def write(out, snapshot, protocol=4, name="snapshot.pickle"):
    path = out / name
    path.write_bytes(pickle.dumps(snapshot, protocol=protocol))
    return path


# ---- export ----

def history(process):
    """(action, address, size) of each device, of one thread, as the program says: driver memory that no pool takes is both."""
    blocks = said.blocks_of(process)
    [events] = [events for events in process.threads.values() if any(event[0] == "malloc" for event in events)]
    wanted = {}
    for op, ident, *_ in events:
        if op not in ("malloc", "free", "register", "unregister") or blocks[ident][3] == "cpu":
            continue
        pool, address, size, device, *how = blocks[ident]
        if how[1:] == ["create"]:
            continue  # a handle, which has no address
        wanted.setdefault(int(device), []).append((op, pool, address, size))
    return wanted


def test_a_program_of_the_driver_alone(client, export):
    """Each block is a segment and an allocation; what lives when main() returns is there at the end."""
    run = client("acl_train", "--steps=3", options=["--call-stack=c:10"])
    snapshot = export(run.run.project().path)
    for device, events in history(run.process()).items():
        wanted = []
        for op, _, address, size in events:
            wanted += [(action, address, size) for action in
                       (("segment_alloc", "alloc") if op == "malloc" else ("free_requested", "free_completed", "segment_free"))]
        found = [(entry["action"], entry["addr"], entry["size"]) for entry in snapshot["device_traces"][device]]
        assert found == wanted[:len(found)] and len(found) > 10
        assert all(entry["frames"] for entry in snapshot["device_traces"][device] if entry["action"] == "alloc")


def test_a_training_with_pools(client, export, msmemscope):
    run = client("leaky_steps", "--steps=8", options=["--call-stack=c:10"], env={"SIMNPU_DEVICES": 3})
    snapshot = export(run.run.project().path)
    for device, events in history(run.process()).items():
        wanted = Counter((op, address, size) for op, pool, address, size in events if pool != "HAL")
        trace = snapshot["device_traces"][device]
        segments = {(entry["addr"], entry["size"]) for entry in trace if entry["action"] == "segment_alloc"}
        assert segments == {(address, size) for op, pool, address, size in events if op == "malloc"}
        found = Counter((entry["action"], entry["addr"], entry["size"]) for entry in trace)
        for (op, address, size), count in wanted.items():
            assert found["alloc" if op == "register" else "free_requested", address, size] == count
    names = Counter(event[-1] for event in run.process().events("range_start"))
    assert Counter(one["name"] for one in snapshot["external_annotations"] if one["stage"] == "START") == names
    assert Counter(one["name"] for one in snapshot["external_annotations"] if one["stage"] == "END") == names


TENSORS = """
import json, torch
kept = [torch.empty(1000 + i, dtype=torch.uint8) for i in range(5)]
for i in range(20):
    torch.empty(5000 + i, dtype=torch.uint8)
print(json.dumps({"kept": [[t.data_ptr(), t.numel()] for t in kept]}), flush=True)
"""


def test_cpu_tensors_are_a_device_of_their_own(msmemscope, export, python, out):
    """Of a run without memory of a device: each tensor is a segment while it lives, and its allocation has a stack."""
    (out / "tensors.py").write_text(TENSORS, encoding="utf-8")
    run = msmemscope("--device=cpu", "--call-stack=python", "--", *python, out / "tensors.py").check()
    snapshot = export(run.project().path)
    assert len(snapshot["device_traces"]) == 1
    trace = snapshot["device_traces"][0]
    found = Counter(entry["size"] for entry in trace if entry["action"] == "alloc")
    assert all(found[5000 + i] == 1 for i in range(20)) and all(found[1000 + i] == 1 for i in range(5))
    live = {(segment["address"], segment["total_size"]) for segment in snapshot["segments"]}
    assert {tuple(pair) for pair in run.value("kept")} <= live and all(segment["device"] == 0 for segment in snapshot["segments"])
    assert Counter(entry["action"] for entry in trace)["segment_free"] == Counter(entry["action"] for entry in trace)["free_requested"] >= 20
    assert any(frame["filename"].endswith("tensors.py") for entry in trace if entry["size"] == 5003 for frame in entry["frames"])


def test_a_run_without_memory_is_refused_in_a_sentence(msmemscope, out, dist):
    (out / "marks.py").write_text("import mstx\nmstx.mark('one')\n", encoding="utf-8")
    run = msmemscope("--", "/usr/bin/python3", out / "marks.py", env={"PYTHONPATH": dist / "simnpu" / "python"}).check()
    done = msmemscope("export", "--format=torch", "-o", out / "exported", run.project().path, output=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "this format can show none of" in done.stderr, done
    assert not list((out / "exported").rglob("*.pickle*"))


# ---- import ----

@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_gives_the_same(out, msmemscope, protocol):
    snapshot = snapshots.random_snapshot(5)
    told = [msmemscope("info", "--all", write(out, snapshot, number), output=False).check().stdout for number in (4, protocol)]
    assert told[0] == told[1] and "PTA" in told[0]


@pytest.mark.parametrize("times", [True, False], ids=["times", "no-times"])
@pytest.mark.parametrize("seed", range(6))
def test_import_and_export_give_the_same_structure(out, export, seed, times):
    snapshot = snapshots.random_snapshot(seed, times=times)
    again = export(write(out, snapshot))
    assert snapshots.structure(again) == snapshots.structure(snapshot)
    if times:
        # A free is one event for us: its two entries have one time.
        assert [[entry["time_us"] for entry in trace if entry["action"] != "free_completed"] for trace in again["device_traces"]] == \
            [[entry["time_us"] for entry in trace if entry["action"] != "free_completed"] for trace in snapshot["device_traces"]]


def test_segments_that_are_mapped_in_parts(out, export):
    """Mapped in some pieces, unmapped in others: each entry comes back as it was."""
    mib, base, rng = 1 << 20, 1 << 44, random.Random(3)
    frames = [{"name": "grow", "filename": "train.py", "line": 7}]
    mapped, trace, clock = set(range(4)), [], 1_700_000_000_000_000
    for _ in range(60):
        start = rng.randrange(0, 40)
        count = rng.randrange(1, 6)
        units = set(range(start, start + count))
        clock += 10
        entry = {"addr": base + start * 2 * mib, "size": count * 2 * mib, "stream": 3, "time_us": clock, "frames": frames}
        if not units & mapped:
            trace.append({"action": "segment_map", **entry})
            mapped |= units
        elif units <= mapped:
            trace.append({"action": "segment_unmap", **entry})
            mapped -= units
    segments = []
    for unit in sorted(mapped):
        address = base + unit * 2 * mib
        if segments and segments[-1]["address"] + segments[-1]["total_size"] == address:
            segments[-1]["total_size"] += 2 * mib
        else:
            segments.append({"device": 0, "address": address, "total_size": 2 * mib, "stream": 3, "is_expandable": True,
                             "segment_type": "large"})
    for segment in segments:
        segment["blocks"] = [{"address": segment["address"], "size": segment["total_size"], "requested_size": 0, "state": "inactive"}]
    snapshot = {"segments": segments, "device_traces": [trace]}
    assert len(trace) > 20
    assert snapshots.structure(export(write(out, snapshot))) == snapshots.structure(snapshot)


def test_sums_and_places_are_those_of_the_snapshot(out, msmemscope):
    snapshot = snapshots.random_snapshot(9)
    path = write(out, snapshot)
    info = json.loads(msmemscope("info", "--json", path, output=False).check().stdout)
    [info] = info.get("processes", [info])
    for device in range(2):
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        pools = {pool["pool"]: pool for pool in info["pools"] if pool["device"] == str(device)}
        assert pools["HAL"]["live_bytes"] == sum(segment["total_size"] for segment in segments)
        assert pools["PTA"]["live_bytes"] == sum(segment["requested_size"] for segment in segments)
        assert pools["PTA"]["live_blocks"] == sum(block["state"] == "active_allocated" for segment in segments
                                                 for block in segment["blocks"])


def test_each_byte_is_alive_once(out, msmemscope):
    """Segments are the driver's memory for the blocks of the pool: both levels are figures, and one of them is the sum."""
    snapshot = snapshots.random_snapshot(11)
    path = write(out, snapshot)
    blocks = [block["requested_size"] for segment in snapshot["segments"] for block in segment["blocks"]
              if block["state"] == "active_allocated"]
    segments = [segment["total_size"] for segment in snapshot["segments"]]
    text = msmemscope("info", "--all", path, output=False).check().stdout
    sums = re.findall(r"^(Alive at the end|  Not listed): ([\d.]+) MiB in (\d+) blocks", text, re.M)
    assert [(word, int(count)) for word, _, count in sums] == [("Alive at the end", len(blocks)), ("  Not listed", len(segments))]
    assert [float(size) for _, size, _ in sums] == pytest.approx([sum(blocks) / 2**20, sum(segments) / 2**20], rel=0.01)
    assert "  HAL on device" not in text.split("Alive at the end: ")[1]
    info = json.loads(msmemscope("info", "--json", "--all", path, output=False).check().stdout)
    [info] = info.get("processes", [info])
    assert sorted(block["size"] for block in info["live_blocks"] if "taken_by" not in block) == sorted(blocks)
    assert {block.get("taken_by") for block in info["live_blocks"] if block["event_type"] == "HAL"} == {"PTA"}


def holders(msmemscope, path):
    """(bytes, first line of the screen) of who held the peak of the pool."""
    text = msmemscope("info", "--all", path, output=False).check().stdout
    section = text.split("Peak of PTA on device 0: ")[1]
    return re.findall(r"^  ([\d.]+) MiB +\d+ % +\d+ blocks? +(.*)$", section.split("\nPeak of ")[0], re.M)


def test_holders_are_lines_of_the_user_or_operators(out, msmemscope):
    """With frames of C++ the user's Python wins; on the threads of autograd, which have none, operators are named."""
    found = [who for _, who in holders(msmemscope, write(out, snapshots.training(2, "all")))]
    assert {"train.py:99 -> train.py:21 step", "train.py:99 -> train.py:22 step", "train.py:99 -> train.py:10 step",
            "SumBackward1 -> aten::sum"} <= set(found)
    assert not [who for who in found if "unwind" in who or "thread_init" in who or "??" in who]
    told = msmemscope("info", "--all", write(out, snapshots.training(2, "all")), output=False).check().stdout
    assert "torch::unwind" not in told and "gather" not in told
    assert {who for _, who in holders(msmemscope, write(out, snapshots.training(2, "python")))} >= \
        {"train.py:99 -> train.py:21 step", "train.py:99 -> train.py:10 step"}


@pytest.mark.parametrize("stacks", ["all", "python", None])
@pytest.mark.parametrize("steps", [1, 7])
def test_what_does_not_repeat_is_not_judged(out, msmemscope, stacks, steps):
    """The first step of a training makes gradients and the state of the optimizer: a leak to who looks at growth alone."""
    for leak in (False, True):
        path = write(out, snapshots.training(steps, stacks, leak=leak))
        told = msmemscope("info", path, output=False).check().stdout
        assert re.search(r"^Leaks are not judged: the snapshot has no steps, and its call sites repeat \d times?; at least 8 are needed\.$",
                         told, re.M)
        assert "ERROR" not in told and "WARNING" not in told


@pytest.mark.parametrize("stacks", ["all", "python", None])
def test_what_repeats_is_judged_by_its_rounds(out, msmemscope, stacks):
    told = msmemscope("info", write(out, snapshots.training(20, stacks)), output=False).check().stdout
    assert "19 steps counted where the same call sites repeat: the snapshot marks none." in told
    # Without stacks the state of AdamW, made once, is a suspect.
    assert "No leak was found in steps 2 to 19." in told or (stacks is None and "ERROR" not in told)
    info = json.loads(msmemscope("info", "--json", write(out, snapshots.training(20, stacks, leak=True)), output=False).check().stdout)
    [info] = info["processes"]
    leaks = [place for place in info["places"] if place["verdict"] == "leak"]
    assert len(leaks) == 1 and leaks[0]["bytes_per_step"] == pytest.approx(12 << 20, rel=0.2)
    if stacks:
        assert [frame["line"] for frame in leaks[0]["frames"] if frame["user"]] == [21, 99]


def test_every_analysis_takes_a_snapshot(out, msmemscope):
    one, other = (write(out, snapshots.random_snapshot(seed), name=f"{seed}.pickle") for seed in (1, 2))
    for what in ("leaks", "launches", "decompose", "inefficient", "oom"):
        msmemscope("analyze", what, one, output=False).check()
    compared = msmemscope("--compare", f"--input={one},{other}").check()
    assert "\nPyTorch pool on GPU 0 " in compared.stdout
    for form in ("csv", "db"):
        msmemscope("export", f"--format={form}", one, "-o", out / form, output=False).check()
    result = msmemscope("export", "--format=collapsed", one, "-o", out / "folded", output=False).check()
    total = foreign.folded(Path(result.stdout.splitlines()[3]))
    assert any("model.py" in frame or "train.py" in frame for stack in total for frame in stack)


def test_a_refusal_does_not_say_what_the_device_has_in_all(out, msmemscope):
    """A snapshot has only what was free."""
    frames = [{"filename": "/src/train.py", "line": 10, "name": "fwd"}]
    events = [{"action": action, "addr": 0x7f0000000000, "size": 200 << 20, "stream": 0, "frames": frames, "time_us": 1000 + at}
              for at, action in enumerate(("segment_alloc", "alloc"))]
    events.append({"action": "oom", "size": 1 << 30, "device_free": 300 << 20, "stream": 0, "frames": frames, "time_us": 1010})
    path = write(out, {"segments": [], "device_traces": [events]})
    told = msmemscope("info", path, output=False).check().stdout
    assert "Out of memory on GPU 0 in step 1: asked for 1.0 GiB, 300 MiB free. " in told
    assert ": 1.0 GiB asked for, 300 MiB free\n" in msmemscope("report", path, "--text", output=False).check().stdout


def test_annotations_are_ranges(out, export, msmemscope):
    snapshot = snapshots.random_snapshot(4)
    first = snapshot["device_traces"][0][0]["time_us"]
    snapshot["external_annotations"] = [
        {"name": "outer", "stage": "START", "device": 0, "time_us": first + 10},
        {"name": "内\n层", "stage": "START", "device": 0, "time_us": first + 20},
        {"name": "outer", "stage": "END", "device": 0, "time_us": first + 30},
        {"name": "内\n层", "stage": "END", "device": 0, "time_us": first + 40}]
    assert export(write(out, snapshot))["external_annotations"] == snapshot["external_annotations"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared files of others")
def test_a_real_snapshot_of_two_npus_comes_back(export):
    path = SHARED / "snapshot-ascend-two-devices.pkl"
    again = export(path)
    with path.open("rb") as file:
        assert snapshots.structure(again) == snapshots.structure(snapshots.Closed(file).load())


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared files of others")
def test_a_snapshot_that_breaks_invariants_is_still_read(export):
    export(SHARED / "snapshot-synthetic.pickle")


# ---- files that mean harm ----

class Harm:
    def __reduce__(self):
        return os.system, ("touch harmed",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_in_a_file_is_run(out, msmemscope, protocol):
    snapshot = snapshots.random_snapshot(1)
    snapshot["segments"].append(Harm())
    result = msmemscope("info", write(out, snapshot, protocol), output=False, cwd=out)
    assert result.returncode == 1 and "contains code to run" in result.stderr and "nothing was executed" in result.stderr
    assert not (out / "harmed").exists()


@pytest.mark.parametrize("data, words", [
    (b"\x80\x04N.", "not a memory snapshot of PyTorch"),
    (pickle.dumps([1, 2, 3]), "not a memory snapshot of PyTorch"),
    (pickle.dumps([{"a": 1}]), "not a memory snapshot of PyTorch"),
    (b"\x80\x04}.", "not a memory snapshot of PyTorch"),
    (b"\x80\x04](", "ends too early"),
    (b"\x80\x04]\x8c\xffabc.", "ends too early"),
    (b"\x80\x04]e.", "not a valid pickle"),
    (b"\x80\x04]r\xff\xff\xff\xff.", "not a valid pickle"),
    (b"\x80\x04j\x00\x00\x00\x00.", "not a valid pickle"),
    (b"\x80\x04]\xfe.", "an instruction that snapshots of PyTorch do not have: 0xfe at byte 3"),
    (b"\x80\x04\x8f.", "an instruction that snapshots of PyTorch do not have"),
])
def test_what_is_no_snapshot_is_refused_with_a_sentence(out, msmemscope, data, words):
    path = out / "bad.pickle"
    path.write_bytes(data)
    result = msmemscope("info", path, output=False)
    assert result.returncode in (1, 3) and words in result.stderr and result.stderr.count("\n") == 1


def test_a_file_that_repeats_itself_ends(out, msmemscope):
    """A list of a thousand times the same list of a thousand times the same entry, a few levels deep, in a few bytes."""
    entry = {"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "frames": []}
    entries = [entry] * 30000
    path = write(out, {"segments": [], "device_traces": [entries] * 200, "external_annotations": []})
    assert path.stat().st_size < 1 << 18
    result = msmemscope("info", path, output=False, timeout=60)
    assert result.returncode == 3 and "its parts repeat" in result.stderr
    loop = []
    loop.append(loop)
    result = msmemscope("info", write(out, {"segments": loop, "device_traces": loop}), output=False, timeout=60)
    assert result.returncode in (0, 3)


def most_memory(msmemscope, *words):
    """(the run, the most memory that it took, in bytes)"""
    run = msmemscope.bare("/usr/bin/python3", "-c", "import resource, subprocess, sys\n"
                          "done = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL)\n"
                          "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\nsys.exit(done.returncode)",
                          msmemscope.path, *words)
    return run, int(re.findall(r"^peak (\d+)$", run.stdout, re.M)[0]) << 10


def test_memory_is_bounded_by_what_the_file_really_has(out, msmemscope):
    """Holes, numbers that a file has no instructions for, and nesting."""
    path = out / "large.pickle"
    path.write_bytes(b"\x80\x04]\x8e" + (2 << 30).to_bytes(8, "little"))
    os.truncate(path, (2 << 30) + 13)
    for data in (None, b"\x80\x04]r\xff\xff\xff\x1f.", b"\x80\x04" + b"]" * (4 << 20) + b".", b"\x80\x04" + b"(" * (4 << 20) + b".",
                 b"\x80\x04]" + b"\x85" * (4 << 20) + b".", b"\x80\x04N" + b"]0" * (2 << 20) + b"."):
        if data is not None:
            path.write_bytes(data)
        run, bytes_taken = most_memory(msmemscope, "info", path)
        assert run.returncode in (1, 3) and run.stderr.count("msmemscope: ") == 1, str(run)
        assert bytes_taken < 64 << 20, (data and data[:8], bytes_taken)


@pytest.mark.parametrize("change", [{"size": 1 << 63}, {"size": -1}, {"addr": -4096}, {"addr": 1 << 62}, {"device": -1}, {"device": 1 << 40}])
def test_numbers_that_no_allocator_gives_are_damage(out, msmemscope, change):
    entries = [{"action": "alloc", "addr": 4096 * (i + 1), "size": 512, "stream": 0, "frames": [], "time_us": i} for i in range(20)]
    segment = {"address": 1 << 20, "total_size": 4096, "device": 0, "stream": 0, "segment_type": "small",
               "blocks": [{"address": 1 << 20, "size": 4096, "requested_size": 4000, "state": "active_allocated"}]}
    wrong = {"addr": "address"}
    for inside in (segment,) if "device" in change else (entries[7], segment, segment["blocks"][0]):
        kept = dict(inside)
        for key, value in change.items():
            inside[key if inside is entries[7] else "total_size" if inside is segment and key == "size" else wrong.get(key, key)] = value
        path = write(out, {"segments": [segment], "device_traces": [entries], "external_annotations": []})
        run = msmemscope("info", path, "--json", output=False)
        assert run.returncode == 3, str(run)
        assert all(pool["peak_bytes"] < 1 << 40 for pool in json.loads(run.stdout)["processes"][0]["pools"]), run.stdout
        inside.clear()
        inside.update(kept)


def test_cut_and_flipped_files_end_with_an_answer(out, msmemscope):
    """A sample; the fuzzer does the rest."""
    data = pickle.dumps(snapshots.random_snapshot(2, entries=60, devices=1), protocol=4)
    rng, path = random.Random(7), out / "broken.pickle"
    for number in range(60):
        broken = bytearray(data)
        if number % 2:
            del broken[rng.randrange(3, len(data)):]
        else:
            for _ in range(rng.randrange(1, 9)):
                broken[rng.randrange(2, len(data))] = rng.randrange(256)
        path.write_bytes(broken)
        result = msmemscope("info", "--json", path, output=False, timeout=60)
        assert result.returncode in (0, 1, 3), str(result)


def test_names_of_any_kind_come_back(out, export):
    names = ['say "hi"', "two\nlines", "内存" * 600, "x" * 4000, "<script>alert(1)</script>", "", "\u202e"]
    frames = [{"name": name, "filename": f"{name[:2000]}.py", "line": number} for number, name in enumerate(names)]
    trace = [{"action": "alloc", "addr": 1 << 40, "size": 512, "stream": 0, "time_us": 1_700_000_000_000_000, "frames": frames}]
    again = export(write(out, {"segments": [], "device_traces": [trace]}))
    [entry] = again["device_traces"][0]
    assert entry["frames"] == frames


@pytest.mark.parametrize("words", [["free"], ["free_completed"], ["free_requested"], ["free_requested", "free_completed"]], ids=",".join)
def test_every_word_for_a_free_ends_a_block(out, msmemscope, words):
    """memory_viz takes `free` beside those that PyTorch writes."""
    trace = [{"action": "alloc", "addr": 4096, "size": 700, "stream": 0, "frames": []}, {"action": "alloc", "addr": 8192, "size": 50, "stream": 0, "frames": []},
             *({"action": word, "addr": 4096, "size": 700, "stream": 0, "frames": []} for word in words)]
    info = json.loads(msmemscope("info", "--json", write(out, {"segments": [], "device_traces": [trace]}), output=False).check().stdout)
    [pool] = info["processes"][0]["pools"]
    assert (pool["peak_bytes"], pool["end_bytes"], pool["frees"]) == (750, 50, 1)


def test_frames_without_names_are_frames_of_flame_graphs(out, msmemscope):
    trace = [{"action": "alloc", "addr": 4096, "size": 5, "stream": 0, "frames": [{"name": "", "filename": "", "line": 0}, {"name": "f", "filename": "a.py", "line": 1}]}]
    paths = msmemscope("export", "--format=collapsed", write(out, {"segments": [], "device_traces": [trace]}), "-o", out / "flame", output=False).check().stdout.split()
    assert foreign.folded(Path(paths[3])) == {("PTA device 0", "f (a.py:1)", "?"): 5}
