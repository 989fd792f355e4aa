# SPDX-License-Identifier: Apache-2.0
"""What MindStudio Insight asks of a memscope database, from its public sources (August 2026), as checks of our own: tables, columns
and conditions under which it opens a file, and rows that it would pass over without a word.

    faults(path)        what Insight would not open, or not show; a line each; [] if nothing is
    after(node, places) fails a test that has passed if a database below one of the directories has such faults

Files of one event, or without memory and rows of a device, are left out: Insight has nothing to show of them.
"""
import json
import re
import sqlite3
from pathlib import Path

TABLE, CALLS = "memscope_dump", "python_trace_"
# It reads SELECT * by position; the last two may be missing.
COLUMNS = [("ID", "INTEGER"), ("Event", "TEXT"), ("Event Type", "TEXT"), ("Name", "TEXT"), ("Timestamp(ns)", "INTEGER"),
           ("Process Id", "INTEGER"), ("Thread Id", "INTEGER"), ("Device Id", "TEXT"), ("Ptr", "TEXT"), ("Attr", "TEXT"),
           ("Call Stack(Python)", "TEXT"), ("Call Stack(C)", "TEXT")]
CALL_COLUMNS = {"FuncInfo", "StartTime(ns)", "EndTime(ns)", "Thread Id", "Process Id"}
# It makes these itself, and drops what has their names.
OWN = {"memory_allocation", "memory_block", "status_info"}
PLACED = "\"Device Id\" NOT IN ('N/A', '', 'host')"
LIMIT = 2 ** 63 - 1


def _is_number(text):
    return isinstance(text, str) and re.fullmatch(r"-?\d{1,19}", text) is not None


def _columns(db, table):
    return [(name, kind) for _, name, kind, *_ in db.execute(f'PRAGMA table_info("{table}")')]


def _moments(db, table, start, end, where="1"):
    """First and last moment of a table, as Insight asks for them; what is unknown is N/A."""
    first, last = db.execute(f"""SELECT MIN("{start}"), MAX("{end}") FROM "{table}"
                                 WHERE "{start}" != 'N/A' AND "{end}" != 'N/A' AND {where}""").fetchone()
    return first, last


def _attributes(row, event, attr):
    if attr == "":
        return [f"row {row}: no Attr"] if event in ("MALLOC", "FREE") else []
    try:
        values = json.loads(attr)
    except ValueError as error:
        return [f"row {row}: Attr is not JSON ({error}): {attr!r:.80}"]
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        return [f"row {row}: values of Attr are not all texts: {attr!r:.80}"]
    found = []
    if event in ("MALLOC", "FREE") and (not _is_number(values.get("size")) or int(values["size"]) == 0):
        found.append(f"row {row}: {event} without a size: {attr!r:.80}")
    for key in ("allocation_id", "total", "used"):
        if key in values and not _is_number(values[key]):
            found.append(f"row {row}: {key} is not a number: {attr!r:.80}")
    return found


def _pairs(db):
    """A second MALLOC of an address, and a FREE of none, are passed over."""
    live, found = set(), []
    for row, event, kind, device, address in db.execute(
            f'SELECT ID, Event, "Event Type", "Device Id", Ptr FROM {TABLE} WHERE Event IN (\'MALLOC\', \'FREE\') AND {PLACED} '
            'ORDER BY "Timestamp(ns)", rowid'):
        place = device, address, kind
        if (event == "MALLOC") == (place in live):
            found.append(f"row {row}: {event} of {address} in {kind} {'again' if event == 'MALLOC' else 'without MALLOC'}")
        (live.add if event == "MALLOC" else live.discard)(place)
    return found


def _calls(db, table):
    """One table with nothing but calls that never ended keeps the whole file from being opened."""
    found = []
    if not re.fullmatch(r"[1-9]\d*", table.removeprefix(CALLS)):
        found.append(f"{table}: what follows {CALLS} is not a process")
    missing = CALL_COLUMNS - {name for name, _ in _columns(db, table)}
    if missing:
        return found + [f"{table}: no column {', '.join(sorted(missing))}"]
    try:
        db.execute(f'SELECT ROWID FROM "{table}" LIMIT 1')
    except sqlite3.OperationalError:
        found.append(f"{table}: has no row ids")
    first, last = _moments(db, table, "StartTime(ns)", "EndTime(ns)")
    if first is None or not 0 < int(first) <= int(last) < LIMIT:
        found.append(f"{table}: no call with a start and an end ({first} to {last})")
    if db.execute(f'SELECT COUNT(*) FROM "{table}" WHERE CAST("Thread Id" AS INTEGER) <= 0').fetchone() != (0,):
        found.append(f"{table}: calls without a thread")
    return found


def faults(path):
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        db.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if TABLE not in tables:
            return [f"no table {TABLE}"]
        found = [f"table {name}, which Insight makes itself" for name in sorted(tables & OWN)]
        columns = _columns(db, TABLE)
        if columns not in (COLUMNS[:10], COLUMNS[:11], COLUMNS):
            return found + [f"columns {columns}"]
        count, placed, moved = db.execute(f"""SELECT COUNT(*), COUNT(*) FILTER (WHERE {PLACED}),
                                              COUNT(*) FILTER (WHERE Event IN ('MALLOC', 'FREE')) FROM {TABLE}""").fetchone()
        if count < 2 or (placed == 0 and moved == 0):
            return found
        if placed == 0:
            found.append("no row of a device")
        first, last = _moments(db, TABLE, "Timestamp(ns)", "Timestamp(ns)")
        if not (isinstance(first, int) and isinstance(last, int) and 0 < first < last < LIMIT):
            found.append(f"moments {first} to {last}")
        for kinds in db.execute("SELECT DISTINCT " + ", ".join(f'typeof("{name}")' for name, _ in columns) + f" FROM {TABLE}"):
            found += [f"{name} is {kind}" for (name, wanted), kind in zip(columns, kinds) if kind != wanted.lower()]
        for row, event, attr in db.execute(f"SELECT ID, Event, Attr FROM {TABLE} WHERE {PLACED}"):
            found += _attributes(row, event, attr)
        found += _pairs(db)
        for table in sorted(name for name in tables if name.startswith(CALLS)):
            found += _calls(db, table)
        return found
    finally:
        db.close()


def _is_finished(path):
    project = path.parents[2] if len(path.parents) > 2 else path.parent
    return not any(project.glob(".unfinished*")) and not path.with_name(path.name + "-wal").exists()


def after(node, places):
    if not getattr(node, "passed", False) or node.get_closest_marker("not_insight"):
        return
    files = sorted({path for place in places if place is not None for path in Path(place).rglob("*memscope_dump_*.db")
                    if path.is_file() and not path.is_symlink() and path.stat().st_size > 0})
    problems = [f"{path.name} of {path.parent.parent.name}: {one}" for path in files if _is_finished(path) for one in faults(path)[:5]]
    node.passed = not problems  # files of a failed test are kept
    assert not problems, "MindStudio Insight would not open or show all of it:\n" + "\n".join(problems)
