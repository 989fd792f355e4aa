# SPDX-License-Identifier: Apache-2.0
"""At the end means the end of the program's own code: what destructors, exit handlers and an interpreter free behind it was alive.
The programs print what they hold as their last own act."""
import json
import re
import signal
import subprocess
import time

import pytest

import harness


def held(run):
    """{pid: (bytes, blocks)} that the processes printed."""
    said = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"pid"')]
    return {line["pid"]: (line["bytes"], line["blocks"]) for line in said}


def at_end(info, event_type):
    """(bytes, blocks) of a pool at the end, and the same summed up from the list of blocks."""
    usages = [usage for usage in info["pools"] if usage["pool"] == event_type]
    blocks = [block for block in info["live_blocks"] if block["event_type"] == event_type]
    figures = sum(usage["end_bytes"] for usage in usages), sum(usage["end_blocks"] for usage in usages)
    assert figures == (sum(block["size"] for block in blocks), len(blocks))
    return figures


def left(info, event_type):
    """Blocks that were never freed."""
    return sum(usage["live_blocks"] for usage in info["pools"] if usage["pool"] == event_type)


# ---- C and C++ ----

QEMU = pytest.mark.qemu


@pytest.mark.parametrize("how, end, freed", [
    pytest.param("return", "main", True, marks=QEMU), pytest.param("exit", "exit", True, marks=QEMU),
    # Not under qemu, where threads that only take memory starve the others.
    ("thread", "exit", True),
    pytest.param("handler", "exit", True, marks=QEMU), pytest.param("vfork", "main", True, marks=QEMU),
    pytest.param("_exit", "last event", False, marks=QEMU), pytest.param("quick_exit", "last event", False, marks=QEMU),
])
def test_what_destructors_and_exit_handlers_free_was_alive_at_the_end(msmemscope, program, how, end, freed):
    run = msmemscope("--", *program("teardown", how))
    assert run.returncode == 7, run
    info = msmemscope.info(run.project())
    [expected] = held(run).values()
    assert info["end"] == end
    assert at_end(info, "HAL") == expected
    assert expected[1] >= 13
    # Main's thread-local object lives on where another thread calls exit().
    assert left(info, "HAL") == ((2 if how == "thread" else 1) if freed else expected[1])
    assert sum(usage["frees"] for usage in info["pools"]) > 0
    assert info["losses"] == {cause: 0 for cause in info["losses"]}
    rows = [row for row in run.rows() if row.type == "HAL"]
    frees = sum(row.event == "FREE" for row in rows)
    mallocs = sum(row.event == "MALLOC" for row in rows)
    assert mallocs - frees == left(info, "HAL"), "rows tell what happened behind the end as well"


def test_each_process_of_a_fork_has_its_own_end(msmemscope, program):
    run = msmemscope("--", *program("teardown", "fork"))
    assert run.returncode == 7, run
    expected = held(run)
    infos = [msmemscope.info(project) for project in run.projects()]
    assert len(infos) == len(expected) == 2
    assert {info["pid"]: at_end(info, "HAL") for info in infos} == expected
    assert sorted(info["end"] for info in infos) == ["exit", "main"]


def test_the_report_says_which_moment_the_end_is(msmemscope, program):
    run = msmemscope("--", *program("teardown", "return"))
    [(size, blocks)] = held(run).values()
    assert f"at the end {size / 2**20:.1f} MiB in {blocks} blocks" in run.stderr, run
    said = (run.project().path / "report.txt").read_text(encoding="utf-8")
    assert f"exit handlers and destructors freed {blocks} blocks ({size / 2**20:.1f} MiB) after it." in said, run
    without = msmemscope("--", *program("teardown", "_exit"), output=run.out / "other")
    assert "program's own code" not in without.stderr


def test_frames_of_ours_are_in_no_stack(msmemscope, program, out):
    """main() is called through a function of ours; stacks are those of the program alone, of any depth."""
    def frames(depth):
        run = msmemscope(f"--call-stack=c:{depth}", "--", *program("deep", 3), output=out / str(depth)).check()
        [row] = [row for row in run.rows() if row.event == "MALLOC"]
        return [re.sub(r" \[0x[0-9a-f]+\]$", "", line) for line in row.c_stack]

    whole = frames(50)
    assert whole[-1].endswith("_start") or "(_start+" in whole[-1], whole
    [at] = [number for number, line in enumerate(whole) if "(main+" in line]
    assert all("libc.so" in line for line in whole[at + 1:-1]), whole
    for depth in range(at, len(whole) + 1):
        assert frames(depth) == whole[:depth]


def test_a_preload_that_wraps_exit_itself_still_gets_there(msmemscope, program, out, dist):
    """A library before ours that hooks exit() and __libc_start_main() calls us for its original; we must not call it back."""
    source = out / "other.c"
    source.write_text("""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static void (*next_exit)(int);
void exit(int status)
{
	next_exit = (void (*)(int))dlsym(RTLD_NEXT, "exit");
	(void)!write(2, "other exit\\n", 11);
	next_exit(status);
	_exit(99);
}
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
		      void (*rtld_fini)(void), void *stack_end)
{
	int (*next)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
		dlsym(RTLD_NEXT, "__libc_start_main");

	return next(main, argc, argv, init, fini, rtld_fini, stack_end);
}
""", encoding="utf-8")
    library = out / "other.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source, "-ldl"], check=True)
    inner = f"exec env LD_PRELOAD={library}:$LD_PRELOAD {' '.join(program('teardown', 'exit'))}"
    run = msmemscope("--", "/bin/sh", "-c", inner)
    assert run.returncode == 7, run
    assert run.stderr.count("other exit") == 1
    [expected] = held(run).values()
    assert at_end(msmemscope.info(run.project()), "HAL") == expected


