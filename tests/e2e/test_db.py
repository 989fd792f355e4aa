# SPDX-License-Identifier: Apache-2.0
"""The database: the rows of the csv, in the form that MindStudio Insight reads. What Insight does with it is known from its
documents; those rules stand here as SQL, are tried on a file that Insight itself has worked on, and must then find in ours what
our own report says."""
import csv
import json
import shutil
import sqlite3
import stat
import time
from collections import Counter
from pathlib import Path

import pytest

import insight
import rows as rows_module

# Beside a checkout of the project; other people's data, so not part of it.
FIXTURE = Path(__file__).resolve().parents[3] / "shared" / "data" / "insight-fixture.db"

COLUMNS = [("ID", "INTEGER"), ("Event", "TEXT"), ("Event Type", "TEXT"), ("Name", "TEXT"), ("Timestamp(ns)", "INTEGER"),
           ("Process Id", "INTEGER"), ("Thread Id", "INTEGER"), ("Device Id", "TEXT"), ("Ptr", "TEXT"), ("Attr", "TEXT"),
           ("Call Stack(Python)", "TEXT"), ("Call Stack(C)", "TEXT")]

KNOWN = {*((event, pool) for event in ("MALLOC", "FREE")
           for pool in ("PTA", "MINDSPORE", "ATB", "HAL", "PTA_WORKSPACE", "HOST_PINNED")),
         *(("KERNEL_LAUNCH", kind) for kind in ("KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END")),
         *(("SYSTEM", kind) for kind in ("ACL_INIT", "ACL_FINI", "START_TRACE", "STOP_TRACE"))}

# What Insight makes of the rows: it leaves out rows of no device and blocks of no size, pairs by device, address and type, and
# drops a second MALLOC before the FREE and a FREE without a MALLOC. What is never freed lasts to the newest row.
INSIGHT = """
CREATE TEMP VIEW moves AS
SELECT *, "Device Id" AS device, "Event Type" AS type, "Timestamp(ns)" AS time,
       ABS(CAST(json_extract(Attr, '$.size') AS INTEGER)) AS size
FROM memscope_dump
WHERE Event IN ('MALLOC', 'FREE') AND "Device Id" NOT IN ('N/A', '', 'host') AND size > 0;
CREATE TEMP VIEW ordered AS
SELECT *, LAG(Event) OVER (PARTITION BY device, Ptr, type ORDER BY time, ID) AS before FROM moves;
CREATE TEMP VIEW kept AS
SELECT * FROM ordered WHERE (Event = 'MALLOC') = (before IS NULL OR before = 'FREE');
CREATE TEMP VIEW blocks AS
SELECT device, type, Ptr, size, time AS start, json_extract(Attr, '$.allocation_id') AS id,
       COALESCE((SELECT MIN(f.time) FROM kept f WHERE f.Event = 'FREE' AND f.device = m.device AND f.type = m.type
                 AND f.Ptr = m.Ptr AND (f.time, f.ID) > (m.time, m.ID)),
                (SELECT MAX("Timestamp(ns)") FROM memscope_dump)) AS end
FROM kept m WHERE Event = 'MALLOC';
CREATE TEMP VIEW curve AS
SELECT device, type, time, SUM(CASE Event WHEN 'MALLOC' THEN size ELSE -size END)
       OVER (PARTITION BY device, type ORDER BY time, ID ROWS UNBOUNDED PRECEDING) AS total
FROM kept;
"""


def as_insight(path):
    db = sqlite3.connect(path)
    db.executescript(INSIGHT)
    return db


def databases(project):
    return sorted(project.path.glob("device_*/dump/memscope_dump_*.db"))


@pytest.fixture
def recorded(msmemscope, program):
    """recorded(options, target, arguments...): runs it with a database; gives its project."""
    def run(options, name, *arguments):
        result = msmemscope("--format=db", *options, "--", *program(name, *arguments), env={"TRUTH": "/dev/null"}).check()
        return result.projects()[-1]

    return run


@pytest.fixture(scope="module")
def fixture_db(tmp_path_factory):
    if not FIXTURE.exists():
        pytest.skip("no shared/data/insight-fixture.db beside this checkout")
    return shutil.copy(FIXTURE, tmp_path_factory.mktemp("insight"))


def test_the_rules_give_what_insight_found_in_its_own_file(fixture_db):
    db = as_insight(fixture_db)
    assert sorted(db.execute("SELECT device, Ptr, size, start, end, type FROM blocks")) == \
        sorted(db.execute("SELECT deviceId, addr, size, startTimestamp, endTimestamp, eventType FROM memory_block"))
    assert list(db.execute("SELECT time, total, device, type FROM curve ORDER BY time")) == \
        list(db.execute("SELECT timestamp, totalSize, deviceId, eventType FROM memory_allocation ORDER BY id"))
    assert [(name, kind) for _, name, kind, *_ in db.execute("PRAGMA table_info(memscope_dump)")] == COLUMNS


