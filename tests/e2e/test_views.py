# SPDX-License-Identifier: Apache-2.0
"""export --format for other viewers: each file is read back by an independent reader (lib/foreign.py) and holds what the program itself
says that it did."""
import json
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import foreign
import said
import slices
from scripts import python_path

ONE_FILE = ["perfetto", "speedscope", "pprof", "jsonl"]
VIEWS = [*ONE_FILE, "collapsed"]
DRIVER = ("HAL", "HOST_PINNED")


@pytest.fixture(scope="session")
def decoder(request):
    """Python with the perfetto package: $MSMEMSCOPE_PERFETTO, or that of build/venv."""
    return [os.environ["MSMEMSCOPE_PERFETTO"]] if "MSMEMSCOPE_PERFETTO" in os.environ else request.getfixturevalue("python")


@pytest.fixture
def view(msmemscope):
    """view(format, run): exports; the paths of the files."""
    def export(word, run, *options, status=0):
        result = msmemscope("export", f"--format={word}", *options, run, output=False)
        assert result.returncode == status and (status or result.stderr == ""), str(result)
        paths = [Path(line) for line in result.stdout.splitlines()]
        assert paths and all(path.is_file() and oct(path.stat().st_mode & 0o777) == "0o600" for path in paths)
        return paths if word == "collapsed" else paths[0]

    return export


@pytest.fixture
def training(client):
    """A training with leaks, pools, ranges, marks and kernels, with C stacks."""
    return client("leaky_steps", "--steps=12", options=["--call-stack=c:20", "--level=op,kernel"], env={"SIMNPU_DEVICES": 3})


def pool_name(pool, device):
    return pool if device == "cpu" else f"{pool} device {device}"


def sums(process):
    """By pool as views name it: bytes allocated in all, and alive at the end, as the program says."""
    total, alive = Counter(), Counter()
    for pool, _, size, device, *_ in said.blocks_of(process).values():
        total[pool_name(pool, device)] += size
    for pool, _, size, device in said.wanted(process, False).live:
        alive[pool_name(pool, device)] += size
    return total, alive


def by_root(stacks):
    found = Counter()
    for stack, value in stacks.items():
        found[stack[0]] += value
    return found


def peaks(msmemscope, run):
    process = msmemscope.info(run)
    return {pool_name(peak["event_type"], peak["device"]): peak["bytes"] for peak in process["peaks"]}


def test_collapsed_stacks_add_up_to_what_the_program_did(training, view, msmemscope):
    project = training.run.project()
    peak, end, leaked, total = map(foreign.folded, view("collapsed", project.path))
    want_total, want_alive = sums(training.process())
    assert by_root(total) == want_total
    assert by_root(end) == +want_alive
    assert by_root(peak) == peaks(msmemscope, project)
    leaks = [place for place in msmemscope.info(project)["leaks"]["places"] if place["verdict"] == "leak"]
    assert leaks, "the program leaks in every step"
    want = Counter()
    for place in leaks:
        want[pool_name(place["event_type"], place["device"])] += place["overdue_bytes"]
    assert by_root(leaked) == want
    assert all(any(frame.startswith("main ") for frame in stack) for stack in total)


def test_speedscope_has_a_profile_of_each_pool_and_kind(training, view):
    project = training.run.project()
    profiles = foreign.speedscope(view("speedscope", project.path))
    words = {"live at the peak of the pool": 0, "live at the end": 1, "leaked": 2, "allocated in all": 3}
    stacks = [foreign.folded(path) for path in view("collapsed", project.path)]
    found = [Counter() for _ in words]
    for name, samples in profiles.items():
        pool, kind = name.split(": ")
        found[words[kind]][pool] += sum(samples.values())
    assert found == [by_root(kind) for kind in stacks]
    frames = {frame[0] for samples in profiles.values() for stack in samples for frame in stack}
    assert {"main", "_start"} <= frames


