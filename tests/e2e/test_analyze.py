# SPDX-License-Identifier: Apache-2.0
"""The verb analyze and the Python functions that ask the same: programs and files made at random, whose truth is known."""
import json
import random
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HEADER = "ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),Call Stack(C)\n"
COLUMNS = HEADER.strip().split(",")
TARGETS = Path(__file__).resolve().parents[1] / "targets"
EARLY, LATE, IDLE = "early_allocation", "late_deallocation", "temporary_idleness"


@pytest.fixture
def analyze(msmemscope):
    """analyze(what, word, *options, status=0): the processes of the answer."""
    def ask(what, word, *options, status=0):
        done = msmemscope("analyze", what, word, "--json", "--all", *options, output=False)
        assert done.returncode == status, str(done)
        return json.loads(done.stdout)["processes"]

    return ask


@pytest.fixture
def ours(dist, out):
    """ours(code): what a script prints that has the package and nothing else of the tool."""
    def run(code, status=0, **variables):
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(dist / "python"), **variables}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, cwd=out, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


# ---- files made here ----

def json_attr(attr):
    """Attr of a row of a csv as a database has it: JSON of texts."""
    pairs = re.split(",(?=[a-z_]+:)", attr.strip('"{}')) if attr else []
    return json.dumps(dict(pair.split(":", 1) for pair in pairs), separators=(",", ":")) if pairs else ""


class File:
    """Rows of a dump, and what is true of them by the order that they have."""

    def __init__(self, pid=4242, first=1):
        self.rows, self.pid, self.ident, self.allocation, self.live = [], pid, first, 0, {}

    def add(self, event, kind, name="N/A", device=0, ptr="N/A", attr="", tid=None, stack=""):
        row = [self.ident, event, kind, f'"{name}"' if event == "MSTX" else name, 1700000000000000000 + self.ident, self.pid,
               tid or self.pid, device, ptr, f'"{{{attr}}}"' if attr else "", stack, ""]
        self.rows.append(row)
        self.ident += 1 + random.Random(self.ident).randrange(2)
        return row[0]

    def malloc(self, pool, address, size, device=0, tid=None, more="", stack=""):
        self.allocation += 1
        ident = self.add("MALLOC", pool, device=device, ptr=f"0x{address:016x}", tid=tid, stack=stack,
                         attr=f"allocation_id:{self.allocation},addr:0x{address:016x},size:{size},used:{size},total:1048576{more}")
        self.live[address] = (pool, size, device, self.allocation)
        return ident

    def free(self, address, tid=None):
        pool, size, device, allocation = self.live.pop(address)
        return self.add("FREE", pool, device=device, ptr=f"0x{address:016x}", tid=tid,
                        attr=f"allocation_id:{allocation},addr:0x{address:016x},size:{size},used:0,total:1048576")

    def write(self, path, *others, ends="\n", shuffle=None):
        rows = [row for file in (self, *others) for row in file.rows]
        if shuffle is not None:
            shuffle.shuffle(rows)
        path.write_bytes((HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows)).replace("\n", ends).encode())
        return path

    def database(self, path, *others):
        columns = ", ".join(f'"{name}"' for name in COLUMNS)
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE memscope_dump ({columns})")
            connection.executemany(f"INSERT INTO memscope_dump VALUES ({', '.join('?' * 12)})", [
                [json_attr(value) if name == "Attr" else value.strip('"') if isinstance(value, str) else value
                 for name, value in zip(COLUMNS, row)] for file in (self, *others) for row in file.rows])
        connection.close()
        return path


class Model:
    """What check_leaks() must say: for each device its blocks and the numbers of the marks, by order."""

    def __init__(self):
        self.order, self.blocks, self.marks = 0, [], defaultdict(list)

    def tick(self):
        self.order += 1
        return self.order

    def leaks(self, name, start):
        """{device: set of idents, or None where there is no answer}."""
        everywhere = sorted(order for marks in self.marks[name].values() for order in marks) if self.marks[name] else []
        answer = {}
        for device in {block["device"] for block in self.blocks}:
            own = (self.marks[name] or {}).get(device, [])
            marks = own if len(own) >= 3 else everywhere
            if len(marks) < start + 3:
                answer[device] = None
                continue
            a, b, c = marks[start:start + 3]
            answer[device] = {block["ident"] for block in self.blocks if block["device"] == device and a <= block["from"] <= b and
                              not (block["to"] and block["to"] <= c)}
        return answer


