# SPDX-License-Identifier: Apache-2.0
"""Two recorded runs side by side. What the memory of a call is and which calls belong together is worked out here once more, from
what the programs say of themselves or from the columns of the original's own files; the command must come to the same."""
import csv
import io
import json
import os
import pty
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import costs
import rows as rows_module
from compare_model import HEAD, kernel_calls, wanted

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


class Compared:
    """A comparison that was made: its run and the rows of its file."""

    def __init__(self, run, out):
        self.run = run
        self.files = sorted((out / "compare").glob("*.csv")) if (out / "compare").exists() else []
        self.path = Path(run.stderr.splitlines()[-1].removeprefix("msmemscope: every call is in ")) \
            if "every call is in" in run.stderr else None

    @property
    def rows(self):
        with self.path.open(newline="", encoding="utf-8") as file:
            found = list(csv.reader(file, strict=True))
        assert found[:2] == HEAD
        return found[2:]


@pytest.fixture
def compare(msmemscope, out):
    """compare(base, other, options...): runs it into its own directory, expecting the exit status."""
    def run(base, other, *options, status=0, comma=",", **how):
        result = msmemscope("--compare", f"--input={base}{comma}{other}", *options, output=out / "results", **how)
        assert result.returncode == status, str(result)
        return Compared(result, out / "results")

    return run


# ---- the original's own files ----

@pytest.fixture
def example():
    paths = DATA / "compare-baseline.csv", DATA / "compare-leaks.csv"
    if not paths[0].exists():
        pytest.skip("no shared/data/compare-baseline.csv beside this checkout")
    return paths


def op_calls(path):
    """(name, change of the pool's own `used` from START to END) of each operator, as the file's columns have it."""
    rows = sorted(rows_module.read_rows(path), key=lambda row: (row.time_ns, row.id))
    # What was in use before the first row of the pool: that row's own sum without its block.
    [first] = [row for row in rows if row.type == "PTA"][:1]
    used = first.attr["used"] - (first.attr["size"] if first.event == "MALLOC" else -first.attr["size"])
    calls, begun = [], {}
    for row in rows:
        if row.type == "PTA":
            used = row.attr["used"]
        elif row.type == "ATEN_START":
            begun.setdefault((row.tid, row.name), []).append(used)
        elif row.type == "ATEN_END":
            calls.append((row.name, used - begun[row.tid, row.name].pop()))
    return calls


@pytest.mark.parametrize("comma", [",", "，"])
def test_the_originals_example_gives_its_44_rows_and_names_the_leak(compare, example, comma):
    result = compare(*example, "--level=op", comma=comma)
    assert len(result.rows) == 44
    assert result.rows == wanted("0", "OP_LAUNCH", *map(op_calls, example))
    differ = [row for row in result.rows if row[5] != "0"]
    assert [(row[1], row[3:]) for row in differ] == \
        [("torch._ops.aten._to_copy.default", ["N/A", "4000256", "4000256"])] * 2, "the planted leak, twice"
    assert "40 calls in both, 0 only in base, 4 only in compare; 2 differ" in result.run.stdout
    answer = json.loads(compare(*example, "--level=op", "--json").run.stdout)
    # By the file's own columns: what the pool had in use at most and at the end, and who holds more of it.
    used = [[row.attr["used"] for row in sorted(rows_module.read_rows(path), key=lambda row: (row.time_ns, row.id))
             if row.type == "PTA"] for path in example]
    [pool] = [pool for pool in answer["pools"] if pool["event_type"] == "PTA"]
    assert [pool["difference_peak_bytes"], pool["difference_end_bytes"]] == \
        [max(used[1]) - max(used[0]), used[1][-1] - used[0][-1]] == [4000256, 8000512]
    assert (answer["places"][0]["place"], answer["places"][0]["difference_end_bytes"]) == ("torch._ops.aten._to_copy.default", 8000512)
    assert [(call["kind"], call["name"], call["calls"]) for call in answer["differences"]] == [
        ("only_in_compare", "torch._ops.aten._to_copy.default", 2), ("only_in_compare", "torch._ops.aten.randn.default", 2)]


def test_a_run_compared_with_itself_differs_nowhere(compare, example):
    result = compare(example[1], example[1])
    assert len(result.rows) == 44 and all(row[3] == row[4] and row[5] == "0" for row in result.rows)
    assert "0 differ" in result.run.stdout and "Nothing differs." in result.run.stdout
    answer = json.loads(compare(example[1], example[1], "--json").run.stdout)
    assert answer["places"] == answer["differences"] == []


def test_a_database_of_the_original_is_read(compare, out, example):
    """insight-fixture.db has no operators: the sentence says so. Made into a table by another tool, the example has them."""
    fixture = DATA / "insight-fixture.db"
    assert "No calls are compared: neither run has operators" in compare(fixture, fixture).run.stdout
    paths = []
    for source, table in zip(example, ("memscope_dump", "leaks_dump")):
        paths.append(out / f"{table}.db")
        with source.open(newline="", encoding="utf-8") as file:
            [columns, *cells] = list(csv.reader(file))
        db = sqlite3.connect(paths[-1])
        db.execute(f"CREATE TABLE {table} ({', '.join(f'{chr(34)}{name}{chr(34)} TEXT' for name in columns)})")
        for row in cells:
            row[9] = json.dumps({key: str(value) for key, value in rows_module.parse_attr(row[9]).items()})
        db.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(columns))})", cells)
        db.commit()
        db.close()
    assert compare(*paths).rows == wanted("0", "OP_LAUNCH", *map(op_calls, example))


# ---- runs of our own ----

@pytest.fixture
def two_runs(client, msmemscope, out):
    """two_runs(options): the same training of 4 steps twice, of which the first launch writes 2 and the second all."""
    def run(*options):
        found = []
        for steps in ("1,2", "1,2,3,4"):
            msmemscope.out = out / f"steps{len(steps)}"
            found.append(client("acl_train", "--steps=4", options=["--level=kernel", f"--steps={steps}", *options]))
        return found

    return run


