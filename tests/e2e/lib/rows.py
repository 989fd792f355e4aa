# SPDX-License-Identifier: Apache-2.0
"""Reads what the tool wrote, strictly: a file that a picky consumer could stumble over raises RowError with file and line.

    projects(out)        the project directories below an output directory, oldest process id first
    project.rows()       all rows of its memscope_dump files, by ID
    blocks(rows)         MALLOC and FREE rows paired by allocation_id; anything doubled, orphaned or different raises
"""
import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

HEADER = ("ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,"
          "Call Stack(Python),Call Stack(C)")

# Values may hold commas, so a comma separates only when one of these keys follows.
ATTR_KEYS = ("allocation_id addr size used total pinned process_used device_used shadow owner inefficient_type page_type "
             "alloc_type type dtype format shape path workspace_ptr workspace_size streamId taskId free reserved "
             "max_reserved allocated max_allocated device_rate reserved_rate func req_size flag pool ptr timestamp requested stream "
             "private_pool waiting private_reserved dry").split()
_KEYS = frozenset(ATTR_KEYS)
_HEX = re.compile(r"0x[0-9a-f]+").fullmatch
_POINTER = re.compile(r"0x[0-9a-f]{16}").fullmatch
_OF_A_BLOCK = frozenset(("allocation_id", "addr", "size"))
_DEVICE = re.compile(r"\d+|cpu|N/A").fullmatch


class RowError(ValueError):
    """A file is not what it should be."""


@dataclass(slots=True)
class Row:
    """One row. Numbers are int; `N/A` is None; stacks are lists of frames, innermost first. (Not frozen: tests read millions of them.)"""
    id: int
    event: str
    type: str
    name: str
    time_ns: int
    pid: int
    tid: int
    device: str
    ptr: int
    attr: dict
    python_stack: list
    c_stack: list
    file: Path
    line: int

    def values(self):
        """All that it says, without where it stands."""
        return replace(self, file=None, line=0)

    def __str__(self):
        return f"{self.file.name}:{self.line}: {self.id} {self.event} {self.type} {self.name} {self.attr}"


@dataclass(frozen=True)
class Block:
    """One allocation and what became of it; `free` is None while it lives."""
    malloc: Row
    free: Row

    @property
    def size(self):
        return self.malloc.attr["size"]


def parse_attr(text):
    """`{key:value,...}` as a dict. Decimal and 0x numbers become int, true becomes True, anything else stays text."""
    if text == "":
        return {}
    if text[0] != "{" or text[-1] != "}":
        raise RowError(f"Attr without braces: {text!r}")
    attr, last = {}, None
    for piece in text[1:-1].split(","):
        key, colon, value = piece.partition(":")
        if not colon or key not in _KEYS:
            if last is None:
                raise RowError(f"Attr begins with an unknown key: {text!r}")
            attr[last] = f"{attr[last]},{piece}"
            continue
        if key in attr:
            raise RowError(f"Attr has {key} twice: {text!r}")
        attr[key], last = value, key
    for key, value in attr.items():
        attr[key] = int(value) if value.isdecimal() else _value(value)
    return attr


def _value(text):
    if text.startswith("0x") and _HEX(text):
        return int(text, 16)
    return True if text == "true" else text


def _number(text, what):
    if text == "N/A":
        return None
    if not text.isdecimal():
        raise RowError(f"{what} is {text!r}")
    return int(text)


def _pointer(text):
    if text == "N/A":
        return None
    if not _POINTER(text):
        raise RowError(f"Ptr is {text!r}")
    return int(text, 16)


def _stack(text):
    if text in ("", "NA"):
        return []
    if not text.endswith("\n"):
        raise RowError(f"call stack does not end with a newline: {text!r}")
    return text[:-1].split("\n")


