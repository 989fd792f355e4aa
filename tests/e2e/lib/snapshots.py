# SPDX-License-Identifier: Apache-2.0
"""Rows SNAPSHOT of a directory of results, csv or db, as any other process reads them; for tests, and for scripts under test that
look at their own files.

    snapshots.read(out, pid)     [name, device, {key: int or text}, time, thread] of each, by ID
"""
import json
import os
import sqlite3
from pathlib import Path

import rows


def _value(text):
    return int(text) if isinstance(text, str) and text.isdecimal() else text


def _of_db(path):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        found = db.execute('select ID, Name, "Device Id", Attr, "Timestamp(ns)", "Thread Id", Ptr, "Call Stack(Python)" || "Call Stack(C)" '
                           "from memscope_dump where Event = 'SNAPSHOT' and \"Event Type\" = 'SNAPSHOT'").fetchall()
    db.close()
    assert all(row[6] == "N/A" and row[7] == "" for row in found), found
    return [(row[0], [row[1], row[2], {key: _value(value) for key, value in json.loads(row[3]).items()}, *row[4:6]]) for row in found]


def read(out, pid=None):
    found = []
    for project in rows.projects(out) if os.path.isdir(out) else []:
        if pid in (None, project.pid):
            for path in sorted(Path(project.path).glob("device_*/dump/*.db")):
                found += _of_db(path)
            # A file that has no header yet has no rows: the engine has just made it.
            if all(path.stat().st_size > 0 for path in Path(project.path).glob("device_*/dump/memscope_dump_*.csv")):
                found += [(row.id, [row.name, row.device, row.attr, row.time_ns, row.tid])
                          for row in project.rows() if row.event == "SNAPSHOT"]
    return [row for _, row in sorted(found, key=lambda item: item[0])]
