# SPDX-License-Identifier: Apache-2.0
"""Runs crash_target under the tool, kills what it is told to, and checks what is left against what the target had published
(tests/targets/crash_target.c): every call that had returned is a row, in its thread's order, once; at most the one call that
was going on in each thread may be there besides.

    victim = crash.start(lanes=4, events=5000, spread_ms=300)
    victim.kill("engine"), victim.finish(), crash.recover(victim), victim.check()
"""
import fcntl
import json
import os
import re
import signal
import sqlite3
import struct
import time
from collections import defaultdict
from pathlib import Path

import rows as rows_module

MAGIC = 0x31757274
LANES_AT = 4096
ENGINE = "mscope-engine"

# As strict as rows.py about what crash_target can cause, and ten times as fast: kills leave millions of rows behind.
ROW = re.compile(rb'(\d+),(MALLOC|FREE),(HAL|HOST_PINNED),N/A,(\d+),(\d+),(\d+),(\d+|cpu),0x([0-9a-f]{16}),'
                 rb'"\{allocation_id:(\d+),addr:0x\8,size:(\d+)(?:,[a-z_]+:[a-z0-9]+)*\}"'
                 rb',,(?:"[^"]*")?\n')


def read_rows(path):
    """(id, event, time, pid, tid, address, allocation_id, size) of each row of one file; anything else in it is a failure."""
    data = path.read_bytes()
    head = rows_module.HEADER.encode() + b"\n"
    assert data.startswith(head), f"{path} begins with {data[:100]!r}"
    at, found = len(head), []
    while at < len(data):
        match = ROW.match(data, at)
        assert match, f"{path}: no row at byte {at}: {data[at:at + 200]!r}"
        ident, event, _, when, pid, tid, _, address, allocation, size = match.groups()
        found.append((int(ident), event.decode(), int(when), int(pid), int(tid), int(address, 16), int(allocation), int(size)))
        at = match.end()
    return found


def read_db(path):
    """The same of one database; whatever is left of a journal belongs to it."""
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)], path
        found = []
        for ident, event, when, pid, tid, ptr, attr in database.execute(
                'SELECT ID, Event, "Timestamp(ns)", "Process Id", "Thread Id", Ptr, Attr FROM memscope_dump ORDER BY rowid'):
            attr = json.loads(attr)
            assert attr["addr"] == ptr
            found.append((ident, event, when, pid, tid, int(ptr, 16), int(attr["allocation_id"]), int(attr["size"])))
    return found


class Truth:
    """What the target had published when it died. `lanes` are (tid, published calls, the call that was going on or None)."""

    def __init__(self, path):
        data = path.read_bytes() if path.exists() else b""
        magic, lanes, events, self.pid = struct.unpack_from("<4Q", data) if len(data) >= 32 else (0, 0, 0, 0)
        self.lanes = []
        for number in range(lanes if magic == MAGIC else 0):
            at = LANES_AT + number * (16 + 32 * events)
            tid, published = struct.unpack_from("<2Q", data, at)
            calls = [struct.unpack_from("<4Q", data, at + 16 + 32 * n) for n in range(min(published + 1, events))]
            going_on = calls[published] if published < len(calls) and calls[published][0] else None
            self.lanes.append((tid, calls[:published], going_on))

    def events(self):
        return sum(len(calls) for _, calls, _ in self.lanes)


def pid_of(parent, is_wanted):
    """The child of `parent` that is wanted by its name, or None."""
    try:
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            if is_wanted(name):
                return int(pid)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return None


def is_gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(holds, what, timeout_s=20):
    end = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < end, f"waited {timeout_s} s in vain: {what}"
        time.sleep(0.002)


def is_filled(directory):
    try:
        return any(directory.iterdir())
    except FileNotFoundError:
        return False


def is_locked(session):
    """Whether an engine holds the lock of a session directory; one that is gone needs none."""
    try:
        with (session / "session").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


