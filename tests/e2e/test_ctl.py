# SPDX-License-Identifier: Apache-2.0
"""`msmemscope attach PID` and `msmemscope ctl PID ...`: a process that has the collector, told from outside to begin and end windows. Each
window of the script has blocks of a size of its own, which it takes between two words on its standard input."""
import os
import shutil
import subprocess
import time
from collections import Counter

import pytest

import harness
import rows as rows_module
from scripts import PYTHON, python_path

FLAG = (33 << 56) | 0x904400

# A line is a command: "N size" takes and frees N blocks, "hold size" keeps one, "threads" lets four threads allocate all the time.
SCRIPT = f"""
import ctypes, os, sys, threading, time
plugin = ctypes.CDLL(os.environ["PLUGIN"])
plugin.plugin_a.restype, plugin.plugin_a.argtypes = ctypes.c_void_p, [ctypes.c_uint64] * 2
plugin.plugin_free.argtypes = [ctypes.c_void_p]
if "plain" in sys.argv:
    import msmemscope
    msmemscope.config(output=os.environ["OUT"])
    msmemscope.start()
    msmemscope.stop()
ended = threading.Event()
def work():
    while not ended.is_set():
        plugin.plugin_free(plugin.plugin_a(512, {FLAG} | 1))
        time.sleep(0.0005)
threads = []
print("ready", flush=True)
for line in sys.stdin:
    what, size = line.split()
    if what == "threads":
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
    elif what == "hold":
        plugin.plugin_a(int(size), {FLAG})
    else:
        for _ in range(int(what)):
            plugin.plugin_free(plugin.plugin_a(int(size), {FLAG}))
    print("done", flush=True)
ended.set()
for thread in threads:
    thread.join()
"""


class Talk:
    """The script, which does what it is told."""

    def __init__(self, argv, env):
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,  # pylint: disable=consider-using-with
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()
        self.pid = self.process.pid

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        assert self.process.stdout.readline() == "done\n"

    def end(self):
        """Ends it, and waits for its engine too, which has the same standard error."""
        _, stderr = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, stderr
        return stderr