def test_kernels_of_two_runs_change_memory_as_the_programs_say(compare, two_runs):
    """By directory of results, project, trace, csv: the same rows, which are those of the programs' own truth."""
    runs = two_runs("--call-stack=c:5")
    first, second = (kernel_calls(run.process(), steps) for run, steps in zip(runs, ((1, 2), (1, 2, 3, 4))))
    assert first.keys() == second.keys() == {"0"} and len(first["0"]) == 20 and len(second["0"]) == 40
    expected = wanted("0", "KERNEL_LAUNCH", first["0"], second["0"])
    assert {row[5] for row in expected} > {"0"}
    projects = [run.run.project().path for run in runs]
    dumps = [project / "device_0" / "dump" for project in projects]
    files = [next(dump.glob("memscope_dump_*.csv")) for dump in dumps]
    assert any(len(row.c_stack) > 1 for row in rows_module.read_rows(files[0])), "call stacks go over several lines"
    for pair in ([run.run.out for run in runs], projects, [project / "trace.msc" for project in projects], dumps, files,
                 (projects[0], files[1])):
        assert compare(*pair, "--level=kernel").rows == expected, pair
    for project in projects:
        (project / "trace.msc").unlink()
    assert compare(*projects, "--level=1").rows == expected, "by the dump files of a project without its trace"


def test_one_step_of_a_run_is_compared_with_another(compare, client, msmemscope, out):
    """What each launch wrote, not what its trace has: that is the same twice."""
    projects, calls = [], []
    for step in (1, 3):
        msmemscope.out = out / f"step{step}"
        said = client("acl_train", "--steps=4", "--launches=5", options=["--level=kernel", f"--steps={step}"])
        projects.append(said.run.project().path)
        calls.append(kernel_calls(said.process(), [step])["0"])
    assert len(calls[0]) == len(calls[1]) > 0
    files = [next(project.glob("device_0/dump/memscope_dump_*.csv")) for project in projects]
    found = compare(*projects, "--level=kernel").rows
    assert found == wanted("0", "KERNEL_LAUNCH", *calls) == compare(*files, "--level=kernel").rows


def test_devices_that_a_launch_did_not_write_are_not_compared(compare, client, msmemscope, out):
    projects = []
    for device in ("npu", "npu:1"):
        msmemscope.out = out / device
        said = client("acl_train", "--steps=2", "--devices=2", "--threads=2",
                      options=["--level=kernel", f"--device={device}"])
        projects.append(said.run.project().path)
    found = compare(*projects, "--level=kernel").rows
    assert {row[4] == "N/A" for row in found if row[2] == "0"} == {True}
    assert {row[4] == "N/A" for row in found if row[2] == "1"} == {False}


STEPS = """
import torch
import msmemscope
kept = [torch.zeros(1000)]
for count in (1, 2):
    for _ in range(count):
        kept.append(kept[0].add(1))
    msmemscope.step()
"""


def test_steps_of_scripts_are_compared_by_operators(compare, python, msmemscope, out):
    """The second step of the same script has one operator more, which keeps 4,000 bytes."""
    script = out / "steps.py"
    script.write_text(STEPS, encoding="utf-8")
    projects = []
    for step in (1, 2):
        msmemscope.out = out / f"step{step}"
        projects.append(msmemscope("--device=cpu", "--events=alloc,free,launch", f"--steps={step}", "--", *python, script).check().project())
    for pair in ([project.path for project in projects], [project.dumps()[0] for project in projects]):
        found = [row for row in compare(*pair, "--level=op").rows if row[1] == "torch._ops.aten.add.Tensor"]
        assert sorted(row[3:] for row in found) == [["4000", "4000", "0"], ["N/A", "4000", "4000"]], pair


def atb_calls(process):
    """(name, change of the pools' memory while it ran) for each operator that ended, as the program says."""
    [events] = process.threads.values()
    blocks, used, begun, calls = {}, 0, [], []
    for what, *rest in events:
        if what == "block":
            ident, pool, _, size = rest[:4]
            blocks[ident] = size if pool in ("PTA", "PTA_WORKSPACE", "ATB") else 0
            used += blocks[ident]
        elif what == "unblock":
            used -= blocks[rest[0]]
        elif what == "op":
            moment, name, *_ = rest
            if moment == "START":
                begun.append((name, used))
            else:
                while begun[-1][0] != name:
                    begun.pop()  # it threw
                calls.append((name, used - begun.pop()[1]))
    return calls


def test_operators_of_two_runs_change_memory_as_the_programs_say(compare, msmemscope, operators, out):
    runs = []
    for rounds in (4, 9):
        msmemscope.out = out / f"rounds{rounds}"
        runs.append(operators("atb_abi1", f"--rounds={rounds}", options=["--level=op,kernel"]))
    first, second = (atb_calls(run.process()) for run in runs)
    assert 0 < len(first) < len(second)
    expected = wanted("0", "OP_LAUNCH", first, second)
    projects = [run.run.project().path for run in runs]
    files = [next(project.glob("device_0/dump/memscope_dump_*.csv")) for project in projects]
    for pair in (projects, files, (projects[0], files[1])):
        assert compare(*pair).rows == expected
    ended = compare(*files, "--level=op,kernel").rows
    assert [row for row in ended if row[0] == "OP_LAUNCH"] and ended == compare(*projects, "--level=0,1").rows


def test_runs_of_databases_and_of_pools_are_compared(compare, msmemscope, client, out):
    runs = []
    for steps in (3, 2):
        msmemscope.out = out / f"db{steps}"
        runs.append(client("acl_train", f"--steps={steps}", "--devices=2", "--threads=2",
                           options=["--level=kernel", "--format=db"]))
    projects = [run.run.project().path for run in runs]
    by_trace = compare(*projects, "--level=kernel")
    assert {row[2] for row in by_trace.rows} == {"0", "1"}
    for project in projects:
        (project / "trace.msc").unlink()
    assert compare(*projects, "--level=kernel").rows == by_trace.rows
    for device in "01":
        rows = [row for row in by_trace.rows if row[2] == device]
        assert len(rows) == 30 and sum(row[4] == "N/A" for row in rows) == 10