def test_pprof_has_all_kinds_in_one_sample(training, view):
    project = training.run.project()
    profile = foreign.pprof(view("pprof", project.path))
    assert profile.types == [("peak_objects", "count"), ("peak_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"),
                             ("leaked_objects", "count"), ("leaked_space", "bytes"), ("alloc_objects", "count"),
                             ("alloc_space", "bytes")]
    assert profile.default == "peak_space"
    stacks = [foreign.folded(path) for path in view("collapsed", project.path)]
    for kind, wanted in zip(("peak", "inuse", "leaked", "alloc"), stacks):
        found = Counter()
        for labels, _, values in profile.samples:
            found[pool_name(labels["pool"], labels["device"])] += values[f"{kind}_space"]
        assert +found == by_root(wanted), kind
    blocks = len(said.blocks_of(training.process()))
    assert sum(values["alloc_objects"] for _, _, values in profile.samples) == blocks
    assert all(frames[-1][0] == "_start" for _, frames, _ in profile.samples)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_peak_is_shown_by_its_lines(msmemscope, program, view, seed):
    """The program keeps book of what each of its lines holds when a device is at its highest."""
    run = msmemscope("--call-stack=c", "--", *program("peaks", seed, 4000, 2)).check()
    truth = [json.loads(line) for line in run.stdout.splitlines()]
    profile = foreign.pprof(view("pprof", run.project().path))
    scoped = foreign.speedscope(view("speedscope", run.project().path))
    [peak, *_] = map(foreign.folded, view("collapsed", run.project().path))
    for device in truth:
        name = f"HAL device {device['device']}"
        want = {line: (size, blocks) for line, size, blocks in device["lines"] if size}

        def line_of(frames):
            return next(frame[2] for frame in frames if frame[1] and frame[1].endswith("peaks.c") and frame[2] in want)

        found = defaultdict(lambda: (0, 0))
        for labels, frames, values in profile.samples:
            if labels["device"] == str(device["device"]) and values["peak_space"]:
                size, blocks = found[line_of(frames)]
                found[line_of(frames)] = size + values["peak_space"], blocks + values["peak_objects"]
        assert found == want
        again = Counter()
        for frames, size in scoped[f"{name}: live at the peak of the pool"].items():
            again[line_of(reversed(frames))] += size
        assert again == {line: size for line, (size, _) in want.items()}
        assert sum(size for stack, size in peak.items() if stack[0] == name) == device["peak"]


def test_json_lines_have_every_row_and_every_stack(training, view):
    project = training.run.project()
    first, *rest, last = foreign.lines(view("jsonl", project.path))
    assert first["kind"] == "run" and first["version"] == 1 and first["pid"] == project.pid and first["program"] == "leaky_steps"
    told = [one for one in rest if one["kind"] == "row"]
    stacks = {one["stack"]: one["frames"] for one in rest if one["kind"] == "stack"}
    assert last == {"kind": "end", "rows": len(told), "stacks": len(stacks)}
    want = {row.id: row for row in training.rows(project)}
    assert [one["id"] for one in told] == sorted(want)
    seen = set()
    for one in rest:
        if one["kind"] == "stack":
            seen.add(one["stack"])
        elif "stack" in one:
            assert one["stack"] in seen, "a stack comes before the rows that name it"
    for one in told:
        row = want[one["id"]]
        assert (one["event"], one["type"], one["time_ns"], one["tid"]) == (row.event, row.type, row.time_ns, row.tid)
        assert one["device"] == row.device and (one["name"] or "N/A") == (row.name or "N/A")
        if row.event in ("MALLOC", "FREE"):
            assert one["address"] == row.ptr and one["size"] == row.attr["size"]
            assert one["allocation_id"] == row.attr["allocation_id"] and one["attr"]["size"] == str(row.attr["size"])
        assert ("stack" in one) == bool(row.c_stack)