@pytest.fixture
def talk(msmemscope, out, targets, dist):
    """talk("preloaded"), talk("plain"): starts the script."""

    script = out / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    started = []

    def start(how):
        env = {"PLUGIN": targets / "libplugin_a.so", "PYTHONPATH": python_path(dist), "OUT": out / "results"}
        if how == "preloaded":
            env["LD_PRELOAD"] = dist / "lib64" / "libascend_kernel_hook.so"
        started.append(Talk([PYTHON, script, how], harness.environment(dist, env)))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def ask(msmemscope):
    """ask(status, *words): runs the command, which must end so; returns what it said. Variables are set by name."""
    def run(status, *words, **variables):
        done = subprocess.run([msmemscope.dist / "bin" / "msmemscope", *map(str, words)], capture_output=True, text=True, timeout=60,
                              check=False, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
        assert done.returncode == status and done.stdout == "", done
        return done.stderr
    run.command = [msmemscope.dist / "bin" / "msmemscope"]
    return run


@pytest.fixture
def attach(msmemscope, out):
    """attach(one): records it. The engine lives on with descriptors of its own, so the pipes end with the command."""
    def run(one):
        done = subprocess.run([msmemscope.dist / "bin" / "msmemscope", "attach", str(one.pid), f"--output={out / 'results'}"],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
        assert done.returncode == 0 and f"process {one.pid} is now recorded until it ends; to stop" in done.stderr, done
    return run


def wait_for_end_of_engine(out, pid):
    """Until the engine of attach has told what was found, in a file of its own beside the results."""
    log = out / "results" / f"attach_{pid}.log"
    for _ in range(6000):
        if "Files: " in log.read_text(encoding="utf-8"):
            return
        time.sleep(0.01)
    pytest.fail(log.read_text(encoding="utf-8"))


def rows_of(out):
    [project] = rows_module.projects(out / "results")
    return project.rows()


def sizes(out, event="MALLOC"):
    return Counter(row.attr["size"] for row in rows_of(out) if row.event == event and row.device == "0")


def test_a_preloaded_process_is_recorded_when_it_is_attached_to(talk, ask, attach, out):
    """What it held before is known; each window has what happened in it, in the files when stop returns."""
    one = talk("preloaded")
    one.tell("hold 1001")
    one.tell("threads 0")
    assert "attach" in ask(1, "ctl", one.pid, "start")
    attach(one)
    assert "recorded already" in ask(1, "attach", one.pid)
    one.tell("10 1002")
    assert ask(0, "ctl", one.pid, "step") == ask(0, "ctl", one.pid, "snapshot") == ask(0, "ctl", one.pid, "stop") == ""
    assert sizes(out) == {1001: 1, 1002: 10} and sizes(out, "FREE") == {1002: 10}
    one.tell("10 1003")
    assert "no open window" in ask(1, "ctl", one.pid, "stop")
    ask(0, "ctl", one.pid, "start")
    one.tell("5 1004")
    ask(0, "ctl", one.pid, "flush")
    assert sizes(out) == {1001: 1, 1002: 10, 1004: 5}
    one.end()
    wait_for_end_of_engine(out, one.pid)
    found = rows_of(out)
    assert Counter(row.type for row in found if row.event == "SYSTEM")["START_TRACE"] == 2
    assert len([row for row in found if row.event == "SNAPSHOT"]) == 1
    # The four threads never lost a free because of a window.
    other = Counter(row.event for row in found if row.device == "1" and row.event in ("MALLOC", "FREE"))
    assert 0 <= other["MALLOC"] - other["FREE"] <= 4


def test_attach_ends_by_itself_after_its_duration(talk, ask, out):
    """The window is stopped as by `ctl stop`, and the process goes on; attach itself has returned long before."""
    one = talk("preloaded")
    one.tell("threads 0")
    said = ask(0, "attach", one.pid, "--duration=1", f"--output={out / 'results'}")
    assert f"process {one.pid} is now recorded for 1 s; to stop before: msmemscope ctl {one.pid} stop" in said
    # Only who is recording can count a step.
    for _ in range(3000):
        one.tell("1 1002")
        done = subprocess.run([*ask.command, "ctl", str(one.pid), "step"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            break
        time.sleep(0.02)
    assert "is not recording now" in done.stderr, done
    # The report is there, as after stop(), and the process goes on.
    for _ in range(3000):
        if [*(out / "results").glob("msmemscope_*/trace.msc")] and [*(out / "results").glob("msmemscope_*/report.txt")]:
            break
        time.sleep(0.02)
    assert {"report.txt", "findings.json", "trace.msc"} <= {path.name for path in (out / "results").glob("msmemscope_*/*")}
    one.tell("1 1003")
    one.end()
    wait_for_end_of_engine(out, one.pid)
    assert 1003 not in sizes(out)
    assert [row.type for row in rows_of(out) if row.event == "SYSTEM" and row.type.endswith("_TRACE")] == ["START_TRACE", "STOP_TRACE"]


def test_commands_that_come_at_once_are_all_done(talk, ask, attach, out):
    """Four shells, each with steps one after the other: none is lost, and none waits in vain."""
    one = talk("preloaded")
    one.tell("threads 0")
    attach(one)
    line = f"for i in 1 2 3 4 5 6 7 8; do {ask.command[0]} ctl {one.pid} step || exit 1; done"
    shells = [subprocess.Popen(["bash", "-c", line]) for _ in range(4)]  # pylint: disable=consider-using-with
    assert [shell.wait(timeout=60) for shell in shells] == [0] * 4
    one.end()
    wait_for_end_of_engine(out, one.pid)
    assert [row.name for row in rows_of(out) if (row.event, row.type) == ("SYSTEM", "STEP")] == [str(i) for i in range(1, 33)]


def test_a_plain_process_that_has_called_start_can_be_told_too(talk, ask, out):
    one = talk("plain")
    one.tell("threads 0")
    for i in range(3):
        one.tell(f"4 {2000 + 2 * i}")
        ask(0, "ctl", one.pid, "start")
        one.tell(f"3 {2001 + 2 * i}")
        ask(0, "ctl", one.pid, "stop")
        assert sizes(out) == {2001 + 2 * k: 3 for k in range(i + 1)}
    one.end()
    assert sizes(out) == {2001: 3, 2003: 3, 2005: 3}


def test_an_idle_process_obeys_at_its_next_event(talk, ask, attach, out):
    one = talk("plain")
    assert "the command takes effect when it does" in ask(1, "ctl", one.pid, "start")
    one.tell("7 3001")
    ask(0, "ctl", one.pid, "flush")
    # The block whose allocation brought the news may belong to the window or not.
    assert sizes(out)[3001] in (6, 7)
    one.end()


def test_what_cannot_be_asked_is_said(talk, ask, out, targets, dist):
    assert "is not a process id" in ask(2, "ctl", "x1", "start")
    assert "no such process" in ask(2, "ctl", 2**22 + 1, "stop")
    sleeper = subprocess.Popen(["sleep", "600"])
    assert "does not have the collector" in ask(1, "attach", sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    one = talk("preloaded")
    assert "ctl does not know 'begin'; it knows start, stop, step, snapshot, flush and who" in ask(2, "ctl", one.pid, "begin")
    assert "has no trace" in ask(1, "ctl", one.pid, "flush")
    one.end()


PLAIN = """
import os, time, torch
kept = []
def work(size):
    kept.append(torch.empty(size, dtype=torch.uint8))
old = torch.empty(7777, dtype=torch.uint8)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
for _ in range(5):
    work(5432)
open("worked", "w").close()
while not os.path.exists("end"):
    torch.empty(1)  # a process obeys when it allocates
    time.sleep(0.01)
"""


def test_a_python_program_without_the_collector_is_recorded_with_call_sites(msmemscope, ask, python, dist, out):
    """By gdb: what the program allocates from then on is there, with the lines that asked; nothing is written to its own stderr."""
    (out / "plain.py").write_text(PLAIN, encoding="utf-8")
    with open(out / "stderr", "w", encoding="utf-8") as stderr:
        process = subprocess.Popen([*python, "plain.py"], cwd=out, stdout=subprocess.PIPE, stderr=stderr, env=harness.environment(
            dist, {"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None}))
    assert process.stdout.readline() == b"ready\n"
    assert "install gdb" in ask(1, "attach", process.pid, PATH="/nowhere")
    assert "--trace-dir cannot be set" in ask(1, "attach", process.pid, "--trace-dir=/tmp")
    said = ask(0, "attach", process.pid, f"--output={out / 'results'}", "--call-stack", "python:4", "--duration=600")
    assert f"process {process.pid} is now recorded for 600 s" in said and "allocated before, and its frees, are not recorded" in said
    (out / "go").touch()
    while not (out / "worked").exists():
        time.sleep(0.01)
    ask(0, "ctl", process.pid, "stop")
    found = [row for row in rows_of(out) if row.event == "MALLOC" and row.attr["size"] > 1000]
    assert [row.attr["size"] for row in found] == [5432] * 5, "CPU tensors, as there is no device"
    for row in found:
        assert [frame.rsplit("/", 1)[-1] for frame in row.python_stack] == ["plain.py(5): work", "plain.py(11): <module>"], row
    (out / "end").touch()
    assert process.wait(timeout=60) == 0 and (out / "stderr").read_text(encoding="utf-8") == ""
    assert "plain.py (pid " in (out / "results" / f"attach_{process.pid}.log").read_text(encoding="utf-8")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_may_not_ask(msmemscope, talk, dist):
    one = talk("preloaded")
    one.tell("threads 0")
    place = "/tmp/msmemscope-test-ctl"
    shutil.copy(dist / "bin" / "msmemscope", place)
    try:
        done = subprocess.run([place, "ctl", str(one.pid), "start"], user=65534, group=65534, extra_groups=[], capture_output=True,
                              text=True, check=False, timeout=60)
    finally:
        os.unlink(place)
    assert done.returncode == 1 and "no permission to inspect process" in done.stderr, done
    one.end()