def test_operators_and_kernels_without_any_are_told_apart(compare, two_runs, msmemscope, program, out):
    runs = [run.run.project().path for run in two_runs()]
    told = compare(*runs)
    assert "No calls are compared: neither run has operators, but kernels: --level=kernel" in told.run.stdout
    assert told.path is None and "every call" not in told.run.stderr, "one sentence says it"
    msmemscope.out = out / "plain"
    plain = msmemscope("--", *program("acl_train", "--steps=1"), env={"TRUTH": "/dev/null"}).project().path
    told = compare(plain, plain, "--level=kernel").run.stdout
    assert "neither run has names of kernels; they are recorded with --level=kernel" in told and "Nothing differs." in told
    nothing = dump(out / "nothing.csv", ("SYSTEM", "ACL_INIT", "N/A", "N/A", "N/A", ""))
    assert "neither run has operators to compare" in compare(nothing, nothing, status=1).run.stderr
    assert "--level names nothing to compare" in compare(*runs, "--level=", status=2).run.stderr


def as_written(project):
    """Every row but for its ID, which counts rows in the order of time, and the driver's figures, which are not taken over."""
    rows = [row for row in project.rows() if not row.type.startswith("KERNEL_EXECUTE")]
    return [(row.event, row.type, row.name, row.time_ns, row.pid, row.tid, row.device, row.ptr,
             {key: value for key, value in row.attr.items() if key not in ("process_used", "device_used")}) for row in rows], \
        sorted((row.name, row.type, row.time_ns, row.device, row.attr["taskId"]) for row in project.rows()
               if row.type.startswith("KERNEL_EXECUTE"))


@pytest.mark.parametrize("name, arguments", [
    ("acl_train", ["--threads=2", "--devices=2", "--steps=4"]), ("client_mstx", ["--memory", "--rounds=5"]),
    ("client_pta", ["--threads=3"]), ("client_mindspore", []), ("client_workspace", []), ("atb_ops", ["--rounds=9"])])
def test_an_imported_file_has_the_rows_it_was_made_from(msmemscope, client, operators, program, out, name, arguments):
    """Recorded, written as csv, read back as a trace, written as csv: whatever reads traces finds the same in dump files."""
    options = ["--level=op,kernel", "--events=alloc,free,access,launch"]
    said = operators("atb_abi1", *arguments, options=options) if name == "atb_ops" else client(name, *arguments, options=options)
    [project] = said.run.projects()
    msmemscope.bare(*program("import_dump", out / "again.msc", *project.dumps())).check()
    msmemscope("export", *options, "-o", out / "again", out / "again.msc", output=False).check()
    [again] = rows_module.projects(out / "again")
    assert as_written(again) == as_written(project)


# ---- files made by hand ----

def dump(path, *lines, header=rows_module.HEADER, end="\n"):
    """A memscope_dump of lines (event, type, name, device, ptr, attr), a microsecond apart."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    for number, (event, kind, name, device, ptr, attr) in enumerate(lines):
        writer.writerow([number, event, kind, name, 1_700_000_000_000_000_000 + number * 1000, 42, 43, device, ptr, attr, "", ""])
    path.write_bytes((header + end + text.getvalue()).encode())
    return path


def op(name, *inside, device="0", layer="ATEN"):
    return [("OP_LAUNCH", f"{layer}_START", name, device, "N/A", ""), *inside,
            ("OP_LAUNCH", f"{layer}_END", name, device, "N/A", "")]


def kernel(name, device="0"):
    return ("KERNEL_LAUNCH", "KERNEL_LAUNCH", name, device, "N/A", "{streamId:1,taskId:1}")


def block(event, address, size, pool="PTA", device="0"):
    return (event, pool, "N/A", device, f"0x{address:016x}", f"{{allocation_id:1,addr:0x{address:016x},size:{size}}}")


ODD = ["=1+1", "+x", "-x", "@x", 'a "quoted" name', "a,b", "two\nlines", "中文", "'"]


def test_names_of_any_kind_come_through(compare, out):
    base = dump(out / "a.csv", *sum((op(name) for name in ODD), []))
    other = dump(out / "b.csv", *sum((op(name, block("MALLOC", 0x1000 + i, 100)) for i, name in enumerate(ODD)), []))
    result = compare(base, other)
    assert result.rows == [["OP_LAUNCH", name, "0", "0", "100", "100"] for name in ODD]
    base = dump(out / "a.csv", *op("two\nlines"))
    other = dump(out / "b.csv", *op("two\nlines", block("MALLOC", 0x1000, 100)))
    assert compare(base, other).run.stdout.count("two\\x0alines") == 2, "a table stays a table"


def test_the_memory_of_a_call_is_what_changed_while_it_ran(compare, out):
    """Inner operators count for the outer one; between operators nobody is charged; other pools do not count."""
    base = dump(out / "a.csv",
                *op("outer", block("MALLOC", 0x10, 1000), *op("inner", block("MALLOC", 0x20, 50)), block("FREE", 0x10, 1000)),
                block("FREE", 0x20, 50), block("MALLOC", 0x30, 7),
                *op("driver", block("MALLOC", 0x40, 4096, pool="HAL")),
                *op("work", block("MALLOC", 0x50, 64, pool="PTA_WORKSPACE")),
                *op("atb", block("MALLOC", 0x60, 32, pool="ATB"), layer="ATB"),
                *op("freed", block("FREE", 0x30, 7)),
                *op("older", block("FREE", 0x70, 500)))
    rows = compare(base, base).rows
    assert [(row[1], row[3]) for row in rows] == [("inner", "50"), ("outer", "50"), ("driver", "0"), ("work", "64"),
                                                  ("atb", "32"), ("freed", "-7"), ("older", "-500")]


def test_both_levels_together_and_every_device_by_itself(compare, out):
    base = dump(out / "a.csv", *op("x", kernel("k")), *op("x", device="1"), kernel("cpu", device="N/A"))
    other = dump(out / "b.csv", *op("x"), kernel("k"), *op("x", device="1"), *op("y", device="cpu"))
    assert compare(base, other, "--level=op,kernel").rows == [
        ["KERNEL_LAUNCH", "k", "0", "0", "N/A", "0"], ["OP_LAUNCH", "x", "0", "0", "0", "0"],
        ["KERNEL_LAUNCH", "k", "0", "N/A", "0", "0"], ["OP_LAUNCH", "x", "1", "0", "0", "0"],
        ["OP_LAUNCH", "y", "cpu", "N/A", "0", "0"]]


def test_mindspore_is_compared_by_kernels_and_not_with_pytorch(compare, out):
    def lines(pool, size):
        return [*op("o"), block("MALLOC", 0x10, size, pool), kernel("k1"), block("FREE", 0x10, size, pool), kernel("k2")]

    mind, more = (dump(out / f"ms{size}.csv", *lines("MINDSPORE", size)) for size in (100, 300))
    torch = dump(out / "pt.csv", *lines("PTA", 100))
    both = dump(out / "both.csv", *lines("PTA", 100), *lines("MINDSPORE", 5))
    assert compare(mind, more, "--level=kernel").rows == [["KERNEL_LAUNCH", "k1", "0", "100", "300", "200"],
                                                          ["KERNEL_LAUNCH", "k2", "0", "-100", "-300", "-200"]]
    assert "runs of MindSpore are compared by kernels: --level=kernel" in compare(mind, more, status=1).run.stderr
    assert "one run is of PyTorch and the other of MindSpore" in compare(torch, mind, "--level=1", status=1).run.stderr
    assert "the second run has memory of PyTorch and of MindSpore" in compare(mind, both, "--level=1", status=1).run.stderr


def test_old_shapes_line_ends_and_columns_are_understood(compare, out, example):
    """A byte order mark, CRLF, other columns in another order; decimal addresses, host, `owner:,MID:n`."""
    with example[0].open(newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    order = [9, 4, 3, 2, 1, 7, 8, 0]
    odd = out / "odd.csv"
    with odd.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["More"] + [row[at] for at in order] for row in table])
    assert all(row[3] == row[4] for row in compare(example[0], odd).rows)
    old = dump(out / "old.csv", ("SYSTEM", "acl init", "N/A", "N/A", "N/A", ""),
               *op("x", ("MALLOC", "PTA", "N/A", "0", str(0x1000), "{addr:4096,size:512,owner:,MID:3}")),
               *op("y", ("FREE", "PTA", "N/A", "0", str(0x1000), "{addr:4096,size:-512,owner:,MID:3}")),
               ("MALLOC", "HOST", "N/A", "host", "64", "{addr:64,size:1}"))
    assert [row[1:5] for row in compare(old, old).rows] == [["x", "0", "512", "512"], ["y", "0", "-512", "-512"]]


# ---- what explains a difference ----

KEEPS = """
import sys
import torch
import msmemscope
weights = torch.zeros(500_000)
kept = []


