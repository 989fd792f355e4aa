# SPDX-License-Identifier: Apache-2.0
"""Python call stacks: the frames in files are those that the interpreter itself told at the same moment."""
import json
import subprocess
import sys
from pathlib import Path

import pytest

import interpreters
import slices

SCRIPT = Path(__file__).parents[1] / "targets" / "python_stacks.py"
DEPTH = 50  # of --call-stack=python without a number


INTERPRETERS = interpreters.interpreters((3, 9))


@pytest.fixture(params=INTERPRETERS)
def python(request):
    return INTERPRETERS[request.param]


def _lines(frames, depth=DEPTH):
    return [line for file, number, function in frames[:depth] for line in f"{file}({number}): {function}".split("\n")]


def _check(rows, truth, depth=DEPTH):
    """Every block has the stack that the program saw, and so has every free that it told."""
    mallocs = {row.attr["size"]: row for row in rows if row.event == "MALLOC"}
    frees = {row.attr["size"]: row for row in rows if row.event == "FREE"}
    told = 0
    for word, frames in truth.items():
        row = frees[int(word.split()[1])] if word.startswith("free") else mallocs[int(word)]
        assert row.python_stack == _lines(frames, depth), str(row)
        told += 1
    assert told == len(truth) > 0


def _truths(run):
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def test_frames_are_those_the_interpreter_tells(msmemscope, python):
    run = msmemscope("--call-stack=python", "--", python, SCRIPT).check()
    assert "no Python stacks" not in run.stderr
    [truth] = _truths(run)
    assert len(truth) > 1000
    _check(run.rows(), truth)


def test_every_frame_of_a_deep_recursion_up_to_the_depth_asked_for(msmemscope, python):
    run = msmemscope("--call-stack=python:1000", "--", python, SCRIPT, "deep", "nested").check()
    [truth] = _truths(run)
    assert max(map(len, truth.values())) > 2000
    _check(run.rows(), truth, 1000)


def test_c_and_python_have_a_depth_each(msmemscope):
    run = msmemscope("--call-stack=c:20,python:2", "--", sys.executable, SCRIPT, "nested", "objects", "freed").check()
    [truth] = _truths(run)
    _check(run.rows(), truth, 2)
    for row in run.rows():
        assert 1 < len(row.c_stack) <= 20 and len(row.python_stack) == 2


def test_depth_zero_is_no_python_stack(msmemscope):
    run = msmemscope("--call-stack=python:0", "--", sys.executable, SCRIPT, "nested").check()
    stacks = [row.python_stack for row in run.rows()]
    assert stacks and not any(stacks)
    text = next(run.out.glob("*/device_0/dump/*.csv")).read_text()
    assert "NA" not in text.replace("N/A", "") and SCRIPT.name not in text


def test_functions_that_take_the_place_of_others_are_told_apart_with_the_allocator_of_libc(msmemscope, python):
    run = msmemscope("--call-stack=python:3", "--", python, SCRIPT, "compiled", "names", env={"PYTHONMALLOC": "malloc"}).check()
    [truth] = _truths(run)
    _check(run.rows(), truth, 3)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_have_their_stacks_and_calls(msmemscope, targets, method):
    """However they are started, while another thread of the parent records."""
    script = targets / "python" / "processes.py"
    run = msmemscope("--call-stack=python", "--events=alloc,free,traceback", "--", "/usr/bin/python3", script, method,
                     timeout=60).check()
    assert "Traceback" not in run.stderr
    truths = {truth["pid"]: truth for truth in map(json.loads, run.stdout.splitlines())}
    assert 3 <= len(truths) <= 4, "the parent, a process of its own, one or two of the pool"
    projects = {project.pid: project for project in run.projects()}
    for pid, truth in truths.items():
        rows = [row for row in projects[pid].rows() if row.event == "MALLOC"]
        assert len(rows) == truth["works"]
        _check(rows, truth["stacks"])
        text = f"{script}({truth['line']}): work"
        calls = [one for found in slices.threads(projects[pid]).values() for one in found if one.text == text]
        assert len(calls) == truth["works"] and all(one.start is not None and one.end is not None for one in calls)


def test_a_forked_child_has_its_own_stacks(msmemscope, python):
    run = msmemscope("--call-stack=python", "--", python, SCRIPT, "forked").check()
    child, parent = _truths(run)
    assert len(run.projects()) == 2
    for project in run.projects():
        rows = project.rows()
        size = {row.attr["size"] for row in rows}
        truth = child if len(rows) == 1 else parent
        _check(rows, {word: frames for word, frames in truth.items() if int(word) in size})