class Victim:
    """One launch of crash_target. `out` is its output directory."""

    def __init__(self, started, out, truth):
        self.started = started
        self.out = out
        self.truth_path = truth
        self.visible = started.pid
        self.left_engine = None  # the one that goes on when its supervisor is killed
        self.run = None

    def engine(self):
        """Pid of the engine; waits for it to be there. None when the launch is over."""
        found = []

        def look():
            found[:] = [pid_of(self.visible, lambda name: name == ENGINE)]
            return found[0] is not None or is_gone(self.visible)
        wait_until(look, "the engine did not start")
        return found[0]

    def program(self):
        return pid_of(self.visible, lambda name: name != ENGINE)

    def kill(self, *names):
        """SIGKILL to the named ones, as close together as can be: "program", "engine", "visible"."""
        self.left_engine = pid_of(self.visible, lambda name: name == ENGINE)
        pids = [{"program": self.program, "engine": self.engine, "visible": lambda: self.visible}[name]() for name in names]
        for pid in pids:
            if pid is not None:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        return pids

    def finish(self):
        """Waits until nothing of the launch runs any more, also no engine that went on in the background."""
        self.run = self.started.finish()
        if self.left_engine is not None:
            wait_until(lambda: is_gone(self.left_engine), "an engine is still at work")
        for session in self.sessions():
            wait_until(lambda: not is_locked(session), f"an engine is still at work in {session}")
        return self.run

    def sessions(self):
        """Session directories that are there. One that is empty was about to go; nobody misses it."""
        return sorted(path for path in self.out.glob(".msmemscope_*") if is_filled(path))

    def rows(self):
        """All rows by ID, and the directory of the project, or None when the program was not recorded at all."""
        projects = rows_module.projects(self.out)
        assert len(projects) <= 1, f"{len(projects)} projects in {self.out}"
        if not projects:
            return [], None
        place = projects[0].path
        files = sorted(place.glob("device_*/dump/memscope_dump_*"))
        assert {path.suffix for path in files} <= {".csv", ".db"}, files
        return sorted(row for path in files for row in (read_db if path.suffix == ".db" else read_rows)(path)), place

    def check(self, ended=False, bounded=False):
        """The claim. `ended`: the program was not killed, so every call returned. `bounded`: --max-trace may have been reached while no
        engine lived; then the newest calls are missing, and as many are said to be. Gives the number of rows."""
        truth = Truth(self.truth_path)
        rows, project = self.rows()
        assert [row[0] for row in rows] == list(range(len(rows))), f"IDs with gaps or twice in {self.out}"
        by_tid = defaultdict(list)
        for row in rows:
            assert row[3] == truth.pid
            by_tid[row[4]].append(row)
        allocation_of = {}
        pairs = []
        for tid, calls, going_on in truth.lanes:
            found = by_tid.pop(tid, [])
            most = len(calls) + (going_on is not None and not ended)
            assert (0 if bounded else len(calls)) <= len(found) <= most, \
                f"thread {tid}: {len(found)} rows, {len(calls)} calls published, in {self.out}"
            if len(found) > len(calls):
                calls = [*calls, going_on]
            for row, (what, block, address, size) in zip(found, calls):
                _, event, _, _, _, ptr, allocation, row_size = row
                assert (event, row_size) == (("MALLOC", "FREE")[what - 1], size), f"{row} is {what, hex(address), size}"
                assert ptr == address or address == 0, f"{row} is {what, hex(address), size}"
                pairs.append((row, what, block))
                if what == 1:
                    allocation_of[block] = allocation
        assert not by_tid, f"rows of threads that did nothing: {list(by_tid)}"
        for row, what, block in pairs:
            assert row[6] == allocation_of[block], f"{row} is of another block"
        assert sorted(allocation_of.values()) == list(range(1, len(allocation_of) + 1)), "allocation ids"
        self.check_left(rows, project, bounded)
        if bounded and project is not None:
            made = sum(len(calls) for _, calls, _ in truth.lanes)
            most = made + sum(going_on is not None for _, _, going_on in truth.lanes)
            said = self.info(project)["losses"]["disk_limit"]
            assert made <= len(rows) + said <= most, f"{made} made, {len(rows)} kept, {said} said to be missing, in {self.out}"
        return len(rows)

    def check_left(self, rows, project, bounded):
        # A command that is killed before it has an engine leaves its session, with nothing in it yet.
        unborn = self.left_engine is None and not rows
        assert not [path for path in self.sessions() if not unborn or [file.name for file in path.iterdir()] != ["session"]], \
            f"left behind: {self.sessions()}"
        if project is None:
            assert not rows
            return
        info = self.info(project)
        assert not info["damaged"], (info["damage"], self.out)
        assert info["damage"]["late_events"] == 0
        assert not any(count for name, count in info["losses"].items() if not bounded or name != "disk_limit"), info["losses"]
        assert not any(count for name, count in info["oddities"].items() if name != "undone_frees"), info["oddities"]
        live = {}
        for _, event, _, _, _, address, allocation, size in rows:
            if event == "MALLOC":
                live[allocation] = (address, size)
            else:
                assert live.pop(allocation)[0] == address
        assert sorted(live.values()) == sorted((int(block["address"], 16), block["size"]) for block in info["live_blocks"])

    info = None  # set by Crash


class Crash:
    def __init__(self, command, program, out):
        self.command = command
        self.program = program
        self.out = out
        self.count = 0

    def start(self, lanes=2, events=3000, spread_ms=300, options=(), env=None, refuses=False, wrap=lambda words: words,
              number=None):
        """`refuses`: on a driver that refuses some frees, so that rows which are out already must go again."""
        self.count += 1
        place = self.out / f"{self.count if number is None else number}"
        place.mkdir()
        truth = place / "truth"
        words = wrap(self.program("crash_target", truth, lanes, events, spread_ms))
        if refuses:
            env = {**(env or {}), "LD_LIBRARY_PATH": Path(self.program("crash_target")[-1]).parent / "refusing"}
        started = self.command.start(*options, "--", *words, output=place, env=env)
        victim = Victim(started, place, truth)
        victim.info = self.info
        return victim

    def info(self, project):
        run = self.command("info", project, "--json", "--all", output=False)
        assert run.returncode == 0, run
        [process] = json.loads(run.stdout)["processes"]
        return process

    def recover(self, victim, status=0):
        run = self.command("recover", victim.out, output=False)
        assert run.returncode == status, run
        return run
