# SPDX-License-Identifier: Apache-2.0
"""Puts inefficient_type into dump files that exist: each MALLOC row that is named gets its value, all other values stay.

Attr is `{key:value,...}` in a csv and JSON in a database. A csv is written anew beside the old one and takes its name when it
is complete; a database changes in one transaction. Each row that changes is parsed again before that, and must say what it
said before but for this one key. So a reader finds the file as it was or as it is to be, and a failure leaves it as it was.
"""
import csv
import io
import json
import os
import re
import tempfile

TYPES = ("early_allocation", "late_deallocation", "temporary_idleness")

_ONE = "(?:%s)" % "|".join(TYPES)
_KEY = "inefficient_type"
_VALUE = re.compile("inefficient_type:(%s(?:,%s)*)?" % (_ONE, _ONE))
_NEXT_KEY = re.compile(",(?=[a-z_]+:)")
_TABLES = ("memscope_dump", "leaks_dump")


def _value(asked, found, old):
    """The types that were found; of those that were not asked for, the ones that the row has already."""
    return ",".join(kind for kind in TYPES if (kind in found if kind in asked else kind in old))


def changed(attr, asked, found):
    """The text of Attr in a csv with the types that were found."""
    match = _VALUE.search(attr)
    value = _value(asked, found, (match.group(1) or "").split(",") if match else ())
    if match:
        start, end = match.span()
        if value:
            return f"{attr[:start]}inefficient_type:{value}{attr[end:]}"
        # One comma goes with the key: the one before, or of the first key the one behind it.
        if attr[start - 1:start] == ",":
            start -= 1
        elif attr[end:end + 1] == ",":
            end += 1
        return attr[:start] + attr[end:]
    if not value:
        return attr
    place = attr.find(",page_type:")
    if place < 0:
        place = attr.rfind("}")
    if place < 0:
        return attr
    comma = "" if attr[:place].endswith("{") else ","
    return f"{attr[:place]}{comma}inefficient_type:{value}{attr[place:]}"


def changed_json(attr, asked, found):
    """The text of Attr in a database with the types that were found. Attr in the style of a csv stays in that style."""
    if not attr.startswith('{"'):
        return changed(attr, asked, found)
    pairs = _parsed(attr)
    if pairs is None:
        return attr  # not readable before us
    value = _value(asked, found, str(pairs.get(_KEY, "")).split(","))
    if value == pairs.get(_KEY, ""):
        return attr
    others = [(key, text) for key, text in pairs.items() if key != _KEY]
    if value:
        place = next((number for number, (key, _) in enumerate(others) if key == "page_type"), len(others))
        others.insert(place, (_KEY, value))
    return json.dumps(dict(others), ensure_ascii=False, separators=(",", ":"))


def _parsed(attr):
    """Attr of either style as a dict; None when it is neither."""
    if attr.startswith('{"'):
        try:
            return json.loads(attr)
        except ValueError:
            return None
    if not attr:
        return {}
    if not (attr.startswith("{") and attr.endswith("}")):
        return None
    return {key: text for key, _, text in (part.partition(":") for part in _NEXT_KEY.split(attr[1:-1]))}


def _check(before, after, path):
    """Refuses a text of Attr that cannot be read, or that says something else than before but for the one key."""
    said, expected = _parsed(after), _parsed(before)
    for side in (said, expected):
        if side:
            side.pop(_KEY, None)
    if said is None or said != expected:
        raise RuntimeError(f"{path}: a row would be unreadable with the finding; the file is unchanged")


# ---- csv ----

def _fields(record):
    """[(start, end)] of the fields of a record, quotes included; None when its end lies inside of quotes."""
    spans, at, length = [], 0, len(record)
    while True:
        start = at
        if record[at:at + 1] == b'"':
            at += 1
            while True:
                at = record.find(b'"', at)
                if at < 0:
                    return None
                at += 1
                following = record[at:at + 1]
                if following in (b",", b"\r", b"\n", b""):
                    break
                if following == b'"':
                    at += 1
        else:
            comma = record.find(b",", at)
            at = comma if comma >= 0 else len(record.rstrip(b"\r\n"))
        spans.append((start, at))
        if record[at:at + 1] != b",":
            return spans
        at += 1
        if at > length:
            return spans


def _records(file):
    """(record, fields) of each record of a csv, with its line end. Names and call stacks may have line ends inside."""
    for line in file:
        spans = _fields(line)
        if spans is None:
            record = line
            for more in file:
                record += more
                # The end of a quoted field is looked for only where one may be.
                if b'"' in more:
                    spans = _fields(record)
                    if spans is not None:
                        break
            line = record
        yield line, spans