def test_perfetto_has_counters_ranges_and_kernels(training, view, decoder):
    project, process = training.run.project(), training.process()
    trace = foreign.perfetto(decoder, view("perfetto", project.path))
    assert trace.process == (project.pid, "leaky_steps")
    # One more is the collector's own, if it had read times of kernels before the program ended.
    assert set(trace.threads) >= {row.tid for row in training.rows(project)}
    rows = training.rows(project)
    used = defaultdict(list)
    for row in sorted(rows, key=lambda one: one.id):
        if row.event in ("MALLOC", "FREE"):
            used[f"{pool_name(row.type, row.device)} used"].append((row.time_ns, row.attr["used"]))
    for name, values in used.items():
        wanted = [value for at, value in enumerate(values) if at == 0 or value[1] != values[at - 1][1]]
        assert trace.counters[name] == wanted, name
    assert any(name.endswith("PTA device 0 reserved") for name in trace.counters)
    launches = Counter(f"launch {name}" for *_, name in process.events("launch"))
    assert Counter(name for _, name, category, _ in trace.instants if category == "launch") == launches
    marks = Counter(event[-1] for event in process.events("mark"))
    assert Counter(name for _, name, category, _ in trace.instants if category == "mark") == marks
    messages = Counter(event[-1] for event in process.events("range_start"))
    steps = messages.pop("step start")
    assert Counter(one.name for one in trace.of("range")) == messages
    assert [one.name for one in trace.of("step")] == [f"step {number}" for number in range(1, steps + 1)]
    assert all(one.end is not None and one.end >= one.start for one in trace.of("range") + trace.of("step"))
    kernels = Counter(row.name for row in rows if row.type == "KERNEL_EXECUTE_START")
    assert Counter(one.name for one in trace.of("kernel")) == kernels and kernels
    ends = Counter((row.name, row.time_ns) for row in rows if row.type == "KERNEL_EXECUTE_END")
    assert Counter((one.name, one.end) for one in trace.of("kernel")) == ends


def test_perfetto_nests_python_calls(msmemscope, targets, view, decoder):
    run = msmemscope("--events=alloc,free,traceback", "--device=npu,cpu", "--", sys.executable, targets / "python" / "calls.py").check()
    trace = foreign.perfetto(decoder, view("perfetto", run.project().path))
    for tid, rows in slices.threads(run.project()).items():
        wanted = Counter((one.text, one.start, one.end) for one in rows if not one.text.startswith(("start: ", "stop: ")))
        shown = Counter((one.name, one.start, one.end) for one in trace.slices if one.track == f"thread {tid} Python calls")
        # A csv has a slice of its own for the place that calls a C function; here the function alone is shown.
        assert shown <= wanted and len(shown) > 100
        c_calls = {(one.start, one.end) for one in trace.of("c") if one.track == f"thread {tid} Python calls"}
        assert all((start, end) in c_calls for _, start, end in wanted - shown)
    objects = foreign.lines(view("jsonl", run.project().path))
    entered = [one for one in objects if one["kind"] == "call" and one["what"] == "enter"]
    assert len(entered) == sum(one.category in ("python", "c") for one in trace.slices)


OVERLAPPING = """
import mstx
first = mstx.range_start("first")
second = mstx.range_start("second")
mstx.range_end(first)
third = mstx.range_start("third")
mstx.range_end(second)
mstx.range_end(third)
left = mstx.range_start("left open")
"""


def test_ranges_that_overlap_keep_their_names_and_ends(scripts, view, decoder):
    run = scripts.command(OVERLAPPING).check()
    trace = foreign.perfetto(decoder, view("perfetto", run.project().path))
    found = {one.name: one for one in trace.of("range")}
    assert list(found) == ["first", "second", "third", "left open"]
    assert found["first"].start < found["second"].start < found["first"].end < found["third"].start < found["second"].end
    assert found["second"].end < found["third"].end and found["left open"].end is None


NAMES = ['say "hi", {you}', "two\nlines; and a semicolon", "内存分析", "<script>alert(1)</script>", "x" * 4000, "tab\there", "back\\slash",
         "\u202eleft", "%s%n", "=1+1"]
