# SPDX-License-Identifier: Apache-2.0
"""The Python trace: every call of every thread, once, in order, on the clock of the memory events; ranges of the program's own.

What must be in a trace is what sys.setprofile() tells in a run of the same script without the tool (targets/python/profiled.py).
"""
import json
import os
import sys
import time

import pytest

import slices
from rows import projects

SCRIPTS = "python"


@pytest.fixture
def script(targets):
    return lambda name: targets / SCRIPTS / name


@pytest.fixture
def truth(msmemscope, script, tmp_path):
    """Runs a script without the tool; the texts of its slices, main thread first."""
    def run(path):
        file = tmp_path / "truth"
        msmemscope.bare(sys.executable, script("profiled.py"), file, path).check()
        return json.loads(file.read_text(encoding="utf-8"))

    return run


def triples(found):
    return [(one.text, one.start, one.end) for one in found]


def traced(msmemscope, *command, options=(), **how):
    run = msmemscope("--events=traceback", *options, "--", *command, **how).check()
    return run, slices.threads(run.project())


def test_traceback_records_every_call_from_the_first_line_on(msmemscope, script, truth):
    path = script("calls.py")
    wanted = slices.of_module(truth(path)[0], path)
    run, found = traced(msmemscope, sys.executable, path)
    [(tid, rows)] = found.items()
    assert tid == run.project().pid
    assert slices.of_module(triples(rows), path) == wanted
    assert len(wanted) > 500
    slices.nested(rows)
    assert all(one.start is not None and one.end is not None for one in rows)
    assert run.project().vendor == "cpu" and [p.parent.parent.name for p in slices.files(run.project())] == ["device_cpu"]


def test_what_lies_inside_what_is_as_the_profiler_tells(msmemscope, script, truth):
    """Depths by time equal depths by the count of events."""
    path = script("calls.py")

    def depths(rows):
        open_at = []
        for text, start, end in sorted(rows, key=lambda row: (row[1], -row[2])):
            open_at = [other for other in open_at if other > start or (other >= end and end > start)]
            open_at.append(end)
            yield text, len(open_at)

    def of_script(rows):
        return [row for row in rows if row[0].startswith(f"{path}(")]

    _, found = traced(msmemscope, sys.executable, path)
    [rows] = found.values()
    mine = sorted(depths(of_script(triples(rows))))
    assert mine == sorted(depths(of_script(truth(path)[0])))


def test_four_threads_have_a_file_each(msmemscope, script, truth):
    path = script("workers.py")
    wanted = sorted(slices.within(path, [slices.Slice(text, 0, 0, 0, 0) for text, *_ in rows]) for rows in truth(path))
    run, found = traced(msmemscope, sys.executable, path)
    assert sorted(slices.within(path, rows) for rows in found.values()) == wanted
    assert len(found) == 5
    for rows in found.values():
        slices.nested(rows)
    workers = [rows for tid, rows in found.items() if tid != run.project().pid]
    assert all([one.text.partition(" ")[0] for one in rows if one.text.startswith("start: ")] == ["start:"] * 2 for rows in workers)


def test_the_database_has_the_same_slices(msmemscope, script):
    path = script("calls.py")
    run = msmemscope("--events=traceback", "--format=db", "--", sys.executable, path).check()
    [(tid, rows)] = slices.tables(run.project()).items()
    assert tid == run.project().pid
    slices.nested(rows)
    _, found = traced(msmemscope, sys.executable, path, output=run.out / "csv")
    [others] = found.values()
    assert [one.text for one in rows] == [one.text for one in others]
    assert not slices.files(run.project())


def test_export_writes_them_again_from_the_trace(msmemscope, script):
    run, found = traced(msmemscope, sys.executable, script("workers.py"))
    again = run.out / "again"
    msmemscope("export", run.project().path, "-o", again, output=False).check()
    [project] = projects(again)
    assert slices.threads(project) == found
    names = [path.relative_to(project.path) for path in slices.files(project)]
    assert names == [path.relative_to(run.project().path) for path in slices.files(run.project())]


MEMORY = """
import ctypes, json, time
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]

def allocates():
    address = ctypes.c_void_p()
    assert hal.halMemAlloc(ctypes.byref(address), 4096, 33 << 56 | 0x904400) == 0

before = time.time_ns()
for _ in range(20):
    allocates()
print(json.dumps([before, time.time_ns()]))
"""


