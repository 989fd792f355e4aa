#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the tool against its budgets: `make bench`, explained in docs/benchmarks.md.

    run.py [--json] [--strict] [--only WORD] [--dist DIR] [--programs DIR]
    run.py --against OLD_BUILD [--pairs N] [--only WORD]      every figure of this build beside that of another one

Every figure is a difference or a ratio inside one run: what is compared takes turns, and medians count, because the machines
this runs on are shared and noisy. Only the standard library is used.

With --against, the two builds take turns in everything, the first one changing from pair to pair; what counts is the ratio of the
medians, and the middle half of the ratios of single pairs tells how far to trust it. Both replay and export the same kept trace,
which the old build recorded, and run the programs of the new one.
"""
import argparse
import json
import os
import pickle
import random
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import view as page

ROOT = Path(__file__).resolve().parents[1]
FOREIGN = ("MSMEMSCOPE_", "MSLEAKS_", "ASCEND_", "SIMNPU_", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_DEBUG")
MIB = 1 << 20

ROUNDS = 5  # of everything that takes turns; the engine's are long and have 3
PAIRS = 10  # of two builds that take turns, each with one round
CALLS = 1_000_000  # events of a run that measures calls
MIX_EVENTS = 3_000_000  # of a trace that the engine is measured with
LIVE_BLOCKS = 1_000_000
FORM_EVENTS = 1_000_000
WHATIF_EVENTS = 1_000_000  # entries of a memory snapshot
VIEW_EVENTS = 10_000_000  # of the trace that the page shows
CSV_ROWS = 1_000_000  # of a file that is imported and compared
WORK = 1000  # multiplications of mix for each event: about a microsecond


@dataclass
class Row:
    group: str
    what: str
    figure: float
    unit: str
    limit: float = None  # None: shown, not judged
    at_least: bool = False
    note: str = ""

    @property
    def ok(self):
        if self.limit is None:
            return None
        return self.figure >= self.limit if self.at_least else self.figure <= self.limit

    def bar(self):
        return "" if self.limit is None else f"{'>=' if self.at_least else '<='} {number(self.limit)} {self.unit}"


def number(value):
    """A figure as people read it: three digits that count.

    >>> [number(n) for n in (3_000_000, 24, 0.5, 25.234, 2.7155, 0.0313, 1234.5, 43.01, 0)]
    ['3.00 M', '24', '0.5', '25.2', '2.72', '0.031', '1234', '43', '0']
    """
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.2f} M"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:.0f}"
    text = f"{value:.{1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3}f}"
    return text.rstrip("0").rstrip(".")


@dataclass
class Ended:
    """A process that has ended: what it printed, and what it used."""
    output: dict
    wall_s: float
    cpu_s: float
    max_rss: int
    end: float  # of the monotonic clock


class Bench:
    """The programs, the tool, and a place for files; `rows` grows as things are measured."""

    def __init__(self, dist, programs, place, rounds=ROUNDS):
        self.dist, self.programs, self.place, self.rounds = dist, programs, place, rounds
        self.tool = dist / "bin" / "msmemscope"
        self.collector = dist / "lib64" / "libascend_kernel_hook.so"
        self.rows = []
        self.count = 0
        self.view_events = VIEW_EVENTS

    def add(self, *args, **kwargs):
        self.rows.append(Row(*args, **kwargs))

    def fresh(self):
        self.count += 1
        return self.place / f"out{self.count}"

    def environment(self, driver, **changes):
        env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
        env["LD_LIBRARY_PATH"] = str(self.programs / "bare" if driver == "bare" else self.dist / "simnpu" / "lib64")
        env.update(changes)
        return env

    def run(self, argv, env, each_moment=None, accept=(0,)):
        """Runs to the end; its only line on stdout may be JSON. `each_moment(pid)` is called every 5 ms meanwhile."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            start = time.monotonic()
            pid = os.posix_spawn(argv[0], [str(word) for word in argv], env, file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, err.fileno(), 2)])
            while True:
                done, status, usage = os.wait4(pid, os.WNOHANG if each_moment else 0)
                if done:
                    break
                each_moment(pid)
                time.sleep(0.005)
            end = time.monotonic()
            out.seek(0)
            err.seek(0)
            text = out.read().decode()
            code = os.waitstatus_to_exitcode(status)
            if code not in accept:
                raise SystemExit(f"{' '.join(map(str, argv))}: exit status {code}\n{err.read().decode()}")
        output = json.loads(text) if text.startswith(("{", "[")) else {}
        return Ended(output, end - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, end)

    def bare(self, driver, program, *args, preload=False, **changes):
        env = self.environment(driver, **changes, **({"LD_PRELOAD": str(self.collector)} if preload else {}))
        return self.run([self.programs / program, *args], env)

    def traced(self, driver, options, program, *args, each_moment=None):
        """Runs a program with the tool; returns the ended launch and its output directory."""
        out = self.fresh()
        argv = [self.tool, *options, "-o", out, "--", self.programs / program, *args]
        return self.run(argv, self.environment(driver), each_moment), out

    def project(self, out):
        found = sorted(out.glob("msmemscope_*_*"))
        if len(found) != 1:
            raise SystemExit(f"{len(found)} project directories instead of one")
        return found[0]

    def info(self, path, accept=(0,)):
        """What info says of the only process of a trace; older builds say nothing else."""
        ended = self.run([self.tool, "info", path, "--json"], self.environment("bare"), accept=accept)
        [ended.output] = ended.output.get("processes", [ended.output])
        return ended


