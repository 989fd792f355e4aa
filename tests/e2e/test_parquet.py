# SPDX-License-Identifier: Apache-2.0
"""--format=parquet: pyarrow and DuckDB find the rows of the csv and of the database, a part is whole or absent whatever happens, and the
writer keeps every value of random rows."""
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import engines as engines_module
import rows as rows_module
from harness import engine_of


@pytest.fixture(scope="session")
def engines():
    return engines_module.installed()


def check_files(place):
    """Whole parts that only their owner reads, and nothing that is in progress."""
    for path in place.glob("device_*/dump/*"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.suffix in (".parquet", ".csv"), path
        assert path.suffix == ".parquet" or path.name.startswith("python_trace_"), path


def exported(msmemscope, project, form, out):
    run = msmemscope("export", f"--format={form}", "-o", out, project, output=False).check()
    return Path(run.stdout.strip())


def check_same(engines, msmemscope, project, out):
    """Rows of Parquet in the project are those that the trace gives as a database and as csv."""
    check_files(project)
    found = engines.dumps(project)
    wanted = engines_module.database_rows(exported(msmemscope, project, "db", out / "db"))
    assert found == wanted and found
    csv = rows_module.projects(exported(msmemscope, project, "csv", out / "csv").parent)[-1]
    sums = Counter()
    for path in csv.dumps():
        for row in rows_module.read_rows(path):
            sums["rows"] += 1
            sums["size"] += row.attr.get("size") or 0
            sums["ptr"] += row.ptr or 0
            sums["frames"] += len(row.c_stack)
    question = ("SELECT count(*), coalesce(sum(size), 0), coalesce(sum(address), 0), "
                "coalesce(sum(length(c_stack) - length(replace(c_stack, chr(10), ''))), 0) "
                f"FROM read_parquet({[str(path) for path in engines_module.parts(project)]})")
    assert [int(number) for number in engines.sql(question)[0][0]] == [sums["rows"], sums["size"], sums["ptr"], sums["frames"]]
    shutil.rmtree(out)
    return found


@pytest.mark.parametrize("name, arguments, options", [
    ("acl_train", ["--devices=2", "--threads=2", "--steps=3"], ["--level=op,kernel", "--call-stack=c:5"]),
    ("client_mstx", ["--memory", "--rounds=3"], []),
    ("client_pta", ["--threads=2", "--devices=2"], ["--analysis=leaks,decompose"]),
    ("client_atb", [], ["--events=alloc,free,launch,access", "--level=op,kernel"]),
    ("client_workspace", [], ["--analysis=inefficient"]),
    ("acl_train", ["--steps=4"], ["--steps=2", "--device=npu:0", "--events=alloc"]),
])
def test_parquet_has_the_rows_of_csv_and_database(msmemscope, program, engines, tmp_path, name, arguments, options):
    run = msmemscope("--format=parquet", *options, "--", *program(name, *arguments), env={"TRUTH": "/dev/null"}).check()
    check_same(engines, msmemscope, run.projects()[-1].path, tmp_path / "again")


def test_parquet_has_the_rows_of_a_refused_request(msmemscope, program, engines, tmp_path):
    env = {"TRUTH": "/dev/null", "SIMNPU_HBM": "256M"}
    run = msmemscope("--format=parquet", "--analysis=oom:3", "--", *program("oom"), env=env).check()
    found = check_same(engines, msmemscope, run.project().path, tmp_path / "again")
    assert {"OOM_DETAIL", "SNAPSHOT"} <= {row[1] for row in found["device_0"]}


def test_statistics_and_encodings_let_an_engine_skip(traced, engines):
    run = traced("threads", 2, 800, options=["--format=parquet", "--call-stack=c:4"]).run
    path = engines_module.parts(run.project().path)[0]
    rows, facts = engines.rows(path), engines.facts(path)
    assert facts["rows"] == len(rows) == sum(group["rows"] for group in facts["groups"]) and facts["by"] == "msmemscope"
    first = 0
    for group in facts["groups"]:
        own = rows[first:first + group["rows"]]
        first += group["rows"]
        for name, kind, optional in engines_module.COLUMNS:
            values = [row[name] for row in own if row[name] is not None]
            chunk = group["columns"][name]
            assert chunk["compression"] == "ZSTD" and chunk["nulls"] == len(own) - len(values), name
            assert optional or len(values) == len(own)
            if not values or name in ("attr", "python_stack", "c_stack"):
                assert chunk["bounds"] is None, name
            else:
                assert chunk["bounds"] == [min(values), max(values)], name
    encodings = {name: group["columns"][name]["encodings"] for name in ("id", "time_ns", "event", "c_stack")}
    assert all("DELTA_BINARY_PACKED" in encodings[name] for name in ("id", "time_ns"))
    assert all("RLE_DICTIONARY" in encodings[name] for name in ("event", "c_stack"))


def test_hostile_names_are_texts_of_every_engine(msmemscope, engines, program, out, dist):
    evil = "evil\x1b[31m\u202e'\"\n,内存"
    script = out / "script.py"
    marks = [evil.encode(), b"bytes \xff\xfe end", b"x" * 5000, b""]
    script.write_text("import ctypes, os, npu\n"
                      "tools = ctypes.CDLL(os.path.join(os.environ['ASCEND_HOME_PATH'], 'lib64', 'libms_tools_ext.so'))\n"
                      "tools.mstxMarkA.argtypes = ctypes.c_char_p, ctypes.c_void_p\n"
                      f"for message in {marks!r}:\n    tools.mstxMarkA(message, None)\nnpu.alloc(4096)\n", encoding="utf-8")
    libraries = ":".join(map(str, (dist / "python", Path(__file__).parent / "lib", dist / "simnpu" / "python")))
    run = msmemscope("--format=parquet", "--", "/usr/bin/python3", script, env={"PYTHONPATH": libraries, "TRUTH": "/dev/null"}).check()
    [path] = engines_module.parts(run.project().path)
    names = [row["name"] for row in engines.rows(path) if row["event"] == "MSTX"]
    found = [name for [name] in engines.sql(f"SELECT name FROM '{path}' WHERE event = 'MSTX' ORDER BY id")[0]]
    wanted = {evil, "bytes \ufffd\ufffd end"}
    assert names == found and wanted <= set(names), names


STEPS = """
import glob, json, os, msmemscope, npu
msmemscope.config(output=os.environ["OUT"], format="parquet")
seen = []
for window in range(3):
    npu.start()
    blocks = [npu.alloc(4096 * (i + 1)) for i in range(50)]
    [npu.free(block) for block in blocks[window:]]
    npu.stop()
    seen.append(sorted(glob.glob(os.environ["OUT"] + "/msmemscope_*/device_0/dump/*.parquet")))
json.dump(seen, open(os.environ["OUT"] + "/seen", "w"))
"""


def test_stop_leaves_whole_parts_and_the_next_window_another(scripts, engines, msmemscope, tmp_path):
    run = scripts.preloaded(STEPS).check()
    project, = run.projects()
    seen = json.loads((scripts.results / "seen").read_text(encoding="utf-8"))
    assert [len(paths) for paths in seen] == [1, 2, 3] and seen[-1] == [str(path) for path in engines_module.parts(project.path)]
    found = check_same(engines, msmemscope, project.path, tmp_path / "again")
    ids = [row[0] for row in found["device_0"]]
    assert len(set(ids)) == len(ids), "a row is in two parts"


@pytest.mark.parametrize("victims", ["engine", "all"])
def test_a_kill_leaves_no_half_part_and_recover_writes_all(msmemscope, program, engines, out, tmp_path, victims):
    started = msmemscope.start("--format=parquet", "--", *program("two_acts", 500, 500), stdin=subprocess.PIPE, env={"TRUTH": "/dev/null"})
    end = time.monotonic() + 30
    while not list(out.glob("msmemscope_*/device_0/dump/.*.tmp")) and time.monotonic() < end:
        time.sleep(0.01)
    if victims == "engine":
        os.kill(engine_of(started.pid), signal.SIGKILL)
    else:
        os.killpg(started.pid, signal.SIGKILL)
    started.finish()
    [project] = out.glob("msmemscope_*_*")
    assert not engines_module.parts(project), "a part without its end"
    assert msmemscope("recover", out, output=False).returncode in (0, 3)
    check_same(engines, msmemscope, project, tmp_path / "again")


def test_rows_that_the_trace_gave_up_are_in_parts_before(msmemscope, program, engines, out):
    """--max-disk drops the oldest part of the trace; its rows must not wait in memory."""
    paths = []
    for steps in (3000, 6000, 12000):
        run = msmemscope("--format=parquet", "--max-trace=1M", "--level=op,kernel", "--no-report", "--",
                         *program("acl_train", f"--steps={steps}", "--launches=5", "--threads=2"), output=out / str(steps)).check()
        paths = [path for path in engines_module.parts(run.project().path) if path.parents[1].name == "device_0"]
        if len(paths) > 1:
            break
    assert len(paths) > 1, "nothing was given up"
    check_files(run.project().path)
    files = f"read_parquet({[str(path) for path in engines_module.parts(run.project().path)]}, filename=true)"
    [[[distinct, last]], [[rows, own]]] = engines.sql(
        f"SELECT count(DISTINCT id), max(id) FROM {files}",
        f"SELECT count(*), count(DISTINCT id) FROM {files} WHERE filename LIKE '%/device_0/%'")
    assert distinct == last + 1, "a row is missing"
    assert rows == own, "a row is in two parts"


def test_a_full_disk_leaves_no_part_and_recover_writes_it(traced, msmemscope, engines, tmp_path):
    place = tmp_path / "small"
    traces = tmp_path / "traces"
    place.mkdir()
    traces.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount here: {mounted.stderr.strip()}")
    try:
        result = traced("threads", 2, 4000, options=["--format=parquet", "--trace-dir", traces], output=place)
        assert "space" in result.run.stderr, str(result.run)
        assert not list(place.glob("*/device_0/dump/*.parquet")) and not list(place.rglob("*.tmp"))
        # Another device's part may have fitted; then it is whole.
        assert not list(place.rglob("*.parquet")) or engines.rows(*place.rglob("*.parquet"))
        subprocess.run(["mount", "-o", "remount,size=400m", place], check=True)
        assert msmemscope("recover", place, output=False).returncode == 0
        [project] = place.glob("msmemscope_*_*")
        check_files(project)
        [[distinct, last]] = engines.sql(f"SELECT count(DISTINCT id), max(id) FROM read_parquet('{project}/*/dump/*.parquet')")[0]
        assert distinct == last + 1 > 5000
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def as_events(place):
    """The view `events` of the questions over the databases of ranks, by SQLite; its rows have no steps."""
    db = sqlite3.connect(":memory:")
    db.create_function("number", 1, lambda text: None if text in (None, "N/A") else int(text, 0))
    views = []
    for at, path in enumerate(sorted(place.glob("rank=*/*/device_*/dump/*.db"))):
        db.execute(f"ATTACH '{path}' AS d{at}")
        attr = ", ".join(f"number(json_extract(Attr, '$.{key}')) AS {key}" for key in ("size", "used", "total", "allocation_id"))
        views.append(f"""SELECT 'nightly-17' AS run, {path.parents[3].name[5:]} AS rank, ID AS id, Event AS event, "Event Type" AS event_type,
                     "Timestamp(ns)" AS time_ns, "Process Id" AS process_id, number(Ptr) AS address, "Call Stack(C)" AS c_stack, {attr}
                     FROM d{at}.memscope_dump""")
    db.execute("CREATE TEMP VIEW events AS " + " UNION ALL ".join(views))
    return db


def test_the_questions_of_the_document_are_answered_as_by_the_databases(msmemscope, program, engines, out):
    """docs/fleet.md, unchanged; DuckDB finds run and rank in the names of directories that `store add --events` makes."""
    results, place = out / "results", out / "events"
    for rank in range(3):
        run = msmemscope("--call-stack=c:6", "--no-report", "--", *program("leaky_steps", "--steps=4"), output=results,
                         env={"TRUTH": "/dev/null", "RANK": rank, "MSMEMSCOPE_RUN": "nightly-17"}).check()
        exported(msmemscope, run.projects()[-1].path, "db", out / "db" / f"rank={rank}")
    add = ["store", "add", results, "--to", f"sqlite:{out}/store.db", "--run=nightly-17", "--events", place]
    msmemscope(*add, output=False).check()
    before = {path: path.read_bytes() for path in engines_module.layout(place)}
    assert sorted({path.parent.parent.name for path in before}) == ["rank=0", "rank=1", "rank=2"]
    for project in results.glob("msmemscope_*"):
        again = engines_module.parts(exported(msmemscope, project, "parquet", out / "again" / project.name))
        assert again and {path.read_bytes() for path in again} <= set(before.values()), "other rows than those of export"
    view = f"FROM read_parquet('{place}/**/*.parquet', hive_partitioning=true)"
    found = engines.sql(*[f"WITH events AS (SELECT * {view}) {question}" for question in engines_module.questions()])
    assert all(found), found
    db = as_events(out / "db")
    for question, answer in zip(engines_module.questions(), found):
        if "step" not in question:
            wanted = [list(row) for row in db.execute(question)]
            assert [[str(value) for value in row] for row in answer] == [[str(value) for value in row] for row in wanted], question
    grown = {(int(rank), int(step)): int(bytes_) for rank, step, bytes_ in found[3]}
    assert {rank for rank, _ in grown} == {0, 1, 2} and len({step for _, step in grown}) == 4
    db.close()
    msmemscope(*add, output=False).check()
    assert {path: path.read_bytes() for path in engines_module.layout(place)} == before, "adding again changed something"


def test_the_peak_of_cpu_tensors_is_answered(msmemscope, python, out):
    """Their rows have `total` and no `used`."""
    script = "import torch\nkept = [torch.zeros(4096) for _ in range(10)]\ndel kept\n"
    project = msmemscope("--device=cpu", "--no-report", "--", *python, "-c", script, output=out / "run").check().project()
    exported(msmemscope, project.path, "db", out / "db" / "rank=0")
    db = as_events(out / "db")
    [[rank, memory, peak]] = db.execute(engines_module.questions()[0])
    db.close()
    [pool] = msmemscope.info(project)["pools"]
    assert (str(rank), memory, peak) == ("0", "CPU tensors", pool["peak_bytes"])


@pytest.mark.parametrize("name", ["a/b=c%d", "内存 \u202e'\"\n*?", "..", "x\\y#z[1]{2}^<>|"])
def test_engines_read_every_name_of_a_run(traced, msmemscope, engines, out, name):
    project = traced("threads", 1, 10).run.project().path
    place = out / "events"
    msmemscope("store", "add", project, "--to", f"sqlite:{out}/store.db", "--run", name, "--events", place, output=False).check()
    files = engines_module.layout(place)
    found = engines.sql(f"SELECT DISTINCT run, rank FROM read_parquet('{place}/**/*.parquet', hive_partitioning=true)")
    assert files and found == [[[name, 0]]], found


def test_events_that_do_not_fit_leave_what_was_there(traced, msmemscope, engines, out, tmp_path):
    """The store is told nothing then; the same command completes both when there is room."""
    project = traced("threads", 2, 4000).run.project().path
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"no right to mount here: {mounted.stderr.strip()}")
    try:
        add = ["store", "add", project, "--to", f"sqlite:{out}/store.db", "--run=one", "--events", place / "events"]
        msmemscope(*add, output=False).check()
        before = {path: path.read_bytes() for path in engines_module.layout(place / "events")}
        with open(place / "rest", "wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        for words in ([*add], [*add, "--run=two"]):
            done = msmemscope(*words, output=False)
            assert done.returncode == 1 and "0 of 1 processes are stored" in done.stderr and "space" in done.stderr, str(done)
        assert {path: path.read_bytes() for path in engines_module.layout(place / "events")} == before
        (place / "rest").unlink()
        msmemscope(*add, "--run=two", output=False).check()
        assert len(engines_module.layout(place / "events")) == 2 * len(before) and engines.rows(*engines_module.layout(place / "events"))
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_killed_store_add_leaves_whole_parts_or_none(traced, msmemscope, engines, out):
    project = traced("threads", 4, 20000).run.project().path
    place = out / "events"
    add = ["store", "add", project, "--to", f"sqlite:{out}/store.db", "--run=one", "--events", place]
    for _ in range(20):  # until one is killed amid its part
        shutil.rmtree(place, ignore_errors=True)
        started = msmemscope.start(*add, output=False)
        while started.process.poll() is None and not list(place.rglob(".*.tmp")):
            pass
        started.kill()
        started.finish()
        if list(place.rglob(".*.tmp")):
            break
    assert list(place.rglob(".*.tmp")) and not list(place.rglob("part-*.parquet"))
    msmemscope(*add, output=False).check()
    assert engines.rows(*engines_module.layout(place))


def test_rows_of_a_store_have_no_events(traced, msmemscope, out):
    project = traced("threads", 1, 10).run.project().path
    msmemscope("store", "add", project, "--to", f"rows:{out}/rows", output=False).check()
    done = msmemscope("store", "add", out / "rows", "--to", f"sqlite:{out}/store.db", "--events", out / "events", output=False).check()
    assert "has no events" in done.stderr and not (out / "events").exists(), str(done)


def random_value(rng, kind, state):
    """A value of a column: constant, counting, walking or random numbers; texts of a few, of many, of any characters; NULLs in runs."""
    if kind in "nt" and rng.random() < state.setdefault("null", rng.choice([0, 0.01, 0.5, 1])):
        return None
    how = state.setdefault("how", rng.randrange(5))
    if kind in "Nn":
        last = state.get("last", 0)
        value = [last, last + 1, last + rng.randint(-1000, 1000), rng.randint(-2 ** 63, 2 ** 63 - 1), rng.choice([-2 ** 63, 0, 2 ** 63 - 1])][how]
        state["last"] = max(-2 ** 63, min(2 ** 63 - 1, value))
        return state["last"]
    if how == 0:
        return "one"
    if how < 3:
        return f"text {rng.randrange(50 if how == 1 else 10 ** 9)}"
    return "".join(chr(rng.choice([0, 10, 34, 0x4e00, 0x1f600, rng.randrange(32, 127)])) for _ in range(rng.randrange(300 if how == 4 else 8)))


def encoded(value):
    if value is None:
        return b"\0"
    if isinstance(value, int):
        return b"\1" + struct.pack("<q", value)
    data = value.encode()
    return b"\2" + struct.pack("<I", len(data)) + data


def random_file(rng):
    """Kinds of columns, rows, and the rows before which a row group ends. Around the size of a page, and of a group of eight."""
    kinds = "".join(rng.choice("NnTt") for _ in range(rng.randint(1, 4)))
    count = rng.choice([0, 1, 7, 8, 9, 255, 256, 257, 2000])
    if rng.random() < 0.2:
        kinds, count = rng.choice(["n", "t", "Nt"]), rng.choice([32767, 32768, 32769])
    states = [{} if count < 30000 else {"how": rng.randrange(4 if kind in "Nn" else 3)} for kind in kinds]
    rows = [[random_value(rng, kind, state) for kind, state in zip(kinds, states)] for _ in range(count)]
    return kinds, rows, set(rng.sample(range(count), min(count, rng.choice([0, 0, 1, 5]))))


def test_random_rows_come_back(targets, tmp_path, engines, parquets):
    """Each file by both readers; `make soak PART=parquet` tries many more."""
    for first in range(0, parquets, 20):
        files = []
        for seed in range(first, min(first + 20, parquets)):
            kinds, rows, cuts = random_file(random.Random(seed))
            data = b"".join((b"\3" if number in cuts else b"") + b"".join(map(encoded, row)) for number, row in enumerate(rows))
            path, wanted = tmp_path / f"{seed % 20}.parquet", tmp_path / f"{seed % 20}.json"
            subprocess.run([targets / "parquet_rows", path, kinds], input=data, check=True)
            wanted.write_text(json.dumps([dict(zip(map(chr, range(97, 123)), row)) for row in rows]), encoding="utf-8")
            files += [path, wanted]
        engines.same(*files)