def _text(record, span):
    return record[span[0]:span[1]].strip(b'"').decode("utf-8", "surrogateescape")


def _with_attr(record, span, asked, found):
    field = record[span[0]:span[1]]
    quoted = field.startswith(b'"')
    attr = field[1:-1] if quoted else field
    text = changed(attr.decode("utf-8", "surrogateescape"), asked, found).encode("utf-8", "surrogateescape")
    if text == attr:
        return record
    return record[:span[0]] + b'"' + text + b'"' + record[span[1]:]


def _check_record(before, after, attr, path):
    """Refuses a record of which anything but Attr has changed, or whose Attr _check() refuses."""
    old, new = (list(csv.reader(io.StringIO(record.decode("utf-8", "surrogateescape"), newline=""))) for record in (before, after))
    if len(old) != 1 or len(new) != 1 or len(new[0]) != len(old[0]) or any(
            place != attr and text != old[0][place] for place, text in enumerate(new[0])):
        raise RuntimeError(f"{path}: a row would be unreadable with the finding; the file is unchanged")
    _check(old[0][attr], new[0][attr], path)


def _rewrite_rows(source, target, asked, findings):
    """How many rows have another value now."""
    columns, rewritten = None, 0
    for record, spans in _records(source):
        if columns is None:
            names = [_text(record, span).lstrip("\ufeff") for span in spans or ()]
            columns = {name: place for place, name in enumerate(names)}
            target.write(record)
            continue
        if spans is not None and b"MALLOC" in record and len(spans) >= len(columns) and _text(record, spans[columns["Event"]]) == "MALLOC":
            row = tuple(_text(record, spans[columns[name]]) if name in columns else "" for name in ("Process Id", "ID"))
            found = findings.get(row) or findings.get(("", row[1])) or ()
            fresh = _with_attr(record, spans[columns["Attr"]], asked, found)
            if fresh != record:
                _check_record(record, fresh, columns["Attr"], source.name)
                rewritten += 1
            record = fresh
        target.write(record)
    return rewritten


def _sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot
    finally:
        os.close(descriptor)


def _csv(path, asked, findings):
    path = os.path.realpath(path)
    directory = os.path.dirname(path)
    before = os.stat(path)
    descriptor, temporary = tempfile.mkstemp(prefix=".msmemscope-", dir=directory)
    try:
        with open(path, "rb") as source, os.fdopen(descriptor, "wb") as target:
            rewritten = _rewrite_rows(source, target, asked, findings)
            target.flush()
            os.fchmod(target.fileno(), before.st_mode & 0o7777)
            if os.geteuid() == 0:
                os.fchown(target.fileno(), before.st_uid, before.st_gid)
            os.fsync(target.fileno())
        after = os.stat(path)
        if (after.st_ino, after.st_size, after.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns):
            raise RuntimeError(f"{path} is being written by another process; it is unchanged")
        if rewritten:
            os.replace(temporary, path)
            temporary = None
            _sync_directory(directory)
    finally:
        if temporary is not None:
            os.unlink(temporary)
    return rewritten


# ---- databases ----

def _db(path, asked, findings):
    import sqlite3
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.text_factory = lambda value: value.decode("utf-8", "surrogateescape")
    try:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        table = next((name for name in _TABLES if name in names), None)
        if table is None:
            raise ValueError(f"{path} has no table memscope_dump")
        pid = '"Process Id"' if any(row[1] == "Process Id" for row in connection.execute(f"PRAGMA table_info({table})")) else "''"
        rewritten = []
        connection.execute("BEGIN IMMEDIATE")
        for rowid, process, ident, attr in connection.execute(
                f"SELECT rowid, {pid}, \"ID\", \"Attr\" FROM {table} WHERE \"Event\" = 'MALLOC'"):
            found = findings.get((str(process), str(ident))) or findings.get(("", str(ident))) or ()
            fresh = changed_json(attr or "", asked, found)
            if fresh != (attr or ""):
                fresh = fresh.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                _check((attr or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace"), fresh, path)
                rewritten.append((fresh, rowid))
        connection.executemany(f'UPDATE {table} SET "Attr" = ? WHERE rowid = ?', rewritten)
        connection.execute("COMMIT")
        return len(rewritten)
    finally:
        connection.close()


def is_db(path):
    with open(path, "rb") as file:
        return file.read(16) == b"SQLite format 3\0"


def rewrite(path, asked, findings):
    """Writes what was found into a csv or db: findings is {(process, ID): types}, as texts. How many rows changed."""
    return (_db if is_db(path) else _csv)(path, asked, findings)