def forward(x):
    return x.mul(2).add(1).relu()


def train_step():
    out = forward(weights)
    loss = out.sum()
    if sys.argv[1] == "keeps":
        kept.append(out)
    del out
    return loss


for step in range(8):
    train_step()
    msmemscope.step()
"""


@pytest.mark.parametrize("options", [[], ["--events=alloc,free,launch"]])
def test_a_forgotten_del_is_named_by_its_line(compare, python, msmemscope, out, options):
    """Frees of a script are outside of operators: by calls alone nothing differs. With and without operators the line is told."""
    script = out / "keeps.py"
    script.write_text(KEEPS, encoding="utf-8")
    projects = []
    for word in ("frees", "keeps"):
        msmemscope.out = out / word
        projects.append(msmemscope("--device=cpu", *options, "--", *python, script, word).check().project().path)
    line = KEEPS.splitlines().index("    return x.mul(2).add(1).relu()") + 1
    answer = json.loads(compare(*projects, "--json").run.stdout)
    [pool] = answer["pools"]
    # The block that a step keeps is alive while the next step has its own: seven more at the peak, eight at the end.
    assert [pool["difference_peak_bytes"], pool["difference_end_bytes"]] == [7 * 2_000_000, 8 * 2_000_000]
    [place] = answer["places"]
    assert f"keeps.py:{line} forward" in place["place"] and place["difference_peak_bytes"] == 7 * 2_000_000
    # The line makes three results; operators say which of them it is.
    assert place["difference_end_bytes"] == 8 * 2_000_000 and place["base_blocks"] == place["compare_blocks"] >= 24
    assert place.get("operator") == ("torch._ops.aten.relu.default" if options else None)
    text = compare(*projects).run.stdout
    first = text.splitlines()[text.splitlines().index("") + 2]
    assert f"keeps.py:{line} forward" in first and "+13.4 MiB" in first and "+15.3 MiB" in first, text
    if options:
        assert {call["outside_of_calls"] for call in answer["differences"][:1]} == {True} and "outside of calls +15.3 MiB" in text
        assert answer["differences"][0]["name"] == "torch._ops.aten.mul.Tensor" and answer["differences"][0]["calls"] == 7


def test_two_steps_of_one_run_are_compared(compare, python, msmemscope, out):
    """What step 7 has more than step 3: the blocks of the steps between them."""
    script = out / "keeps.py"
    script.write_text(KEEPS, encoding="utf-8")
    options = ["--device=cpu", "--events=alloc,free,launch"]
    project = msmemscope(*options, "--", *python, script, "keeps").check().project()

    def steps(word, *numbers):
        return msmemscope("--compare", f"--input={word}", f"--steps={','.join(map(str, numbers))}", "--json",
                          output=out / "results")

    for word in (project.path, project.path / "trace.msc", project.dumps()[0]):
        answer = json.loads(steps(word, 3, 7).check().stdout)
        assert (answer["base_step"], answer["compare_step"]) == (3, 7)
        [pool] = answer["pools"]
        assert [pool["difference_peak_bytes"], pool["difference_end_bytes"]] == [4 * 2_000_000] * 2, word
        [device] = answer["devices"]
        assert [device[key] for key in ("calls_in_both", "calls_only_in_base", "calls_only_in_compare", "calls_that_differ")] == \
            [4, 0, 0, 0]
        name = answer["places"][0]["place"] if word.suffix == ".csv" else answer["places"][0]["operator"]
        assert "relu" in name and answer["places"][0]["difference_peak_bytes"] == 8_000_000
    assert json.loads(steps(project.path, 7, 3).check().stdout)["pools"][0]["difference_end_bytes"] == -8_000_000
    text = msmemscope("--compare", f"--input={project.path}", "--steps=3，7", output=out / "results").check().stdout
    assert f"base     {project.path}, step 3\ncompare  {project.path}, step 7\n" in text
    missing = steps(project.path, 3, 12)
    assert missing.returncode == 1 and f"{project.path} has no step 12; it has " in missing.stderr


def test_ranks_are_compared_by_rank(compare, msmemscope, program, out):
    """Three processes of a launch each, of which the second keeps a block in one launch; their files come in any order."""
    planted = program("planted")
    for name, kinds in (("base", ("none", "none", "none")), ("other", ("none", "forgotten", "none"))):
        msmemscope.out = out / name
        line = "; ".join(f"RANK={rank} {planted[0]} --seed=3 --plant={kinds[rank]}" for rank in (2, 0, 1))
        msmemscope("--level=kernel", "--call-stack=c:10", "--", "bash", "-c", line).check()
    bases, others = out / "base", out / "other"
    answer = json.loads(compare(bases, others, "--level=kernel", "--json").run.stdout)
    assert [rank["rank"] for rank in answer["ranks"]] == [0, 1, 2]
    assert [bool(rank["places"]) for rank in answer["ranks"]] == [False, True, False]
    result = compare(bases, others, "--level=kernel")
    assert "\nrank 1 differs most:\n" in result.run.stdout and "place_" in result.run.stdout
    assert len(result.run.stdout.splitlines()) <= 25
    calls = sum(device["calls_in_both"] for rank in answer["ranks"] for device in rank["devices"])
    assert len(result.rows) == calls > 0, "every rank is in the file"
    gone = next(rank["base"] for rank in answer["ranks"] if rank["rank"] == 2)
    shutil.rmtree(gone)
    assert "rank 2 is only in compare" in compare(bases, others, "--level=kernel").run.stderr


def older(path, kept, more):
    """A file as the oldest versions wrote it: two processes in one, the same addresses in both, decimal ones, `host`, `acl init`,
    frees of the driver's memory without a device, frees with negative sizes, kernels without a name, times that are not ns."""
    rows, idents, now = [rows_module.HEADER], {}, 1746006014162153

    def row(pid, event, kind, device="N/A", ptr="N/A", attr="", name="N/A", tid=0):
        nonlocal now
        now += 97
        idents[pid] = idents.get(pid, 0) + 1
        text = f'"{attr}"' if attr else ""
        rows.append(f"{idents[pid]},{event},{kind},{name},{now},{pid},{tid or pid},{device},{ptr},{text},,")

    for pid in (2523740, 2523738):
        row(pid, "SYSTEM", "acl init")
        for i in range(20):
            at = 20615843020800 + i * 1048576
            row(pid, "MALLOC", "HAL", "host" if i % 4 == 3 else "0", at, f"{{addr:{at},size:{16384 + i},owner:,MID:7}}")
        row(pid, "FREE", "HAL", "N/A", 20615843020800, "{addr:20615843020800,size:16384,owner:,MID:-1}")
    used = {}
    for call in range(6):
        for pid, device in ((2523738, "0"), (2523740, "1")):
            for i in range(8):
                at = 20616935636992 + (call * 8 + i) * 4096
                used[pid] = used.get(pid, 0) + 512 * (call + 1)
                row(pid, "MALLOC", "PTA", device, at, f"{{addr:{at},size:{512 * (call + 1)},owner:,total:2097152,used:{used[pid]}}}")
            if device == "1" and call == 3 and kept:
                continue
            used[pid] -= 512 * (call + 1)
            row(pid, "FREE", "PTA", device, at, f"{{addr:{at},size:-{512 * (call + 1)},owner:,total:2097152,used:{used[pid]}}}")
        for pid, device in ((2523738, "0"), (2523740, "1")):
            row(pid, "KERNEL_LAUNCH", "KERNEL_LAUNCH", device, tid=pid + 1398)
    row(2523738, "MSTX", "Mark", "0", name='"[mstx]: mstxMarkA :------training start----- "')
    for pid in (2523740,) * more:
        row(pid, "SYSTEM", "acl finalize")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_files_of_the_older_dialect_are_compared_by_device(compare, msmemscope, out):
    """Two processes in one file, kernels without a name: 12 rows, 6 a device, each with the memory of its own device."""
    base, other = older(out / "memscope_dump_1.csv", False, 2), older(out / "memscope_dump_2.csv", True, 0)
    for pair in ((base, base), (base, other)):
        found = compare(*pair, "--level=kernel").rows
        assert [row[:3] for row in found] == [["KERNEL_LAUNCH", "N/A", device] for device in "000000111111"]
        wanted_bytes = [str(512 * (call + 1) * 7) for call in range(6)]
        assert [row[3] for row in found] == wanted_bytes * 2
        differ = [(row[2], row[5]) for row in found if row[5] != "0"]
        assert differ == ([] if pair[1] is base else [("1", "2048")])
    answer = json.loads(compare(base, other, "--level=kernel", "--json").run.stdout)
    assert [pool["difference_end_bytes"] for pool in answer["pools"]][:1] == [2048]
    found = json.loads(msmemscope("info", "--json", other, output=False).check().stdout)["processes"]
    assert [process["pid"] for process in found] == [2523740, 2523738], "other verbs take them one by one"