def check_form(path):
    """What Insight needs of the file before it reads a row."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [other.name for other in path.parent.iterdir()] == [path.name], "one file, no log beside it"
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("SELECT type, name FROM sqlite_master").fetchall() == [("table", "memscope_dump")]
    assert [(name, kind) for _, name, kind, *_ in db.execute("PRAGMA table_info(memscope_dump)")] == COLUMNS
    rowids = [row[0] for row in db.execute("SELECT rowid FROM memscope_dump ORDER BY rowid")]
    assert rowids == list(range(1, len(rowids) + 1))
    first, last = db.execute('SELECT MIN("Timestamp(ns)"), MAX("Timestamp(ns)") FROM memscope_dump').fetchone()
    assert 0 < first < last < 2 ** 63 - 1
    for (attr,) in db.execute("SELECT DISTINCT Attr FROM memscope_dump"):
        assert all(isinstance(value, str) for value in json.loads(attr).values()), attr
    kinds = set(db.execute('SELECT DISTINCT Event, "Event Type" FROM memscope_dump WHERE Event != \'MSTX\''))
    assert kinds <= KNOWN, kinds - KNOWN
    types = db.execute("SELECT DISTINCT " + ", ".join(f'typeof("{name}")' for name, _ in COLUMNS) + " FROM memscope_dump")
    assert types.fetchall() == [tuple(kind.lower() for _, kind in COLUMNS)]
    # Insight puts tables of its own beside ours.
    db.execute("CREATE TABLE status_info (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT, value TEXT)")
    db.execute("DROP TABLE status_info")
    db.close()


def check_totals(command, project):
    """By Insight's rules, over all files of the process, blocks and sums are those of our report."""
    info = command.info(project)
    usage = {(row["device"], row["pool"]): row for row in info["pools"]}
    found = {}
    for path in databases(project):
        db = as_insight(path)
        moved = 'SELECT COUNT(*), COALESCE(SUM(size), 0) FROM kept WHERE Event = ? AND device = ? AND type = ?'
        for device, kind, peak in db.execute("SELECT device, type, MAX(total) FROM curve GROUP BY device, type"):
            mallocs, taken = db.execute(moved, ("MALLOC", device, kind)).fetchone()
            frees, given = db.execute(moved, ("FREE", device, kind)).fetchone()
            found[device, kind] = peak, mallocs, frees, taken - given
            assert db.execute("SELECT COUNT(*) FROM blocks WHERE device = ? AND type = ?", (device, kind)).fetchone() == (mallocs,)
        dropped = db.execute("SELECT (SELECT COUNT(*) FROM moves) - (SELECT COUNT(*) FROM kept)").fetchone()
        assert dropped == (0,), "Insight would drop rows"
        db.close()
    assert found == {place: (row["peak_bytes"], row["allocations"], row["frees"], row["live_bytes"])
                     for place, row in usage.items()}


