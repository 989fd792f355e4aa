# SPDX-License-Identifier: Apache-2.0
"""watch, decompose, inefficient, compare and snapshots on CUDA tensors, against what the programs say of themselves"""
import csv
import json
import os
import sys

from checks import COMMAND, PROGRAMS, ROOT, Traced, call, check, row_files
from layer_sums import check_sums as check_layer_sums
from owners import CLASSES, classes
from watch_model import matches

TARGETS = ROOT / "tests" / "targets"
OWN_KERNEL = "computed on the GPU"  # in the note that says that it works
DEVICE = {"DEVICE": os.environ.get("DEVICE", "cuda")}  # DEVICE=cpu is for trying the part without a GPU
ON_GPU = DEVICE["DEVICE"] == "cuda"
POOL = "PTA" if ON_GPU else "HOST"


def info(traced, *options):
    """What `info --json` says of the one process that has rows."""
    [project] = [project for project in row_files.projects(traced.out) if project.dumps()]
    [process] = json.loads(call([COMMAND, "info", project.path, "--json", "--all", *options]).stdout)["processes"]
    return process


def dumped(traced):
    """[(name of the dump, checksum)], in the order of the dumps."""
    found = []
    for path in traced.out.rglob("watch_dump_data_check_sum_*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            found += [tuple(line) for line in csv.reader(file)][1:]
    return found


def said_lines(traced):
    return [json.loads(line) for line in traced.done.stdout.splitlines() if line.startswith("{")]


def must(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(one)[:400] for one in what))


def own_kernel(process):
    if not ON_GPU:
        return
    must(any(OWN_KERNEL in note for note in process["notes"]), "the kernel was not used; notes:", process["notes"])
    must(not any("refuses the checksum kernel" in note for note in process["notes"]), process["notes"])


def check_sums(place, library, *options, env=None):
    traced = Traced(place, options, [sys.executable, PROGRAMS / "watched.py", "sums", library], env)
    wanted, got, process = traced.value()["sums"], dumped(traced), info(traced)
    wrong = {}
    for name, value in wanted.items():
        found = [one for dump, one in got if f"-{name}_0_" in dump]
        if found != [value, value]:
            wrong[name] = (found, value)
    must(not wrong, f"{len(wrong)} of {len(wanted)} differ:", wrong, "notes:", process["notes"])
    own_kernel(process)
    must(all(item["unexpected"] == 0 for item in process["watched"]), "a false alarm", process["watched"])
    launches = [row for row in traced.rows if row.event == "KERNEL_LAUNCH"]
    ours = [row for row in traced.rows if "mscope" in (row.name or "") or row.type == "HOST_PINNED" and row.attr.get("size") == 1 << 20]
    must(not ours and (launches or not options or not ON_GPU), f"{len(launches)} launches; rows of ours:", ours[:2])
    return f"{len(wanted)} blocks, all the same as on the host; {len(launches)} launches, none of ours"


def check_culprits(place, seed, rounds, env=None):
    traced = Traced(place, [], [sys.executable, TARGETS / "torch_culprits.py", str(seed), str(rounds)], {**DEVICE, **(env or {})})
    process, truths, wrong = info(traced), said_lines(traced), []
    watched = {item["name"]: item for item in process["watched"]}
    for truth in truths:
        changes = watched[truth["name"]]["unexpected_changes"]
        if len(changes) != (truth["kind"] is not None) or changes and not matches(changes[0], truth):
            wrong.append((truth, changes))
    planted = sum(truth["kind"] is not None for truth in truths)
    must(not wrong and len(truths) == rounds and planted, f"{len(wrong)} of {len(truths)} rounds are wrong:", wrong[:2], process["notes"])
    writes = sum(item["changes"] - item["unexpected"] for item in watched.values())
    return f"{planted} planted in {rounds} rounds, each first in its list; {writes} writes as declared; notes {len(process['notes'])}"