def test_a_run_on_another_device_is_compared_by_order(compare, out):
    """The same program on devices 0 and 2, and on 4 and 5; one that shares a device is compared by number."""
    def lines(devices, size=100):
        return sum((op("x", block("MALLOC", 0x1000, size, device=device), device=device) for device in devices), [])

    base, other, shared = (dump(out / f"{name}.csv", *lines(devices, size)) for name, devices, size in (
        ("base", "02", 100), ("other", "45", 300), ("shared", "05", 100)))
    result = compare(base, other)
    assert [row[2:] for row in result.rows] == [["0", "100", "300", "200"], ["2", "100", "300", "200"]]
    assert "devices by their order" in result.run.stdout and "PTA on device 4" not in result.run.stdout
    assert [row[2] for row in compare(base, shared).rows] == ["0", "2", "5"]


def test_places_are_the_same_when_their_lines_have_moved(compare, python, msmemscope, out):
    """A changed script has other line numbers, in a file of another name: only what it keeps differs."""
    changed = KEEPS.replace("weights = ", "# A comment,\n# and another.\nweights = ").replace("def train_step", "LIMIT = 3\n\n\ndef train_step")
    projects = []
    for name, text, word in (("old.py", KEEPS, "frees"), ("new.py", changed, "keeps")):
        (out / name).write_text(text, encoding="utf-8")
        msmemscope.out = out / word
        projects.append(msmemscope("--device=cpu", "--events=alloc,free,launch", "--", *python, out / name, word).check().project().path)
    answer = json.loads(compare(*projects, "--json").run.stdout)
    line = changed.splitlines().index("    return x.mul(2).add(1).relu()") + 1
    [place] = [place for place in answer["places"] if place["difference_end_bytes"] != 0]
    assert place == answer["places"][0] and f"new.py:{line} forward" in place["place"]
    assert place["difference_end_bytes"] == 8 * 2_000_000 and place["operator"] == "torch._ops.aten.relu.default"