def test_the_clock_is_that_of_the_memory_events(msmemscope, tmp_path):
    """Each allocation lies in its own call; the file lies beside the dump of the device that the thread uses."""
    path = tmp_path / "memory.py"
    path.write_text(MEMORY, encoding="utf-8")
    run = msmemscope("--events=alloc,free,traceback", "--", sys.executable, path).check()
    before, after = json.loads(run.stdout)
    calls = [one for rows in slices.threads(run.project()).values() for one in rows if one.text == f"{path}(7): allocates"]
    times = [row.time_ns for row in run.rows() if row.event == "MALLOC"]
    assert len(calls) == len(times) == 20
    assert all(call.start <= time <= call.end for call, time in zip(calls, times))
    assert before <= calls[0].start and calls[-1].end <= after
    assert run.project().vendor == "ascend"
    assert [p.parent for p in slices.files(run.project())] == [p.parent for p in run.project().dumps()]


def test_only_the_trace_is_written_when_only_it_is_named(msmemscope, tmp_path):
    path = tmp_path / "memory.py"
    path.write_text(MEMORY, encoding="utf-8")
    run, found = traced(msmemscope, sys.executable, path)
    assert len(found) == 1 and not run.project().dumps()
    assert "device_0" in str(slices.files(run.project())[0])


def test_without_traceback_there_is_no_trace(msmemscope, tmp_path):
    path = tmp_path / "memory.py"
    path.write_text(MEMORY, encoding="utf-8")
    run = msmemscope("--", sys.executable, path).check()
    assert run.rows() and not slices.files(run.project())


@pytest.mark.parametrize("arguments", [["-c", "{}"], ["-I", "-S", "-c", "{}"], ["-"], ["-m", "made"], ["."]],
                         ids=["command", "isolated", "stdin", "module", "directory"])
def test_every_way_to_start_a_script_is_traced(msmemscope, tmp_path, arguments):
    code = "def f(x):\n    return abs(x)\nf(1)\nprint('done')\n"
    (tmp_path / "made.py").write_text(code, encoding="utf-8")
    (tmp_path / "__main__.py").write_text(code, encoding="utf-8")
    (tmp_path / "stdin").write_text(code, encoding="utf-8")
    with open(tmp_path / "stdin", "rb") as stdin:
        run, found = traced(msmemscope, sys.executable, *[word.format(code) for word in arguments], cwd=tmp_path, stdin=stdin)
    assert run.stdout == "done\n"
    [rows] = found.values()
    texts = [one.text for one in rows]
    assert sum(text.endswith("(1): f") for text in texts) == 1 and "<built-in function abs>" in texts
    slices.nested(rows)


def test_a_kill_leaves_functions_without_an_end(msmemscope, tmp_path):
    path = tmp_path / "killed.py"
    path.write_text("import os, signal\ndef f():\n    os.kill(os.getpid(), signal.SIGKILL)\nf()\n", encoding="utf-8")
    run = msmemscope("--events=traceback", "--", sys.executable, path)
    [rows] = slices.threads(run.project()).values()
    assert [(one.text, one.end) for one in rows[-4:]] == [
        ("<built-in function kill>", None), (f"{path}(3): f", None), (f"{path}(2): f", None), (f"{path}(1): <module>", None)]


FORKS = """
import os
def child():
    return abs(-1)
def parent():
    return abs(-2)
def main():
    if os.fork() == 0:
        child()
        os._exit(0)
    os.wait()
    parent()
main()
"""


def test_a_forked_child_goes_on_in_a_file_of_its_own(msmemscope, tmp_path):
    path = tmp_path / "forks.py"
    path.write_text(FORKS, encoding="utf-8")
    run = msmemscope("--events=traceback", "--", sys.executable, path).check()
    texts = {}
    for project in run.projects():
        [rows] = slices.threads(project).values()
        texts[project.pid] = [one.text for one in rows]
    assert len(texts) == 2
    [born] = [found for found in texts.values() if f"{path}(3): child" in found]
    [other] = [found for found in texts.values() if f"{path}(5): parent" in found]
    assert f"start: {path}(7): main" in born and f"{path}(7): main" in other and born != other