def over(output, kind, p):
    """What a call costs more than the plain one, at percentile p."""
    return output[f"{kind}_ns"][p] - output[f"plain_{kind}_ns"][p]


def median(values):
    return statistics.median(list(values))


# ---- the traced process ----

def calls_batch(bench):
    """Off, early, shadow, on and with stacks, and without the tool for the error of it all, in turn."""
    found = {name: [] for name in ("nothing", "off", "early", "shadow", "on", "stacks", "python", "site")}
    definitions = expected = 0
    for _ in range(bench.rounds):
        found["nothing"].append(bench.bare("bare", "calls", "batch", 1, CALLS, 0).output)
        found["off"].append(bench.bare("bare", "calls", "batch", 1, CALLS, 0, preload=True, MSMEMSCOPE_DISABLE="1").output)
        found["early"].append(bench.bare("bare", "calls", "batch", 1, CALLS, 0, preload=True).output)
        for name, options, frames in (("shadow", ["--collect-mode=deferred"], 0), ("on", [], 0),
                                      ("stacks", ["--call-stack=c:20"], 24)):
            ended, out = bench.traced("bare", options, "calls", "batch", 1, CALLS // (4 if frames else 1), frames)
            found[name].append(ended.output)
            if name == "stacks":
                definitions += bench.info(bench.project(out)).output["events_by_type"]["stack_def"]
                expected += ended.output["stacks"]
            shutil.rmtree(out)
        for name, options, frames in (("python", ["--call-stack=python:20"], 24), ("site", [], 24)):
            out = bench.fresh()
            argv = [bench.tool, *options, "-o", out, "--", sys.executable, Path(__file__).parent / "frames.py", frames,
                    bench.programs / "libcalls.so", "batch", 1, CALLS // 4, 0]
            found[name].append(bench.run(argv, bench.environment("bare")).output)
            shutil.rmtree(out)

    def figure(name, kind):
        return median(over(output, kind, "p50") for output in found[name])

    def worse(name):
        return max(abs(figure(name, kind)) for kind in ("alloc", "free"))

    assert all(output["preloaded"] == (name != "nothing") for name, outputs in found.items() for output in outputs)
    plain = median(output["plain_alloc_ns"]["p50"] for output in found["on"])
    bench.add("call", "record an allocation", figure("on", "alloc"), "ns", 100, note=f"the plain call takes {plain:.1f} ns")
    bench.add("call", "record a free", figure("on", "free"), "ns", 100)
    bench.add("call", "record either with 20 C frames", worse("stacks"), "ns", 500)
    bench.add("call", "record either with 20 Python frames", worse("python"), "ns", 300)
    bench.add("call", "record an allocation with its Python site below 24 frames", figure("site", "alloc"), "ns", 180,
              note=f"the site alone {figure('site', 'alloc') - figure('on', 'alloc'):.0f} ns")
    bench.add("call", "stacks written for each that there is", definitions / expected, "", 1,
              note=f"{definitions} for {expected}")
    bench.add("call", "shadow", worse("shadow"), "ns", 100)
    bench.add("call", "before the first start()", worse("early"), "ns", 100)
    bench.add("call", "off", worse("off"), "ns", 5)
    bench.add("call", "no preload: the error of the above", worse("nothing"), "ns")


def early_memory(bench):
    """What the table of live blocks takes that a preloaded program has before its first start()."""
    plain, with_table = (bench.bare("bare", "mix", "live", LIVE_BLOCKS, preload=preload).max_rss for preload in (False, True))
    bench.add("call", "memory of a live block before the first start()", (with_table - plain) / LIVE_BLOCKS, "B", 200)


def calls_each(bench):
    """Every call by itself. The worse of allocation and free counts."""
    outputs, stalls = [], []
    for _ in range(bench.rounds):
        ended, out = bench.traced("bare", [], "calls", "each", 1, CALLS, 0)
        outputs.append(ended.output)
        stalls.append(bench.info(bench.project(out)).output["max_stall_ns"])
        shutil.rmtree(out)
    for p, limit in (("p99", 1000), ("p99.99", 50_000)):
        figure = max(median(over(output, kind, p) for output in outputs) for kind in ("alloc", "free"))
        bench.add("call", f"{p} of all calls", figure / 1000, "us", limit / 1000)
    bench.add("call", "longest own stall, as the trace says", median(stalls) / 1000, "us", note=f"of {CALLS} events")


def calls_cpu(bench):
    """CPU time per event, at 1, 2, 4 and 16 threads in turn."""
    counts = (1, 2, 4, 16)
    found = {count: [] for count in counts}
    for _ in range(bench.rounds):
        for count in counts:
            ended, out = bench.traced("bare", [], "calls", "cpu", count, CALLS // 2 // count, 0)
            found[count].append(ended.output["cpu_ns"] - ended.output["plain_cpu_ns"])
            shutil.rmtree(out)
    figures = {count: median(found[count]) for count in counts}
    for count in counts:
        bench.add("call", f"CPU time of an event, {count} thread{'s' * (count > 1)}", figures[count], "ns", 100)
    bench.add("call", "16 threads over 1", figures[16] / figures[1], "x", 1.25)


def unwind(bench):
    """Our unwinder against libunwind, in turn in one process: stacks of 20 frames that both have seen before."""
    outputs = [bench.bare("bare", "unwind").output for _ in range(bench.rounds)]
    if "skipped" in outputs[0]:
        print(f"unwind: {outputs[0]['skipped']}", file=sys.stderr)
        return
    own, theirs, known = (median(output[name] for output in outputs) for name in ("own_ns", "libunwind_ns", "known_ns"))
    bench.add("call", "walk 20 C frames, of libunwind's time", own / theirs, "x", 0.6, note=f"{own:.0f} ns, libunwind {theirs:.0f} ns")
    bench.add("call", "the same, a walk that comes again", known / theirs, "x", 0.4, note=f"{known:.0f} ns")


def calls_instructions(bench):
    """Instructions of an event, which noise cannot touch: the difference of a long and a short run, less the plain calls'."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("no valgrind here: instructions are not counted", file=sys.stderr)
        return
    short, long = 32768, 32768 * 5

    def count(traced, events):
        argv = [valgrind, "--tool=callgrind", "--callgrind-out-file=" + os.devnull, bench.programs / "calls", "cpu", "1",
                events, "0"]
        if traced:
            argv = [bench.tool, "-o", bench.fresh(), "--", *argv]
        with tempfile.TemporaryFile() as err:
            subprocess.run([str(word) for word in argv], env=bench.environment("bare"), stdout=subprocess.DEVNULL,
                           stderr=err, check=True)
            err.seek(0)
            return int(re.search(rb"Collected : (\d+)", err.read())[1])

    with_tool, without = (count(traced, long) - count(traced, short) for traced in (True, False))
    bench.add("call", "instructions of an event, without the clock's", (with_tool - without) / (long - short), "")


def starts(bench):
    ended, out = bench.traced("bare", ["--log-level=error"], "starts", 1000, "/bin/true")
    assert ended.output["preloaded"]
    more = (ended.output["preloaded_ns"] - ended.output["plain_ns"]) / 1000
    left = list(out.rglob("*")) if out.exists() else []
    bench.add("child", "start of a child that hits no hook", more, "us", 100,
              note=f"start and end of /bin/true {ended.output['plain_ns'] / 1000:.0f} us")
    bench.add("child", "files it leaves", len(left), "", 0)


# ---- Python ----

def python(bench):
    """A call with --events=traceback and without the tool; the start of an interpreter with what the command does by default."""
    words = [sys.executable, ROOT / "bench" / "python_calls.py"]
    more = {"python_ns": [], "c_ns": []}
    for _ in range(bench.rounds):
        without = bench.run(words, bench.environment("bare")).output
        argv = [bench.tool, "--log-level=error", "--events=traceback", "--no-keep-trace", "-o", bench.fresh(), "--", *words]
        with_tool = bench.run(argv, bench.environment("bare")).output
        for kind, values in more.items():
            values.append(with_tool[kind] - without[kind])
    bench.add("python", "trace a call of a Python function", median(more["python_ns"]), "ns", 150,
              note="both of its events, and what the interpreter does to tell them")
    bench.add("python", "trace a call of a C function", median(more["c_ns"]), "ns")
    ended, _ = bench.traced("bare", ["--log-level=error"], "starts", 100, sys.executable, "-c", "pass")
    bench.add("python", "start of an interpreter", (ended.output["preloaded_ns"] - ended.output["plain_ns"]) / 1e6, "ms",
              note=f"start and end of python3 -c pass {ended.output['plain_ns'] / 1e6:.1f} ms")


def operators(bench):
    """PyTorch's operators: a step of a small transformer on the CPU, with each way of recording by turns (bench/gpu/operators.py)."""
    interpreter = ROOT / "build" / "venv" / "bin" / "python"
    if not interpreter.exists():
        return
    argv = [bench.tool, "--log-level=error", "--collect-mode=deferred", "--device=cpu", "--no-keep-trace", "-o", bench.fresh(), "--",
            interpreter, "-W", "ignore", ROOT / "bench" / "gpu" / "operators.py", "--device=cpu", "--models=1", "--seconds=15", "--json"]
    found = bench.run(argv, bench.environment("bare")).output["ratios"]
    for way, (ratio, low, high) in found.items():
        bench.add("operators", way, ratio, "x", note=f"95 % {low:.3f} to {high:.3f}")
    for what in ("names", "accesses"):
        ours = found["names" if what == "names" else "names and accesses"][0] - 1
        bench.add("operators", f"{what}: of what the mode adds", 100 * ours / (found[f"dispatch mode, {what}"][0] - 1), "%", 20)


# ---- the trace ----

def packed_raw_bytes(path):
    """Bytes of records before packing, from the block headers of a packed trace (src/trace/pack.h)."""
    data, at, total = path.read_bytes(), 8, 0
    while at + 64 <= len(data):
        _magic, kind, _codec, _reserved, raw, packed = struct.unpack_from("<IBBHII", data, at)
        total += raw if kind == 2 else 0
        at += 64 + packed
    return total


def sizes(bench):
    """The training loop with a microsecond of its own work between two events, as it is and with stacks."""
    for what, options, limits in (("", [], (24, 8)), (" with stacks", ["--call-stack=c:20"], (None, 8))):
        ended, out = bench.traced("simnpu", options, "mix", "train", 500_000, WORK)
        trace, events = bench.project(out) / "trace.msc", ended.output["events"]
        csv = sum(path.stat().st_size for path in out.rglob("*.csv"))
        bench.add("trace", f"raw{what}", packed_raw_bytes(trace) / events, "B/event", limits[0])
        bench.add("trace", f"packed{what}", trace.stat().st_size / events, "B/event", limits[1],
                  note=f"csv {csv / events:.0f} B/event")
        shutil.rmtree(out)


# ---- the engine ----

def children(pid):
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def engine_of(pid, tool):
    """The engine of a launch: the child that is the tool itself. None when there is none yet or no more."""
    for child in children(pid):
        try:
            if os.path.samefile(f"/proc/{child}/exe", tool):
                return child
        except OSError:
            pass
    return None


def status_bytes(pid, key):
    try:
        found = re.search(rf"{key}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


class Killer:
    """Kills the engine of a launch as soon as there is a raw trace to leave behind."""

    def __init__(self, bench):
        self.bench, self.done = bench, False

    def __call__(self, pid):
        # Without a trace the program may not be itself yet, but still a copy of the tool.
        if self.done or not list(self.bench.place.glob("out*/.msmemscope_*/*.raw")):
            return
        engine = engine_of(pid, self.bench.tool)
        if engine is not None:
            os.kill(engine, 9)
            self.done = True


class Watcher:
    """Remembers the most memory that the engine of a launch had, and how much of its own: without pages of files."""

    def __init__(self, tool):
        self.tool, self.peak, self.own = tool, 0, 0

    def __call__(self, pid):
        # Asked for each time: the program, too, is a copy of the tool at first.
        engine = engine_of(pid, self.tool)
        if engine:
            self.peak = max(self.peak, status_bytes(engine, "VmHWM"))
            self.own = max(self.own, status_bytes(engine, "RssAnon"))


def recovered(bench, program, *args, form="csv"):
    """A launch whose engine was killed, and the recovery of it: an engine that does all its work alone."""
    for _ in range(5):
        killer = Killer(bench)
        ended, out = bench.traced("simnpu", ["--log-level=error", "--max-disk=100%", f"--format={form}"], program, *args,
                                  each_moment=killer)
        if killer.done and not list(out.glob("msmemscope_*_*")):
            break
        shutil.rmtree(out)
    else:
        raise SystemExit("the engine was always faster than we could kill it")
    recovery = bench.run([bench.tool, "recover", out, "--json", "--no-report"], bench.environment("simnpu"))
    return ended.output["events"], recovery, out


def engine(bench):
    rates, replays, rows = [], [], 0
    _, tiny = bench.traced("simnpu", [], "mix", "train", 1, 0)
    nothing = median(bench.info(bench.project(tiny)).cpu_s for _ in range(bench.rounds))
    rss = live_rss = 0
    for _ in range(min(3, bench.rounds)):
        events, recovery, out = recovered(bench, "mix", "train", MIX_EVENTS, 0)
        rows = sum(run["rows"] for run in recovery.output)
        rates.append(rows / (recovery.cpu_s - nothing))
        replay = bench.info(bench.project(out))
        replays.append(events / (replay.cpu_s - nothing))
        rss = max(rss, recovery.max_rss)
        shutil.rmtree(out)
    db_rates = []
    for _ in range(min(3, bench.rounds)):
        _, recovery, out = recovered(bench, "mix", "train", MIX_EVENTS, 0, form="db")
        db_rates.append(sum(run["rows"] for run in recovery.output) / (recovery.cpu_s - nothing))
        shutil.rmtree(out)
    events, recovery, out = recovered(bench, "mix", "live", LIVE_BLOCKS)
    live_rss = recovery.max_rss
    page_file = bench.fresh()
    page_rss = bench.run([bench.tool, "report", out, "-o", page_file], bench.environment("bare")).max_rss
    page_file.unlink()
    shutil.rmtree(out)
    bench.add("engine", "events replayed from a packed trace", median(replays), "/s", 3e6, at_least=True,
              note="per second of CPU time")
    bench.add("engine", "csv rows, raw trace to finished files", median(rates), "/s", 1e6, at_least=True,
              note=f"packing included; {rows} rows")
    bench.add("engine", "database rows, the same", median(db_rates), "/s", 5e5, at_least=True)
    bench.add("engine", f"memory, {MIX_EVENTS // 1_000_000} M events, few live blocks", rss / MIB, "MiB", 64)
    bench.add("engine", f"memory, {LIVE_BLOCKS // 1_000_000} M live blocks", live_rss / MIB, "MiB", 64 + LIVE_BLOCKS * 200 / MIB)
    bench.add("engine", "memory of their page, files that are mapped included", page_rss / MIB, "MiB")


def write_dump(path, seed):
    """A dump of operators and of blocks of a pool, as a training writes it; the seed changes every thousandth operator."""
    chance, other = random.Random(1), random.Random(seed)
    live, free, used, now, row, ident, fresh = [], [], 0, 1_700_000_000_000_000_000, 0, 0, 0x12C041200000
    with path.open("w", encoding="utf-8") as file:
        file.write("ID,Event,Event Type,Name,Timestamp(ns),Process Id,Thread Id,Device Id,Ptr,Attr,Call Stack(Python),"
                   "Call Stack(C)\n")

        def put(event, kind, name, ptr="N/A", attr=""):
            nonlocal now, row
            now, row = now + 1000, row + 1
            file.write(f"{row},{event},{kind},{name},{now},42,42,0,{ptr},{attr},,\n")

        while row < CSV_ROWS:
            name = f"torch._ops.aten.op{chance.randrange(200)}.default"
            if other.randrange(1000) == 0:
                name = f"torch._ops.aten.other{other.randrange(200)}.default"
            put("OP_LAUNCH", "ATEN_START", name)
            for _ in range(chance.randrange(1, 3)):
                if live and (len(live) > 2000 or chance.random() < 0.5):
                    event, (at, size, which) = "FREE", live.pop(chance.randrange(len(live)))
                    free.append(at)
                    used -= size
                else:
                    event, size, ident = "MALLOC", 512 * chance.randrange(1, 1000), ident + 1
                    at, which = free.pop() if free else fresh, ident
                    fresh += 512 * 1024 * (at == fresh)
                    live.append((at, size, which))
                    used += size
                put(event, "PTA", "N/A", f"0x{at:x}", f'"{{allocation_id:{which},addr:0x{at:x},size:{size},used:{used},'
                    'total:2147483648,process_used:123456789,device_used:2345678901}"')
            put("OP_LAUNCH", "ATEN_END", name)
    return path


def compared(bench):
    """Two csv files of a million rows, imported, and compared as the command does."""
    files = [write_dump(bench.place / f"dump{seed}.csv", seed) for seed in (2, 3)]
    rates, ratios, env = [], [], bench.environment("bare")
    for _ in range(bench.rounds):
        alone = bench.run([bench.programs / "import_rows", *files], env)
        both = bench.run([bench.tool, "--compare", f"--input={files[0]},{files[1]}", "-o", bench.fresh(), "--quiet"], env)
        rates.append(alone.output["rows"] / alone.cpu_s)
        ratios.append(both.cpu_s / alone.cpu_s)
    for file in files:
        file.unlink()
    bench.add("engine", "csv rows imported", median(rates), "/s", 1.5e6, at_least=True, note="per second of CPU time")
    bench.add("engine", "comparing two csv files, over importing them", median(ratios), "x", 1.3,
              note=f"{CSV_ROWS // 1_000_000} M rows each, a thousandth of the operators differ")


def write_snapshot(bench, path, entries):
    """A memory snapshot of PyTorch: a random program of many sizes, its addresses by the twin's player."""
    rng, program, live, count = random.Random(4), [], [], 0
    while 3 * count < entries:
        if len(live) > 400 or live and rng.random() < 0.45:
            program.append(("f", live.pop(rng.randrange(len(live))), 0))
        else:
            count += 1
            live.append(count)
            program.append(("a", count, rng.choice((rng.randrange(1, 100_000), rng.randrange(1, 4 << 20), rng.randrange(1 << 20, 60 << 20)))))
    text = "\n".join(["program", *(f"a {one} {size} 0" if kind == "a" else f"f {one}" for kind, one, size in program), f"run 2.11.0 {1 << 40} - -", ""])
    lines = iter(subprocess.run([bench.programs.parent / "tests/twin/twin_player"], input=text, capture_output=True, text=True, check=True).stdout.splitlines())
    trace, reserved, where = [], 0, {}
    for kind, one, size in program:
        if kind == "a":
            _, address, now = next(lines).split()
            where[one] = int(address, 16), size
            if int(now) > reserved:
                trace.append({"action": "segment_alloc", "addr": where[one][0], "size": int(now) - reserved, "stream": 0})
            reserved = int(now)
        for action in ("alloc",) if kind == "a" else ("free_requested", "free_completed"):
            trace.append({"action": action, "addr": where[one][0], "size": where[one][1], "stream": 0})
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace], "allocator_settings": {}}, protocol=4))
    return len(trace)


