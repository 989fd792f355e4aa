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
             "private_pool waiting private_reserved").split()
_KEY = re.compile(r"(?:^|,)(" + "|".join(ATTR_KEYS) + r"):")


class RowError(ValueError):
    """A file is not what it should be."""


@dataclass(frozen=True)
class Row:
    """One row. Numbers are int; `N/A` is None; stacks are lists of frames, innermost first."""
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
    pieces = _KEY.split(text[1:-1])
    if pieces[0] != "" or len(pieces) == 1:
        raise RowError(f"Attr begins with an unknown key: {text!r}")
    attr = {}
    for key, value in zip(pieces[1::2], pieces[2::2]):
        if key in attr:
            raise RowError(f"Attr has {key} twice: {text!r}")
        attr[key] = _value(value)
    return attr


def _value(text):
    if re.fullmatch(r"\d+", text):
        return int(text)
    if re.fullmatch(r"0x[0-9a-f]+", text):
        return int(text, 16)
    return True if text == "true" else text


def _number(text, what, pattern=r"\d+", base=10):
    if text == "N/A":
        return None
    if not re.fullmatch(pattern, text):
        raise RowError(f"{what} is {text!r}")
    return int(text, base)


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
    if not re.fullmatch(r"\d+|cpu|N/A", device):
        raise RowError(f"Device Id is {device!r}")
    row = Row(id=_number(ident, "ID"), event=event, type=kind, name=None if name == "N/A" else name,
              time_ns=_number(time, "Timestamp(ns)"), pid=_number(pid, "Process Id"), tid=_number(tid, "Thread Id"),
              device=device, ptr=_number(ptr, "Ptr", r"0x[0-9a-f]{16}", 16), attr=parse_attr(attr),
              python_stack=_stack(python_stack), c_stack=_stack(c_stack), file=path, line=line)
    if row.id is None or row.time_ns is None:
        raise RowError("no ID or no Timestamp(ns)")
    if event in ("MALLOC", "FREE"):
        missing = {"allocation_id", "addr", "size"} - row.attr.keys()
        if missing or row.attr["addr"] != row.ptr:
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