PROFILED = """
import cProfile, pstats, sys
def f(x):
    return g(x) + abs(x)
def g(x):
    return len(str(x))
def work():
    for i in range(100):
        f(i)
work()
profile = cProfile.Profile()
profile.enable()
work()
profile.disable()
calls = {key[2]: value[0] for key, value in pstats.Stats(profile).stats.items()}
print(sorted((name, calls[name]) for name in ("f", "g", "work")), sys.getprofile())
seen = []
sys.setprofile(lambda frame, event, arg: seen.append(event))
g(1)
sys.setprofile(None)
print(seen)
work()
"""


def test_another_profiler_comes_first(msmemscope, tmp_path):
    """cProfile counts what it counts without us, and so does a hook of the script's own; what came before them is in the trace."""
    path = tmp_path / "profiled.py"
    path.write_text(PROFILED, encoding="utf-8")
    bare = msmemscope.bare(sys.executable, path).check()
    run, found = traced(msmemscope, sys.executable, path)
    assert run.stdout == bare.stdout and "('f', 100), ('g', 100), ('work', 1)" in bare.stdout
    [rows] = found.values()
    assert sum(one.text == f"{path}(5): g" for one in rows) in (100, 200)
    slices.nested(rows)


# ---- tracer and RecordFunction ----

TRACER = """
import msmemscope
def f(x):
    return abs(x)
def main():
    f(1)
    msmemscope.tracer.start()
    f(2)
    f(3)
    msmemscope.tracer.stop()
    f(4)
main()
"""


def check_tracer(project, path):
    [rows] = slices.threads(project).values()
    call = ["<built-in function abs>", f"{path}(4): f", f"{path}(3): f"]
    assert [one.text for one in rows] == [
        *call, *call, f"start: {path}(5): main", f"start: {path}(1): <module>", f"stop: {path}(5): main",
        f"stop: {path}(1): <module>"]
    assert [(one.start is None, one.end is None) for one in rows] == [(False, False)] * 6 + [(False, True)] * 2 + [(True, False)] * 2
    starts, stops = rows[-4:-2], rows[-2:]
    assert all(begun.start <= one.start <= one.end <= ended.end for begun in starts for ended in stops for one in rows[:6])


def test_tracer_records_between_start_and_stop(msmemscope, tmp_path, dist):
    path = tmp_path / "tracer.py"
    path.write_text(TRACER, encoding="utf-8")
    run = msmemscope("--", sys.executable, path, env={"PYTHONPATH": dist / "python"}).check()
    check_tracer(run.project(), path)


def test_tracer_needs_no_command(msmemscope, tmp_path, dist, out):
    """A session of the program's own; the file is whole when stop() has returned."""
    path = tmp_path / "tracer.py"
    path.write_text(TRACER + "import glob\nprint(len(open(glob.glob('**/python_trace*', recursive=True)[0]).readlines()))\n",
                    encoding="utf-8")
    run = msmemscope.bare(sys.executable, path, cwd=out, env={
        "PYTHONPATH": dist / "python", "LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so"}).check()
    assert run.stdout == "11\n", "header and ten rows"
    [project] = wait_for_projects(out / "memscopeDumpResults")
    check_tracer(project, path)


def wait_for_projects(directory):
    """An engine of the program's own may outlive it for a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = projects(directory) if directory.is_dir() else []
        if found and all((project.path / "report.txt").exists() for project in found):
            return found
        time.sleep(0.05)
    raise AssertionError(f"no finished project in {directory}")


THREADS = """
import json, threading, time
import msmemscope

def inner():
    return abs(1)

def loop(name):
    while not done:
        inner()
        calls[name] += 1
        time.sleep(0.001)

done, calls = False, {name: 0 for name in "abc"}
threads = [threading.Thread(target=loop, args=name) for name in calls]
for thread in threads:
    thread.start()
time.sleep(0.05)
before = dict(calls)
msmemscope.tracer.start()
started = dict(calls)
time.sleep(0.1)
stopping = dict(calls)
msmemscope.tracer.stop()
stopped = dict(calls)
time.sleep(0.05)
done = True
for thread in threads:
    thread.join()
print(json.dumps([[thread.native_id, stopping[name] - started[name] - 1, stopped[name] - before[name] + 1]
                  for thread, name in zip(threads, calls)]))
