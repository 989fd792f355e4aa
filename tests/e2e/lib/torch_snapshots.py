# SPDX-License-Identifier: Apache-2.0
"""Reads memory snapshots of PyTorch by the rules of memory_viz, strictly: Python's unpickler with no classes at all, the viewer's own
list of instructions, and the invariants that every real file has.

    load(path)               the snapshot; anything else than plain data fails
    check(snapshot)          invariants of segments and blocks, and of the history
    random_snapshot(seed)    a snapshot as a caching allocator with these rules would give it, with known truth
    training(steps, ...)     a snapshot of a training, with the stacks that PyTorch records on a GPU
    mistakes(snapshot, ...)  what the command says wrong about the snapshot of a GPU
"""
import io
import pickle
import pickletools
import random
import re
from collections import Counter

# Instructions that the unpickler of MemoryViz.js knows.
VIEWER = {"PROTO", "FRAME", "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "LONG1", "LONG_BINGET",
          "MARK", "MEMOIZE", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2", "APPEND", "NEWFALSE", "BINPUT", "BINUNICODE",
          "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT", "TUPLE", "TUPLE1", "TUPLE3", "LONG_BINPUT", "LIST", "DICT", "SETITEM"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom"}


class Closed(pickle.Unpickler):
    def find_class(self, module, name):
        raise AssertionError(f"asks for {module}.{name}")

    def persistent_load(self, pid):
        raise AssertionError("asks for a persistent object")


def load(path):
    data = path.read_bytes()
    assert {op.name for op, _, _ in pickletools.genops(data)} <= VIEWER and 2 <= data[1] <= 4
    return Closed(io.BytesIO(data)).load()


def check_frames(frames):
    for frame in frames:
        assert set(frame) == {"name", "filename", "line"}
        assert isinstance(frame["name"], str) and isinstance(frame["filename"], str) and isinstance(frame["line"], int)


def check(snapshot):
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    places = []
    for segment in snapshot["segments"]:
        at = segment["address"]
        places.append((segment["device"], at, segment["total_size"]))
        check_frames(segment["frames"])
        assert segment["segment_type"] in ("small", "large") and segment["segment_pool_id"] == (0, 0)
        for block in segment["blocks"]:
            assert block["address"] == at and block["size"] > 0 and block["requested_size"] <= block["size"]
            assert block["state"] in ("active_allocated", "inactive")
            check_frames(block["frames"])
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        active = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        assert segment["allocated_size"] == segment["active_size"] == sum(block["size"] for block in active)
        assert segment["requested_size"] == sum(block["requested_size"] for block in active)
    for (device, start, size), (other, following, _) in zip(sorted(places), sorted(places)[1:]):
        assert device != other or start + size <= following, "segments do not overlap"
    for trace in snapshot["device_traces"]:
        for entry in trace:
            assert entry["action"] in ACTIONS and isinstance(entry["size"], int) and isinstance(entry["stream"], int)
            assert isinstance(entry["device_free" if entry["action"] == "oom" else "addr"], int)
            check_frames(entry.get("frames", ()))
        assert [entry["time_us"] for entry in trace] == sorted(entry["time_us"] for entry in trace)
    for device, trace in enumerate(snapshot["device_traces"]):
        check_history(snapshot, device, trace)
    for annotation in snapshot["external_annotations"]:
        assert set(annotation) == {"name", "stage", "device", "time_us"} and annotation["stage"] in ("START", "END")


def check_history(snapshot, device, trace):
    """Back from the segments through the history, as the viewer goes: nothing is freed twice, nothing appears from nowhere."""
    live = {block["address"]: block["requested_size"] for segment in snapshot["segments"] if segment["device"] == device
            for block in segment["blocks"] if block["state"] == "active_allocated"}
    for entry in reversed(trace):
        if entry["action"] == "alloc":
            assert live.pop(entry["addr"], None) == entry["size"], entry
        elif entry["action"] == "free_requested":
            assert entry["addr"] not in live, entry
            live[entry["addr"]] = entry["size"]


def _frames(rng):
    return [{"name": rng.choice(["step", "forward", "前向", "say \"hi\"", "two\nlines"]), "filename": f"/srv/job/{name}.py",
             "line": rng.randrange(1, 500)} for name in rng.sample(["model", "train", "main", "loss"], rng.randrange(1, 4))]


def random_snapshot(seed, entries=400, devices=2, times=True):
    """A history of a caching allocator without streams: first fit in segments, split and joined by the rules; of it the newest part."""
    rng = random.Random(seed)
    snapshot = {"segments": [], "device_traces": [], "external_annotations": []}
    for device in range(devices):
        segments, live, trace = {}, {}, []
        stacks = [_frames(rng) for _ in range(20)]
        clock = 1_700_000_000_000_000 + device

        def note(action, address, size, frames):
            nonlocal clock
            clock += rng.randrange(1, 50)
            entry = {"action": action, "addr": address, "size": size, "stream": 7, "frames": frames}
            trace.append({**entry, "time_us": clock} if times else entry)

        def take(start, size, small):
            """The first hole of that size in a segment of this kind."""
            for address, (total, of_small, _) in segments.items():
                at = address
                if of_small != small:
                    continue
                inside = sorted((where, block) for where, block in live.items() if address <= where < address + total)
                for where, (_, held, _) in [*inside, (address + total, (0, 0, None))]:
                    if where - at >= size:
                        return at, where - at
                    at = where + held
            return None

        while len(trace) < entries:
            if live and rng.random() < 0.48:
                address = rng.choice(sorted(live))
                requested, _, _ = live.pop(address)
                frames = rng.choice(stacks)
                note("free_requested", address, requested, frames)
                note("free_completed", address, requested, frames)
                continue
            requested = rng.choice([rng.randrange(1, 4096), rng.randrange(1, 1 << 20), rng.randrange((1 << 20) + 1, 30 << 20)])
            size = (requested + 511) // 512 * 512
            small = size <= 1 << 20
            frames = rng.choice(stacks)
            found = take(0, size, small)
            if found is None:
                total = 2 << 20 if small else 20 << 20 if size < 10 << 20 else (size + (2 << 20) - 1) >> 21 << 21
                address = 0x7f0000000000 + (len(segments) << 32) + (device << 44)
                segments[address] = total, small, frames
                note("segment_alloc", address, total, frames)
                found = address, total
            at, room = found
            rest = room - size
            held = size if (rest >= 512 if small else rest > 1 << 20) else room
            live[at] = requested, held, frames
            note("alloc", at, requested, frames)
        cut = rng.randrange(0, entries // 2)
        cut += trace[cut]["action"] == "free_completed"
        snapshot["device_traces"].append(trace[cut:])
        for address, (total, small, frames) in segments.items():
            blocks, at = [], address
            inside = sorted((where, block) for where, block in live.items() if address <= where < address + total)
            for where, (requested, held, stack) in inside:
                if where > at:
                    blocks.append({"address": at, "size": where - at, "requested_size": 0, "state": "inactive", "frames": []})
                blocks.append({"address": where, "size": held, "requested_size": requested, "state": "active_allocated",
                               "frames": stack})
                at = where + held
            if at < address + total:
                blocks.append({"address": at, "size": address + total - at, "requested_size": 0, "state": "inactive", "frames": []})
            snapshot["segments"].append({
                "device": device, "address": address, "total_size": total, "stream": 7, "is_expandable": False,
                "allocated_size": sum(held for _, (_, held, _) in inside), "active_size": sum(held for _, (_, held, _) in inside),
                "requested_size": sum(requested for _, (requested, _, _) in inside), "segment_type": "small" if small else "large",
                "segment_pool_id": (0, 0), "frames": frames, "blocks": blocks})
    return snapshot


def structure(snapshot):
    """What must be the same after import and export: entries with their frames, segments with their blocks."""
    traces = [[(entry["action"], entry.get("addr"), entry["size"], entry["stream"], _key(entry.get("frames", ())))
               for entry in trace] for trace in snapshot["device_traces"]]
    while traces and not traces[-1]:
        traces.pop()
    segments = Counter()
    for segment in snapshot["segments"]:
        blocks = tuple((block["address"], block["size"], block["requested_size"] if block["state"] == "active_allocated" else 0,
                        block["state"]) for block in segment["blocks"])
        segments[segment["device"], segment["address"], segment["total_size"], segment["stream"], segment["is_expandable"],
                 segment["segment_type"], blocks] += 1
    return traces, segments


def _key(frames):
    return tuple((frame["name"], frame["filename"], frame["line"]) for frame in frames)


_RECORDER = [("torch::unwind::unwind()", "??"), ("torch::CapturedTraceback::gather(bool, bool, bool)", "??"),
             ("torch::cuda::(anonymous namespace)::gather_with_cpp()", "memory_snapshot.cpp"),
             ("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long, CUstream_st*)", "CUDACachingAllocator.cpp"),
             ("at::detail::empty_cuda(c10::ArrayRef<long>, c10::TensorOptions const&)", "??")]
_INTERPRETER = [("PyObject_Vectorcall", "??"), ("_PyEval_EvalFrameDefault", "??"), ("Py_BytesMain", "??"), ("_start", "??")]
_ENGINE = [("torch::autograd::Node::operator()(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)", ""),
           ("torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", "??"),
           ("torch::autograd::python::PythonEngine::thread_init(int, std::shared_ptr<torch::autograd::ReadyQueue> const&, bool)", ""),
           ("__clone", "??")]


def _native(frames):
    return [{"name": name, "filename": file, "line": 0} for name, file in frames]


def _site(stacks, operator, line, node=None):
    """Frames of an operator that a script called at that line of train.py, or a node of autograd on a thread of its own; as an H200 has
    them with stacks="all", "python" and without."""
    if stacks is None:
        return []
    script = [] if node else [{"name": "step", "filename": "/srv/job/train.py", "line": line},
                              {"name": "<module>", "filename": "/srv/job/train.py", "line": 99}]
    if stacks == "python":
        return script
    inner = _native([*_RECORDER, (f"at::_ops::{operator}::call(at::Tensor const&)", "??")])
    if node:
        return inner + _native([(f"torch::autograd::generated::{node}::apply(std::vector<at::Tensor>&&)", "??"), *_ENGINE])
    return inner + _native(_INTERPRETER) + script


def training(steps, stacks="all", layers=12, leak=False):
    """The memory history of a training from its start: weights, then forward, backward, AdamW with its state of the first step. With
    `leak`, line 21 keeps one block of each step."""
    trace, segments, clock, at = [], [], 1_700_000_000_000_000, 0x7f0000000000

    def note(action, address, size, frames):
        nonlocal clock
        clock += 1000
        trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": clock, "frames": frames})

    def take(size, frames):
        nonlocal at
        at += 64 << 20
        segments.append((at, size, frames))
        note("segment_alloc", at, 64 << 20, frames)
        note("alloc", at, size, frames)
        return at, size, frames

    def give(block):
        note("free_requested", *block[:2], block[2])
        note("free_completed", *block[:2], block[2])
        segments.remove(block)
        note("segment_free", block[0], 64 << 20, block[2])

    for _ in range(layers):
        take(4 << 20, _site(stacks, "empty", 10))
    for step in range(steps):
        saved = [take(12 << 20, _site(stacks, operator, line)) for _ in range(layers) for operator, line in (("linear", 21), ("gelu", 22))]
        kept = saved.pop(0) if leak else None
        gradients = []
        while saved:
            inner = take(6 << 20, _site(stacks, "mm", 0, "AddmmBackward0"))
            gradients.append(take(4 << 20, _site(stacks, "sum", 0, "SumBackward1")))
            give(saved.pop())
            if saved:
                give(saved.pop())
            give(inner)
        for _ in range(layers):
            if step == 0:
                take(4 << 20, _site(stacks, "zeros_like", 31))
                take(4 << 20, _site(stacks, "zeros_like", 32))
            give(take(5 << 20, _site(stacks, "sqrt", 33)))
        for gradient in gradients:
            give(gradient)
        assert kept is None or kept in segments
    return {"segments": [{"device": 0, "address": address, "total_size": 64 << 20, "stream": 0, "is_expandable": False, "segment_type": "large",
                          "segment_pool_id": (0, 0), "allocated_size": size, "active_size": size, "requested_size": size, "frames": frames,
                          "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames},
                                     {"address": address + size, "size": (64 << 20) - size, "requested_size": 0, "state": "inactive",
                                      "frames": []}]} for address, size, frames in segments],
            "device_traces": [trace], "external_annotations": []}


def _line(frames):
    """The user's innermost line in Python; None without one."""
    for frame in frames:
        file = frame["filename"]
        if file.endswith(".py") and "/site-packages/" not in file and "/lib/python3" not in file:
            return file, frame["line"]
    return None


def held_at_peak(snapshot, device=0):
    """What the pool had in use at its peak: bytes, and bytes by line of the user; blocks older than the history have the line ()."""
    live = {block["address"]: (block["requested_size"], ()) for segment in snapshot["segments"] if segment["device"] == device
            for block in segment["blocks"] if block["state"] == "active_allocated"}
    trace = snapshot["device_traces"][device]
    for entry in reversed(trace):
        if entry["action"] == "alloc":
            live.pop(entry["addr"], None)
        elif entry["action"] == "free_requested":
            live[entry["addr"]] = entry["size"], ()
    now = peak = sum(size for size, _ in live.values())
    held = dict(live)
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["addr"]] = entry["size"], _line(entry.get("frames", ()))
            now += entry["size"]
            if now > peak:
                peak, held = now, dict(live)
        elif entry["action"] == "free_requested":
            now -= live.pop(entry["addr"])[0]
    lines = Counter()
    for size, line in held.values():
        lines[line] += size
    return peak, dict(lines)