def whatif(bench):
    """Eleven settings of a million events: reading the snapshot, its own replay, and all plays."""
    path = bench.place / "pool.pickle"
    events = write_snapshot(bench, path, WHATIF_EVENTS)
    ends = [bench.run([bench.tool, "whatif", "--json", "--torch=2.11", path], bench.environment("bare")) for _ in range(min(3, bench.rounds))]
    path.unlink()
    if len(ends[0].output["pools"][0].get("settings", [])) != 11:
        raise SystemExit(f"whatif did not answer: {ends[0].output}")
    bench.add("engine", "whatif, eleven settings of a million events", median(end.cpu_s for end in ends) / (events / 1e6), "s", 5,
              note=f"of CPU time; {median(end.wall_s for end in ends):.1f} s by the wall clock")


def kept(trace, events):
    """The measure of one kept trace: replayed, and exported in both forms."""
    def measure(bench):
        env = bench.environment("bare")
        nothing = bench.run([bench.tool, "--version"], env).cpu_s
        bench.add("kept", "events replayed, info", events / (bench.info(trace).cpu_s - nothing), "/s", at_least=True)
        for form in ("csv", "db"):
            out = bench.fresh()
            ended = bench.run([bench.tool, "export", f"--format={form}", "-o", out, trace], env)
            bench.add("kept", f"rows exported as {form}", events / (ended.cpu_s - nothing), "/s", at_least=True)
            shutil.rmtree(out)
    return measure


