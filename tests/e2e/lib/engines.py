# SPDX-License-Identifier: Apache-2.0
"""What reads Parquet, none of it ours: pyarrow and DuckDB of build/venv-engines, which Python of that environment runs. This file is both the
helper that tests import and the script that runs there.

    Engines(python).rows(path...)        all rows of the files by pyarrow, as dicts
    Engines(python).sql(question...)     rows of each question by DuckDB, as lists
    Engines(python).facts(path)          row groups, statistics and encodings by pyarrow
    Engines(python).same(path, rows...)  fails unless both find exactly the rows of a JSON file in the Parquet file before it
"""
import json
import subprocess
import sys

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

    def _ask(self, what, *words):
        asked = json.dumps([what, [str(word) for word in words]])
        done = subprocess.run([self.python, __file__], input=asked, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self, *paths):
        return self._ask("rows", *paths)

    def sql(self, *questions):
        return self._ask("sql", *questions)

    def facts(self, path):
        return self._ask("facts", path)

    def same(self, *files):
        self._ask("same", *files)


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


if __name__ == "__main__":
    ASKED, WORDS = json.load(sys.stdin)
    json.dump({"rows": _rows, "sql": _sql, "facts": lambda words: _facts(*words), "same": _same}[ASKED](WORDS), sys.stdout, default=str)