def read_rows(path):
    """All rows of one memscope_dump csv, in the order of the file."""
    path = Path(path)
    data = path.read_bytes()
    if not data.startswith(HEADER.encode() + b"\n"):
        raise RowError(f"{path}: the header is {data[:200]!r}")
    # Between quotes a message may have any byte but 0, as the program gave it.
    outside = re.sub(rb'"[^"]*"', b"", data)
    if not data.endswith(b"\n") or b"\r" in outside or b"\0" in data:
        raise RowError(f"{path}: not whole lines of text ending in newlines")
    rows = []
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        reader = csv.reader(file, strict=True)
        next(reader)
        line = reader.line_num + 1
        for fields in reader:
            try:
                rows.append(_row(fields, path, line))
            except RowError as error:
                raise RowError(f"{path}:{line}: {error}") from None
            line = reader.line_num + 1
    return rows


def _row(fields, path, line):
    if len(fields) != 12:
        raise RowError(f"{len(fields)} columns")
    ident, event, kind, name, time, pid, tid, device, ptr, attr, python_stack, c_stack = fields
    if not _DEVICE(device):
        raise RowError(f"Device Id is {device!r}")
    row = Row(_number(ident, "ID"), event, kind, None if name == "N/A" else name, _number(time, "Timestamp(ns)"), _number(pid, "Process Id"),
              _number(tid, "Thread Id"), device, _pointer(ptr), parse_attr(attr), _stack(python_stack), _stack(c_stack), path, line)
    if row.id is None or row.time_ns is None:
        raise RowError("no ID or no Timestamp(ns)")
    if event in ("MALLOC", "FREE"):
        if not row.attr.keys() >= _OF_A_BLOCK or row.attr["addr"] != row.ptr:
            raise RowError(f"{event} with Ptr {ptr} and Attr {attr}")
    return row


@dataclass(frozen=True)
class Project:
    """A project directory msmemscope_{pid}_{stamp}_{vendor}, with _2, _3, ... when that name was taken."""
    path: Path
    pid: int
    stamp: str
    vendor: str

    def dumps(self):
        return sorted(self.path.glob("device_*/dump/memscope_dump_*.csv"))

    def rows(self):
        """All rows of all devices by ID, each ID once per process (rows without a device, marks and steps stand in every file)."""
        rows = {}
        for path in self.dumps():
            for row in read_rows(path):
                shared = row.device == "N/A" or row.event == "MSTX" or row.type == "STEP"
                if row.id in rows and not (shared and rows[row.id].file != path and rows[row.id].values() == row.values()):
                    raise RowError(f"ID twice: {row} and {rows[row.id]}")
                rows[row.id] = row
        return [rows[ident] for ident in sorted(rows)]


def projects(out):
    found = []
    for path in Path(out).iterdir():
        match = re.fullmatch(r"msmemscope_(\d+)_(\d{14})_(ascend|cuda|cpu)(?:_\d+)?", path.name)
        if match and path.is_dir():
            found.append(Project(path, int(match[1]), match[2], match[3]))
    return sorted(found, key=lambda project: (project.pid, project.path.name))


def blocks(rows):
    """Pairs the MALLOC and FREE rows of one process; blocks come in the order of their allocation_id."""
    mallocs, frees = {}, {}
    for row in rows:
        if row.event in ("MALLOC", "FREE"):
            side = mallocs if row.event == "MALLOC" else frees
            key = row.attr["allocation_id"]
            if key in side:
                raise RowError(f"allocation_id twice: {row} and {side[key]}")
            side[key] = row
    for key, free in frees.items():
        malloc = mallocs.get(key)
        if malloc is None:
            raise RowError(f"FREE without MALLOC: {free}")
        same = ("type", "device", "ptr", "pid")
        if any(getattr(free, field) != getattr(malloc, field) for field in same) or \
                free.attr["size"] != malloc.attr["size"] or free.time_ns < malloc.time_ns:
            raise RowError(f"FREE differs from its MALLOC: {free} and {malloc}")
    return [Block(mallocs[key], frees.get(key)) for key in sorted(mallocs)]
