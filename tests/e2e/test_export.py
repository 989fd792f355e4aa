# SPDX-License-Identifier: Apache-2.0
"""msmemscope export: the files of a launch once more, from its trace, with any options again."""
import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rows


@pytest.fixture
def export(msmemscope):
    """export(words...): runs the verb; gives the run, and its only new project."""
    def run(*words, status=0):
        result = msmemscope("export", *words, output=False)
        assert result.returncode == status, str(result)
        [path] = result.stdout.splitlines()
        [project] = [project for project in rows.projects(Path(path).parent) if project.path == Path(path)]
        return result, project

    return run


@pytest.fixture
def everything(client):
    """A run with stacks and kernels on two devices, in steps."""
    return client("acl_train", "--steps=4", "--devices=2", "--threads=2",
                  options=["--call-stack=c:20", "--level=op,kernel"], env={"SIMNPU_DEVICES": 2})


def contents(project, pattern="device_*/dump/*"):
    """The dump files of a project, by the name within it."""
    return {str(path.relative_to(project.path)): path.read_bytes() for path in sorted(project.path.glob(pattern))}


def same(row):
    """What a row says, whatever its number and file are."""
    return row.event, row.type, row.name, row.time_ns, row.tid, row.device, row.ptr, tuple(sorted(row.attr.items()))


def test_without_options_it_gives_what_the_launch_gave(everything, export):
    """As recorded: stacks and kernels, too. Beside the project of the launch, which stays as it is."""
    project = everything.run.project()
    before = contents(project, "**/*.*")
    result, again = export(project.path)
    assert again.path == Path(f"{project.path}_2") and result.stderr == ""
    assert contents(again) == contents(project) != {}
    assert contents(again, "report.txt") == contents(project, "report.txt") != {}
    assert contents(project, "**/*.*") == before
    assert any(row.event == "KERNEL_LAUNCH" for row in again.rows()) and any(row.c_stack for row in again.rows())


ANALYSES = "--analysis=leaks,decompose,inefficient"
RUNS = {
    "kernels": (["--level=op,kernel", "--call-stack=c:20"], ["acl_train", "--steps=4", "--devices=2", "--threads=2"]),
    "regions": (["--events=access,launch"], ["client_atb", "--threads=2"]),
    "watched": (["--watch=op0,op1"], ["watch_ops", "op9=:", "op0=01:01", "op1=:2", "op2=2:2", "op0=01:01", "op1=:2", "op4=:"]),
}


@pytest.mark.parametrize("format", ["csv", "db"])
@pytest.mark.parametrize("what", [*RUNS, "traceback"])
def test_with_analyses_it_gives_what_the_launch_gave(msmemscope, program, targets, export, out, what, format):
    """Also what rows learn late, in a second pass: owners, and memory that nobody used."""
    if what == "traceback":
        options, command = ["--events=alloc,free,traceback", "--device=npu,cpu"], \
            [sys.executable, targets / "python" / "calls.py"]
    else:
        options, command = RUNS[what][0], program(*RUNS[what][1])
    options = [ANALYSES, f"--format={format}", *options]
    project = msmemscope(*options, "--", *command, env={"SIMNPU_DEVICES": 2}).check().project()
    _, again = export(project.path, *[word for word in options if not word.startswith("--watch")], "-o", out / "again")
    assert contents(again) == contents(project) != {}
    assert contents(again, "report.txt") == contents(project, "report.txt") != {}
    sums = [sorted(path.read_bytes() for path in place.glob("watch_dump/*")) for place in (out, out / "again")]
    assert sums[0] == sums[1] and (sums[0] != []) == (what == "watched")


@pytest.mark.qemu
@pytest.mark.parametrize("format", ["csv", "db"])
def test_the_same_trace_and_options_give_the_same_bytes(traced, export, out, format):
    trace = traced("threads", 4, 500).exact().run.project().path / "trace.msc"
    first, second = (export(trace, f"--format={format}", "--insight-close-live", "-o", out / place)[1]
                     for place in ("a", "b"))
    assert contents(first) == contents(second)
    assert [Path(name).suffix for name in contents(first)] == [f".{format}"] * len(contents(first)) != []