def test_without_being_asked_for_a_leak_has_a_site_and_columns_are_empty(msmemscope, python):
    run = msmemscope("--", python, SCRIPT, "nested").check()
    [truth] = _truths(run)
    [row] = run.rows()
    assert row.python_stack == [] and SCRIPT.name not in next(run.out.glob("*/device_0/dump/*.csv")).read_text()
    report = next(run.out.glob("*/report.txt")).read_text()
    [frames] = truth.values()
    for line in _lines(frames, 12):
        assert f"        {line}\n" in report
    info = msmemscope.info(run.project())
    assert [block["python_stack"] for block in info["live_blocks"]] == [_lines(frames, 12)]


def test_a_site_has_twelve_frames_and_export_shows_them(msmemscope, out):
    run = msmemscope("--", sys.executable, SCRIPT, "deep", "freed").check()
    [truth] = _truths(run)
    shown = out / "shown"
    again = msmemscope("export", "--call-stack=python", "-o", shown, run.project().path, output=False).check()
    assert "at most 12 frames" in again.stderr
    text = "".join(path.read_text() for path in shown.rglob("*.csv"))
    for word, frames in truth.items():
        lines = "".join(f"{line}\n" for line in _lines(frames, 12))
        assert (f'"{lines}"' in text) == (not word.startswith("free"))


NESTED = """
import npu
text = "class Module:\\n    def _wrapped_call_impl(self): return self._call_impl()\\n    def _call_impl(self): return self.forward()\\n"
space = {}
exec(compile(text, "/opt/site-packages/torch/nn/modules/module.py", "exec"), space)
class Block(space["Module"]):
    def __init__(self, inner): self.inner = inner
    def forward(self): return self.inner._wrapped_call_impl() if self.inner else npu.alloc(1 << 20)
model = None
for _ in range(6): model = Block(model)
def train(): return model._wrapped_call_impl()
def validate(): return model._wrapped_call_impl()
def descend(frames): return descend(frames - 1) if frames else npu.alloc(1 << 22)
"""


def test_nested_modules_keep_who_called_them(scripts, msmemscope):
    """Of three frames for each of six modules two say nothing: the function that called the model is among those that are kept."""
    run = scripts.command(NESTED + "train(); validate()").check()
    [peak] = msmemscope.info(run.project())["peaks"]
    frames = [[frame["function"] for frame in place["frames"]] for place in peak["places"]]
    forward = ["Block.forward" if sys.version_info >= (3, 11) else "forward"] * 6
    assert sorted(frames) == [["alloc", *forward, name, "<module>"] for name in ("train", "validate")]
    assert {name for place in peak["places"] for name in ("train", "validate") if f" {name} -> " in place["place"]} == {"train", "validate"}
    assert "        ...\n" not in (run.project().path / "report.txt").read_text()


def test_a_stack_that_is_cut_says_so(scripts):
    run = scripts.command(NESTED + "descend(9); descend(60)").check()
    report = (run.project().path / "report.txt").read_text()
    alive = report[report.index("Alive at the end"):]
    assert alive.count("        ...\n") == 1 and alive.count(": <module>\n") == 1, alive


def test_export_from_a_packed_trace_gives_the_same_stacks(msmemscope, out):
    run = msmemscope("--call-stack=python", "--", sys.executable, SCRIPT, "objects", "names", "generators").check()
    shown = out / "shown"
    msmemscope("export", "-o", shown, run.project().path, output=False).check()
    [before] = run.out.glob("msmemscope_*/device_0/dump/*.csv")
    [after] = shown.rglob("*.csv")
    assert before.read_bytes() == after.read_bytes()


def test_the_database_has_the_same_text(msmemscope):
    import sqlite3
    run = msmemscope("--call-stack=python", "--data-format=db", "--", sys.executable, SCRIPT, "nested", "names").check()
    [truth] = _truths(run)
    [path] = run.out.glob("*/device_0/dump/*.db")
    with sqlite3.connect(path) as db:
        texts = [row[0] for row in db.execute('SELECT "Call Stack(Python)" FROM memscope_dump')]
    assert sorted(texts) == sorted("".join(f"{line}\n" for line in _lines(frames)) for frames in truth.values())