def forms(bench):
    """One trace with C stacks, as csv and as Parquet by turns: CPU time, bytes of a row, memory."""
    _, out = bench.traced("simnpu", ["--call-stack=c", "--no-report"], "mix", "train", FORM_EVENTS, 0)
    trace, env, taken, memory = bench.project(out), bench.environment("bare"), {}, 0
    cpu = {"csv": [], "parquet": []}
    for _ in range(bench.rounds):
        for form, times in cpu.items():
            place = bench.fresh()
            ended = bench.run([bench.tool, "export", f"--format={form}", "-o", place, trace], env)
            times.append(ended.cpu_s)
            taken[form] = sum(path.stat().st_size for path in place.rglob("memscope_dump_*"))
            memory = max(memory, ended.max_rss) if form == "parquet" else memory
            shutil.rmtree(place)
    shutil.rmtree(out)
    ratio = median(csv / parquet for csv, parquet in zip(cpu["csv"], cpu["parquet"]))
    bench.add("engine", "Parquet rows for one csv row, C stacks", ratio, "x", 1, at_least=True, note="in the same CPU time")
    bench.add("engine", "bytes of a Parquet row, the same", taken["parquet"] / FORM_EVENTS, "B", 12,
              note=f"csv: {taken['csv'] / FORM_EVENTS:.0f} B")
    bench.add("engine", "memory of writing Parquet", memory / MIB, "MiB", 64)


