# SPDX-License-Identifier: Apache-2.0
"""Tests that fail when they use too much device memory or leak some; and a list of the tests that use most.

    python -m pytest -p msmemscope.pytest_plugin
    python -m pytest --memscope [--memscope-json=FILE]      if installed by pip

    @pytest.mark.limit_device_memory("1 GiB")     fails if the test holds more than this at once
    @pytest.mark.no_device_leaks                  fails if memory of the test is still allocated at its end
    @pytest.mark.no_device_leaks("4 KiB")         the same, but up to 4 KiB may stay

Memory of NPUs and GPUs and CPU tensors of PyTorch count. Fixtures do not: only memory allocated between the first and the last
line of a test counts. A test with a mark is a window (start() to stop()), whose rows are complete when stop() returns. With
--memscope each test is a window, and the summary at the end lists the ten tests with the highest peaks.

The collector must be in the process before its first allocation, so the plugin restarts the interpreter with the collector
preloaded, before pytest has done anything.
"""
import csv
import gc
import json
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

LIMIT, LEAKS = "limit_device_memory", "no_device_leaks"
_SHOWN = 5  # places in a message
_TESTS_SHOWN = 10  # in the summary
_PROPERTY = "msmemscope"  # of a test's report: what it took; reports come from the workers of xdist, too
_AGAIN = "MSMEMSCOPE_PYTEST"  # set in the interpreter that was started again
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.I)
_ATTR = re.compile(r"\b(allocation_id|size):(\d+)")
_DRIVER = ("HAL", "HOST_PINNED")