def test_any_options_again(everything, export, out):
    """Each choice gives exactly the rows of the launch that it stands for."""
    trace = everything.run.project().path
    full = everything.rows()
    memory = ("MALLOC", "FREE")

    def exported(*options):
        return export(trace, "-o", out / "again", *options)[1].rows()

    def expected(wanted):
        return [same(row) for row in full if wanted(row)]

    rest = [row for row in full if row.event in ("MSTX", "SYSTEM")]
    assert rest and any(row.device == "1" for row in full)
    assert [same(row) for row in exported("--device=npu", "--level=op")] == \
        expected(lambda row: row.event in ("MSTX", "SYSTEM", *memory) and row.type != "HOST_PINNED")
    assert [same(row) for row in exported("--events=launch", "--level=kernel")] == \
        expected(lambda row: row.event not in memory)
    assert [same(row) for row in exported("--events=none")] == [same(row) for row in rest]
    assert [same(row) for row in exported("--device=npu:1")] == \
        expected(lambda row: (row.device in ("1", "N/A", "cpu") and row.type != "HOST_PINNED") or row.event == "MSTX")
    step = exported("--steps=2", "--events=alloc")
    assert 0 < len(step) < len(expected(lambda row: row.event in memory))
    closed = exported("--insight-close-live")
    assert not [block for block in rows.blocks(closed) if block.free is None]
    made_up = [row for row in closed if row.attr.get("shadow")]
    assert len(made_up) == len([block for block in rows.blocks(full) if block.free is None]) > 0


def test_stacks_as_deep_as_asked_for(everything, export, out):
    trace = everything.run.project().path
    full = {row.id: row.c_stack for row in everything.rows() if row.event == "MALLOC"}
    for option, depth in (("c:3", 3), ("c:20", 20), ("none", 0)):
        found = {row.id: row.c_stack for row in export(trace, "-o", out / option, f"--call-stack={option}")[1].rows()
                 if row.event == "MALLOC"}
        assert found == {ident: stack[:depth] for ident, stack in full.items()}


def test_what_was_not_recorded_is_said(client, export):
    trace = client("acl_train", "--steps=1").run.project().path
    result, project = export(trace, "--call-stack=c", "--level=kernel", "--steps=1,7")
    assert "recorded without --call-stack=c" in result.stderr and "recorded without --level=kernel" in result.stderr
    assert "7 not reached" in result.stderr
    assert not any(row.c_stack for row in project.rows())


def test_a_free_that_was_refused_is_taken_back(msmemscope, dist, targets, export):
    """Its row was written before the driver refused, so the file is written twice."""
    run = msmemscope("--", dist / "examples" / "leaky_npu", 60, env={"LD_LIBRARY_PATH": targets / "refusing"}).check()
    project = run.project()
    info = msmemscope.info(project)
    assert info["oddities"]["undone_frees"] > 20
    _, again = export(project.path)
    assert contents(again) == contents(project) != {}
    assert sum(row.event == "FREE" for row in again.rows()) == info["pools"][0]["frees"]
    assert not list(again.path.rglob("*.new"))


def test_where_it_goes(traced, msmemscope, export, out):
    project = traced("threads", 1, 50).run.project()
    trace = project.path / "trace.msc"
    assert export(trace)[1].path == Path(f"{project.path}_2")
    assert export(trace)[1].path == Path(f"{project.path}_3")
    alone = out / "elsewhere"
    alone.mkdir()
    copy = shutil.copy(trace, alone)
    assert export(copy)[1].path.parent == alone
    made = msmemscope("export", copy, "-o", out / "new" / "place", "--json", output=False).check()
    answer = json.loads(made.stdout)
    assert answer["project"] == str(out / "new" / "place" / project.path.name)
    assert (answer["trace"], answer["pid"], answer["damaged"]) == (copy, project.pid, False)
    assert answer["rows"] == len(project.rows())
    both = json.loads(msmemscope("export", copy, trace, "-o", out / "two", "--json", output=False).check().stdout)
    assert [Path(each["project"]).name for each in both] == [project.path.name, f"{project.path.name}_2"]


def test_several_at_once_do_not_meet(traced, msmemscope, out):
    trace = traced("threads", 4, 500).run.project().path
    started = [msmemscope.start("export", trace, "-o", out / "many", output=False) for _ in range(6)]
    made = [Path(each.finish().check().stdout.strip()) for each in started]
    assert len(set(made)) == 6
    projects = rows.projects(out / "many")
    assert {project.path for project in projects} == set(made)
    assert all(contents(project) == contents(projects[0]) != {} for project in projects)


def happened(row):
    """What stands in the event's own record; which block was freed may be guessed wrong where the trace has holes."""
    return row.event, row.time_ns, row.tid, row.ptr