def after_end(bench):
    """From the program's last word to the end of the command, the engine having followed a program that does nothing else."""
    for form, bar in (("csv", 2), ("db", 3)):
        waits, peaks = [], []
        for _ in range(min(3, bench.rounds)):
            watcher = Watcher(bench.tool)
            ended, out = bench.traced("simnpu", [f"--format={form}"], "mix", "train", MIX_EVENTS, 0, each_moment=watcher)
            waits.append((ended.end - ended.output["end_ns"] / 1e9) / (ended.output["events"] / 1e6))
            peaks.append(watcher.peak)
            shutil.rmtree(out)
        bench.add("engine", f"memory while following the same, {form}", median(peaks) / MIB, "MiB", 64)
        bench.add("end", f"{form} files complete after the program's end", median(waits), "s per M events", bar)


def whole(bench):
    """A program that works about a microsecond, or ten, between two events: its time with the tool over that without."""
    for work, events in ((WORK, 300_000), (10 * WORK, 60_000)):
        pairs = []
        for _ in range(bench.rounds):
            without = bench.bare("simnpu", "mix", "train", events, work).output
            with_tool = bench.traced("simnpu", ["--no-keep-trace"], "mix", "train", events, work)[0].output
            pairs.append((with_tool["cpu_ns"] / without["cpu_ns"], (with_tool["end_ns"] - with_tool["start_ns"])
                          / (without["end_ns"] - without["start_ns"]), without["cpu_ns"] / without["events"] / 1000))
        cpu, wall, every = (median(column) for column in zip(*pairs))
        bench.add("whole", f"CPU time of a program, an event every {every:.1f} us", cpu, "x",
                  note=f"{wall:.2f} x by the wall clock, the engine running beside it on {os.cpu_count()} cores")