def mistakes(snapshot, info, text, device=0):
    """What is wrong in what `msmemscope info --json` and `msmemscope info --all` say about the snapshot of one GPU."""
    wrong = []
    [process] = info["processes"]
    pools = {pool["pool"]: pool for pool in process["pools"] if pool["device"] == str(device)}
    peak, lines = held_at_peak(snapshot, device)
    segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
    blocks = [block["requested_size"] for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
    for name, found, wanted in (("peak", pools["PTA"]["peak_bytes"], peak), ("in use at the end", pools["PTA"]["live_bytes"], sum(blocks)),
                                ("reserved at the end", pools["HAL"]["live_bytes"], sum(segment["total_size"] for segment in segments))):
        if found != wanted:
            wrong.append(f"{name}: {found} instead of {wanted}")
    [held] = [one for one in process["peaks"] if one["event_type"] == "PTA" and one["device"] == str(device)]
    said = Counter()
    for place in held["places"]:
        user = [frame for frame in place["frames"] if frame["user"]]
        said[() if not place["recorded"] else (user[0]["file"], user[0]["line"]) if user else None] += place["bytes"]
    if dict(said) != {line: size for line, size in lines.items() if size}:
        wrong.append(f"held at the peak by {dict(said)} instead of {lines}")
    alive = [int(count) for count in re.findall(r"^Alive at the end: .* in (\d+) blocks?", text, re.M)]
    if alive != [len(blocks)] and blocks:
        wrong.append(f"alive at the end: {alive} instead of {len(blocks)}")
    for word in ("torch::unwind", "CapturedTraceback", "PythonEngine", "??"):
        # What is below a call site are its frames; the call sites themselves are lines that start with two spaces or a verdict.
        if any(word in line for line in text.splitlines() if not line.startswith("    ")):
            wrong.append(f"{word} is named")
    return wrong