"""


def test_threads_that_run_already_are_traced_until_stop(msmemscope, tmp_path, dist):
    path = tmp_path / "threads.py"
    path.write_text(THREADS, encoding="utf-8")
    run = msmemscope("--", sys.executable, path, env={"PYTHONPATH": dist / "python"}).check()
    found = slices.threads(run.project())
    for tid, least, most in json.loads(run.stdout):
        texts = [one.text for one in found[tid]]
        assert 0 < least <= texts.count(f"{path}(5): inner") <= most
        assert texts.count(f"start: {path}(8): loop") == texts.count(f"stop: {path}(8): loop") == 1
        slices.nested(found[tid])


def test_start_twice_and_stop_without_start_are_told(msmemscope, tmp_path, dist):
    path = tmp_path / "twice.py"
    path.write_text("from msmemscope import tracer\ntracer.stop()\ntracer.start()\ntracer.start()\ntracer.stop()\ntracer.stop()\n",
                    encoding="utf-8")
    run = msmemscope("--", sys.executable, path, env={"PYTHONPATH": dist / "python"}).check()
    assert run.stderr.count("msmemscope: tracer.stop(): tracing is not on\n") == 2
    assert run.stderr.count("msmemscope: tracer.start(): tracing is on already\n") == 1


def test_a_window_with_traceback_is_a_trace(msmemscope, tmp_path, dist):
    path = tmp_path / "window.py"
    path.write_text("import msmemscope\ndef f():\n    pass\nmsmemscope.config(events='traceback')\n"
                    "f()\nmsmemscope.start()\nf()\nf()\nmsmemscope.stop()\nf()\n", encoding="utf-8")
    run = msmemscope("--collect-mode=deferred", "--", sys.executable, path, env={"PYTHONPATH": dist / "python"}).check()
    [rows] = slices.threads(run.project()).values()
    assert [one.text for one in rows].count(f"{path}(2): f") == 2


@pytest.mark.parametrize("preload", [True, False], ids=["preloaded", "plain"])
def test_no_call_of_our_own_is_in_the_trace(msmemscope, tmp_path, dist, out, preload):
    """Of a window that a program opens by itself: its two calls, and nothing that start() and stop() do."""
    path = tmp_path / "window.py"
    path.write_text("import threading\nimport msmemscope\ndef f():\n    pass\nmsmemscope.config(events='traceback', output='results')\n"
                    "msmemscope.start()\nf()\nf()\nmsmemscope.stop()\n", encoding="utf-8")
    env = {"PYTHONPATH": dist / "python", **({"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so"} if preload else {})}
    msmemscope.bare(sys.executable, path, cwd=out, env=env).check()
    [project] = wait_for_projects(out / "results")
    [rows] = slices.threads(project).values()
    texts = [one.text for one in rows]
    assert texts.count(f"{path}(3): f") == 2 and all(str(path) in text for text in texts), texts


def test_ranges_alone_write_their_own_ranges_and_nothing_else(msmemscope, script, dist):
    run = msmemscope("--", sys.executable, script("ranges.py"), env={"PYTHONPATH": dist / "python"}).check()
    wanted = json.loads(run.stdout)
    [rows] = slices.threads(run.project()).values()
    found = {}
    for one in rows:
        found[one.text] = found.get(one.text, 0) + 1
    assert found == wanted
    assert all(one.start <= one.end for one in rows)
    slices.nested(rows)


def test_ranges_lie_in_the_file_of_the_trace(msmemscope, script, dist):
    run, found = traced(msmemscope, sys.executable, script("ranges.py"), env={"PYTHONPATH": dist / "python"})
    wanted = json.loads(run.stdout)
    [rows] = found.values()
    texts = [one.text for one in rows]
    assert {text: texts.count(text) for text in wanted} == wanted
    by_text = {one.text: one for one in rows}
    inner, outer = by_text['inner, "quoted"\nin two lines'], by_text["outer"]
    assert outer.start <= inner.start <= inner.end <= outer.end
    [function] = [one for one in rows if one.text.endswith("): decorated")]
    assert by_text["decorated"].start <= function.start <= function.end <= by_text["decorated"].end
    package = os.fspath(dist / "python")
    assert not [text for text in texts if package in text], "functions of our own package are nobody's calls"