def random_marks(seed, devices, pid=4242, own=False):
    """A file with marks at random and its model. With `own`, marks have devices at random too."""
    draw = random.Random(seed)
    file, model = File(pid, draw.randrange(5)), Model()
    model.marks = defaultdict(dict)
    model.sizes = {}
    base = 0x100000000
    for _ in range(draw.randrange(20, 200)):
        what = draw.random()
        if what < 0.12:
            name, device = draw.choice(["A", "A", "A", "other, mark"]), draw.choice(devices) if own else "N/A"
            file.add("MSTX", "Mark", name, device)
            model.marks[name].setdefault(device, []).append(model.tick())
        elif what < 0.6 or not file.live:
            base += 0x100000
            device, pool, size = draw.choice(devices), draw.choice(["HAL", "PTA", "ATB", "MINDSPORE"]), draw.randrange(1, 1 << 24)
            ident = file.malloc(pool, base, size, device)
            model.blocks.append({"ident": ident, "address": base, "device": device, "from": model.tick(), "to": None})
            model.sizes[ident] = size
        else:
            address = draw.choice(sorted(file.live))
            file.free(address)
            next(block for block in model.blocks if block["address"] == address)["to"] = model.tick()
    return file, model


def told(process):
    """{device: set of idents, or None}, as analyze tells."""
    return {int(device["device"]): {leak["index"] for leak in device["leaks"]} if device["judged"] else None
            for device in process["marks"]["devices"]}


def status_of(wanted):
    return 0 if any(found is not None for found in wanted.values()) else 1


# ---- leaks between marks ----

def test_leaks_between_marks_are_those_of_the_file(analyze, asked, out):
    judged = 0
    for seed in range(asked):
        devices = [[0], [0, 1], [3, 0, 7]][seed % 3]
        file, model = random_marks(seed, devices, own=seed % 2 == 1)
        if not model.blocks:
            continue
        path = file.database(out / f"{seed}.db") if seed % 4 == 0 else file.write(out / f"{seed}.csv", shuffle=random.Random(seed))
        for start in (0, 1, 4):
            wanted = model.leaks("A", start)
            [process] = analyze("leaks", path, "--mark=A", f"--start-index={start}", status=status_of(wanted))
            assert told(process) == wanted, (seed, start)
            judged += sum(found is not None and len(found) > 0 for found in wanted.values())
            for device in process["marks"]["devices"]:
                for leak in device.get("leaks", ()):
                    assert leak["size"] == model.sizes[leak["index"]]
    assert judged > asked / 2  # the cases mean something


def test_processes_of_one_file_are_judged_apart(analyze, out):
    """They may have the same addresses."""
    one, first = random_marks(901, [0], pid=100)
    two, second = random_marks(902, [1], pid=200)
    path = one.write(out / "both.csv", two, shuffle=random.Random(1))
    wanted = [first.leaks("A", 0), second.leaks("A", 0)]
    found = {process["pid"]: told(process) for process in analyze("leaks", path, "--mark=A", status=max(map(status_of, wanted)))}
    assert found == {100: wanted[0], 200: wanted[1]}


