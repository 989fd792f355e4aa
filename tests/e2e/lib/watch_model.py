# SPDX-License-Identifier: Apache-2.0
"""What --watch must dump, worked out from what a target said on stdout (targets/watch_ops.c) by the rules of the manual, and
what it did dump, read from the files."""
import csv
import json
from dataclasses import dataclass, field

# Operators of two layers, for targets/atb/atb_watch.cpp.
MODEL = [f"token0/layer{layer}/module0/{words}" for layer in range(2)
         for words in ("op0=01:01", "op2=:", "op3=2:2", "op1=:3")]
SIZES = (4096, 1000, (3 << 20) + 17, 1)
POLYNOMIAL = 0x42F0E1EBA9EA3693


def _table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ POLYNOMIAL if value & 1 else value >> 1
        table.append(value)
    return table


TABLE = _table()


def checksum(data):
    """
    >>> f"{checksum(b'123456789'):016x}"
    'b86883e6fa710a9f'
    """
    value = 2**64 - 1
    for byte in data:
        value = value >> 8 ^ TABLE[(value ^ byte) & 0xff]
    return value ^ (2**64 - 1)


_contents = {}


def content(block, added):
    """Bytes of a block after 1 was added so many times, and their checksum."""
    key = block, added
    if key not in _contents:
        period = bytes((7 * i + block + added) & 0xff for i in range(256))
        data = (period * (SIZES[block] // 256 + 1))[:SIZES[block]]
        _contents[key] = data, f"{checksum(data):016x}"
    return _contents[key]


@dataclass
class Watched:
    name: str
    output: int
    block: int
    left: int = -1
    api: bool = False


@dataclass
class Model:
    """The rules once more. `dumps` are (name of the dump, block, times that 1 was added)."""
    start: str = ""
    output: int = None
    end: str = ""
    op: bool = True
    kernel: bool = False
    device: str = "0"
    dumps: list = field(default_factory=list)
    watched: list = field(default_factory=list)
    is_open: bool = False
    counts: dict = field(default_factory=dict)
    before: dict = field(default_factory=dict)

    def shown(self, line):
        """An operator is called by its path when the user named one by its path."""
        return line.get("path") if "/" in self.start + self.end and line.get("path") else line["name"]

    def is_(self, wanted, line):
        return bool(wanted) and wanted in (line["name"], line.get("path"))

    def look(self, line, moment, added, ranges):
        name = self.shown(line)
        for item in ranges:
            self.dumps.append((f"{self.device}_{line['tid']}_{name}_{self.counts.get(name, 0)}-{item.name}_{item.output}_{moment}"
                               ".bin", item.block, added[item.block]))
            item.left -= 1
        self.watched = [item for item in self.watched if item.left != 0]

    def count(self, line):
        self.counts[self.shown(line)] = self.counts.get(self.shown(line), 0) + 1

    def take(self, line):
        what, added = line["what"], line["added"]
        looks = self.op or self.is_(self.start, line) or self.is_(self.end, line)
        if what == "watch":
            block, limit = map(int, line["list"].split())
            self.watched.append(Watched(line["name"], 0, block, limit, True))
        elif what in ("remove", "free"):
            self.watched = [item for item in self.watched
                            if item.block != int(line["name"]) or (what == "remove" and not item.api)]
            self.is_open = self.is_open and any(not item.api for item in self.watched)
        elif what in ("begin", "kbegin") and (what == "begin" or self.kernel):
            self.count(line)
            self.look(line, "before", added, list(self.watched) if looks or what == "kbegin" else [])
        elif what == "kend" and self.kernel:
            self.look(line, "after", added, list(self.watched))
        elif what == "launch" and self.kernel:
            self.before[line["name"]] = list(added), list(self.watched)
        elif what == "launched" and self.kernel:
            self.count(line)
            self.look(line, "before", *self.before.pop(line["name"]))
            self.look(line, "after", added, list(self.watched))
        elif what == "end":
            self.at_end(line, added, list(self.watched) if looks else [])

    def at_end(self, line, added, ranges):
        self.look(line, "after", added, ranges)
        if self.is_(self.end, line) and (self.is_open or not self.start):
            self.watched = [item for item in self.watched if item.api and self.start]
            self.is_open = False
        elif self.is_(self.start, line) and not self.is_open:
            outputs = [Watched(self.start, place, int(digit)) for place, digit in enumerate(line["list"])]
            if self.output is not None and self.output < len(outputs):
                outputs = [outputs[self.output]]
            self.watched += outputs
            self.is_open = bool(outputs)
            self.look(line, "after", added, outputs)


def expected(stdout, **settings):
    model = Model(**settings)
    for line in stdout.splitlines():
        model.take(json.loads(line))
    return model.dumps


def sums(dumps):
    """Lines that the csv must have for these dumps."""
    return [(name, content(block, added)[1]) for name, block, added in dumps]


def checksums(out, device="0"):
    """Lines of the only csv of a device: (name, checksum)."""
    files = sorted((out / "watch_dump").glob(f"watch_dump_data_check_sum_{device}_*.csv"))
    assert len(files) == 1, files
    with files[0].open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == ["Tensor info", "Check data sum"]
    return [tuple(line) for line in lines]


def matches(change, truth):
    """Whether an unexpected change, as info --json has it, is what the program did."""
    if truth["kind"] == "between":
        who = (change["from"]["operator"], change["from"]["moment"], change["to"]["operator"], change["to"]["moment"]) == (
            truth["from"], "end", truth["to"], "start")
    else:
        who = change["during_one_call"] and change["to"]["operator"] == truth["op"]
    frame = next(frame for frame in change["frames"] if frame["user"])
    return (who and (change["bytes"], change["first_offset"], change["last_offset"], change["step"], change["times"]) == (
        truth["bytes"], truth["first"], truth["last"], truth["step"], 1) and frame["line"] == truth["line"])