def check_networks(place, seed, count, env=None):
    traced = Traced(place, ["--analysis=decompose"], [sys.executable, TARGETS / "torch_networks.py", str(seed), str(count)],
                    {**DEVICE, **(env or {})})
    said = said_lines(traced)
    must(len(said) == count, f"{len(said)} networks:", traced.done.stderr[-400:])
    process = info(traced, "--analysis=decompose", "--steps=" + ",".join(str(one["step"]) for one in said))
    [pool] = [one for one in process["decompose"] if one["event_type"] == POOL]
    wrong = []
    for one in said:
        got = classes(pool, one["step"])
        if {name: got[name] for name in CLASSES} != one["classes"]:
            difference = {name: (got[name], one["classes"][name]) for name in CLASSES if got[name] != one["classes"][name]}
            wrong.append((one["step"], one["kind"], one["layers"], difference))
            print("network", *wrong[-1])
    must(not wrong, f"{len(wrong)} of {count} networks (class: found, truth):", wrong[:3])
    return f"{count} networks have their classes"


def check_layers(place, seed, count):
    traced = Traced(place, ["--analysis=decompose"], [sys.executable, PROGRAMS / "layers.py", str(seed), str(count)], DEVICE)
    document = info(traced)
    owners, models = check_layer_sums(document, POOL), {layer["model"] for layer in document["layers"]}
    must({f"Net{number}" for number in range(count)} <= models, "networks without layers:", models)
    return f"{count} networks, {len(document['layers'])} layers, {sum(owners.values())} bytes"