def parse_size(value):
    """Bytes of 4096, "512", "1.5 GiB", "64M" or "64 MB"; all units are powers of 1024.

    >>> parse_size("1.5 KiB"), parse_size("2m"), parse_size(7)
    (1536, 2097152, 7)
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise pytest.UsageError(f"{value!r} is not a size; write it as 1048576, '512 MiB' or '1.5 GiB'")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def size_text(size):
    """As the tool writes sizes: the largest unit that gives at least 1.

    >>> size_text(512), size_text(1 << 20), size_text(157286400), size_text((1 << 20) - 1)
    ('512 B', '1.0 MiB', '150 MiB', '1.0 MiB')
    """
    unit = 0
    value = float(size)
    while value >= 1023.5 and unit < 4:
        value /= 1024
        unit += 1
    name = ("B", "KiB", "MiB", "GiB", "TiB")[unit]
    return f"{size} B" if unit == 0 else f"{value:.0f} {name}" if value >= 100 else f"{value:.1f} {name}"


# ---- the collector ----

def _library():
    from ._place import HOME
    path = Path(HOME) / "lib64" / "libascend_kernel_hook.so"
    return path if path.exists() else None


def _command_line():
    """The words that started this interpreter."""
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]


def _preload():
    """Starts the interpreter again with the collector; returns where it is there, or cannot be."""
    from . import _native
    if _native.preloaded or os.environ.get(_AGAIN) or os.environ.get("MSMEMSCOPE_DISABLE", "") not in ("", "0"):
        return
    library = _library()
    if library is None:
        return
    before = os.environ.get("LD_PRELOAD", "")
    environment = {**os.environ, "LD_PRELOAD": f"{library}:{before}" if before else str(library), _AGAIN: "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *_command_line()[1:]], environment)


_preload()


# ---- what a window recorded ----

class Window:
    """The rows of a test: for each pool the most that lived at a time, and what was left."""

    def __init__(self):
        self.peak = defaultdict(int)  # (device, pool): bytes of the test's own blocks
        self.at_peak = {}  # (device, pool): {place: bytes} at that moment
        self.left = {}  # allocation id: (device, pool, bytes, place)
        self.pools = set()  # (device, pool) that had rows

    def read(self, rows):
        level, held = defaultdict(int), defaultdict(lambda: defaultdict(int))
        for row in rows:
            attr = {key: int(value) for key, value in _ATTR.findall(row["Attr"])}
            pool = row["Device Id"], row["Event Type"]
            ident, size = attr.get("allocation_id"), attr.get("size", 0)
            self.pools.add(pool)
            if row["Event"] == "MALLOC" and "shadow:true" not in row["Attr"]:
                place = _place(row["Call Stack(Python)"])
                self.left[pool, ident] = size, place
                held[pool][place] += size
                level[pool] += size
                if level[pool] > self.peak[pool]:
                    self.peak[pool] = level[pool]
                    self.at_peak[pool] = dict(held[pool])
            elif row["Event"] == "FREE":
                known = self.left.pop((pool, ident), None)
                if known is not None:  # older blocks are not the test's
                    level[pool] -= known[0]
                    held[pool][known[1]] -= known[0]
        return self


def _is_ours(frame):
    return "site-packages" in frame or "dist-packages" in frame or re.search(r"/lib/python3[^/]*/", frame) is not None


def _place(stack):
    """The innermost frame outside of libraries."""
    frames = [frame for frame in stack.splitlines() if frame and frame != "NA"]
    for frame in frames:
        if not _is_ours(frame):
            return frame.strip()
    return frames[0].strip() if frames else "no Python frame"


class Recorder:
    """Windows of this process: one start() and stop() each, and the rows that came with them."""

    def __init__(self):
        self.directories = None  # pytest's own, which it removes after some runs: the engine writes until the process has ended
        self.output = None
        self.offsets = {}
        self.known_pools = set()

    def begin(self):
        from . import _config, _control, _native
        if _native.collector is None:
            raise pytest.UsageError("msmemscope: the collector is not in this process: is lib64 next to python, and "
                                    "MSMEMSCOPE_DISABLE unset?")
        if self.output is None:
            if _control._recording() != _control.RECORDING_OFF:
                raise pytest.UsageError("msmemscope: pytest already runs under the command msmemscope; run it without the command to use the marks")
            self.output = self.directories.mktemp("msmemscope")
            _config.config(output_path=str(self.output), device="npu,gpu,cpu", events="alloc,free", analysis="none", level="",
                           call_stack="python:12", format="csv")
            _control._fixed["log-level"] = "error"
        _control.start()

    def end(self):
        from . import _control
        gc.collect()
        _control.stop()
        window = Window().read(self._rows())
        self.known_pools |= window.pools
        return window

    def _rows(self):
        rows = []
        for path in sorted(self.output.glob(f"msmemscope_{os.getpid()}_*/device_*/dump/*.csv")):
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                names = next(csv.reader(file))
                file.seek(self.offsets.get(path, 0))
                text = file.read()
                self.offsets[path] = file.tell()
            lines = csv.DictReader(text.splitlines(keepends=True), fieldnames=names)
            rows += [row for row in lines if row["Event"] in ("MALLOC", "FREE")]
        return sorted(rows, key=lambda row: int(row["ID"]))

    def judged(self, pool):
        """Whether what is left of a pool is the test's own: what the driver gave to a framework's pool is its cache."""
        device, name = pool
        return name not in _DRIVER or not any(other == device and kind not in _DRIVER for other, kind in self.known_pools)


def _where(pool):
    device, name = pool
    return f"{name} on {device if device in ('cpu', 'N/A') else f'device {device}'}"


def _list(places):
    """The largest call sites, a line each."""
    ordered = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    lines = [f"  {size_text(size):>10}  {place}" for place, size in ordered[:_SHOWN] if size > 0]
    if len(ordered) > _SHOWN:
        lines.append(f"  ... {len(ordered) - _SHOWN} more call sites")
    return lines


def _over_limit(window, limit):
    if not window.peak:
        return None
    pool, peak = max(window.peak.items(), key=lambda item: item[1])
    if peak <= limit:
        return None
    return "\n".join([f"device memory: the test took {size_text(peak)} of {_where(pool)}, the limit is {size_text(limit)}. "
                      "Held at the peak:", *_list(window.at_peak[pool])])


def _leaks(window, recorder, allowed):
    left = {key: value for key, value in window.left.items() if recorder.judged(key[0])}
    total = sum(size for size, _ in left.values())
    if total <= allowed or not left:
        return None
    places = defaultdict(int)
    for (pool, _), (size, place) in left.items():
        places[f"{_where(pool)}  {place}"] += size
    blocks = "block" if len(left) == 1 else "blocks"
    return "\n".join([f"device memory: {size_text(total)} in {len(left)} {blocks} that the test allocated are still there when it "
                      "has ended:", *_list(places)])


# ---- pytest ----

def pytest_addoption(parser):
    from . import _pytest_entry
    _pytest_entry.add_options(parser)


def _is_wanted(config):
    return config.getoption("memscope", False) or config.getoption("memscope_json", None) is not None


def pytest_configure(config):
    config.addinivalue_line("markers", f"{LIMIT}(size): fail if the test holds more device memory at once than this, such as '1 GiB'")
    config.addinivalue_line("markers", f"{LEAKS}(allowed=0): fail if device memory that the test allocated is still in use when it ends")
    config._msmemscope = Recorder()


@pytest.fixture(scope="session", autouse=True)
def _msmemscope_directories(request, tmp_path_factory):
    request.config._msmemscope.directories = tmp_path_factory


def _argument(marker, default=None):
    values = [*marker.args, *marker.kwargs.values()]
    if len(values) > 1 or (not values and default is None):
        raise pytest.UsageError(f"@pytest.mark.{marker.name} takes one size")
    return parse_size(values[0] if values else default)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    limit, leaks = item.get_closest_marker(LIMIT), item.get_closest_marker(LEAKS)
    every = _is_wanted(item.config)
    if limit is None and leaks is None and not every:
        yield
        return
    recorder = item.config._msmemscope
    try:
        wanted = limit and _argument(limit), leaks and _argument(leaks, 0)
        recorder.begin()
    except pytest.UsageError as error:
        pytest.fail(str(error), pytrace=False)  # one sentence, without lines of ours
    yield
    window = recorder.end()
    if every:
        item.user_properties.append((_PROPERTY, _told(window, recorder)))
    problems = [wanted[0] is not None and _over_limit(window, wanted[0]),
                wanted[1] is not None and _leaks(window, recorder, wanted[1])]
    item._msmemscope_problem = "\n".join(problem for problem in problems if problem)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    problem = getattr(item, "_msmemscope_problem", None)
    if call.when == "call" and problem and report.passed:
        report.outcome = "failed"
        report.longrepr = problem


# ---- the summary ----

def _told(window, recorder):
    """Memory of a test, for the summary and for JSON."""
    left = sum(size for (pool, _), (size, _) in window.left.items() if recorder.judged(pool))
    pools = [{"device": pool[0], "pool": pool[1], "peak_bytes": peak, "places": [
        {"place": place, "bytes": size} for place, size in sorted(window.at_peak[pool].items(), key=lambda one: (-one[1], one[0]))[:_SHOWN]
        if size > 0]} for pool, peak in sorted(window.peak.items())]
    return {"peak_bytes": max(window.peak.values(), default=0), "left_bytes": left, "pools": pools}


def _tests(reports):
    """(name, what it took) of each test, the highest peak first."""
    found = [(report.nodeid, told) for report in reports if report.when == "call" for name, told in report.user_properties if name == _PROPERTY]
    return sorted(found, key=lambda one: (-one[1]["peak_bytes"], one[0]))


def _table(tests):
    lines = []
    for name, told in tests[:_TESTS_SHOWN]:
        pool = max(told["pools"], key=lambda one: one["peak_bytes"], default=None)
        if pool is None:
            break
        left = f", {size_text(told['left_bytes'])} left" if told["left_bytes"] else ""
        lines.append(f"{size_text(told['peak_bytes']):>10}  {name}  ({_where((pool['device'], pool['pool']))}{left})")
        lines += [f"{'':12}{size_text(place['bytes'])}  {place['place']}" for place in pool["places"][:1]]
    return lines


def pytest_terminal_summary(terminalreporter, config):
    if not _is_wanted(config):
        return
    tests = _tests(report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "user_properties"))
    terminalreporter.section("memory of tests")
    lines = _table(tests)
    shown = min(_TESTS_SHOWN, sum(1 for _, told in tests if told["pools"]))
    terminalreporter.line(f"msmemscope: {shown} of {len(tests)} tests, the highest peaks first; the line is where most of the peak was allocated"
                          if lines else f"msmemscope: none of {len(tests)} tests allocated memory of a device or CPU tensors")
    for line in lines:
        terminalreporter.line(line)
    path = config.getoption("memscope_json", None)
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"tests": [{"test": name, **told} for name, told in tests]}, file, indent=1)
            file.write("\n")
        terminalreporter.line(f"msmemscope: wrote {path}")