def test_a_program_without_python_has_na(msmemscope, program):
    run = msmemscope("--call-stack=python", "--", *program("threads", 1, 10)).check()
    text = next(run.out.glob("*/device_0/dump/*.csv")).read_text()
    rows = [line for line in text.splitlines() if ",MALLOC," in line or ",FREE," in line]
    assert rows and all(line.endswith(',"NA",') for line in rows)


def test_a_thread_that_python_does_not_know_has_na(msmemscope, dist):
    script = """
import ctypes
hal = ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
libc = ctypes.CDLL(None)
entry = ctypes.cast(libc.halMemFree, ctypes.c_void_p)
address = ctypes.c_void_p()
libc.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
assert libc.halMemAlloc(ctypes.byref(address), 8192, 33 << 56 | 0x904400) == 0
thread = ctypes.c_ulong()
# The driver's own function is the thread: nothing of Python runs there.
assert libc.pthread_create(ctypes.byref(thread), None, entry, address) == 0
assert libc.pthread_join(thread, None) == 0
"""
    run = msmemscope("--call-stack=python", "--", sys.executable, "-c", script).check()
    text = next(run.out.glob("*/device_0/dump/*.csv")).read_text()
    assert [row.event for row in run.rows()] == ["MALLOC", "FREE"]
    assert text.rstrip("\n").endswith(',"NA",')
    assert run.rows()[0].python_stack == ["<string>(8): <module>"]
    assert run.rows()[0].tid != run.rows()[1].tid


def test_functions_of_our_own_package_are_not_shown(msmemscope, dist, out):
    out.mkdir(parents=True, exist_ok=True)
    package = out / "msmemscope_copy"
    package.mkdir()
    (package / "__init__.py").write_text("def through(call):\n    return call()\n")
    script = f"""
import ctypes, sys
sys.path.insert(0, {str(out)!r})
import msmemscope_copy
assert ctypes.PyDLL(None).mscope_python_package({str(package).encode() + b"/"!r}) == 0
hal = ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
libc = ctypes.CDLL(None)
libc.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
def allocate():
    return libc.halMemAlloc(ctypes.byref(ctypes.c_void_p()), 8192, 33 << 56 | 0x904400)
def outer():
    msmemscope_copy.through(allocate)
for i in range(3):
    outer()
"""
    run = msmemscope("--call-stack=python:3", "--", sys.executable, "-c", script).check()
    expected = ["<string>(10): allocate", "<string>(12): outer", "<string>(14): <module>"]
    assert [row.python_stack for row in run.rows()] == [expected] * 3


def _libpythons():
    """Interpreters that are shared libraries, by their minor version."""
    asked = "import sys, sysconfig as s; print(sys.version_info[1], s.get_config_var('LIBDIR'), s.get_config_var('LDLIBRARY'))"
    found = {}
    for python in INTERPRETERS.values():
        minor, *words = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=20).stdout.split()
        if Path(*words).exists() and ".so" in words[-1]:
            found.setdefault(int(minor), (Path(*words), python))
    return found or pytest.skip("no interpreter here is a shared library")


def test_an_interpreter_that_comes_after_the_first_allocation_is_noticed(msmemscope, targets):
    for library, python in _libpythons().values():
        run = msmemscope("--call-stack=python:2", "--", targets / "late_python", library, output=msmemscope.out / library.name,
                         env={"PYTHONHOME": Path(python).parents[1]}).check()
        stacks = [row.python_stack for row in run.rows() if row.event == "MALLOC"]
        assert stacks == [[], ["<string>(4): <module>"]], str(library)


def test_an_interpreter_that_is_not_what_it_says_is_left_alone(msmemscope, targets):
    """Objects that do not lie as the version says: no Python stacks and a note, and the program is none the wiser."""
    for minor, (library, python) in _libpythons().items():
        for said in (9, 11, 12, 13, 14, 99):
            if said == minor or {said, minor} == {9, 10}:
                continue
            run = msmemscope("--call-stack=python:2", "--", targets / "odd_python", library, f"03{said:02x}00f0",
                             output=msmemscope.out / f"{minor}-{said}", env={"PYTHONHOME": Path(python).parents[1]}).check()
            rows = [row for row in run.rows() if row.event == "MALLOC"]
            assert [row.python_stack for row in rows] == [[], []]
            info = msmemscope.info(run.project())
            # With a layout of before 3.13 it may look as if no thread ever ran Python: nothing to tell then.
            assert said < 13 or [note for note in info["notes"] if note.startswith("no Python stacks: ")], (minor, said)