def test_random_programs_leak_what_they_say(analyze, msmemscope, program, ours, asked, out):
    """On the simulated NPU: trace, project, csv and db of one run have the same answer, and so has the function."""
    for seed in range(max(3, asked // 4)):
        draw = random.Random(7000 + seed)
        lines, live, blocks, marks, order = [], {}, [], [], 0
        for _ in range(120):
            order += 1
            what = draw.random()
            if what < 0.1:
                lines.append("m loop")
                marks.append(order)
            elif what < 0.15:
                lines.append("m something else")
            elif what < 0.6 or not live:
                slot, size, device, pool = len(blocks), draw.randrange(1, 100) * 4096, draw.randrange(2), draw.choice("ap")
                lines.append(f"{pool} {slot} {size} {device}")
                live[slot] = len(blocks)
                blocks.append({"slot": slot, "device": device, "from": order, "to": None, "size": size,
                               "event_type": "HAL" if pool == "a" else "PTA"})
            else:
                slot = draw.choice(sorted(live))
                lines.append(f"f {slot}")
                blocks[live.pop(slot)]["to"] = order
        script = out / f"script{seed}"
        script.write_text("\n".join(lines) + "\n", encoding="utf-8")
        msmemscope.out = out / f"run{seed}"
        run = msmemscope("--", *program("scripted", script)).check()
        addresses = {line["slot"]: line["address"] for line in map(json.loads, run.stdout.splitlines()) if "slot" in line}
        start = draw.randrange(max(1, len(marks) - 2))
        a, b, c = marks[start:start + 3]
        wanted = sorted((block["device"], block["event_type"], addresses[block["slot"]], block["size"]) for block in blocks
                        if a < block["from"] < b and not (block["to"] and block["to"] < c))
        project = run.project().path
        bare = out / f"bare{seed}"
        shutil.copytree(project, bare)
        (bare / "trace.msc").unlink()
        database = msmemscope("export", project, "--format=db", "-o", out / f"db{seed}", output=False).check().stdout.strip()
        for word in (project / "trace.msc", project, run.out, bare, database):
            [process] = analyze("leaks", word, "--mark=loop", f"--start-index={start}")
            found = sorted((int(device["device"]), leak["event_type"], int(leak["address"], 16), leak["size"])
                           for device in process["marks"]["devices"] for leak in device["leaks"])
            assert found == wanted, (seed, word)
        printed = ours(f"import msmemscope\nfound = msmemscope.check_leaks({str(bare)!r}, 'loop', {start})\nprint(len(found))")
        assert printed.splitlines()[-1] == str(len(wanted))
        ids = {(row.ptr, row.attr["size"]): row.id for row in run.project().rows() if row.event == "MALLOC"}
        for device in process["marks"]["devices"]:
            for leak in device["leaks"]:
                assert (leak["address"], str(leak["size"])) in {(f"0x{int(str(key[0]), 0):016x}", str(key[1])) for key in ids}


def test_what_a_pool_keeps_from_the_driver_is_told_apart(analyze, msmemscope, program, out):
    script = out / "script"
    script.write_text("m x\na 1 2097152 0\nq 2 1\na 3 4096 0\nm x\nf 2\nm x\n", encoding="utf-8")
    run = msmemscope("--", *program("scripted", script)).check()
    [device] = analyze("leaks", run.out, "--mark=x")[0]["marks"]["devices"]
    assert [(leak["event_type"], leak["size"]) for leak in device["leaks"]] == [("HAL", 4096)]
    assert (device["kept_by_pools_blocks"], device["kept_by_pools_bytes"]) == (1, 2097152)


def documented(out):
    """The file of the manual's kind: one leak of the driver's memory, another that is freed in time."""
    file = File(first=0)
    file.add("MSTX", "Mark", "test")
    file.malloc("HAL", 0x10, 4096)
    leak = file.malloc("HAL", 0x20, 2815488)
    file.add("MSTX", "Mark", "test")
    file.free(0x10)
    file.add("MSTX", "Mark", "test")
    file.free(0x20)
    return file.write(out / "memscope.csv"), leak


def test_check_leaks_prints_the_documented_shape(ours, out):
    """Path relative to the current directory; without the collector, without a framework."""
    _, leak = documented(out)
    printed = ours('import msmemscope\nfound = msmemscope.check_leaks(input_path="memscope.csv", mstx_info="test", start_index=0)\n'
                   'print([(leak["device"], leak["size"], leak["index"]) for leak in found])').splitlines()
    at = printed.index("====== ERROR: Detected memory leaks on device 0 ======")
    assert printed[at + 1] == f"Direct Hal memory leak of 2.68505859375 Mb(s) at 0x0000000000000020 in Index {leak}."
    assert printed[-1] == f"[('0', 2815488, {leak})]"


def test_the_verb_prints_the_documented_shape(msmemscope, out):
    path, leak = documented(out)
    text = msmemscope("analyze", "leaks", path, "--mark=test", output=False).check().stdout
    assert "====== ERROR: Detected memory leaks on device 0 ======\n" \
           f"Direct Hal memory leak of 2.68505859375 Mb(s) at 0x0000000000000020 in Index {leak}.\n" in text


def test_marks_that_are_missing_are_told_in_one_sentence(msmemscope, ours, out):
    path, _ = documented(out)
    for words, sentence in ((("--mark=test", "--start-index=1"), 'the mark "test" occurs 3 times; start index 1 needs the marks 1, 2 and 3, '
                                                                 "counted from 0"),
                            (("--mark=tset",), 'the mark "tset" never occurs; marks that do: test')):
        done = msmemscope("analyze", "leaks", path, *words, output=False)
        assert done.returncode == 1 and f"Device 0 was not judged: {sentence}.\n" in done.stdout
    printed = ours("import msmemscope\nprint(msmemscope.check_leaks('memscope.csv', 'test', 5))")
    assert "occurs 3 times; start index 5" in printed and printed.endswith("[]\n")


def test_files_of_older_dialects_are_judged(analyze, out):
    """Decimal addresses, no statistics, an empty owner; the process is unknown."""
    path = out / "old.csv"
    rows = ['0,MSTX,Mark,"t",1,N/A,7,0,N/A,,,', '1,MALLOC,HAL,N/A,2,N/A,7,0,32,"{addr:32,size:100,owner:,MID:7}",,',
            '2,MSTX,Mark,"t",3,N/A,7,0,N/A,,,', '3,MALLOC,HAL,N/A,4,N/A,7,0,64,"{addr:64,size:200,owner:,MID:7}",,',
            '4,MSTX,Mark,"t",5,N/A,7,0,N/A,,,']
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    [process] = analyze("leaks", path, "--mark=t")
    assert told(process) == {0: {1}}


def test_bad_arguments_raise(ours, out):
    documented(out)
    code = """
import msmemscope
def raises(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
leaks, inefficient = msmemscope.check_leaks, msmemscope.check_inefficient
print([raises(lambda: leaks("none.csv", "t", 0)), raises(lambda: leaks("memscope.csv", "  ", 0)), raises(lambda: leaks("memscope.csv", 7, 0)),
       raises(lambda: leaks("memscope.csv", "t", -1)), raises(lambda: leaks("memscope.csv", "t", "0")), raises(lambda: leaks(7, "t", 0)),
       raises(lambda: leaks("", "t", 0)), raises(lambda: leaks("x" * 5000, "t", 0)), raises(lambda: leaks("memscope.csv", "t", True))])
print([raises(lambda: inefficient("memscope.csv", mem_size=-1)), raises(lambda: inefficient("memscope.csv", idle_threshold=0)),
       raises(lambda: inefficient("memscope.csv", inefficient_type=[])), raises(lambda: inefficient("memscope.csv", inefficient_type="early")),
       raises(lambda: inefficient("memscope.csv", inefficient_type=7)), raises(lambda: inefficient("none.csv")),
       raises(lambda: inefficient("memscope.csv", mem_size="1"))])
print(msmemscope.list_analyzers(), raises(lambda: msmemscope.analyze("peaks")), raises(lambda: msmemscope.get_analyzer_config("peaks")))
config = msmemscope.get_analyzer_config("inefficient")
print(config["config_class"] is msmemscope.analyzer.InefficientConfig, sorted(config["parameters"]))
found = msmemscope.analyzer.LeaksAnalyzer().analyze(msmemscope.analyzer.LeaksConfig("memscope.csv", "test", 0))
print(len(found), len(msmemscope.analyze("leaks", input_path="memscope.csv", mstx_info="test", start_index=0)))
"""
    printed = ours(code).splitlines()
    assert printed[0] == str(["FileNotFoundError", "ValueError", "TypeError", "ValueError", "TypeError", "TypeError", "ValueError", "ValueError",
                              "TypeError"])
    assert printed[1] == str(["ValueError", "ValueError", "ValueError", "ValueError", "TypeError", "FileNotFoundError", "TypeError"])
    assert printed[2] == "['leaks', 'inefficient'] ValueError ValueError"
    assert printed[3] == "True ['idle_threshold', 'inefficient_type', 'input_path', 'mem_size']"
    assert printed[-1] == "1 1"
    (out / "other.csv").write_text("this is no dump\n", encoding="utf-8")
    assert ours("import msmemscope\ntry:\n  msmemscope.check_leaks('other.csv', 't', 0)\nexcept ValueError as e:\n  print('no:', e)"
                ).splitlines()[-1].startswith("no: ")


# ---- memory per operator and launch ----

class Calls:
    """What each name did, kept as plainly as possible."""

    def __init__(self):
        self.calls, self.left, self.largest, self.freed = defaultdict(int), defaultdict(int), defaultdict(int), defaultdict(int)
        self.held = defaultdict(int)


def random_calls(seed):
    """A file of operators of two threads, nested, with memory inside and between, in steps; and what is true of operators."""
    draw = random.Random(seed)
    file, truth = File(), Calls()
    open_ops, blocks, base, ends = {1: [], 2: []}, {}, 0x100000000, []
    for _ in range(draw.randrange(100, 400)):
        what, tid = draw.random(), draw.choice([1, 2])
        stack = open_ops[tid]
        if what < 0.02:
            file.add("SYSTEM", "STEP", str(len(ends) + 1), tid=tid)
            ends.append(dict(truth.held))
        elif what < 0.2 and len(stack) < 3:
            name = f"aten.op{draw.randrange(6)}"
            file.add("OP_LAUNCH", "ATEN_START", name, tid=tid)
            stack.append({"name": name, "alive": defaultdict(int)})
        elif what < 0.38 and stack:
            call = stack.pop()
            file.add("OP_LAUNCH", "ATEN_END", call["name"], tid=tid)
            truth.calls[call["name"]] += 1
            for device, alive in call["alive"].items():
                truth.left[call["name"], device] += alive
                truth.largest[call["name"], device] = max(truth.largest[call["name"], device], alive)
        elif what < 0.75 or not blocks:
            base += 0x100000
            size, device = draw.randrange(1, 1 << 20), draw.randrange(2)
            file.malloc("PTA", base, size, device, tid=tid)
            call = stack[-1] if stack else None
            name = call["name"] if call else "outside of operators"
            if call:
                call["alive"][device] += size
            truth.held[name, device] += size
            blocks[base] = (size, device, call, name)
        else:
            address = draw.choice(sorted(blocks))
            file.free(address, tid=tid)
            size, device, call, name = blocks.pop(address)
            truth.held[name, device] -= size
            if call and any(call is other for other in open_ops[1] + open_ops[2]):
                call["alive"][device] -= size
            else:
                truth.freed[stack[-1]["name"] if stack else "outside of operators", device] += size
    # What is open at the end ends with it.
    for stack in open_ops.values():
        for call in stack:
            truth.calls[call["name"]] += 1
            for device, alive in call["alive"].items():
                truth.left[call["name"], device] += alive
                truth.largest[call["name"], device] = max(truth.largest[call["name"], device], alive)
    return file, truth, ends


def operators(process):
    return [entry for entry in process["launches"]["entries"] if entry["kind"] == "operator"]


def test_operators_left_what_the_file_says(analyze, asked, out):
    for seed in range(asked):
        file, truth, ends = random_calls(seed)
        [process] = analyze("launches", file.write(out / f"{seed}.csv"))
        for entry in operators(process):
            key = entry["name"], int(entry["device"]) if entry["device"] != "N/A" else None
            if entry["event_type"] is None:
                continue
            assert entry["freed_bytes"] == truth.freed[key], (seed, key)
            assert entry["end_bytes"] == truth.held[key], (seed, key)
            if entry["outside"]:
                continue
            assert (entry["calls"], entry["left_bytes"], entry["largest_bytes"]) == (
                truth.calls[key[0]], truth.left[key], truth.largest[key]), (seed, key)
            if len(ends) >= 2:
                first, last = ends[0].get(key, 0), ends[-1].get(key, 0)
                assert (entry["first_step_bytes"], entry["last_step_bytes"]) == (first, last), (seed, key)
                assert abs(entry["bytes_per_step"] - (last - first) / (len(ends) - 1)) < 0.1
        named = {entry["name"] for entry in operators(process)}
        assert {name for name in truth.calls if truth.calls[name]} <= named
        # Every byte belongs to one name: what names hold is what lives.
        assert sum(entry["end_bytes"] for entry in operators(process)) == sum(size for _, size, _, _ in file.live.values())


def test_the_operator_that_keeps_memory_is_first(msmemscope, out):
    file = File()
    for step in range(1, 9):
        file.add("SYSTEM", "STEP", str(step))
        for name, size, keeps in (("aten.big", 1 << 24, False), ("aten.leaks", 4096, True)):
            file.add("OP_LAUNCH", "ATEN_START", name)
            file.malloc("PTA", 0x1000000 * step + size, size)
            file.add("OP_LAUNCH", "ATEN_END", name)
            if not keeps:
                file.free(0x1000000 * step + size)
    path = file.write(out / "growing.csv")
    text = msmemscope("analyze", "launches", path, output=False).check().stdout.splitlines()
    first = next(line for line in text if "aten." in line)
    assert first.split()[0] == "8" and "+4.0 KiB" in first and first.endswith("aten.leaks")


def test_steps_choose_calls(analyze, out):
    file = File()
    for step in range(1, 5):
        for _ in range(step):
            file.add("OP_LAUNCH", "ATEN_START", "op")
            file.malloc("PTA", file.ident << 20, 1000 * step)
            file.add("OP_LAUNCH", "ATEN_END", "op")
        file.add("SYSTEM", "STEP", str(step))
    path = file.write(out / "steps.csv")
    for steps, calls, left in (("2", 2, 4000), ("1,4", 5, 17000)):
        [entry] = operators(analyze("launches", path, f"--steps={steps}")[0])
        assert (entry["calls"], entry["left_bytes"], entry["largest_bytes"]) == (calls, left, 1000 * int(steps[-1]))


def test_devices_choose_memory_and_calls(analyze, out):
    file = File()
    for device in (0, 1):
        file.add("MSTX", "Mark", "m", "N/A")
        file.add("OP_LAUNCH", "ATEN_START", f"op{device}", device)
        file.malloc("PTA", 0x1000 + device, 100 + device, device)
        file.add("OP_LAUNCH", "ATEN_END", f"op{device}", device)
    file.malloc("PTA", 0x2000, 500, 0)
    file.add("MSTX", "Mark", "m", "N/A")
    path = file.write(out / "devices.csv")
    assert [entry["name"] for entry in operators(analyze("launches", path, "--device=npu:1")[0])] == ["op1"]
    assert list(told(analyze("leaks", path, "--mark=m", "--device=npu:0")[0])) == [0]
    assert {row["device"] for row in analyze("decompose", path, "--device=npu:1")[0]["decompose"]} == {"1"}


def test_kernels_left_what_lives_at_the_next_launch(analyze, asked, out):
    for seed in range(asked):
        draw = random.Random(seed)
        file, coming, latest, base = File(), {}, (None, {}), 0x100000000
        calls, left, largest, freed = defaultdict(int), defaultdict(int), defaultdict(int), defaultdict(int)
        pending_freed = 0
        for number in range(200):
            what = draw.random()
            if what < 0.25 or number == 199:
                if latest[0]:
                    alive = sum(latest[1].values())
                    left[latest[0]] += alive
                    largest[latest[0]] = max(largest[latest[0]], alive)
                name = f"kernel{draw.randrange(4)}"
                file.add("KERNEL_LAUNCH", "KERNEL_LAUNCH", name, attr="streamId:1,taskId:1")
                calls[name] += 1
                freed[name] += pending_freed
                latest, coming, pending_freed = (name, coming), {}, 0
            elif what < 0.65 or not file.live:
                base += 0x100000
                size = draw.randrange(1, 1 << 20)
                file.malloc("PTA", base, size)
                coming[base] = size
            else:
                address = draw.choice(sorted(file.live))
                size = file.live[address][1]
                file.free(address)
                if coming.pop(address, None) is None and latest[1].pop(address, None) is None:
                    pending_freed += size
        alive = sum(latest[1].values())
        left[latest[0]] += alive
        largest[latest[0]] = max(largest[latest[0]], alive)
        [process] = analyze("launches", file.write(out / f"{seed}.csv"))
        found = {entry["name"]: (entry["calls"], entry["left_bytes"], entry["largest_bytes"], entry["freed_bytes"])
                 for entry in process["launches"]["entries"] if entry["kind"] == "kernel" and not entry["outside"]}
        assert found == {name: (calls[name], left[name], largest[name], freed[name]) for name in calls}, seed


TORCH = """
import json
import torch
kept, truth = [], {}
for step in range(6):
    x = torch.ones(1000)
    y = torch.mul(x, 2)          # 4,000 bytes, freed with the step
    kept.append(torch.add(y, 1)) # 4,000 bytes, never
    torch.sum(y)
    import msmemscope
    msmemscope.step()
print(json.dumps({"adds": len(kept), "bytes": sum(t.untyped_storage().nbytes() for t in kept)}))
"""


def test_the_operators_of_a_script_are_told_by_name(analyze, msmemscope, python, out):
    (out / "script.py").write_text(TORCH, encoding="utf-8")
    run = msmemscope("--device=cpu", "--events=alloc,free,launch", "--", *python, out / "script.py").check()
    truth = json.loads(run.stdout.splitlines()[-1])
    entries = operators(analyze("launches", run.out)[0])
    [add] = [entry for entry in entries if "add.Tensor" in entry["name"] and entry["event_type"] == "HOST"]
    assert add["calls"] == truth["adds"] and add["left_bytes"] >= truth["bytes"] and add["end_bytes"] >= truth["bytes"]
    assert add["bytes_per_step"] >= truth["bytes"] / truth["adds"]
    assert entries[0]["name"] == add["name"]


# ---- inefficient memory ----

def wasteful(seed=None):
    """A file in which one block is early, one late and one idle, beside one that is used well; with stacks of several lines."""
    file = File()

    def op(name, *addresses, allocates=(), frees=()):
        file.add("OP_LAUNCH", "ATEN_START", name)
        for address, size in allocates:
            idents[address] = file.malloc("PTA", address, size, stack='"train.py(1): ""f"", g\ntrain.py(2): <module>\n"')
        for address in addresses:
            file.add("ACCESS", "WRITE", name, ptr=f"0x{address:016x}", attr=f"addr:0x{address:016x},size:8,type:PTA,dtype:f,shape:[2]")
        for address in frees:
            file.free(address)
        file.add("OP_LAUNCH", "ATEN_END", name)

    idents = {}
    op("alloc_other", 0x100, allocates=[(0x100, 512)])
    op("alloc_early", allocates=[(0x200, 4096)])
    op("free_other", 0x100, frees=[0x100])
    op("use_early", 0x200)
    op("free_early", frees=[0x200])
    op("late", 0x300, allocates=[(0x300, 8192)])
    op("between", 0x400, allocates=[(0x400, 100)])
    file.add("SYSTEM", "STEP", "1")
    op("free_late", frees=[0x300])
    op("idle", 0x500, allocates=[(0x500, 16384), (0x600, 100)])
    for number in range(12):
        op(f"busy{number}", 0x600)
    op("idle_again", 0x500)
    return file, idents


def attrs(path):
    """{ID: types} of the MALLOC rows of a csv or db."""
    if path.suffix == ".db":
        with sqlite3.connect(path) as connection:
            rows = [(str(ident), json.loads(attr).get("inefficient_type", "")) for ident, attr in
                    connection.execute("""SELECT "ID", "Attr" FROM memscope_dump WHERE "Event" = 'MALLOC'""")]
        connection.close()
    else:
        import csv
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(row["ID"], row["Attr"]) for row in csv.DictReader(file) if row["Event"] == "MALLOC"]
    return {int(ident): {kind for kind in (EARLY, LATE, IDLE) if kind in attr} for ident, attr in rows}


CHECK = "import msmemscope\nfound = msmemscope.check_inefficient(%r, %s)\nprint(sorted((b['index'], b['inefficient_type']) for b in found))"


@pytest.mark.parametrize("form", ["csv", "crlf", "db"])
def test_check_inefficient_writes_what_it_finds(ours, out, form):
    file, idents = wasteful()
    path = file.database(out / "dump.db") if form == "db" else file.write(out / "dump.csv", ends="\r\n" if form == "crlf" else "\n")
    before = path.read_bytes()
    path.chmod(0o640)
    call = CHECK
    printed = ours(call % (str(path), "idle_threshold=10")).splitlines()
    wanted = {idents[0x200]: {EARLY}, idents[0x300]: {LATE}, idents[0x500]: {IDLE}}
    assert printed[-1] == str(sorted((ident, sorted(kinds)) for ident, kinds in wanted.items()))
    found = attrs(path)
    assert {ident: kinds for ident, kinds in found.items() if kinds} == wanted
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    if form != "db":
        # Nothing but the one key has changed, and it stands where readers expect it.
        text = path.read_bytes()
        for kind in (EARLY, LATE, IDLE):
            text = text.replace(f",inefficient_type:{kind}}}".encode(), b"}")
        assert text == before
    # Only the types that are asked for change, here none is found any more.
    ours(call % (str(path), f"idle_threshold=3000, inefficient_type=[{IDLE!r}]"))
    assert {ident: kinds for ident, kinds in attrs(path).items() if kinds} == {idents[0x200]: {EARLY}, idents[0x300]: {LATE}}
    ours(call % (str(path), f"mem_size=5000, inefficient_type={EARLY!r}"))
    assert {ident: kinds for ident, kinds in attrs(path).items() if kinds} == {idents[0x300]: {LATE}}
    assert sorted(entry.name for entry in out.iterdir()) == [path.name]


def test_check_inefficient_of_a_real_db_leaves_json(msmemscope, ours, python):
    """A db that the tool wrote, with the key in some rows already: what it says afterwards is what a new recording would say."""
    run = msmemscope("--device=cpu", "--analysis=inefficient", "--format=db", "--", *python, TARGETS / "torch_inefficient.py").check()
    [path] = run.project().path.glob("device_*/dump/*.db")

    def rows():
        with sqlite3.connect(path) as connection:
            found = {ident: json.loads(attr) for ident, attr in connection.execute('SELECT "ID", "Attr" FROM memscope_dump') if attr}
        connection.close()
        return found

    def count():
        with sqlite3.connect(path) as connection:
            [(total,)] = connection.execute("SELECT count(*) FROM memscope_dump")
        connection.close()
        return total

    before, total = rows(), count()
    marked = {ident: attr["inefficient_type"] for ident, attr in before.items() if "inefficient_type" in attr}
    assert {kind for kinds in marked.values() for kind in kinds.split(",")} == {EARLY, LATE, IDLE}
    # Nothing is above the threshold: the key goes, all else stays.
    ours(CHECK % (str(path), "mem_size=1<<31"))
    bare = {ident: {key: value for key, value in attr.items() if key != "inefficient_type"} for ident, attr in before.items()}
    assert rows() == bare and count() == total
    # The same question as the recording's gives the same rows again, twice.
    for _ in range(2):
        ours(CHECK % (str(path), "idle_threshold=3000"))
        assert rows() == before and count() == total


def test_a_row_that_would_not_be_readable_is_not_written(out):
    """The check behind the rewrite, with a rewrite that is wrong: the file stays as it was."""
    file, idents = wasteful()
    for path in (file.write(out / "dump.csv"), file.database(out / "dump.db")):
        before = path.read_bytes()
        code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "python" / "msmemscope")!r})