def test_a_temporary_between_two_kernels_counts(compare, out):
    """Nothing stays of it, and it is not at the peak: its kernel has another peak of its own."""
    def lines(size):
        return [block("MALLOC", 0x10, 1_000_000), kernel("k0"), block("FREE", 0x10, 1_000_000), kernel("k1"),
                block("MALLOC", 0x20, size), block("FREE", 0x20, size), kernel("k2"), kernel("k3")]

    base, other = (dump(out / f"{size}.csv", *lines(size)) for size in (5000, 9000))
    result = compare(base, other, "--level=kernel")
    assert all(row[5] == "0" for row in result.rows)
    answer = json.loads(compare(base, other, "--level=kernel", "--json").run.stdout)
    [call] = answer["differences"]
    assert (call["name"], call["kind"], call["difference_bytes"], call["difference_own_peak_bytes"]) == ("k2", "both", 0, 4000)
    assert [pool["difference_peak_bytes"] for pool in answer["pools"]] == [0]
    assert "+3.9 KiB  k2, call 3" in result.run.stdout


def test_a_call_is_explained_by_what_stays_before_what_is_only_larger(compare, out):
    """Of the two operators before the second kernel one took more for a moment, and the other left more."""
    def lines(kept, moment):
        return [kernel("k0"), *op("keeps", *kept), *op("works", *moment), kernel("k1"), kernel("k2")]

    base = dump(out / "a.csv", *lines([], []))
    other = dump(out / "b.csv", *lines([block("MALLOC", 0x20, 10)], [block("MALLOC", 0x30, 5000), block("FREE", 0x30, 5000)]))
    [call] = json.loads(compare(base, other, "--level=kernel", "--json").run.stdout)["differences"]
    assert (call["name"], call["difference_bytes"], call["place"]) == ("k1", 10, "blocks of 10 bytes"), call


def test_the_places_at_the_peak_add_up_where_the_peak_moves(compare, out):
    """The peak of the second run is elsewhere: places are compared at that moment in both, and the rest is told."""
    def lines(size):
        return [*op("early", block("MALLOC", 0x10, 115)), block("FREE", 0x10, 115),
                *op("held", block("MALLOC", 0x20, 100)), *op("grown", block("MALLOC", 0x30, size)), block("FREE", 0x30, size),
                block("FREE", 0x20, 100), *op("end")]

    base, other = (dump(out / f"{size}.csv", *lines(size)) for size in (10, 30))
    answer = json.loads(compare(base, other, "--json").run.stdout)
    [pool], [place] = answer["pools"], answer["places"]
    assert (pool["base_peak_bytes"], pool["compare_peak_bytes"], pool["base_bytes_at_the_moment"]) == (115, 130, 110)
    assert (place["place"], place["base_peak_bytes"], place["compare_peak_bytes"]) == ("grown", 10, 30)


# ---- where results go ----

def test_the_result_is_a_file_of_its_own_for_the_user_alone(compare, msmemscope, out):
    source = dump(out / "a.csv", *op("x"))
    # Every name of the next seconds is taken.
    directory = out / "results" / "compare"
    directory.mkdir(parents=True)
    for second in range(-1, 20):
        stamp = time.strftime("%Y%m%d%H%M%S", time.localtime(time.time() + second))
        (directory / f"memory_compare_{stamp}.csv").write_text("not ours")
    first, second = compare(source, source), compare(source, source)
    for result in (first, second):
        assert re.fullmatch(r"memory_compare_\d{14}_[23]\.csv", result.path.name)
        assert stat.S_IMODE(result.path.stat().st_mode) == 0o600
    assert first.path != second.path
    others = [path for path in directory.iterdir() if path not in (first.path, second.path)]
    assert all(path.read_text() == "not ours" for path in others)
    run = msmemscope("--compare", "-i", f"{source},{source}", output=False, cwd=out, umask=0).check()
    made = out / "memscopeDumpResults" / "compare"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (made.parent, made, *made.iterdir())] == [0o750, 0o750, 0o600]
    assert str(made) in run.stderr