def scale(bench):
    """Many call sites, stacks and live blocks at once: docs/reliability.md has more of it."""
    live, callers = 200_000, 1
    watcher = Watcher(bench.tool)
    _, out = bench.traced("bare", ["--call-stack=c:5", "--format=none", "--no-report"], "scale", 5_000_000, live, callers, each_moment=watcher)
    stacks = 200_000 * callers
    bar = 64 + (live * 200 + stacks * 150) / MIB
    bench.add("engine", f"memory of a launch, {live // 1000},000 live blocks of {stacks // 1000},000 stacks", watcher.own / MIB, "MiB", bar)
    bench.add("engine", "info of it", bench.info(bench.project(out)).cpu_s, "s", 60, note="CPU time")
    page_file = bench.fresh()
    bench.add("engine", "its page as a file", bench.run([bench.tool, "report", out, "-o", page_file], bench.environment("bare")).cpu_s, "s", 60,
              note="CPU time")
    page_file.unlink()
    shutil.rmtree(out)


def view(bench):
    """The page; wants Chromium, so it is measured only where it is there."""
    if shutil.which("chromium"):
        page.view(bench, bench.view_events)
    else:
        print("view: left out, there is no chromium", file=sys.stderr)


MEASURES = (calls_batch, early_memory, calls_each, calls_cpu, unwind, calls_instructions, starts, python, operators, sizes, engine, forms, compared, whatif,
            after_end, whole, scale, view)