# ---- Python ----

TORCH = """
import atexit, json, os, sys
import torch
torch.set_num_threads(1)                               # a forked child has no others

cache = [torch.zeros(1 << 18) for _ in range(20)]      # 1 MiB each
atexit.register(cache.clear)                           # runs before handlers that were registered earlier

def work():
    local = torch.zeros(1 << 20)

work()

def tell():
    print(json.dumps({"pid": os.getpid(), "bytes": sum(tensor.nbytes for tensor in cache), "blocks": len(cache)}), flush=True)

"""


@pytest.fixture
def torch(msmemscope, python, out):
    def run(text, *options, start=False, **more):
        path = out / "script.py"
        path.write_text(TORCH + text, encoding="utf-8")
        words = (*options, "--device=cpu", "--", *python, path)
        return (msmemscope.start if start else msmemscope)(*words, **more)

    return run


@pytest.mark.parametrize("last, status", [
    ("tell()", 0),
    ("tell(); sys.exit(3)", 3),
    ("tell(); 1 / 0", 1),
    ("tell(); raise MemoryError", 1),
], ids=["returns", "sys.exit", "exception", "out of memory"])
def test_globals_of_a_script_were_alive_at_the_end(torch, msmemscope, last, status):
    run = torch(last)
    assert run.returncode == status, run
    info = msmemscope.info(run.project())
    assert info["end"] == "interpreter"
    assert at_end(info, "HOST") == held(run)[info["pid"]]
    assert left(info, "HOST") == 0, "the interpreter freed its globals"
    report = (run.project().path / "report.txt").read_text(encoding="utf-8")
    assert "which frees its globals, freed 20 blocks (20.0 MiB) after it." in report and "frees its globals" not in run.stderr, run


def test_owners_are_told_what_they_had_at_the_end(torch, msmemscope):
    run = torch("""
net = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
net(torch.randn(8, 512)).sum().backward()
optimizer.step()
optimizer.zero_grad()
print(json.dumps({"weights": sum(parameter.nbytes for parameter in net.parameters())}))
tell()
""", "--analysis=decompose,leaks").check()
    info = msmemscope.info(run.project(), "--analysis=decompose")
    [host] = [one for one in info["decompose"] if one["event_type"] == "HOST"]
    owners = {owner["owner"].partition("@")[2]: owner["end_bytes"] for owner in host["owners"]}
    assert owners["model@weight"] == owners["model@optimizer_state"] == run.value("weights")
    assert sum(owners.values()) == sum(usage["end_bytes"] for usage in info["pools"]) > host["live_bytes"]


def test_globals_were_alive_when_the_user_pressed_ctrl_c(torch, msmemscope):
    started = torch("""
import signal
tell()
os.kill(os.getpid(), signal.SIGINT)
signal.pause()
""", start=True)
    run = started.finish()
    assert run.returncode in (-signal.SIGINT, 130), run
    assert "KeyboardInterrupt" in run.stderr
    info = msmemscope.info(run.project())
    assert info["end"] == "interpreter"
    assert at_end(info, "HOST") == held(run)[info["pid"]]


def test_threads_that_outlive_the_script_are_its_own_code(torch, msmemscope):
    run = torch("""
import threading, time
def later():
    time.sleep(0.2)
    cache.append(torch.zeros(1 << 18))
    tell()
threading.Thread(target=later).start()
""").check()
    info = msmemscope.info(run.project())
    assert at_end(info, "HOST") == held(run)[info["pid"]] == (21 << 20, 21)


def test_os_exit_frees_nothing_and_needs_no_record(torch, msmemscope):
    run = torch("tell(); os._exit(0)").check()
    info = msmemscope.info(run.project())
    assert info["end"] == "last event"
    assert at_end(info, "HOST") == held(run)[info["pid"]]
    assert left(info, "HOST") == 20


def test_forked_children_of_a_script_have_their_own_end(torch, msmemscope):
    run = torch("""
if os.fork() == 0:
    cache[:] = [torch.zeros(1 << 19)]      # what it inherited is its parent's
    tell()
    sys.exit(0)
os.wait()
tell()
""").check()
    infos = {info["pid"]: info for info in map(msmemscope.info, run.projects())}
    assert {pid: at_end(info, "HOST") for pid, info in infos.items()} == held(run)
    assert all(info["end"] == "interpreter" for info in infos.values()) and len(infos) == 2


def test_the_end_of_a_window_of_the_api_is_the_interpreters(msmemscope, python, out):
    """Only preloaded: no command has told the interpreter anything before the script began."""
    path = out / "script.py"
    path.write_text(TORCH.replace("import torch\n", """import torch
import msmemscope
msmemscope.config(device="cpu", output=sys.argv[1])
msmemscope.start()
""") + "tell()", encoding="utf-8")
    preload = msmemscope.dist / "lib64" / "libascend_kernel_hook.so"
    run = msmemscope.bare(*python, path, out / "results",
                          env={"LD_PRELOAD": preload, "PYTHONPATH": msmemscope.dist / "python"}).check()
    run = harness.Run(run.argv, run.returncode, run.stdout, run.stderr, out / "results")
    deadline = 100
    while not run.projects() or not (run.project().path / "trace.msc").exists():
        deadline -= 1
        assert deadline, "the engine has not finished"
        time.sleep(0.1)
    info = msmemscope.info(run.project())
    assert info["end"] == "interpreter"
    assert at_end(info, "HOST") == held(run)[info["pid"]]


def test_a_program_that_records_nothing_leaves_no_trace(msmemscope, out):
    run = msmemscope("--", "/usr/bin/python3", "-c", "import threading, atexit; atexit.register(print, 'bye')").check()
    assert run.stdout == "bye\n"
    assert run.projects() == []
