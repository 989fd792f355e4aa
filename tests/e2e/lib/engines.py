# SPDX-License-Identifier: Apache-2.0
"""What reads Parquet, none of it ours: pyarrow and DuckDB of build/venv-engines, which Python of that environment runs. This file is both the
helper that tests import and the script that runs there: one process, which starts with the first question and ends with the test's process.

    Engines(python).rows(path...)        all rows of the files by pyarrow, as dicts
    Engines(python).dumps(project)       all rows of a project directory by pyarrow, by device
    Engines(python).sql(question...)     rows of each question by DuckDB, as lists
    Engines(python).facts(path)          row groups, statistics and encodings by pyarrow
    Engines(python).same(path, rows...)  fails unless both find exactly the rows of a JSON file in the Parquet file before it
"""
import contextlib
import functools
import json
import re
import sqlite3
import stat
import subprocess
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

# Columns of a dump in Parquet, in their order: name, type, whether NULL is possible.
COLUMNS = [("id", "int64", False), ("event", "string", False), ("event_type", "string", False), ("name", "string", True),
           ("time_ns", "int64", False), ("process_id", "int64", False), ("thread_id", "int64", False), ("device_id", "string", False),
           ("address", "int64", True), ("size", "int64", True), ("used", "int64", True), ("total", "int64", True),
           ("process_used", "int64", True), ("device_used", "int64", True), ("step", "int64", True),
           ("allocation_id", "int64", True), ("owner", "string", True), ("stream", "int64", True), ("attr", "string", True),
           ("python_stack", "string", True), ("c_stack", "string", True)]
# Keys of Attr that are columns; the address is the column Ptr.
IN_COLUMNS = {"allocation_id": "allocation_id", "size": "size", "used": "used", "total": "total", "process_used": "process_used",
              "device_used": "device_used", "stream": "stream", "streamId": "stream", "owner": "owner"}


class Engines:
    def __init__(self, python):
        self.python = python
        self._process = None

    def _ask(self, what, *words):
        if self._process is None:
            self._process = subprocess.Popen([self.python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                             start_new_session=True)
        self._process.stdin.write(json.dumps([what, [str(word) for word in words]]) + "\n")
        self._process.stdin.flush()
        answer, problem = json.loads(self._process.stdout.readline())
        assert problem is None, problem
        return answer

    def rows(self, *paths):
        return self._ask("rows", *paths)

    def dumps(self, project):
        """{device: rows of its parts as `as_text` gives them, in their order}."""
        found = {}
        for path in parts(project):
            found.setdefault(path.parents[1].name, []).extend(map(as_text, self.rows(path)))
        for device in found.values():
            device.sort(key=lambda row: row[0])
        return found

    def sql(self, *questions):
        return self._ask("sql", *questions)

    def facts(self, path):
        return self._ask("facts", path)

    def same(self, *files):
        self._ask("same", *files)


PYTHON = ROOT / "build" / "venv-engines" / "bin" / "python"


@functools.lru_cache(maxsize=1)
def installed():
    subprocess.run([ROOT / "tools" / "install-packages.sh", "engines"], check=True)
    return Engines(PYTHON)


def parts(project):
    """Those of a project directory."""
    return sorted(project.glob("device_*/dump/*.parquet"))


def database_rows(place):
    """{device: rows of a project directory's db files}, each as `as_text` gives them."""
    found = {}
    for path in sorted(place.glob("device_*/dump/*.db")):
        db = sqlite3.connect(path)
        found[path.parents[1].name] = [[*row[:9], json.loads(row[9]), *row[10:]]
                                       for row in db.execute("SELECT * FROM memscope_dump ORDER BY rowid")]
        db.close()
    for device in found.values():
        for row in device:
            row[9].pop("addr", None)
    return found


def with_calls(place):
    """Devices of a project directory whose db file has Python calls; it may be there for these alone, with the rows that each file has."""
    found = set()
    for path in place.glob("device_*/dump/*.db"):
        with contextlib.closing(sqlite3.connect(path)) as db:
            if db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'python_trace%'").fetchone():
                found.add(path.parents[1].name)
    return found


def layout(place):
    """Parts of the layout that `store add --events` writes, and nothing else; only their owner reads them."""
    files = sorted(path for path in place.rglob("*") if not path.is_dir())
    for path in files:
        assert re.fullmatch(r"run=[^/]+/rank=\d+/device=[^/=]+/part-[0-9a-f]{16}\.parquet", str(path.relative_to(place))), path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    return files


def questions():
    """Those of docs/fleet.md about a view `events`."""
    text = (ROOT / "docs" / "fleet.md").read_text(encoding="utf-8")
    found = [part.split("```")[0].strip().rstrip(";") for part in text.split("```sql\n")[1:]]
    assert len(found) == 5
    return found


def as_text(row):
    """A row of Parquet as a database of ours has it, Attr as a dict."""
    attr = {key: str(row[column]) for key, column in IN_COLUMNS.items() if row[column] is not None}
    # Two keys share a column; which one it was is known from the kind of the row.
    attr.pop("stream" if row["event"] == "KERNEL_LAUNCH" else "streamId", None)
    rest = json.loads(row["attr"] or "{}")
    assert not set(rest) & set(IN_COLUMNS) and "addr" not in rest, rest
    attr.update(rest)
    address = "N/A" if row["address"] is None else f"0x{row['address']:016x}"
    return [row["id"], row["event"], row["event_type"], "N/A" if row["name"] is None else row["name"], row["time_ns"], row["process_id"],
            row["thread_id"], row["device_id"], address, attr, row["python_stack"] or "", row["c_stack"] or ""]


def _rows(paths):
    import pyarrow.parquet as parquet
    found = []
    for path in paths:
        table = parquet.read_table(path, partitioning=None)
        shape = [(field.name, str(field.type), field.nullable) for field in table.schema]
        assert shape == COLUMNS, shape
        found += table.to_pylist()
    return found


def _same(files):
    import duckdb
    import pyarrow.parquet as parquet
    for path, wanted in zip(files[::2], files[1::2]):
        with open(wanted, encoding="utf-8") as file:
            wanted = json.load(file)
        assert parquet.read_table(path).to_pylist() == wanted, f"pyarrow reads other rows in {path}"
        rows = [dict(zip(wanted[0], row)) for row in duckdb.sql(f"SELECT * FROM '{path}'").fetchall()] if wanted else []
        assert rows == wanted, f"DuckDB reads other rows in {path}"


def _sql(questions):
    import duckdb
    return [[list(row) for row in duckdb.sql(question).fetchall()] for question in questions]


def _facts(path):
    import pyarrow.parquet as parquet
    data = parquet.ParquetFile(path).metadata
    groups = []
    for number in range(data.num_row_groups):
        group = data.row_group(number)
        chunks = {}
        for at in range(group.num_columns):
            chunk, bounds = group.column(at), group.column(at).statistics
            chunks[chunk.path_in_schema] = {
                "encodings": list(chunk.encodings), "compression": chunk.compression, "nulls": bounds.null_count,
                "bounds": [bounds.min, bounds.max] if bounds.has_min_max else None}
        groups.append({"rows": group.num_rows, "columns": chunks})
    return {"rows": data.num_rows, "groups": groups, "by": data.created_by}


def _answer(what, words):
    try:
        return {"rows": _rows, "sql": _sql, "facts": lambda paths: _facts(*paths), "same": _same}[what](words), None
    except Exception:  # whatever it is, the test that asked fails with it
        return None, traceback.format_exc()


if __name__ == "__main__":
    for LINE in sys.stdin:
        print(json.dumps(_answer(*json.loads(LINE)), default=str), flush=True)