# Exact, so once is enough.
ONCE = (calls_instructions,)


GROUPS = {"call": "A call of the driver, over the plain one", "child": "A child process", "python": "A Python program",
          "operators": "Operators of PyTorch: a step on the CPU, by turns with one without", "trace": "The trace",
          "kept": "One kept trace", "engine": "The engine", "end": "After the program's end", "whole": "A whole program",
          "view": "The page"}


def table(rows):
    cells = [(row.group, "  " + row.what, row.bar(), f"{number(row.figure)} {row.unit}".strip(),
              {None: "", True: "ok", False: "OVER"}[row.ok], row.note) for row in rows]
    widths = [max(len(cell[i]) for cell in cells) for i in range(5)]
    lines, group = [], None
    for cell in cells:
        if cell[0] != group:
            group = cell[0]
            lines.append(GROUPS[group])
        lines.append("  ".join([cell[1].ljust(widths[1]), cell[2].rjust(widths[2]), cell[3].rjust(widths[3]),
                                cell[4].ljust(widths[4]), cell[5]]).rstrip())
    return "\n".join(lines)


@dataclass
class Pair:
    """One figure of two builds."""
    rows: tuple  # of Row, old and new, of each turn

    def figures(self):
        return [median(row.figure for row in rows) for rows in zip(*self.rows)]

    def gains(self):
        """How many times as good the new build is, in each turn: more for a rate, less for a cost."""
        return [ratio(*(row.figure for row in turn), turn[0].at_least) for turn in self.rows]


def ratio(old, new, at_least):
    """How many times as good the new figure is as the old one; None where that means nothing.

    >>> ratio(10, 5, False), ratio(10, 15, True), ratio(0, 3, False)
    (2.0, 1.5, None)
    """
    if old <= 0 or new <= 0:
        return None
    return new / old if at_least else old / new


