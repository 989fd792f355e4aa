# SPDX-License-Identifier: Apache-2.0
"""config(), start(), stop() and step() of the Python package, in real scripts: under the command, and with the collector only
preloaded. The scripts note what they do (npu.py); the rows must be exactly that (windows.py)."""
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import harness
import rows as rows_module
import windows
from option_values import BAD_UTF8, LONG, OLD_NAMES, WRONG
from scripts import NAMES, PYTHON

ONE_WINDOW = """
import os, msmemscope, npu
old = npu.alloc(1 << 20)
gone = npu.alloc(2 << 20, device=1)
npu.free(gone)
msmemscope.config(output=os.environ["OUT"])
npu.start()
first, second = npu.alloc(3 << 20), npu.alloc(4096, device=1)
npu.free(first)
npu.stop()
npu.free(second)
third = npu.alloc(8192)
npu.free(third)
"""

SEVERAL = ONE_WINDOW + """
between = [npu.alloc(4096 * size) for size in range(1, 6)]
npu.free(between.pop(2))
npu.start()
kept = npu.alloc(1 << 16)
npu.free(between.pop())
npu.stop()
msmemscope.stop()
npu.free(kept)
npu.start()
msmemscope.start()
last = npu.alloc(12288)
"""


# ---- windows ----

@pytest.mark.parametrize("script", [ONE_WINDOW, SEVERAL], ids=["one", "several"])
def test_windows_of_a_preloaded_program_have_what_happened_in_them(scripts, script):
    """And end without a word but the report: by the first stop(), and with all windows at the end if there were more."""
    run = scripts.preloaded(script)
    rows = scripts.exact(run, traced=False, on=False)
    assert Counter(row.type for row in rows)["START_TRACE"] == script.count("npu.start()")
    screens = 1 if script is ONE_WINDOW else 2
    assert run.stdout == "" and len(harness.HEADLINE.findall(run.stderr)) == run.stderr.count("Files: ") == screens, run
    assert run.stderr.count("another window has ended") == screens - 1, run


@pytest.mark.parametrize("script", [ONE_WINDOW, SEVERAL], ids=["one", "several"])
def test_deferred_mode_waits_for_start(scripts, script):
    """Blocks that are older than a window and live in it are shown, without figures; what came and went before is not."""
    rows = scripts.exact(scripts.command(script, "--collect-mode=deferred"), on=False)
    older = [row for row in rows if row.event == "MALLOC" and row.attr.get("shadow")]
    assert older and {row.attr["alloc_type"] for row in older} == {"alloc"}
    assert all(row.time_ns in {start.time_ns for start in rows if start.type == "START_TRACE"} for row in older)


@pytest.mark.parametrize("script", [ONE_WINDOW, SEVERAL], ids=["one", "several"])
def test_immediate_mode_obeys_stop_and_start(scripts, script):
    rows = scripts.exact(scripts.command(script))
    assert rows[0].event == "MALLOC" and "used" in rows[0].attr


def test_stop_is_the_first_word_in_immediate_mode(scripts):
    scripts.exact(scripts.command("""
import npu
seen = npu.alloc(4096)
npu.stop()
unseen = npu.alloc(8192)
npu.free(seen)
npu.start()
npu.free(unseen)
"""))


def test_stop_before_everything_else_holds_in_immediate_mode(scripts):
    rows = scripts.exact(scripts.command("""
import npu
npu.stop()
unseen = npu.alloc(4096)
npu.start()
npu.alloc(8192)
npu.free(unseen)
"""))
    assert [row.event for row in rows] == ["SYSTEM", "SYSTEM", "MALLOC", "MALLOC", "FREE"]


def test_memory_of_every_kind_that_is_older_than_the_window_is_shown_as_what_it_is(scripts):
    """By handle, by address, and pinned memory of the host, which the original loses or calls by a wrong name."""
    run = scripts.command("""
import npu, msmemscope
made, taken, pinned = npu.create(2 << 20, device=1), npu.alloc(4096), npu.pin(65536)
msmemscope.start()
print(made, taken, pinned)
""", "--collect-mode=deferred").check()
    made, taken, pinned = map(int, run.stdout.split())
    older = {row.ptr: row for row in run.rows() if row.event == "MALLOC"}
    assert all(row.attr["shadow"] is True and "used" not in row.attr for row in older.values())
    kinds = {ptr: (row.type, row.device, row.attr["size"], row.attr.get("alloc_type")) for ptr, row in older.items()}
    assert kinds == {made: ("HAL", "1", 2 << 20, "create"), taken: ("HAL", "0", 4096, "alloc"),
                     pinned: ("HOST_PINNED", "cpu", 65536, None)}


def test_threads_that_go_on_while_windows_come_and_go(scripts):
    """Nothing is doubled or orphaned, and every block that lives when a window begins is in it. What lived at the last stop()
    has no end."""
    run = scripts.command("""
import threading, npu, msmemscope
over = threading.Event()
def work(device):
    # Pauses: more than a starved engine can read would make each stop() wait longer than the one before.
    while not over.wait(0.002):
        blocks = [npu.alloc(4096, device, note=False) for _ in range(20)]
        for block in blocks:
            npu.free(block, note=False)
threads = [threading.Thread(target=work, args=(device,)) for device in (0, 1, 2)]
[thread.start() for thread in threads]
for _ in range(10):
    msmemscope.start()
    kept = npu.alloc(1 << 20, note=False)
    msmemscope.stop()
    npu.free(kept, note=False)
over.set()
[thread.join() for thread in threads]
""", "--collect-mode=deferred").check()
    rows = run.rows()
    blocks = rows_module.blocks(rows)
    assert rows[-1].type == "STOP_TRACE" and 1 <= sum(block.free is None for block in blocks) <= 1 + 3 * 20
    assert Counter(row.type for row in rows)["START_TRACE"] == Counter(row.type for row in rows)["STOP_TRACE"] == 10
    inside = False
    for row in rows:
        if row.event == "SYSTEM":
            inside = row.type == "START_TRACE"
        else:
            assert inside or (row.event == "FREE" and row.attr.get("shadow")), row
    assert len([block for block in blocks if block.size == 1 << 20]) == 10