def test_a_damaged_trace_gives_what_can_be_read(traced, export, out):
    done = traced("threads", 8, 3000)
    whole = (done.run.project().path / "trace.msc").read_bytes()
    truth = {happened(row) for row in done.run.rows()}
    cut, bent = out / "cut.msc", out / "bent.msc"
    cut.write_bytes(whole[:len(whole) * 2 // 3])
    spot = len(whole) * 3 // 4  # not the first chunk of a writer, which says what its numbers mean
    bent.write_bytes(whole[:spot] + bytes(byte ^ 0x5A for byte in whole[spot:spot + 64]) + whole[spot + 64:])
    for damaged in (cut, bent):
        result, project = export(damaged, "-o", out / damaged.stem, status=3)
        assert f"{damaged} is damaged" in result.stderr
        # Where a free is missing and the address comes again, its row is made up, and marked.
        found = [happened(row) for row in project.rows() if not row.attr.get("shadow")]
        assert 0 < len(found) < len(truth) and set(found) <= truth


def test_an_unfinished_trace_gives_what_was_recorded(msmemscope, dist, export, out):
    started = msmemscope.start("--", dist / "examples" / "leaky_npu", 1_000_000_000)
    end = time.monotonic() + 20
    while not list(out.glob(".msmemscope_*/[0-9]*.raw")) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.05)
    os.killpg(started.pid, signal.SIGKILL)
    assert started.finish().returncode == -signal.SIGKILL
    [raw] = out.glob(".msmemscope_*/[0-9]*.raw")
    result, project = export(raw, "-o", out / "export", status=3)
    assert "unfinished" in result.stderr and raw.exists()
    recovered = msmemscope("recover", out, output=False)
    assert recovered.returncode == 0, str(recovered)
    [finished] = rows.projects(out)
    assert contents(project) == contents(finished) != {}


def test_what_is_no_trace_is_refused(msmemscope, traced, out):
    nothing = out / "nothing"
    nothing.write_bytes(b"not a trace at all\n" * 10_000)
    for word in (nothing, out, out / "absent"):
        run = msmemscope("export", word, "-o", out / "made", output=False)
        assert (run.returncode, run.stdout) == (1, "") and str(word) in run.stderr
    trace = traced("threads", 1, 50).run.project().path
    run = msmemscope("export", trace, "-o", nothing / "below", output=False)
    assert (run.returncode, run.stdout) == (1, "") and str(nothing) in run.stderr
    assert not (out / "made").exists()


def test_a_failure_leaves_nothing(traced, msmemscope, out):
    """A file size limit stands for a full disk."""
    trace = traced("threads", 4, 5000).run.project().path
    run = msmemscope.bare("sh", "-c", 'ulimit -f 100; trap "" XFSZ; exec "$@"', "sh", msmemscope.path, "export", trace,
                          "-o", out / "full")
    assert run.returncode == 1 and run.stdout == "", str(run)
    assert "cannot write" in run.stderr and list((out / "full").iterdir()) == []


def test_progress_is_shown_on_a_terminal(msmemscope, dist, out):
    run = msmemscope("--events=none", "--", dist / "examples" / "leaky_npu", 250_000).check()
    master, terminal = pty.openpty()
    started = msmemscope.start("export", run.project().path, "--events=none", "-o", out / "tty", output=False)
    assert "million" not in started.finish().check().stderr
    done = subprocess.run([msmemscope.path, "export", run.project().path, "--events=none", "-o", out / "tty"],
                          stdout=subprocess.PIPE, stderr=terminal, timeout=60, check=True)
    os.close(terminal)
    assert b"read so far: 1.0 million events" in os.read(master, 65536)
    os.close(master)
    assert done.stdout.count(b"\n") == 1


# ---- what the launch was asked for ----

def files_of(project):
    """Dump files by their place in the project, with their bytes."""
    return {path.relative_to(project): path.read_bytes() for path in project.rglob("memscope_dump_*")}


@pytest.mark.parametrize("options", [
    ["--steps=2"], ["--device=npu:1"], ["--events=alloc"], ["--steps=1,3", "--device=npu:0", "--level=kernel"]])
def test_export_writes_what_the_launch_wrote(client, msmemscope, out, options):
    """Byte for byte, with nothing named again."""
    wrote = client("acl_train", "--steps=4", "--devices=2", "--threads=2", options=options).run.project().path
    run = msmemscope("export", wrote, "-o", out / "again", output=False).check()
    assert files_of(wrote) and files_of(Path(run.stdout.strip())) == files_of(wrote)


def test_what_is_named_wins_over_what_the_launch_was_asked_for(client, msmemscope, out):
    options = ["--device=npu:1", "--format=db"]
    wrote = client("acl_train", "--steps=4", "--devices=2", "--threads=2", options=options).run.project().path
    for number, (words, names) in enumerate({
            (): {"device_1/db"}, ("--format=csv",): {"device_1/csv"}, ("--device=npu:0",): {"device_0/db"}}.items()):
        run = msmemscope("export", wrote, *words, "-o", out / str(number), output=False).check()
        found = files_of(Path(run.stdout.strip()))
        assert {f"{path.parts[0]}/{path.suffix[1:]}" for path in found if path.parts[0] != "device_cpu"} == names, words


def test_other_steps_than_those_of_the_launch_can_be_named(client, msmemscope, out):
    wrote = client("acl_train", "--steps=4", options=["--steps=2"]).run.project().path
    counts = []
    for number, words in enumerate(([], ["--steps=2"], ["--steps=2,3"])):
        run = msmemscope("export", wrote, *words, "-o", out / str(number), output=False).check()
        counts.append(sum(data.count(b"\n") for data in files_of(Path(run.stdout.strip())).values()))
    assert counts[0] == counts[1] < counts[2]


HOST_TENSOR = """
import ctypes, os
tensor = ctypes.CDLL(os.environ["TENSORS"]).host_tensor
tensor.argtypes = ctypes.c_void_p, ctypes.c_int64
tensor(0x10000, 4096)
"""


def test_a_trace_of_the_cpu_is_exported_without_naming_it(msmemscope, scripts, targets, out):
    """As a database, which was exit status 0 and no file."""
    run = scripts.command(HOST_TENSOR, "--device=cpu", env={"TENSORS": targets / "libhost_tensors.so"}).check()
    wrote = run.project().path
    run = msmemscope("export", wrote, "--format=db", "-o", out / "db", output=False).check()
    assert [path.parts[0] for path in files_of(Path(run.stdout.strip()))] == ["device_cpu"]


def test_a_process_of_a_device_is_called_so_though_its_first_tensor_was_on_the_host(msmemscope, scripts, targets, out):
    """The first row makes the directory; what the process turns out to use names it."""
    device = HOST_TENSOR + """
import time
if os.environ.get("SLOW"):
    while not any(os.scandir(os.environ["SLOW"])): time.sleep(0.01)
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), 4096, 33 << 56 | 0x904400) == 0
"""
    env = {"TENSORS": targets / "libhost_tensors.so"}
    for form in ("csv", "db"):
        # The program waits until the directory of its first row is there.
        results = out / f"slow-{form}"
        results.mkdir()
        slow = scripts.command(device, "--device=npu,cpu", f"--format={form}", "-o", results, env={**env, "SLOW": results})
        assert slow.returncode == 0, str(slow)
        [made] = [path for path in results.iterdir() if path.name.startswith("msmemscope_")]
        assert made.name.endswith("_ascend"), made
        assert {path.name for path in made.glob("device_*")} == {"device_0", "device_cpu"}
        assert f"/{made.name} (report.html;" in slow.stderr and (made / "trace.msc").exists() and not list(made.glob(".unfinished*"))
        assert [*made.glob(f"device_*/dump/*.{form}")] != []
        again = msmemscope("export", made, "-o", out / f"again-{form}", output=False).check()
        assert Path(again.stdout.strip()).name.endswith("_ascend")
    only = scripts.command(HOST_TENSOR, "--device=npu,cpu", "-o", out / "only", env=env)
    [made] = [path for path in (out / "only").iterdir() if path.name.startswith("msmemscope_")]
    assert only.returncode == 0 and made.name.endswith("_cpu")


def test_no_dump_is_an_error_that_is_told_and_leaves_nothing(msmemscope, program, out):
    msmemscope.out = out / "results"
    wrote = msmemscope("--", *program("churn", 1), env={"TRUTH": "/dev/null"}).check().project().path
    for words in (["--device=npu:9"], ["--steps=1", "--format=db", "--log-level=error"]):
        run = msmemscope("export", wrote.parent, *words, output=False)
        assert (run.returncode, run.stdout) == (1, "") and "no dump written" in run.stderr, run
        assert msmemscope("export", wrote, *words, "--json", output=False).stdout.count('"project":null') == 1
        assert [path.name for path in wrote.parent.glob("msmemscope_*")] == [wrote.name]
    # None is wanted: the report is.
    report, = msmemscope("export", wrote, "--events=none", output=False).check().stdout.splitlines()
    assert (Path(report) / "report.txt").exists()
    msmemscope("info", wrote.parent, output=False).check()


def test_exports_are_not_further_processes(msmemscope, program, out):
    """They lie beside the project that they were made of, by default."""
    msmemscope.out = out / "results"
    project = msmemscope("--", *program("churn", 1), env={"TRUTH": "/dev/null"}).check().project().path
    results = project.parent

    def ask(*words):
        return msmemscope(*words, output=False).check()

    before = json.loads(ask("info", "--json", results).stdout)
    html = ask("report", results, "--text").stdout
    for form in ("torch", "perfetto", "csv", "db", "csv"):
        ask("export", results, f"--format={form}")
    made = sorted(path for path in results.glob("msmemscope_*_*_*") if path != project)
    assert len(made) == 3 and all(path.name.startswith(project.name) for path in made)
    ask("export", made[0], "--format=db")  # an export of an export
    after = json.loads(ask("info", "--json", results).stdout)
    assert [one["pid"] for one in after["processes"]] == [one["pid"] for one in before["processes"]]
    assert ask("report", results, "--text").stdout == html
    stored = ask("store", "add", results, "--to", f"sqlite:{out}/fleet.db", "--json")
    assert json.loads(stored.stdout)["stored"] == 1
    bundle = json.loads(ask("bundle", results, "-o", out / "bundle", "--json").stdout)
    assert {name.split("/")[1] for name in bundle["files"]} == {project.name, "versions.txt"}
    # Named by itself, or where its run is not there, it is what it was.
    [answer] = json.loads(ask("info", "--json", made[0]).stdout)["processes"]
    assert answer["pools"] == before["processes"][0]["pools"]
    apart = out / "apart"
    ask("export", project, "-o", apart)
    assert json.loads(ask("info", "--json", apart).stdout)["processes"][0]["pools"] == answer["pools"]


def test_what_nothing_can_be_read_from_is_left_out(msmemscope, program, out):
    """A launch may leave a report alone: it was to keep no trace, and write no rows."""
    msmemscope.out = out / "results"
    project = msmemscope("--", *program("churn", 1), env={"TRUTH": "/dev/null"}).check().project().path
    other = project.with_name("msmemscope_1_20260101000000_ascend")
    other.mkdir()
    (other / "report.txt").write_text("report")
    msmemscope("info", project.parent, output=False).check()
    stored = msmemscope("store", "add", project.parent, "--to", f"sqlite:{out}/fleet.db", output=False).check()
    assert f"left out {other}, which has no trace and no rows\n" in stored.stderr and "1 process is stored" in stored.stderr


def test_info_repeats_the_analyses_of_the_launch(client, msmemscope):
    steps = ["acl_train", "--steps=3"]
    told = {}
    for analysis in ("none", "leaks", "decompose"):
        wrote = client(*steps, options=[f"--analysis={analysis}"]).run.projects()[-1].path
        told[analysis] = msmemscope("info", wrote, output=False).check().stdout
        assert told[analysis] == msmemscope("info", wrote, f"--analysis={analysis}", output=False).check().stdout
    assert "leak" not in told["none"].lower() and "leak" in told["leaks"].lower()


def test_a_launch_without_dumps_has_them_in_its_trace(msmemscope, program, export, out):
    msmemscope("--format=none", "--call-stack=c:3", "--analysis=leaks,decompose,inefficient", "--no-report", "--",
               *program("acl_train", "--steps=3", "--devices=2"), env={"TRUTH": "/dev/null"}).check()
    place, = out.glob("msmemscope_*")
    assert {path.name for path in place.iterdir()} == {"trace.msc", "report.txt", "findings.json", "config.json", "msmemscope_logs"}
    [_, csv], [_, database] = export("-o", out / "csv", place), export("--format=db", "-o", out / "db", place)
    found = set()
    for path in database.path.glob("device_*/dump/*.db"):
        db = sqlite3.connect(path)
        found |= set(db.execute("SELECT ID, Event FROM memscope_dump"))
        db.close()
    assert found == {(row.id, row.event) for row in csv.rows()} and len(found) > 40