def take_turns(old, new, measure, pairs):
    """A Pair for each row of the measure."""
    turns = []
    for turn in range(pairs):
        for bench in (old, new) if turn % 2 == 0 else (new, old):
            bench.rows = []
            measure(bench)
        turns.append(tuple(zip(old.rows, new.rows)))
    return [Pair(rows) for rows in zip(*turns)]


def table_of_pairs(pairs):
    """What, old, new, how many times as good, and the middle half of that."""
    cells = []
    for pair in pairs:
        row = pair.rows[0][0]
        figures = pair.figures()
        gain, gains = ratio(*figures, row.at_least), sorted(gain for gain in pair.gains() if gain)
        middle = f"{gains[len(gains) // 4]:.2f} to {gains[-1 - len(gains) // 4]:.2f}" if gains else ""
        cells.append((GROUPS[row.group], row.what, *(f"{number(figure)} {row.unit}".strip() for figure in figures),
                      f"{gain:.2f} x" if gain else "", middle))
    cells.insert(0, ("", "", "old", "new", "as good", "middle half"))
    widths = [max(len(cell[i]) for cell in cells) for i in range(6)]
    lines, group = [], ""
    for cell in cells:
        if cell[0] != group:
            group = cell[0]
            lines.append(group)
        lines.append("  ".join(["  " + cell[1].ljust(widths[1]), *(cell[i].rjust(widths[i]) for i in range(2, 6))]).rstrip())
    return "\n".join(lines)


def against(arguments, place):
    """Two builds; prints the table."""
    places = [place / "old", place / "new"]
    for path in places:
        path.mkdir()
    old, new = (Bench(dist.resolve(), arguments.programs.resolve(), path, rounds=1)
                for dist, path in zip((arguments.against / "dist", arguments.dist), places))
    ended, out = old.traced("simnpu", ["--log-level=error", "--max-disk=100%"], "mix", "train", MIX_EVENTS, 0)
    found = []
    for measure in (kept(old.project(out) / "trace.msc", ended.output["events"]), *MEASURES):
        if arguments.only in measure.__qualname__:
            found += take_turns(old, new, measure, 1 if measure in ONCE else arguments.pairs)
            print(f"{measure.__qualname__.partition('.')[0]} done", file=sys.stderr)
    print(table_of_pairs(found))


def machine():
    return {"kernel": os.uname().release, "architecture": os.uname().machine, "cores": os.cpu_count(),
            "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--strict", action="store_true", help="exit status 1 when a bar is missed")
    parser.add_argument("--only", metavar="WORD", default="", help="only measurements whose name contains WORD: "
                        + ", ".join(measure.__name__ for measure in MEASURES) + "; with --against also kept")
    parser.add_argument("--dist", type=Path, default=ROOT / "build" / "dist", help="staged tree")
    parser.add_argument("--programs", type=Path, default=ROOT / "build" / "release" / "bench", help="where calls and mix lie")
    parser.add_argument("--place", type=Path, default=None, help="directory on a local disk for the files; 2 GiB come and go")
    parser.add_argument("--against", type=Path, metavar="OLD_BUILD", help="the build directory of another build, with its dist")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="turns of both builds (%(default)s)")
    parser.add_argument("--view-events", type=int, default=VIEW_EVENTS, help="of the trace that the page shows (%(default)s)")
    arguments = parser.parse_args()
    old = [arguments.against / "dist" / "bin" / "msmemscope"] if arguments.against else []
    for path in (arguments.dist / "bin" / "msmemscope", arguments.programs / "calls", *old):
        if not path.exists():
            raise SystemExit(f"{path} is not there: run make first")
    here = machine()
    place = Path(tempfile.mkdtemp(prefix="msmemscope-bench-", dir=arguments.place or "/var/tmp"))
    bench = Bench(arguments.dist.resolve(), arguments.programs.resolve(), place)
    bench.view_events = arguments.view_events
    try:
        if arguments.against:
            against(arguments, place)
            return
        for measure in MEASURES:
            if arguments.only in measure.__name__:
                before = time.monotonic()
                measure(bench)
                print(f"{measure.__name__}: {time.monotonic() - before:.0f} s", file=sys.stderr)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if arguments.json:
        rows = [{**asdict(row), "ok": row.ok} for row in bench.rows]
        print(json.dumps({"machine": {**here, "load_after": os.getloadavg()[0]}, "rows": rows}, indent=1))
    else:
        print(table(bench.rows))
    missed = [row for row in bench.rows if row.ok is False]
    print(f"{len(bench.rows)} figures, {len(missed)} over their bar; {here['cores']} cores, "
          f"load {here['load']:.1f} before and {os.getloadavg()[0]:.1f} after", file=sys.stderr)
    sys.exit(1 if missed and arguments.strict else 0)


if __name__ == "__main__":
    main()