def test_a_window_begins_with_what_the_device_has_free(scripts):
    """As the driver told last, of the one device in use; nothing where it has not told yet."""
    run = scripts.command("""
import time, npu, msmemscope
msmemscope.start()
block = npu.alloc(1 << 30, note=False)
msmemscope.stop()
time.sleep(1)
msmemscope.start()
""", "--collect-mode=deferred", env={"SIMNPU_DEVICES": "1", "SIMNPU_HBM": "4G"}).check()
    first, second = [row.attr for row in run.rows() if row.type == "START_TRACE"]
    assert first["total"] == second["total"] == 4 << 30, "the driver was asked before the first window"
    assert second["free"] <= 3 << 30, "others may use the device, too"


def test_marks_belong_to_windows(scripts):
    run = scripts.command("""
import mstx, npu, msmemscope
block = npu.alloc(4096)
mstx.mark("before")
msmemscope.start()
mstx.mark("inside")
msmemscope.stop()
mstx.mark("after")
""", "--collect-mode=deferred").check()
    assert [row.name for row in run.rows() if row.event == "MSTX"] == ["inside"]


# ---- steps ----

STEPS = """
import os, msmemscope, npu
msmemscope.config()
npu.start()
for k in range(10):
    block = npu.alloc(4096 * (k + 1))
    npu.step()
    npu.free(block)
npu.stop()
msmemscope.step()
"""


def test_ten_steps_as_the_manual_shows_them(scripts):
    """Also with the default directory, and a step() outside of windows is none."""
    run = scripts.preloaded(STEPS)
    results = scripts.out / "memscopeDumpResults"
    run = harness.Run(run.argv, run.returncode, run.stdout, run.stderr, results)
    rows = scripts.exact(run, traced=False, on=False)
    assert [row.name for row in rows if row.type == "STEP"] == [str(k) for k in range(1, 11)]


@pytest.mark.parametrize("mode", ["deferred", "immediate"])
@pytest.mark.parametrize("steps", [[2, 3], [1], [10, 4]])
def test_steps_of_the_program_are_chosen_like_those_of_mstx(scripts, mode, steps):
    script = STEPS if mode == "deferred" else STEPS.replace("npu.start()", "").replace("npu.stop()", "")
    run = scripts.command(script, f"--collect-mode={mode}", f"--steps={','.join(map(str, steps))}").check()
    [events] = scripts.events().values()
    by_step, step = {}, 1
    for row in windows.wanted(events, on=mode == "immediate"):
        if row[2] in ("START_TRACE", "STOP_TRACE"):
            by_step.setdefault(0, []).append(row)
            continue
        by_step.setdefault(step, []).append(row)
        step += row[2] == "STEP"
    rows = [windows.seen(row) for row in run.rows()]
    assert [row for row in rows if row[2] not in ("START_TRACE", "STOP_TRACE")] == \
        [row for step in sorted(steps) for row in by_step[step]]
    assert [row for row in rows if row[2] in ("START_TRACE", "STOP_TRACE")] == by_step.get(0, [])


def test_steps_that_never_came_are_named(scripts):
    run = scripts.command(STEPS, "--steps=3,11").check()
    assert "msmemscope: --steps: 11 not reached; the run had 10 steps\n" in run.stderr


@pytest.mark.parametrize("first, rows, note", [
    ("ranges", 0, "using steps from ranges named 'step start', ignoring those from step()"),
    ("calls", 3, "using steps from step(), ignoring those from ranges named 'step start'"),
])
def test_the_first_who_tells_steps_is_the_one(scripts, first, rows, note):
    run = scripts.command(f"""
import mstx, npu
def ranges():
    for _ in range(3):
        mstx.range_end(mstx.range_start("step start", None))
def calls():
    for _ in range(3):
        npu.step()
block = npu.alloc(4096)
for tell in {'(ranges, calls)' if first == 'ranges' else '(calls, ranges)'}:
    tell()
""", "--steps=1,2,3").check()
    assert [row.type for row in run.rows()].count("STEP") == rows
    assert f"Note: {note}.\n" in run.stderr and "not reached" not in run.stderr


# ---- with the library preloaded ----

@pytest.mark.parametrize("names", [NAMES[:2], NAMES[1::-1], NAMES[:3], NAMES[::-1][:4], NAMES, NAMES[::-1],
                                   [NAMES[4], NAMES[0], NAMES[2]]], ids=lambda names: "-".join(name[3:7] for name in names))
def test_any_of_the_names_serve_to_preload(scripts, dist, names):
    """With LD_LIBRARY_PATH as the manual has it."""
    path = f"{dist}/lib64/:{dist}/simnpu/lib64"
    scripts.exact(scripts.preloaded(ONE_WINDOW, names=names, env={"LD_LIBRARY_PATH": path}), traced=False, on=False)