import _rewrite
_rewrite.changed = lambda attr, asked, found: attr.replace("size", "siye") if found else attr
_rewrite.changed_json = lambda attr, asked, found: attr + "inefficient_type:" if found else attr
try:
    _rewrite.rewrite({str(path)!r}, _rewrite.TYPES, {{("4242", "{idents[0x200]}"): [{EARLY!r}]}})
except RuntimeError as error:
    print(error)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "the file is unchanged" in done.stdout and path.read_bytes() == before


def test_a_file_that_cannot_be_written_stays_as_it_was(out):
    """A disk that fills up while the new file is written: the old one is untouched and nothing is left beside it."""
    file, _ = wasteful()
    path = file.write(out / "dump.csv")
    before = path.read_bytes()
    code = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "python" / "msmemscope")!r})
import _rewrite
def full(descriptor):
    raise OSError(28, "No space left on device")
os.fsync = full
try:
    _rewrite.rewrite({str(path)!r}, _rewrite.TYPES, {{("4242", "2"): [{EARLY!r}]}})
except OSError as error:
    print(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "28\n" and path.read_bytes() == before and list(out.iterdir()) == [path]


def test_attr_is_changed_in_place_and_nowhere_else():
    sys.path.insert(0, str(Path(__file__).parents[2] / "python" / "msmemscope"))
    try:
        import _rewrite
    finally:
        sys.path.pop(0)
    change = _rewrite.changed
    every = _rewrite.TYPES
    assert change("{size:1}", every, [LATE]) == f"{{size:1,inefficient_type:{LATE}}}"
    assert change("{size:1,page_type:huge,alloc_type:alloc}", every, [LATE]) == f"{{size:1,inefficient_type:{LATE},page_type:huge,alloc_type:alloc}}"
    assert change(f"{{size:1,inefficient_type:{EARLY},{IDLE},page_type:huge}}", [LATE], [LATE]) == \
        f"{{size:1,inefficient_type:{EARLY},{LATE},{IDLE},page_type:huge}}"
    assert change(f"{{size:1,inefficient_type:{EARLY},{IDLE},page_type:huge}}", every, []) == "{size:1,page_type:huge}"
    assert change(f"{{size:1,inefficient_type:{EARLY}}}", [EARLY], []) == "{size:1}"
    assert change("{size:1}", every, []) == "{size:1}"


# ---- the verb ----

def test_every_question_is_answered_of_a_run(msmemscope, dist, out):
    msmemscope("--", dist / "examples" / "leaky_npu", 12).check()
    for what, key in (("leaks", "leaks"), ("launches", "launches"), ("inefficient", "inefficient"), ("decompose", "decompose"),
                      ("watch", "watched"), ("oom", None)):
        text = msmemscope("analyze", what, out, output=False).check().stdout
        assert text.startswith("leaky_npu (pid ") and len(text.splitlines()) > 1, text
        [process] = json.loads(msmemscope("analyze", what, out, "--json", output=False).check().stdout)["processes"]
        assert process["pid"] and (key is None or key in process), sorted(process)


def test_questions_and_options_that_do_not_fit_are_refused(msmemscope, dist, out):
    msmemscope("--", dist / "examples" / "leaky_npu", 3).check()
    for words in (("leek", out), ("leaks", out, "--start-index=1"), ("oom", out, "--mark=x"), ("leaks", out, "--steps=1"), ("leaks",),
                  ("launches", out, "--inefficient=early_allocation"), ("leaks", out, "--mark= ")):
        done = msmemscope("analyze", *words, output=False)
        assert done.returncode == 2 and done.stderr.startswith("msmemscope: ") and not done.stdout, str(done)
    assert msmemscope("analyze", "leaks", out / "none", output=False).returncode == 1
