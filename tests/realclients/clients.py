# SPDX-License-Identifier: Apache-2.0
"""Runs programs of real frameworks on the simulated NPU, with and without msmemscope, and reads what it wrote.

    client.run("train.py", "cpu")                     the program alone; stdout is lines of JSON
    client.trace("story.py", tool=["--events=..."])   the same under the tool; .rows() are its rows
"""
import csv
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIMEOUT_S = 240

# Values of Attr may hold commas: a comma separates only before a word and a colon.
_ATTR = re.compile(r"(?:^|,)(\w+):")


@dataclass
class Row:
    """One row of the tool. `ptr` and numbers in `attr` are int where they look like it."""
    event: str
    type: str
    name: str
    pid: int
    device: str
    ptr: int
    attr: dict
    python_stack: str
    c_stack: str


def _number(text):
    for pattern, base in ((r"-?\d+", 10), (r"0x[0-9a-fA-F]+", 16)):
        if re.fullmatch(pattern, text):
            return int(text, base)
    return text


def _attributes(text):
    text = text.strip("{}")
    keys = list(_ATTR.finditer(text))
    ends = [match.start() for match in keys[1:]] + [len(text)]
    return {match.group(1): _number(text[match.end():end]) for match, end in zip(keys, ends)}


def _row(fields):
    return Row(fields["Event"], fields["Event Type"], fields["Name"].strip('"'), int(fields["Process Id"]), fields["Device Id"],
               _number(fields["Ptr"]), _attributes(fields["Attr"]), fields["Call Stack(Python)"], fields["Call Stack(C)"])


@dataclass
class Result:
    """What a run left. `lines` is stdout, each line of JSON read."""
    code: int
    stdout: str
    stderr: str
    out: Path
    lines: list = field(default_factory=list)

    def check(self):
        assert self.code == 0, f"exit code {self.code}\n{self.stdout[-4000:]}\n{self.stderr[-6000:]}"
        return self

    def dumps(self):
        return sorted(self.out.glob("*/device_*/dump/memscope_dump_*.csv"))

    def rows(self):
        """All rows of all processes and devices, by process and ID: the order in which things happened in each."""
        found = []
        for path in self.dumps():
            with open(path, newline="", encoding="utf-8") as file:
                found += [(int(fields["Process Id"]), int(fields["ID"]), path, _row(fields)) for fields in csv.DictReader(file)]
        seen = set()
        rows = []
        for pid, number, _, row in sorted(found, key=lambda item: (item[0], item[1], str(item[2]))):
            # What concerns no device is in the file of each.
            if (pid, number, row.device) in seen:
                continue
            seen.add((pid, number, row.device))
            rows.append(row)
        return rows

    def value(self, key):
        """The value of the last line that has the key."""
        return next(line[key] for line in reversed(self.lines) if key in line)


def build_receiver(folder):
    """The library of receiver.c."""
    library = folder / "libreceiver.so"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden",
                    "-I", ROOT / "simnpu" / "include", HERE / "receiver.c", "-o", library, "-ldl", "-pthread"], check=True)
    return library


class Client:
    """An environment with torch_npu, an installed tool and a simulated NPU."""

    def __init__(self, python, dist, simnpu, work):
        self.python = python
        self.dist = dist
        self.simnpu = simnpu
        self.work = work
        self.count = 0

    def environment(self, changes=None):
        names = ("PATH", "HOME", "TMPDIR", "LANG")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment.update({
            "ASCEND_HOME_PATH": str(self.simnpu),
            "ASCEND_OPP_PATH": str(self.simnpu / "opp"),
            "LD_LIBRARY_PATH": str(self.simnpu / "lib64"),
            "PYTHONPATH": os.pathsep.join(map(str, (self.simnpu / "python", HERE / "programs"))),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            # What several processes use of the devices is nobody else's business.
            "SIMNPU_SHARE": str(self.work),
        })
        environment.update(changes or {})
        return {name: value for name, value in environment.items() if value is not None}

    def start(self, argv, env, out, timeout):
        self.count += 1
        with subprocess.Popen([str(word) for word in argv], cwd=out, env=self.environment(env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                # With all that it started: a rank that waits for another one would stay.
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
                stderr += f"\nended after {timeout} s"
        lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        return Result(process.returncode, stdout, stderr, out, lines)

    def directory(self):
        out = self.work / f"run{self.count}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        return out

    def command(self, program, *arguments):
        return [self.python, HERE / "programs" / program, *arguments]

    def run(self, program, *arguments, env=None, timeout=TIMEOUT_S):
        return self.start(self.command(program, *arguments), env, self.directory(), timeout).check()

    def trace(self, program, *arguments, tool=(), env=None, timeout=TIMEOUT_S, command=None):
        out = self.directory()
        argv = [self.dist / "bin" / "msmemscope", "-o", out, *tool, "--", *(command or self.command(program, *arguments))]
        return self.start(argv, env, out, timeout)