@pytest.mark.parametrize("words", [["ls", "/"], ["bash", "-c", "true"], [PYTHON, "-c", "import msmemscope, npu; npu.alloc(4096)"],
                                   [PYTHON, "-c", "import msmemscope; msmemscope.config(output='x'); msmemscope.stop()"]],
                         ids=["ls", "bash", "import", "config"])
def test_who_never_starts_leaves_nothing_and_says_nothing(scripts, msmemscope, dist, out, words):
    env = scripts.environment({"LD_PRELOAD": ":".join(str(dist / "lib64" / name) for name in NAMES), "TRUTH": "/dev/null"})
    run = msmemscope.bare(*words, env=env, cwd=out).check()
    assert run.stderr == "" and list(out.iterdir()) == []


def test_copies_of_the_library_record_once(scripts, dist, out):
    for name in NAMES[:3]:
        shutil.copy(dist / "lib64" / "libascend_kernel_hook.so", out / name)
    env = {"LD_PRELOAD": ":".join(str(out / name) for name in NAMES[:3]), "MSMEMSCOPE_ENGINE": dist / "bin" / "msmemscope"}
    scripts.exact(scripts.alone(ONE_WINDOW, env), traced=False, on=False)


def test_the_program_does_not_notice_its_engine(scripts):
    """No child to wait for, no SIGCHLD, no fork handler, no descriptor, errno of its own; and the engine has its own session."""
    run = scripts.preloaded("""
import ctypes, os, signal, npu, msmemscope
seen = []
signal.signal(signal.SIGCHLD, lambda *_: seen.append("SIGCHLD"))
libc = ctypes.CDLL(None)
handler = ctypes.CFUNCTYPE(None)(lambda: seen.append("fork handler"))
libc.__register_atfork(handler, handler, handler, None)
before = sorted(os.listdir("/proc/self/fd"))
msmemscope.config(output=os.environ["OUT"])
npu.start()
block = npu.alloc(4096)
npu.stop()
assert sorted(os.listdir("/proc/self/fd")) == before
[engine] = npu.engines()
assert os.getsid(engine) == engine != os.getsid(0)
assert len(os.listdir(f"/proc/{engine}/fd")) < 20
try:
    print(os.waitpid(-1, os.WNOHANG | 0x40000000))  # __WALL: every kind of child
except ChildProcessError:
    print("no child")
print(seen, len(os.listdir("/proc/self/task")))
""")
    assert run.stdout == "no child\n[] 1\n", run
    scripts.exact(run, traced=False, on=False)


@pytest.mark.parametrize("closed", [[0], [1], [2], [0, 1], [0, 1, 2]], ids=str)
def test_closed_standard_descriptors_do_not_matter(scripts, closed):
    run = scripts.preloaded(f"import os\nfor fd in {closed}: os.close(fd)\n" + ONE_WINDOW)
    assert run.returncode == 0
    deadline = time.monotonic() + 20  # without a stderr to wait for
    while list(run.out.glob(".msmemscope_*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    scripts.exact(run, traced=False, on=False)


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), 9)", "os.abort()", "sys.exit(0)"])
def test_files_are_complete_however_the_program_ends(scripts, end):
    run = scripts.preloaded(SEVERAL + f"import sys\n{end}\n")
    assert run.returncode in (0, -9, -6)
    scripts.exact(harness.Run(run.argv, 0, run.stdout, run.stderr, run.out), traced=False, on=False)


@pytest.mark.parametrize("how", ["preloaded", "alone"])
def test_nothing_is_written_after_the_program_has_ended(scripts, how):
    """`python x.py; rm -rf out` leaves no directory: the engine has finished its files before the program ends."""
    script = scripts.write("""
import atexit, msmemscope, os, npu
def late():
    for _ in range(60000):
        npu.free(npu.alloc(4096, note=False), note=False)
atexit.register(late)
msmemscope.config(output=os.environ["OUT"])
npu.start()
blocks = [npu.alloc(4096 * (i + 1), note=False) for i in range(2000)]
print(os.getpid(), flush=True)
""")
    preload = {"LD_PRELOAD": scripts.dist / "lib64" / "libascend_kernel_hook.so"} if how == "preloaded" else {}
    env = harness.environment(scripts.dist, scripts.environment(preload))
    with open(scripts.out / "said", "w", encoding="utf-8") as said:  # a pipe would end with the engine
        subprocess.run([PYTHON, script], env=env, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.DEVNULL, check=True)
    files = {path: path.stat() for path in scripts.results.glob("msmemscope_*/**/*")}
    sizes = {path: (one.st_ino, one.st_size) for path, one in files.items()}
    pid = (scripts.out / "said").read_text(encoding="utf-8").strip()
    engines = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if f"api-engine\0{pid}\0" in read(path)]
    while any(engine.exists() for engine in engines):
        time.sleep(0.01)
    late = {path: (path.stat().st_ino, path.stat().st_size) for path in scripts.results.glob("msmemscope_*/**/*")}
    assert any(path.name == "trace.msc" for path in late) and sizes == late, "files were written after the end"