def test_json_has_every_call(compare, example):
    result = compare(*example, "--json")
    answer = json.loads(result.run.stdout)
    assert answer["file"] == str(result.path) and answer["memory"] == "pytorch" and answer["exact"] is True
    [device] = answer["devices"]
    assert [[call["event"], call["name"], device["device"], str(call.get("base_bytes", "N/A")),
             str(call.get("compare_bytes", "N/A")), str(call["difference_bytes"])] for call in device["calls"]] == result.rows
    assert device["difference_bytes"] == 8000512


def test_a_screen_shows_the_largest_and_colours_on_a_terminal_only(compare, msmemscope, out):
    base = dump(out / "a.csv", *sum((op(f"op{i}") for i in range(30)), []))
    other = dump(out / "b.csv", *sum((op(f"op{i}", block("MALLOC", 0x1000 + i, i * 10)) for i in range(30)), []))
    text = compare(base, other).run.stdout
    assert len(text.splitlines()) <= 25 and max(map(len, text.splitlines()[2:])) <= 100, text
    assert re.findall(r"^ +\+(\d+) B  0 -> \1 B +\+\1 B  op(\d+)$", text, re.M) == [(str(i * 10), str(i)) for i in range(29, 24, -1)]
    assert re.findall(r"^ +\+(\d+) B +\+\1 B  op(\d+), call", text, re.M) == [(str(i * 10), str(i)) for i in range(29, 24, -1)]
    assert text.count("... 24 more; --json has all") == 2 and "\033" not in text
    ours, theirs = pty.openpty()
    run = subprocess.run([msmemscope.path, "--compare", f"--input={base},{other}", "-o", out / "results"], stdout=theirs,
                         stderr=subprocess.DEVNULL, env={"TERM": "xterm"}, check=True)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:
        pass
    os.close(ours)
    assert run.returncode == 0 and b"\033[31m" in seen


# ---- the line ----

@pytest.mark.parametrize("words, need", [
    (["--compare"], "--compare needs the two runs"), (["--input=a,b"], "--input needs --compare"),
    (["--input=a,b", "true"], "--input needs --compare"), (["--compare", "--input=a"], "is not two paths"),
    (["--compare", "--input=a,b,c"], "'a,b,c' has more than two paths"),
    (["--compare", "--input=a,b", "--steps=1,2"], "--steps compares two steps of one run: --input=RUN --steps=3,7"),
    (["--compare", "--input=a", "--steps=1"], "--steps compares two steps of one run: --input=RUN --steps=3,7"),
    (["--compare", "--input=a", "--steps=1,2,3"], "--steps compares two steps of one run: --input=RUN --steps=3,7"),
    (["--compare", "--input=a,b", "--events=alloc"], "--events does not apply to --compare"),
    (["--compare", "--input=a,b", "info", "x"], "--compare does not apply to the verb info"),
    (["--compare", f"--input=a,{'n/' * 2100}x"], "is too long"),
])
def test_compare_and_input_need_each_other(msmemscope, words, need):
    run = msmemscope(*words, output=False)
    assert run.returncode == 2 and run.stdout == "" and need in run.stderr.splitlines()[0], str(run)


def test_a_path_may_have_4096_bytes_and_chinese_characters(compare, out):
    deep = out / "开发，".replace("，", "") / "数据"
    deep.mkdir(parents=True)
    source = dump(deep / "基线 开.csv", *op("x"))
    for comma in (",", "，"):
        assert len(compare(source, source, comma=comma).rows) == 1
    # Each path is as long as the kernel takes one.
    dots = "/".join([str(source.parent)] + ["."] * ((4096 - len(os.fsencode(source)) - 1) // 2) + [source.name])
    assert 4090 <= len(os.fsencode(dots)) <= 4096
    assert len(compare(dots, dots).rows) == 1


def test_a_program_is_not_needed_and_not_run(compare, msmemscope, out):
    source = dump(out / "a.csv", *op("x", kernel("k")))
    run = msmemscope("--compare", f"--input={source},{source}", "touch", out / "started", "--level=kernel",
                     output=out / "results").check()
    assert "touch is not started: --compare reads two recorded runs" in run.stderr
    assert not (out / "started").exists() and "1 calls in both" in run.stdout


# ---- inputs that are not what they should be ----

HEADER = rows_module.HEADER + "\n"
GOOD = "0,OP_LAUNCH,ATEN_START,x,10,1,1,0,N/A,,,\n1,OP_LAUNCH,ATEN_END,x,11,1,1,0,N/A,,,\n"


@pytest.mark.parametrize("content, status, need", [
    (b"", 1, "is empty"),
    (b"\0" * 100, 1, "is neither a trace nor a dump"),
    (bytes(range(256)) * 50, 1, "is neither a trace nor a dump"),
    (b"a,b,c\n1,2,3\n", 1, "has no column Event"),
    (HEADER.encode(), 1, "has no rows"),
    (b"MSCTRACE and no more", 3, "too short"),
    (b"MSCPACK1 and no more", 3, ""),
    (b"SQLite format 3\0 and no more", 1, "is not a database"),
    ((HEADER + GOOD + '2,OP_LAUNCH,ATEN_END,"y').encode(), 3, "is damaged: 1 rows were left out, the first in bad.csv line 4"),
    ((HEADER + GOOD + "2,OP_LAUNCH,ATE").encode(), 3, "line 4: the file ends inside of it"),
    ((HEADER + "junk\n" + GOOD).encode(), 3, "line 2: it has fewer columns than the first line"),
    ((HEADER + GOOD).encode() + os.urandom(5000).replace(b"\n", b""), 3, "line 4"),
    ((HEADER + "x\n" * 5000).encode(), 3, "has no rows that can be read"),
])
def test_bad_files_are_named_and_what_can_be_read_is_compared(compare, out, content, status, need):
    bad, good = out / "bad.csv", dump(out / "good.csv", *op("x"))
    bad.write_bytes(content)
    result = compare(bad, good, status=status)
    lines = [line for line in result.run.stderr.splitlines() if str(bad) in line]
    assert len(lines) == 1 and need in lines[0], str(result.run)
    if result.path is None:
        assert result.files == [] and result.run.stdout == ""
    else:
        assert [row[1] for row in result.rows] == ["x"]


@pytest.mark.not_insight("it damages its database")
def test_a_damaged_trace_and_database_still_answer(compare, two_runs, msmemscope, out, program):
    first, second = (run.run.project().path for run in two_runs())
    whole = len(compare(first, second, "--level=kernel").rows)
    trace = second / "trace.msc"
    os.truncate(trace, trace.stat().st_size - 100)
    assert f"{second} is damaged" in compare(first, second, "--level=kernel", status=3).run.stderr
    msmemscope.out = out / "db"
    db = next(msmemscope("--format=db", "--level=kernel", "--", *program("acl_train", "--steps=40"), env={"TRUTH": "/dev/null"})
              .project().path.glob("device_0/dump/*.db"))
    with db.open("r+b") as file:
        file.seek(db.stat().st_size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)
    result = compare(first, db, "--level=kernel", status=3)
    assert whole <= len(result.rows) < 400


def test_directories_must_mean_one_run(compare, msmemscope, out, program):
    good = dump(out / "good.csv", *op("x"))
    empty = out / "empty"
    empty.mkdir()
    assert f"{empty} has no trace, no memscope_dump file and no project" in compare(empty, good, status=1).run.stderr
    assert "No such file" in compare(out / "nothing", good, status=1).run.stderr
    msmemscope.out = out / "two"
    for _ in range(2):
        project = msmemscope("--", *program("acl_train", "--steps=1"), env={"TRUTH": "/dev/null"}).check().projects()[-1].path
    message = compare(out / "two", good, status=1).run.stderr
    assert f"{out / 'two'} has 2 projects (msmemscope_" in message and project.name in message
    fifo = out / "fifo"
    os.mkfifo(fifo)
    assert "neither a file nor a directory" in compare(fifo, good, status=1).run.stderr


@pytest.mark.parametrize("start, status", [(b"", 1), (HEADER.encode(), 3), ((HEADER + GOOD).encode(), 3),
                                           ((HEADER + GOOD).encode() + b'"', 3)])
def test_a_gigabyte_of_nothing_takes_little_time_and_memory(compare, out, start, status):
    sparse, good = out / "sparse.csv", dump(out / "good.csv", *op("x"))
    sparse.write_bytes(start)
    os.truncate(sparse, 1 << 30)
    begun = costs.spent()
    compare(sparse, good, status=status,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20)))
    assert costs.spent() - begun < 60