HOSTILE = """
import mstx, npu
for name in {names!r}:
    mstx.mark(name)
    space = {{"npu": npu}}
    name = name[:900]  # the recorder keeps 1 KiB of a function's name
    exec(compile("def take():\\n    npu.alloc(4096)\\n", name + ".py", "exec"), space)
    code = space["take"].__code__
    named = {{key: name for key in ("co_name", "co_qualname") if hasattr(code, key)}}
    space["take"].__code__ = code.replace(**named)
    space["take"]()
"""


def test_hostile_names_come_back_as_they_are(scripts, view, decoder):
    run = scripts.command(HOSTILE.format(names=NAMES), "--call-stack=python").check()
    path = run.project().path
    wanted = {(name[:900], f"{name[:900]}.py") for name in NAMES}
    trace = foreign.perfetto(decoder, view("perfetto", path))
    assert [name for _, name, category, _ in trace.instants if category == "mark"] == NAMES
    functions = {frame[:2] for _, frames, _ in foreign.pprof(view("pprof", path)).samples for frame in frames}
    assert wanted - functions == set()
    frames = {frame[:2] for stacks in foreign.speedscope(view("speedscope", path)).values() for stack in stacks for frame in stack}
    assert wanted <= frames
    objects = foreign.lines(view("jsonl", path))
    assert [one["name"] for one in objects if one["kind"] == "row" and one["type"] == "Mark"] == NAMES
    told = {(frame["function"], frame["file"]) for one in objects if one["kind"] == "stack" for frame in one["frames"]}
    assert wanted <= told
    # One place each, whatever is in its name; what would break a line or a frame is spelled.
    total = foreign.folded(view("collapsed", path)[3])
    assert len([stack for stack in total if any(frame.endswith(".py:2)") for frame in stack)]) == len(NAMES)


@pytest.mark.parametrize("word", VIEWS)
def test_the_same_run_gives_the_same_bytes_and_no_file_is_written_over(training, view, word):
    project = training.run.project()
    first, second = view(word, project.path), view(word, project.path / "trace.msc")
    pairs = zip(first, second) if word == "collapsed" else [(first, second)]
    for one, other in pairs:
        assert one != other and one.read_bytes() == other.read_bytes()
    assert not list(project.path.parent.glob("*.part"))


@pytest.mark.parametrize("option", ["--device=npu", "--steps=1", "--events=alloc", "--level=op", "--call-stack=c", "--analysis=leaks",
                                    "--insight-close-live"])
def test_a_view_is_of_the_whole_run(msmemscope, option):
    result = msmemscope("export", "--format=pprof", option, ".", output=False)
    assert result.returncode == 2 and "which shows all of a run" in result.stderr


def test_a_launch_writes_no_view(msmemscope):
    result = msmemscope("--format=perfetto", "--", "true")
    assert result.returncode == 2 and "msmemscope export --format=perfetto RUN" in result.stderr


@pytest.mark.parametrize("word", VIEWS)
def test_a_full_disk_leaves_no_file(training, msmemscope, out, word):
    """An output directory that cannot be written is told in one sentence."""
    place = out / "file"
    place.write_text("in the way")
    result = msmemscope("export", f"--format={word}", training.run.project().path, "-o", place / "below", output=False)
    assert result.returncode == 1 and "cannot create the output directory" in result.stderr and result.stdout == ""


def test_json_names_the_files(training, msmemscope):
    result = msmemscope("export", "--json", "--format=collapsed", training.run.project().path, output=False).check()
    document = json.loads(result.stdout)
    assert [Path(name).name.split(".", 1)[1] for name in document["files"]] == \
        ["peak.folded", "end.folded", "leaked.folded", "total.folded"]
    assert document["rows"] == len(training.rows()) and document["damaged"] is False


def test_dump_files_have_views_too(training, view, out):
    """What was imported from csv files shows the same sums."""
    [*dumps] = training.run.project().path.glob("device_0/dump/memscope_dump_*.csv")
    total = foreign.folded(view("collapsed", dumps[0], "-o", out)[3])
    want, _ = sums(training.process())
    assert by_root(total) == {name: size for name, size in want.items() if name.endswith("device 0")}