def read(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def test_children_go_on_in_the_window_of_their_parent(scripts):
    """Each with files of its own in the same directory; a child of the time between windows waits for its own start()."""
    run = scripts.preloaded("""
import os, npu, msmemscope
msmemscope.config(output=os.environ["OUT"], call_stack="c:5")
def child(*work):
    pid = os.fork()
    if pid == 0:
        npu.did("child")
        for one in work:
            one()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
take = lambda: npu.alloc(4096)
npu.start()
child(take, take)
npu.stop()
child(take, npu.start, take, npu.stop)
block = npu.alloc(8192)
""").check()
    events = scripts.events()
    assert len(events) == 3 == len(run.projects())
    inside, outside = [project for project in run.projects() if events[project.pid][0][1] == "child"]
    assert [windows.seen(row) for row in inside.rows()] == windows.wanted(events[inside.pid], on=True)
    assert all(row.c_stack for row in inside.rows()), "the settings of the parent hold"
    assert [windows.seen(row) for row in outside.rows()] == windows.wanted(events[outside.pid], on=False)


HOST_TENSORS = """
import ctypes, os, msmemscope
tensor = ctypes.CDLL(os.environ["TENSORS"]).host_tensor
tensor.argtypes = ctypes.c_void_p, ctypes.c_int64
tensor(0x10000, 4096)
msmemscope.config(output=os.environ["OUT"], device=os.environ["DEVICE"])
msmemscope.start()
tensor(0x20000, 8192)
pid = os.fork()
if pid == 0:
    tensor(0x30000, 12288)
    tensor(0x30000, -12288)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
print(os.getpid(), pid)
"""


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_a_forked_child_with_nothing_but_tensors_of_the_host_is_recorded_when_they_are_wanted(scripts, targets, device):
    """The session is start()'s, so that the environment knows nothing of it; one that does not want them has no file of the child."""
    run = scripts.preloaded(HOST_TENSORS, {"TENSORS": targets / "libhost_tensors.so", "DEVICE": device}).check()
    parent, child = map(int, run.stdout.split())
    found = {project.pid: [(row.event, row.type, row.ptr, row.attr["size"]) for row in project.rows()
                           if row.event in ("MALLOC", "FREE")] for project in run.projects()}
    wanted = {parent: [("MALLOC", "HOST", 0x10000, 4096), ("MALLOC", "HOST", 0x20000, 8192)],
              child: [("MALLOC", "HOST", 0x30000, 12288), ("FREE", "HOST", 0x30000, 12288)]}
    assert found == (wanted if device == "cpu" else {parent: []}), run


def test_processes_that_start_at_once_do_not_clash(scripts):
    run = scripts.preloaded("""
import os, sys, subprocess
script = '''
import os, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
blocks = [npu.alloc(4096) for _ in range(20)]
npu.stop()
'''
ranks = [subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "RANK": str(rank)}) for rank in range(4)]
sys.exit(max(rank.wait() for rank in ranks))
""")
    scripts.exact(run, traced=False, on=False, processes=4)


def test_a_killed_engine_ends_nothing_but_itself(scripts, msmemscope):
    """stop() comes back with one warning, the program ends as ever, and `recover` makes the files."""
    run = scripts.preloaded("""
import os, signal, time, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
first = npu.alloc(4096)
npu.stop()
npu.start()
[engine] = npu.engines()
os.kill(engine, signal.SIGKILL)
second = npu.alloc(8192)
before = time.monotonic()
npu.stop()
npu.start()
npu.free(second)
npu.stop()
assert time.monotonic() - before < 5
print("went on")
""")
    assert (run.returncode, run.stdout) == (0, "went on\n"), run
    [warning] = [line for line in run.stderr.splitlines() if "the engine is gone" in line]
    session = re.search(r"msmemscope recover (.*)", warning)[1]
    assert Path(session).is_dir()
    assert msmemscope("recover", session, output=False).returncode == 0
    scripts.exact(run, traced=False, on=False)


def test_the_engine_of_a_command_may_be_killed_too(scripts, msmemscope):
    run = scripts.command("""
import os, signal, npu, msmemscope
with open(f"/proc/{os.getppid()}/task/{os.getppid()}/children") as file:
    [engine] = [int(child) for child in file.read().split() if int(child) != os.getpid()]
npu.start()
first = npu.alloc(4096)
npu.stop()
os.kill(engine, signal.SIGKILL)
npu.start()
second = npu.alloc(8192)
npu.stop()
""")
    assert run.returncode == 0 and run.stderr.count("the engine is gone") == 1, run
    assert msmemscope("recover", scripts.results, output=False).returncode == 0
    scripts.exact(run)


def test_an_engine_that_cannot_start_is_told_and_nothing_else(scripts, out):
    (out / "file").write_text("no directory")
    for env, said in (({"MSMEMSCOPE_ENGINE": "/nowhere/msmemscope"}, "/nowhere/msmemscope did not start"),
                      ({"OUT": out / "file" / "below"}, "cannot create the output directory")):
        run = scripts.preloaded(ONE_WINDOW + "print('went on')\n", env=env)
        assert (run.returncode, run.stdout) == (0, "went on\n") and said in run.stderr, run
        assert "Traceback" not in run.stderr


def test_an_engine_that_is_behind_is_waited_for_as_long_as_is_said(scripts):
    """stop() goes on without complete files, says so once, and nothing is lost."""
    run = scripts.preloaded("""
import os, signal, time, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
[engine] = npu.engines()
os.kill(engine, signal.SIGSTOP)
for _ in range(2):
    block = npu.alloc(4096)
    before = time.monotonic()
    npu.stop()
    assert time.monotonic() - before < 8
    npu.start()
npu.stop()
os.kill(engine, signal.SIGCONT)
""", env={"MSMEMSCOPE_STOP_WAIT": 1})
    assert run.stderr.count("the engine has not caught up with this program") == 1 and "does not answer" not in run.stderr, run.stderr
    scripts.exact(run, traced=False, on=False)


def test_a_blocked_stop_never_happens_when_the_engine_is_stopped(scripts):
    """An engine that does not answer is given up after a while."""
    run = scripts.preloaded("""
import os, signal, time, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
[engine] = npu.engines()
os.kill(engine, signal.SIGSTOP)
block = npu.alloc(4096)
before = time.monotonic()
npu.stop()
assert time.monotonic() - before < 20
os.kill(engine, signal.SIGCONT)
""")
    assert "the engine does not answer" in run.stderr
    scripts.exact(run, traced=False, on=False)


def test_stop_waits_for_an_engine_that_works_slowly(scripts):
    """Twelve seconds for a report, two more than an engine without a sign of life gets: stop() comes back when it is there."""
    run = scripts.preloaded("""
import glob, os, threading, time, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
first = npu.alloc(4096)
npu.stop()
[report] = glob.glob(os.environ["OUT"] + "/*/report.txt")
os.remove(report)
os.mkfifo(report)
read, begun = [], threading.Event()
def read_slowly():
    time.sleep(12)
    begun.set()
    with open(report) as file:
        read.append(file.read())
thread = threading.Thread(target=read_slowly)
thread.start()
npu.start()
second = npu.alloc(8192)
npu.stop()
returned_late = begun.is_set()
thread.join()
os.remove(report)
assert returned_late and "peak" in read[0]
""")
    assert "the engine" not in run.stderr, run
    scripts.exact(run, traced=False, on=False)


def test_what_stop_could_not_write_is_told(scripts):
    """Directories in the place of report and trace: a sentence each, and the end of the program has all files."""
    run = scripts.preloaded("""
import glob, os, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
npu.start()
first = npu.alloc(4096)
npu.stop()
[project] = glob.glob(os.environ["OUT"] + "/msmemscope_*")
for name in ("report.txt", "trace.msc"):
    os.remove(f"{project}/{name}")
    os.makedirs(f"{project}/{name}/in the way")
npu.start()
second = npu.alloc(8192)
npu.stop()
for name in ("report.txt", "trace.msc"):
    os.removedirs(f"{project}/{name}/in the way")
""")
    for name in ("report.txt", "trace.msc"):
        [line] = [line for line in run.stderr.splitlines() if "stop() did not complete its files" in line and name in line]
        assert "Is a directory" in line and "msmemscope recover /" in line, run
    scripts.exact(run, traced=False, on=False)
    assert all((run.project().path / name).is_file() for name in ("report.txt", "trace.msc"))


def test_stop_completes_the_files_of_a_trace_that_ran_out_of_space(scripts):
    """The engine stands still until the trace has reached its limit, and works again when stop() asks for the files."""
    run = scripts.preloaded("""
import glob, os, signal, npu, msmemscope
from msmemscope import _native
from msmemscope._api import RECORDING_ON
import resource
msmemscope.config(output=os.environ["OUT"])
msmemscope.start()
[engine] = npu.engines()
os.kill(engine, signal.SIGSTOP)
[raw] = glob.glob(os.environ["OUT"] + "/.msmemscope_*/*.raw")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
before = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(raw).st_size + (1 << 20), before[1]))
while _native.collector.mscope_recording() == RECORDING_ON:
    for _ in range(1000):
        npu.free(npu.alloc(4096, note=False), note=False)
resource.setrlimit(resource.RLIMIT_FSIZE, before)
os.kill(engine, signal.SIGCONT)
msmemscope.stop()
[report] = glob.glob(os.environ["OUT"] + "/*/report.txt")
[trace] = glob.glob(os.environ["OUT"] + "/*/trace.msc")
msmemscope.stop()
print("complete")
""")
    assert run.check().stdout == "complete\n", run


def test_the_first_process_of_a_container_waits_for_its_files(scripts, msmemscope, dist, out):
    """The kernel kills everything else when it ends."""
    env = scripts.environment({"LD_PRELOAD": dist / "lib64" / NAMES[0]})
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if msmemscope.bare(*unshare, "true").returncode != 0:
        pytest.skip("this machine lets nobody be the first process of a namespace")
    run = msmemscope.bare(*unshare, PYTHON, scripts.write(ONE_WINDOW), env=env, cwd=out)
    run = harness.Run(run.argv, run.returncode, run.stdout, run.stderr, scripts.results)
    run.check()
    [events] = [events for pid, events in scripts.events().items() if pid == 1]
    found = [windows.seen(row) for row in run.project().rows()]
    assert [row[1:] for row in found] == [row[1:] for row in windows.wanted(events, traced=False, on=False)]
    assert (run.project().path / "trace.msc").is_file()


@pytest.mark.parametrize("env", [{"PYTHONMALLOC": "malloc"}, {"TOKENIZERS_PARALLELISM": "false"},
                                 {"TOKENIZERS_PARALLELISM": "true"}], ids=lambda env: "=".join(*env.items()))
def test_variables_that_manuals_ask_for_change_no_row(scripts, env):
    scripts.exact(scripts.preloaded(SEVERAL, env=env), traced=False, on=False)


# ---- when stop() returns ----

@pytest.mark.parametrize("form", ["csv", "db"])
@pytest.mark.parametrize("how", ["preloaded", "command"])
def test_when_stop_returns_the_files_are_complete(scripts, form, how):
    """The database also as a single file, without the log beside it."""
    script = f"""
import glob, os, shutil, sqlite3, npu, msmemscope
{'msmemscope.config(output=os.environ["OUT"], data_format="' + form + '")' if how == "preloaded" else ""}
for turn in range(3):
    npu.start()
    for _ in range(1000):
        npu.free(npu.alloc(4096))
    npu.stop()
    [path] = glob.glob(os.environ["OUT"] + "/msmemscope_*/device_0/dump/memscope_dump_*.{form}")
    copy = shutil.copy(path, os.environ["OUT"] + f"/copy{{turn}}.{form}")
    if path.endswith("db"):
        print(sqlite3.connect(copy).execute("select count(*) from memscope_dump").fetchone()[0])
    else:
        print(len(open(copy).readlines()) - 1)
"""
    run = scripts.preloaded(script) if how == "preloaded" else \
        scripts.command(script, "--collect-mode=deferred", f"--data-format={form}")
    assert run.check().stdout.split() == ["2002", "4004", "6006"]


def test_stop_is_quick(scripts):
    run = scripts.preloaded("""
import os, time, npu, msmemscope
msmemscope.config(output=os.environ["OUT"])
taken = []
for _ in range(20):
    msmemscope.start()
    npu.free(npu.alloc(4096, note=False), note=False)
    before = time.monotonic()
    msmemscope.stop()
    taken.append(time.monotonic() - before)
print(sorted(taken)[10])
""").check()
    assert float(run.stdout) < 0.5


# ---- config() ----

KEYS = {"call_stack": "call-stack", "level": "level", "events": "events", "device": "device", "analysis": "analysis",
        "inefficient": "inefficient", "watch": "watch", "format": "format", "output_path": "output-path", "data_format": "data-format", "output": "output",
        "store": "store", "store_every": "store-every"}
GOOD = {
    "call-stack": ["", "none", "c", "python", "c:10,python:5", "c:0", "python:1000，c:1", ",,c,,", "c,c:7"],
    "level": ["", "0", "1", "op", "kernel", "0,1", "op，kernel"],
    "events": ["", "none", "alloc", "launch,alloc,free", "access，traceback", "alloc,none"],
    "device": ["npu", "npu:0", "gpu", "cuda:1,gpu:0,npu:2,cpu", "npu:31,cpu", "npu:2，npu:7", "cpu", "npu:1,npu"],
    "inefficient": ["", "early_allocation", "late_deallocation，mem_size:0", "idle_threshold", "idle_threshold:4294967295"],
    "analysis": ["", "leaks", "leaks,decompose", "inefficient", "oom", "oom:1000", "none", "oom:1，leaks"],
    "watch": ["", "op1", "op0,op1", "op0,op1,full-content", "op0:out1,op1", "op0:1，op1", "op1,full-content", ",op1", "op0,op1,",
              "aten::mul,aten::add", "a/b/c:0,d", "aten::mul:out0,e", "s" * 254 + "," + "e" * 254],
    "format": ["csv", "db", "none"],
    "store": ["sqlite:a b.db", "postgresql://host/db", " rows:x ", "x" * 4096],
    "store-every": ["1", "30", "86400"],
    "output-path": ["x", "/x", "a b", "../x", " x ", "目录/开", "./a/../b", "n" * 255, "/n" * 32],
}
CHECK = """
import sys
import msmemscope
from msmemscope import _control
for line in sys.stdin.buffer.read().split(b"\\0"):
    key, value = line.decode("utf-8", "surrogateescape").split("=", 1)
    try:
        msmemscope.config(**{key: value})
        print("accepted")
    except ValueError as error:
        print(str(error).encode("utf-8", "surrogateescape").decode("utf-8", "replace").replace("\\n", "?"))
    _control._fixed.clear()
"""


def cases():
    for key, name in KEYS.items():
        canonical = OLD_NAMES.get(name, name)
        values = [*WRONG[canonical], *GOOD[canonical], "", LONG, BAD_UTF8, "a\x1b[31m",
                  "a\\b", "a\nb", "é", "é" * 40, "\u0085", "x" * 63 + "é", " ", "，", ",", ":", "a:b"]
        yield from ((key, name, value) for value in values)


def test_config_and_the_command_take_and_refuse_the_same(scripts, dist, out):
    """And in the same words."""
    every = list(cases())
    done = subprocess.run([PYTHON, scripts.write(CHECK)], cwd=out, check=True, stdout=subprocess.PIPE,
                          env=harness.environment(dist, scripts.environment({})),
                          input=b"\0".join(os.fsencode(f"{key}={value}") for key, _, value in every))
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(every)
    accepted = Counter()
    for (key, name, value), answer in zip(every, answers):
        words = [dist / "bin" / "msmemscope", f"--{name}={value}", "--version"]
        told = subprocess.run(words, cwd=out, capture_output=True, check=False)
        if told.returncode == 0:
            assert answer == "accepted", (key, value)
        else:
            said = told.stderr.decode("utf-8", "replace").splitlines()[0]
            assert answer == said.replace(f"msmemscope: --{name}: ", f"config(): {key}: "), (key, value)
        accepted[key, told.returncode == 0] += 1
    assert all(accepted[key, True] >= 2 and accepted[key, False] >= 4 for key in KEYS)


def test_config_refuses_what_is_no_argument(scripts):
    run = scripts.alone("""
import msmemscope
def refused(kind, *words, **names):
    try:
        msmemscope.config(*words, **names)
    except kind as error:
        print(error)
    else:
        raise SystemExit("accepted")
refused(TypeError, "events")
refused(TypeError, events=1)
refused(TypeError, call_stack=None)
refused(ValueError, steps="1")
refused(ValueError, log_level="info")
refused(ValueError, device="rocm", events="alloc")
assert msmemscope.config() is None
""")
    lines = run.check().stdout.splitlines()
    assert "events must be a string, not int" in lines[1] and "has no argument 'steps'; allowed: call_stack, level" in lines[3]
    assert "device: 'rocm' is not allowed; allowed: npu[:0..31], gpu[:0..31], cpu" in lines[5]


@pytest.mark.parametrize("how", ["preloaded", "command"])
@pytest.mark.parametrize("arguments, events", [
    ('events="launch"', set()), ('events=""', set()), ('events="free"', {"MALLOC", "FREE"}),
    ('events="", analysis="leaks"', {"MALLOC", "FREE"}), ('events="launch", analysis=""', set()),
    ('device="npu:1"', {"MALLOC", "FREE"}), ('device="cpu"', set()), ('analysis=""', {"MALLOC", "FREE"}),
])
def test_config_chooses_what_is_written(scripts, how, arguments, events):
    """An analysis that is named adds its events; an empty value switches off."""
    script = f"""
import os, npu, msmemscope
msmemscope.config({arguments}{', output=os.environ["OUT"]' if how == "preloaded" else ""})
npu.start()
for device in (0, 1):
    npu.free(npu.alloc(4096, device))
npu.stop()
"""
    run = scripts.preloaded(script) if how == "preloaded" else scripts.command(script, "--collect-mode=deferred")
    rows = run.check().rows()
    assert {row.event for row in rows} - {"SYSTEM"} == events
    assert Counter(row.type for row in rows)["START_TRACE"] == 1
    if "npu:1" in arguments:
        assert {row.device for row in rows} == {"1", "N/A"}
    if how == "preloaded" and events:
        assert ("Leaks are not judged: no step was marked" in run.stderr) == ('analysis=""' not in arguments), run.stderr


@pytest.mark.parametrize("how", ["preloaded", "command"])
def test_each_window_has_its_own_settings(scripts, how):
    """What is not named is again as the command said, or by default; without arguments nothing changes."""
    script = f"""
import os, npu, msmemscope
{'msmemscope.config(output=os.environ["OUT"])' if how == "preloaded" else ""}
def window(size, **settings):
    msmemscope.config(**settings)
    msmemscope.start()
    npu.free(npu.alloc(size), note=False)
    msmemscope.stop()
window(4096)
window(8192, call_stack="c:3")
window(12288)
window(16384, events="launch")
window(20480, level="op")
window(24576, call_stack="")
window(28672, call_stack="c:2", inefficient="", watch="", level="")
"""
    run = scripts.preloaded(script) if how == "preloaded" else \
        scripts.command(script, "--collect-mode=deferred", "--call-stack=c:6")
    depths = {row.attr["size"]: len(row.c_stack) for row in run.check().rows() if row.event == "MALLOC"}
    base = 6 if how == "command" else 0
    assert depths == {4096: base, 8192: 3, 12288: 3, 20480: base, 24576: 0, 28672: 2}


def test_a_window_without_python_stacks_records_sites_again(scripts, msmemscope):
    """However deep the window before it looked."""
    run = scripts.command("""
import npu, msmemscope
def window(size, stack):
    msmemscope.config(call_stack=stack)
    msmemscope.start()
    def deep(depth):
        npu.free(npu.alloc(size)) if depth == 0 else deep(depth - 1)
    deep(30)
    msmemscope.stop()
window(4096, "python:25")
window(8192, "c:2")
""", "--collect-mode=deferred").check()
    done = msmemscope("export", "--call-stack=python:50", run.project().path, output=scripts.out / "again").check()
    depths = {row.attr["size"]: len(row.python_stack) for row in done.rows() if row.event == "MALLOC"}
    assert depths == {4096: 25, 8192: 12}


def test_what_python_code_of_ours_has_to_say_is_in_the_trace(scripts, msmemscope):
    run = scripts.command("""
import npu
from msmemscope import _boot
npu.alloc(4096)
_boot.note("somebody should know")
npu.alloc(4096)
""").check()
    info = msmemscope.info(run.project())
    assert "somebody should know" in info["notes"]


@pytest.mark.parametrize("first", ["npu.start()\nnpu.stop()", "msmemscope.take_snapshot(0)", "msmemscope.tracer.start()", "pass"])
def test_the_output_of_the_first_call_stays(scripts, out, first):
    """Whatever is written first: a window, a snapshot, a trace, or nothing yet. Snapshots and windows of later go there, too."""
    run = scripts.preloaded(f"""
import os, npu, msmemscope
msmemscope.config(output=os.environ["OUT"], format="csv")
npu.alloc(4096)
{first}
msmemscope.config(output=os.environ["OUT"] + "2", data_format="db")
msmemscope.take_snapshot(0, name="second")
npu.start()
npu.alloc(4096)
npu.stop()
msmemscope.config(output_path=os.environ["OUT"] + "3", format="csv")
msmemscope.take_snapshot(0, name="third")
""").check()
    assert sorted(path.name for path in out.iterdir()) == ["results", "script.py", "truth"]
    assert run.stderr.count("output_path is unchanged") == 2 and run.stderr.count("format is unchanged") == 1
    [project] = run.projects()
    assert [path.suffix for path in project.path.glob("device_*/dump/memscope_dump*")] == [".csv"]
    names = [row.name for row in project.rows() if row.event == "SNAPSHOT"]
    assert names == ["Memory Snapshot"] * ("take" in first) + ["second", "third"]
    [events] = scripts.events().values()
    others = [windows.seen(row) for row in project.rows() if row.event != "SNAPSHOT"]
    assert others == windows.wanted(events, traced=False, on=False)


def test_without_config_a_snapshot_and_a_window_share_the_default(scripts, out):
    scripts.preloaded("""
import os, npu, msmemscope
npu.alloc(4096)
msmemscope.take_snapshot(0)
npu.start()
npu.stop()
""").check()
    assert sorted(path.name for path in out.iterdir()) == ["memscopeDumpResults", "script.py", "truth"]
    [project] = rows_module.projects(out / "memscopeDumpResults")
    assert [row.type for row in project.rows()] == ["SNAPSHOT", "START_TRACE", "HAL", "STOP_TRACE"]


def test_what_the_command_says_stays(scripts, out):
    """Directory and form; and without arguments nothing changes at all."""
    run = scripts.command("""
import os, npu, msmemscope
msmemscope.config()
npu.alloc(4096)
msmemscope.config(output=os.environ["OUT"] + "2", format="db")
npu.alloc(8192)
""", "--call-stack=c:4", "--format=csv")
    rows = scripts.exact(run)
    assert len(rows) == 2 and all(len(row.c_stack) == 4 for row in rows)
    assert not (out / "results2").exists() and "output_path is unchanged" in run.stderr


def test_config_without_arguments_changes_nothing(scripts):
    """Of what an earlier config() chose: one with any argument sets the rest back to defaults."""
    script = """
import os, npu, msmemscope
msmemscope.config(call_stack="c:2", output=os.environ["OUT"])
msmemscope.config({})
msmemscope.start()
npu.alloc(4096)
msmemscope.stop()
"""
    for words, depth in (("", 2), ("events='alloc'", 0)):
        run = scripts.preloaded(script.format(words)).check()
        [row] = [row for row in run.rows() if row.event == "MALLOC"]
        assert len(row.c_stack or []) == depth, (words, row)
        shutil.rmtree(run.out)


def test_config_as_the_manual_shows_it(scripts):
    """With a database that is complete when stop() returns."""
    run = scripts.preloaded("""
import glob, os, sqlite3, npu, msmemscope
OUT = os.environ["OUT"]
msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu", analysis="leaks,decompose",
                  watch="op0,op1,full-content", data_format="db", output=OUT)
msmemscope.start()
for size in range(1, 11):
    npu.free(npu.alloc(4096 * size))
msmemscope.stop()
[path] = glob.glob(OUT + "/msmemscope_*_ascend/device_0/dump/memscope_dump_*.db")
for row in sqlite3.connect(path).execute('select Event, "Call Stack(C)" from memscope_dump order by ID'):
    print(row[0], row[1].count(chr(10)))
""").check()
    blocks = [line.split() for line in run.stdout.splitlines() if line.startswith(("MALLOC", "FREE"))]
    assert [event for event, _ in blocks] == ["MALLOC", "FREE"] * 10
    assert all(5 <= int(frames) <= 10 for _, frames in blocks)


# ---- without a collector ----

def test_without_a_collector_the_package_does_nothing_and_says_so_once(scripts, out):
    run = scripts.without_library("""
import msmemscope
msmemscope.config(events="alloc", call_stack="c:10")
for _ in range(3):
    msmemscope.start()
    msmemscope.step()
    msmemscope.stop()
""").check()
    assert run.stdout == "" and run.stderr.count("\n") == 1
    assert "LD_PRELOAD" in run.stderr and "msmemscope python" in run.stderr
    assert sorted(path.name for path in out.iterdir()) == ["alone", "script.py"]


@pytest.mark.parametrize("how", ["alone", "preloaded"])
def test_a_disabled_tool_is_silent(scripts, how):
    run = getattr(scripts, how)(ONE_WINDOW + "npu.step()", env={"MSMEMSCOPE_DISABLE": "1"}).check()
    assert run.stderr == "" and not run.out.exists()


# ---- the older name ----

def test_the_old_module_is_the_new_one(scripts, out):
    run = scripts.preloaded("""
import msleaks
import msleaks._values as values
import msmemscope, msmemscope._values
assert msleaks is msmemscope and msleaks.start is msmemscope.start
assert values is msmemscope._values and values.__name__ == values.__spec__.name == "msmemscope._values"
try:
    import msleaks.nothing
except ModuleNotFoundError as error:
    print(error)
assert not hasattr(msleaks, "nothing")
import npu
msleaks.start()
npu.did("start")
block = npu.alloc(4096)
msleaks.stop()
npu.did("stop")
""")
    assert "nothing" in run.stdout
    scripts.exact(harness.Run(run.argv, run.returncode, "", run.stderr, out / "leaksDumpResults"), traced=False, on=False)


def test_the_module_that_was_imported_first_names_the_directory(scripts, out):
    scripts.preloaded("import msmemscope, msleaks, npu\nmsleaks.start()\nnpu.alloc(4096)\nmsleaks.stop()\n").check()
    assert (out / "memscopeDumpResults").is_dir() and not (out / "leaksDumpResults").exists()


def test_the_old_module_under_the_command(scripts):
    """msmemscope --collect-mode=deferred -- python s.py, s.py: import msleaks; msleaks.start()"""
    scripts.exact(scripts.command("""
import npu, msleaks
old = npu.alloc(4096)
npu.did("start")
msleaks.start()
new = npu.alloc(8192)
""", "--collect-mode=deferred"), on=False)