def texts(path):
    """Rows of a file of either form, as a reader of csv sees them."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            found = list(csv.reader(file))
        assert ",".join(found.pop(0)) == rows_module.HEADER
        return found
    db = sqlite3.connect(path)
    db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    found = [[str(cell) for cell in row] for row in db.execute("SELECT * FROM memscope_dump ORDER BY rowid")]
    for row in found:
        pairs = ",".join(f"{key}:{value}" for key, value in json.loads(row[9]).items())
        row[9] = f"{{{pairs}}}" if pairs else ""
    return found


@pytest.mark.parametrize("name, arguments, options", [
    ("acl_train", ["--devices=2", "--threads=2", "--steps=3"], ["--level=kernel", "--call-stack=c:5"]),
    ("client_mstx", ["--memory", "--rounds=3"], []),
    ("client_pta", ["--threads=2", "--devices=2"], []),
    ("acl_train", ["--steps=4"], ["--steps=2", "--device=npu:0", "--events=alloc"]),
])
def test_a_database_has_the_rows_of_the_csv(recorded, msmemscope, tmp_path, name, arguments, options):
    """Written while the program ran, and once more as csv from the same trace."""
    project = recorded(options, name, *arguments)
    again = msmemscope("export", "--format=csv", *options, "-o", tmp_path / "csv", project.path, output=False).check()
    other = rows_module.projects(tmp_path / "csv")[0]
    assert again.stdout == f"{other.path}\n"
    written, exported = databases(project), other.dumps()
    assert [path.parents[1].name for path in written] == [path.parents[1].name for path in exported] != []
    assert len({path.name for path in written}) == 1, "files of a process have one stamp"
    for db, dump in zip(written, exported):
        assert texts(db) == texts(dump)


@pytest.mark.parametrize("name, arguments", [
    ("many_devices", ["3"]), ("client_pta", ["--threads=2", "--devices=2"]), ("client_mindspore", []), ("client_atb", []),
    ("client_workspace", []), ("acl_train", ["--devices=2", "--threads=2"]),
])
def test_insight_finds_in_it_what_our_report_says(recorded, msmemscope, name, arguments):
    project = recorded(["--level=kernel"], name, *arguments)
    assert databases(project) and not project.dumps()
    for path in databases(project):
        check_form(path)
    check_totals(msmemscope, project)


BREAKS = {
    "is not JSON": """UPDATE memscope_dump SET Attr = replace(Attr, '}', ',inefficient_type:early_allocation}') WHERE Event = 'MALLOC'""",
    "are not all texts": "UPDATE memscope_dump SET Attr = json_set(Attr, '$.used', 5) WHERE Event = 'FREE'",
    "without a size": "UPDATE memscope_dump SET Attr = json_remove(Attr, '$.size') WHERE Event = 'MALLOC'",
    "allocation_id is not a number": "UPDATE memscope_dump SET Attr = json_set(Attr, '$.allocation_id', 'x1') WHERE Event = 'FREE'",
    "again": "UPDATE memscope_dump SET Event = 'MALLOC' WHERE Event = 'FREE'",
    "without MALLOC": "DELETE FROM memscope_dump WHERE Event = 'MALLOC'",
    "no row of a device": "UPDATE memscope_dump SET \"Device Id\" = 'N/A'",
    "moments 0": 'UPDATE memscope_dump SET "Timestamp(ns)" = 0 WHERE rowid = 2',
    "Timestamp(ns) is text": 'UPDATE memscope_dump SET "Timestamp(ns)" = \'N/A\' WHERE rowid = 2',
    "which Insight makes itself": "CREATE TABLE memory_block (id INTEGER)",
    "columns": "ALTER TABLE memscope_dump RENAME COLUMN Name TO Title",
    "no table": "DROP TABLE memscope_dump",
    "is not a process": "CREATE TABLE python_trace_x AS SELECT 1 AS FuncInfo",
    "no column EndTime(ns)": 'CREATE TABLE python_trace_7 (FuncInfo, "StartTime(ns)", "Thread Id", "Process Id")',
    "with a start and an end": 'CREATE TABLE python_trace_7 (FuncInfo, "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id")',
}


def test_each_fault_that_insight_would_meet_is_found(recorded, tmp_path):
    """The checks that run after every test (lib/insight.py) have to fail when they should."""
    good = databases(recorded([], "many_devices", 1))[0]
    assert insight.faults(good) == []
    for number, (found, statement) in enumerate(BREAKS.items()):
        path = shutil.copy(good, tmp_path / f"{number}.db")
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()
        assert any(found in one for one in insight.faults(path)), (found, insight.faults(path))


def test_blocks_that_live_on_can_be_closed_for_insight(recorded):
    """Without a free, Insight forgets which allocation a block was. Only when asked for, and marked as ours."""
    def blocks(options):
        found = []
        for path in databases(recorded(options, "many_devices", 2)):
            db = as_insight(path)
            found += db.execute("SELECT Event, json_extract(Attr, '$.shadow') FROM moves").fetchall()
        return Counter(found)

    plain, closed = blocks([]), blocks(["--insight-close-live"])
    assert plain["FREE", "true"] == 0 and plain["MALLOC", None] > plain["FREE", None]
    assert closed["MALLOC", None] == closed["FREE", None] + closed["FREE", "true"]
    assert closed["FREE", None] == plain["FREE", None] and closed["MALLOC", None] == plain["MALLOC", None]


def test_rows_can_be_read_while_the_program_runs(traced):
    """In whole transactions, with a log that is gone in the end."""
    def look(started):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = list(started.out.glob("msmemscope_*/device_0/dump/*.db"))
            if found and found[0].with_name(found[0].name + "-wal").exists():
                db = sqlite3.connect(f"file:{found[0]}?mode=ro", uri=True)
                # Before the first transaction there is not even a table.
                tables = db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
                count = db.execute("SELECT COUNT(*) FROM memscope_dump").fetchone() if tables == (1,) else (0,)
                db.close()
                if count[0] > 0:
                    return
            time.sleep(0.02)
        pytest.fail("no rows while the program waits")

    result = traced("two_acts", 500, 500, options=["--format=db"], between=look)
    found = databases(result.run.project())
    for path in found:
        check_form(path)
    assert sum(len(texts(path)) for path in found) == 2 * (500 + 438)