def run(place):
    library = place / "checksum.so"

    @check("watch: the checksum builds")
    def _():
        call(["cc", "-O2", "-shared", "-fPIC", PROGRAMS / "checksum.c", "-o", library])

    @check("watch: checksums by the GPU are the host's")
    def _():
        return check_sums(place / "sums", library)

    @check("watch: checksums, expandable segments, by kernels too")
    def _():
        return check_sums(place / "sums-expandable", library, "--level=op,kernel", env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})

    @check("watch: a byte of 3 GiB")
    def _():
        traced = Traced(place / "large", [], [sys.executable, PROGRAMS / "watched.py", "large", library])
        said, got, process = traced.value(), [one for _, one in dumped(traced)], info(traced)
        must(got == [said["before"]] * 4 + [said["after"]] * 2, got, said, process["notes"])
        [item] = process["watched"]
        must(item["unexpected"] == 1 and len(item["unexpected_changes"]) == 1, item)
        [change] = item["unexpected_changes"]
        must((change["from"]["operator"], change["to"]["operator"]) == ("torch._ops.aten.cos.default", "torch._ops.aten.sin.default"), change)
        must(change["first_offset"] <= said["offset"] <= change["last_offset"] < change["first_offset"] + 4096, change, said)
        own_kernel(process)
        return f"{said['bytes']} bytes, {said['ms_per_dump']:.1f} ms a dump"

    @check("watch: random programs")
    def _():
        return check_culprits(place / "culprits", 3, 16)

    @check("watch: random programs, expandable segments")
    def _():
        return check_culprits(place / "culprits-expandable", 5, 10, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})

    @check("watch: inside the capture of a graph")
    def _():
        traced = Traced(place / "capture", [], [sys.executable, PROGRAMS / "watched.py", "capture", library])
        said, process = traced.value(), info(traced)
        must(said["sum"] == said["wanted"], said, process["notes"])
        must(any("while a graph is captured" in note for note in process["notes"]), process["notes"])
        watched = {item["name"]: item for item in process["watched"]}
        must(watched["in a graph"]["unexpected"] == 0, watched["in a graph"])
        item = watched["written by a graph"]
        must([change["to"]["operator"] for change in item["unexpected_changes"]] == ["torch._ops.aten.sin.default"], item)
        return f"{said['sum']}, as computed without us"

    @check("watch: by kernels")
    def _():
        traced = Traced(place / "kernels", ["--level=kernel"], [sys.executable, PROGRAMS / "watched.py", "kernels", library])
        said, process = traced.value(), info(traced)
        watched = {item["name"]: item for item in process["watched"]}
        must(watched["written"]["changes"] == said["writes"] and watched["written"]["unexpected"] == 0, watched["written"], process["notes"])
        must(watched["quiet"]["changes"] == 0, watched["quiet"])
        writers = [writer["operator"] for writer in watched["written"]["declared_writers"]]
        must(writers and all("at::native" in writer for writer in writers), writers)
        [change] = watched["stray"]["unexpected_changes"]
        must("at::native" in change["to"]["operator"] and change["during_one_call"], change)
        return f"{watched['quiet']['dumps']} dumps; {change['to']['operator']} inside of {change.get('inside')}"

    @check("watch: from the command line")
    def _():
        traced = Traced(place / "named", ["--watch=torch._ops.aten.relu.default,torch._ops.aten.addmm.default,full-content"],
                        [sys.executable, PROGRAMS / "runs.py"])
        [item], files = info(traced)["watched"], list(traced.out.rglob("watch_dump/*.bin"))
        sizes = {path.stat().st_size for path in files}
        must(sizes == {64 * 1024 * 4} and len(files) == item["dumps"] >= 4 * 3 and item["unexpected"] == 0, sizes, len(files), item)
        return f"{len(files)} dumps of {sizes.pop()} bytes"

    @check("decompose: random networks")
    def _():
        return check_networks(place / "networks", 0, 30)

    @check("decompose: layers of random networks add up to the classes")
    def _():
        return check_layers(place / "layers", 0, 20)

    @check("decompose: a transformer with AdamW has a class for nearly all")
    def _():
        traced = Traced(place / "transformer", ["--analysis=decompose"], [sys.executable, PROGRAMS / "train.py", "transformer", "foreach"])
        [pool] = [one for one in info(traced, "--analysis=decompose")["decompose"] if one["event_type"] == POOL]
        found = classes(pool, "peak_bytes")
        named = sum(found[name] for name in (*CLASSES, "temporary"))
        must(named >= 0.97 * pool["peak_bytes"], f"{named} of {pool['peak_bytes']}:", dict(found))
        return {name: found[name] for name in (*CLASSES, "temporary", "other") if found[name]}

    @check("inefficient: the planted blocks")
    def _():
        traced = Traced(place / "inefficient", ["--analysis=inefficient"], [sys.executable, TARGETS / "torch_inefficient.py"], DEVICE)
        planted = {size: kind for kind, size in [line for line in said_lines(traced) if "blocks" in line][0]["blocks"].items()}
        found = [(planted.get(row.attr["size"], row.attr["size"]), row.attr["inefficient_type"]) for row in traced.rows
                 if "inefficient_type" in row.attr]
        # Those that live until the program ends are freed behind the last allocation, where that is seen.
        kept = [(16384, "late_deallocation"), ("early_allocation", "late_deallocation")] if ON_GPU else []
        wanted = [(512 if ON_GPU else 128, "late_deallocation"), *((kind, kind) for kind in planted.values())]
        must([one for one in found if one not in kept] == wanted, found, "wanted", wanted)
        must(f"Inefficient memory: {POOL} on " in traced.done.stderr, traced.done.stderr[-600:])
        return found

    runs = {}

    @check("snapshots: what PyTorch says")
    def _():
        for name in ("plain", "planted"):
            runs[name] = Traced(place / name, ["--level=op"], [sys.executable, PROGRAMS / "runs.py", *([name] if name == "planted" else [])])
            rows = [row for row in runs[name].rows if row.event == "SNAPSHOT"]
            got = [[row.attr[key] for key in ("allocated", "reserved", "max_allocated", "max_reserved")] for row in rows]
            must(not ON_GPU or got == runs[name].value()["snapshots"], got, runs[name].value(), [str(row) for row in rows[:1]])
        return f"{len(got)} snapshots of two runs"

    @check("compare: the planted difference is first")
    def _():
        inputs = [next(project.path for project in row_files.projects(runs[name].out) if project.dumps()) for name in ("plain", "planted")]
        done = call([COMMAND, "--compare", f"--input={inputs[0]},{inputs[1]}", "-o", place / "compared"], check_status=False)
        text = done.stdout + done.stderr
        must("keep_more" in text, done.returncode, text[-1500:])
        print(text[:3000])
        return next(line.strip() for line in text.splitlines() if "keep_more" in line)