def test_long_runs_are_quick(compare, out):
    """A hundred thousand calls, a few different ones; and as many that have nothing in common."""
    def calls(path, name):
        lines = [HEADER]
        for i in range(100_000):
            lines.append(f"{i},OP_LAUNCH,ATEN_END,{name(i)},{1_000_000 + i},1,1,0,N/A,,,\n")
        path.write_text("".join(lines))
        return path

    base = calls(out / "a.csv", lambda i: f"op{i % 97}")
    few = calls(out / "b.csv", lambda i: f"new{i}" if i % 1000 == 0 else f"op{i % 97}")
    none = calls(out / "c.csv", lambda i: f"other{i % 89}")
    begun = costs.spent()
    assert "99900 calls in both, 100 only in base, 100 only in compare" in compare(base, few).run.stdout
    middle = costs.spent()
    result = compare(base, none)
    assert "0 calls in both, 100000 only in base" in result.run.stdout and "piece by piece" in result.run.stdout
    assert middle - begun < 20 and costs.spent() - middle < 60


# ---- whose files these are ----

def test_a_common_user_is_warned_of_inputs_that_others_can_change(msmemscope, dist):
    root = os.geteuid() == 0
    user = {"user": 65534, "group": 65534, "extra_groups": []} if root else {}
    with tempfile.TemporaryDirectory(prefix="common-") as name:
        common = Path(name)
        common.chmod(0o755)
        shutil.copytree(dist / "bin", common / "bin", symlinks=True)
        ours, open_to_all = (dump(common / name, *op("x")) for name in ("ours.csv", "open.csv"))
        (common / "out").mkdir(mode=0o750)
        for path in (ours, open_to_all, common / "out"):
            if root:
                os.chown(path, 65534, 65534)
        ours.chmod(0o600)
        open_to_all.chmod(0o666)

        def warnings(other):
            run = msmemscope.bare(common / "bin" / "msmemscope", "--compare", f"--input={ours},{other}", "-o", common / "out",
                                  cwd="/", **user).check()
            return [line for line in run.stderr.splitlines() if "every call" not in line]

        assert warnings(ours) == []
        assert warnings(open_to_all) == [
            f"msmemscope: others may write to the input {open_to_all} (mode 0666) and change what is compared"]
        if root:
            theirs = dump(common / "theirs.csv", *op("x"))
            theirs.chmod(0o644)
            assert warnings(theirs) == [
                f"msmemscope: the input {theirs} belongs to another user (uid 0), who can change what is compared"]


def test_root_is_told_that_inputs_are_not_checked(compare, out):
    if os.geteuid() != 0:
        pytest.skip("not root here")
    source = dump(out / "a.csv", *op("x"))
    source.chmod(0o666)
    line = "msmemscope: running as root: owner and permissions of the inputs and of the output directory are not checked\n"
    run = compare(source, source).run
    assert run.stderr.count(line) == 1 and "others may write" not in run.stderr
    assert line not in compare(source, source, "--quiet").run.stderr


def test_nothing_temporary_stays(compare, msmemscope, out):
    """Neither when all goes well nor when the command is killed at any moment."""
    source, place = dump(out / "a.csv", *(op("x") * 20000)), out / "tmp"
    place.mkdir()
    compare(source, source, env={"TMPDIR": place})
    assert list(place.iterdir()) == []
    for delay in range(10):
        started = msmemscope.start("--compare", f"--input={source},{source}", output=out / "results", env={"TMPDIR": place})
        time.sleep(delay * 0.02)
        started.kill()
        started.finish()
        assert list(place.iterdir()) == [], f"killed after {delay * 20} ms"
