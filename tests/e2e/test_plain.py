# SPDX-License-Identifier: Apache-2.0
"""Programs that were started without us: start() in `python script.py` redirects the calls of the process, unload() gives them back
(src/collector/got). The programs print what they took; the rows must be exactly that."""
import json
import re
import subprocess
import sys
from collections import Counter

import pytest

import scripts as scripts_module
import viewed

# Sizes that no other tensor of the script has.
TENSORS = """
import json, os, sys, threading
import got
LATE = "late" in sys.argv
if not LATE:
    import torch
    old = [torch.empty(5003) for _ in range(50)]
import msmemscope
msmemscope.config(events="alloc,free", device="cpu", output=os.environ["OUT"])
before = got.words()
msmemscope.start()
msmemscope.start()
if LATE:
    import torch
    old = []
between = got.words()
kept = []
def work(number):
    for i in range(100):
        kept.append(torch.empty(100003 + 1000 * number + i, dtype=torch.int8))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
old.clear()
half = {tensor.numel() for tensor in kept[::2]}
del kept[::2]
msmemscope.unload()
after = got.words()
print(json.dumps({"taken": sorted(100003 + 1000 * n + i for n in range(4) for i in range(100)), "freed": sorted(half),
                  "ours": len(got.ours(between)), "left": len(got.ours(after)),
                  "readonly": sum(between[key][1].startswith("r-") for key in got.ours(between)),
                  "changed": [key[0] for key, word in before.items() if after.get(key) != word]}))
"""


def of_size(rows, event, sizes):
    return Counter(row.attr["size"] for row in rows if row.event == event and row.attr["size"] in sizes)


def run_plain(msmemscope, out, python, text, *words, env=None, paths=(), **more):
    """The script with the package and no preload."""
    script = out / "script.py"
    script.write_text(text, encoding="utf-8")
    path = scripts_module.python_path(msmemscope.dist)
    return msmemscope.bare(*python, script, *words, cwd=out,
                           env={"PYTHONPATH": ":".join([path, *map(str, paths)]), "OUT": out / "results", **(env or {})}, **more)


def projects(run, out):
    import rows as rows_module
    run.check()
    return rows_module.projects(out / "results")


@pytest.mark.parametrize("when, bound", [("early", True), ("early", False), ("late", False)], ids=["bound", "lazy", "imported-later"])
def test_tensors_of_four_threads_are_all_seen_and_every_slot_is_given_back(msmemscope, out, python, when, bound):
    """Bound at once, every word is as it was, also on read-only pages; bound at first use, some were bound meanwhile."""
    run = run_plain(msmemscope, out, python, TENSORS, when, env={"LD_BIND_NOW": "1"} if bound else None)
    [project] = projects(run, out)
    said = json.loads(run.stdout)
    rows = project.rows()
    assert of_size(rows, "MALLOC", set(said["taken"])) == Counter(said["taken"]) and len(said["taken"]) == 400
    assert of_size(rows, "FREE", set(said["taken"])) == Counter(said["freed"])
    assert not of_size(rows, "FREE", {5003 * 4}), "tensors that are older than start()"
    assert said["ours"] > 3 and said["left"] == 0
    if bound:
        assert said["changed"] == [] and said["readonly"] > 0
    # c10 did not notice, and what is not seen is said once.
    assert "CPUAllocator" not in run.stderr and run.stderr.count("recorded without a preload") == 2, run.stderr
    assert "oddities" not in (project.path / "report.txt").read_text()


DRIVER = """
import ctypes, json, os, sys
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_int]
acl.aclrtFree.argtypes = [ctypes.c_void_p]
assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(0) == 0
def take(size):
    block = ctypes.c_void_p()
    assert acl.aclrtMalloc(ctypes.byref(block), size, 0) == 0
    return block
import msmemscope
old = [take(7 << 20) for _ in range(3)]
for window in range(2):
    msmemscope.config(events="alloc,free", output=os.path.join(os.environ["OUT"]))
    msmemscope.start()
    blocks = [take((window + 1 << 24) + (i << 20)) for i in range(10)]
    # A library that comes later, and calls the driver by itself.
    plugin = ctypes.CDLL(os.environ["PLUGIN"])
    plugin.plugin_a.restype, plugin.plugin_a.argtypes = ctypes.c_void_p, [ctypes.c_uint64] * 2
    assert plugin.plugin_a((window + 1 << 24) + 77777, (33 << 56) | 0x904400)
    for block in blocks[::2]:
        assert acl.aclrtFree(block) == 0
    assert acl.aclrtFree(old.pop()) == 0
    if window == 0:
        child = os.fork()
        if child == 0:
            take(3 << 24)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    msmemscope.unload()
    assert acl.aclrtFree(blocks[1]) == 0
msmemscope.unload()
take(5 << 24)
"""


# A framework whose pool tells a preloaded collector only: the driver's memory is steady, whatever the pool hands out.
UNSEEN = """
import ctypes, os, sys, types
acl = ctypes.CDLL("libascendcl.so")
acl.aclrtMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64, ctypes.c_int]
acl.aclrtFree.argtypes = [ctypes.c_void_p]
assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(0) == 0
if "unseen" in sys.argv:
    sys.modules["torch_npu"] = types.ModuleType("torch_npu")
def take(size):
    block = ctypes.c_void_p()
    assert acl.aclrtMalloc(ctypes.byref(block), size, 0) == 0
    return block
import msmemscope
msmemscope.config(output=os.environ["OUT"])
msmemscope.start()
segment = take(20 << 20)
for _ in range(12):
    assert acl.aclrtFree(take(1 << 20)) == 0
    msmemscope.step()
msmemscope.stop()
"""


@pytest.mark.parametrize("unseen", [True, False])
def test_no_leak_is_not_said_of_a_pool_that_is_not_recorded(msmemscope, out, unseen):
    run = run_plain(msmemscope, out, [scripts_module.PYTHON], UNSEEN, *(["unseen"] if unseen else []))
    [project] = projects(run, out)
    found, report = msmemscope.info(project), (project.path / "report.txt").read_text(encoding="utf-8")
    msmemscope("report", "-o", out / "page.html", project.path, output=False).check()
    page = viewed.answers(out / "page.html", ("summary/0/",))["summary/0///"]
    assert (found["verdict"], found["judgement"]["clean"], page["clean"]) == (("none", False, False) if unseen else ("ok", True, True)), str(run)
    assert [(one["reason"], one["device"], one["blocks"], one["bytes"] >> 20) for one in found["judgement"]["unjudged"]] == (
        [("pool_unseen", "0", 1, 20)] if unseen else [])
    for text in (run.stderr, report, msmemscope("info", project.path, output=False).check().stdout):
        assert bool(re.search("^No leak (was )?found", text, re.M)) != unseen, text
        said = re.search(r"Not judged: 1 block, 20.0 MiB of |Leaks were not judged: 1 block \(20.0 MiB\)", " ".join(text.split()))
        assert bool(said) == unseen, text


def test_a_driver_is_seen_without_a_preload_in_each_run_anew(msmemscope, out, targets):
    """The simulated NPU: through ACL, by a plug-in that comes later, in a forked child; a second start() is a second run."""
    run = run_plain(msmemscope, out, [scripts_module.PYTHON], DRIVER, env={"PLUGIN": targets / "libplugin_a.so"})
    found = projects(run, out)
    mains = [project for project in found if len([row for row in project.rows() if row.event == "MALLOC"]) > 5]
    [child] = [project for project in found if project not in mains]
    assert len(mains) == 2 and {project.pid for project in mains} != {child.pid}
    for window, project in enumerate(mains):
        hal = [row for row in project.rows() if row.type == "HAL"]
        big = [row.attr["size"] >> 20 for row in hal if row.event == "MALLOC" and row.attr["size"] != (window + 1 << 24) + 77777]
        assert sorted(big) == [(window + 1 << 4) + i for i in range(10)], hal
        assert any(row.attr["size"] == (window + 1 << 24) + 77777 for row in hal)
        assert Counter(row.event for row in hal) == {"MALLOC": 11, "FREE": 5}
        assert "oddities" not in (project.path / "report.txt").read_text()
    assert [row.attr["size"] >> 20 for row in child.rows() if row.event == "MALLOC"] == [3 << 4]


@pytest.mark.parametrize("bound", [False, True], ids=["lazy", "bound"])
def test_calls_are_redirected_and_given_back_while_threads_call(msmemscope, out, program, targets, dist, bound):
    """A C program that opens the collector by itself, three times. It compares all slots, and finds libraries by RUNPATH as before."""
    (out / "results").mkdir()
    run = msmemscope.bare(*program("plain_calls", dist / "lib64" / "libascend_kernel_hook.so", dist / "bin" / "msmemscope",
                                   out / "results", targets / "librunpath_caller.so", targets / "libplugin_a.so"),
                          env={"LD_BIND_NOW": "1"} if bound else None)
    found = projects(run, out)
    said = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(said) == len(found) == 4, run
    bases = []
    for project in found:
        rows = [row for row in project.rows() if row.event in ("MALLOC", "FREE")]
        first = [row for row in rows if row.device == "0"]
        base = min(row.attr["size"] for row in first)
        bases.append((project.pid, base))
        assert sorted(row.attr["size"] for row in first if row.event == "MALLOC") == list(range(base, base + 21))
        assert sorted(row.attr["size"] for row in first if row.event == "FREE") == [*range(base, base + 20, 2), base + 20]
        # The four threads: a block of each may be in use at the end.
        other = Counter(row.event for row in rows if row.device == "1")
        assert 0 <= other["MALLOC"] - other["FREE"] <= 4
        assert "oddities" not in (project.path / "report.txt").read_text()
    assert sorted(bases) == sorted((line["pid"], line["base"]) for line in said)


@pytest.mark.qemu
@pytest.mark.parametrize("bound", [False, True], ids=["lazy", "bound"])
def test_a_program_that_lost_its_preload_is_redirected_into_the_session(msmemscope, out, runner, targets, dist, bound):
    """The same program once, in the session that its environment names; also on aarch64."""
    without = [*runner, "-U", "LD_PRELOAD"] if runner else ["/usr/bin/env", "-u", "LD_PRELOAD"]
    run = msmemscope("--collect-mode=deferred", "--", *without, targets / "plain_calls", dist / "lib64" / "libascend_kernel_hook.so", "-",
                     out, targets / "librunpath_caller.so", targets / "libplugin_a.so", env={"LD_BIND_NOW": "1"} if bound else None).check()
    rows = [row for row in run.project().rows() if row.event in ("MALLOC", "FREE") and row.device == "0"]
    assert sorted(row.attr["size"] for row in rows if row.event == "MALLOC") == list(range(100000, 100021))
    assert sorted(row.attr["size"] for row in rows if row.event == "FREE") == [*range(100000, 100020, 2), 100020]
    assert "oddities" not in (run.project().path / "report.txt").read_text()


STORM = """
import os, threading, torch, msmemscope
ended = threading.Event()
def work():
    while not ended.is_set():
        torch.empty(1003)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for i in range(5):
    msmemscope.config(events="alloc,free", device="cpu", output=os.environ["OUT"])
    msmemscope.start()
    kept = [torch.empty(200003 + i, dtype=torch.int8) for _ in range(10)]
    msmemscope.unload()
    del kept
ended.set()
for thread in threads:
    thread.join()
"""


def test_start_and_unload_while_threads_run(msmemscope, out, python):
    run = run_plain(msmemscope, out, python, STORM)
    found = projects(run, out)
    assert len(found) == 5
    sizes = Counter()
    for project in found:
        rows = project.rows()
        sizes += of_size(rows, "MALLOC", set(range(200003, 200008)))
        live = of_size(rows, "MALLOC", {4012})[4012] - of_size(rows, "FREE", {4012})[4012]
        assert 0 <= live <= 4, "blocks whose free was not seen"
        assert "oddities" not in (project.path / "report.txt").read_text()
        assert project.path.name[len("msmemscope_"):].split("_")[2] == "cpu", "the name depends on which thread was first"
    assert sizes == {200003 + i: 10 for i in range(5)}


STOPPED = """
import glob, os, signal, time, torch, msmemscope
RESULTS = os.environ["OUT"]
def reports():
    return len(glob.glob(RESULTS + "/msmemscope_*/report.txt"))
def engine():
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    for name in names:
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\\0")
        except OSError:
            continue
        if b"api-engine" in words and str(os.getpid()).encode() in words and int(name) not in known:
            known.add(int(name))
            return int(name)
known = set()
for i in range(3):
    msmemscope.config(events="alloc,free", device="cpu", output=RESULTS)
    msmemscope.start()
    last = engine()
    if i == 1:
        stopped = last
        os.kill(stopped, signal.SIGSTOP)
    kept = [torch.empty(200003 + i, dtype=torch.int8) for _ in range(10)]
    msmemscope.unload()
    assert reports() == (1, 1, 2)[i], (i, reports())
os.kill(stopped, signal.SIGCONT)
while os.path.exists(f"/proc/{stopped}"):
    time.sleep(0.05)
assert reports() == 3
"""


def test_a_run_whose_engine_stands_still_is_told_and_hinders_no_other(msmemscope, out, python):
    """Of three runs, the second has an engine that is stopped: unload() says so, the third has its files in time, and the second when
    its engine goes on."""
    run = run_plain(msmemscope, out, python, STOPPED)
    found = projects(run, out)
    assert len(found) == 3 and all((project.path / "trace.msc").is_file() for project in found)
    sizes = [of_size(project.rows(), "MALLOC", set(range(200003, 200006))) for project in found]
    assert sorted(sizes, key=min) == [{200003 + i: 10} for i in range(3)]
    [line] = [line for line in run.stderr.splitlines() if "the engine" in line]
    assert "the engine does not answer" in line and "msmemscope recover /" in line, run.stderr
    assert not list((out / "results").glob(".msmemscope_*")), "the session is still there"


def test_each_run_that_cannot_be_recorded_is_told(msmemscope, out, python):
    run = run_plain(msmemscope, out, python, "import msmemscope\nfor _ in range(3):\n    msmemscope.start()\n    msmemscope.start()\n"
                    "    msmemscope.unload()\n", env={"MSMEMSCOPE_ENGINE": "/nowhere/msmemscope"}).check()
    assert run.stderr.count("/nowhere/msmemscope did not start") == 3, run.stderr


def test_without_a_library_one_line_is_said(scripts):
    run = scripts.without_library("import msmemscope\nfor _ in range(2):\n    msmemscope.start()\n    msmemscope.step()\n"
                                  "    msmemscope.stop()\nmsmemscope.unload()\nprint('went on')\n").check()
    assert run.stdout == "went on\n" and run.stderr.count("\n") == 1 and "nothing is recorded" in run.stderr, run


def ours(dist, code):
    return subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(dist / "python")}, capture_output=True, text=True, check=False)


def test_an_interpreter_that_is_too_old_is_named(dist):
    """As the package sees it: by its version alone."""
    done = ours(dist, "import sys\nsys.version_info = (3, 7, 4)\nimport msmemscope")
    assert done.stderr.splitlines()[-1] == "ImportError: msmemscope needs Python 3.8 or newer; this is Python 3.7"


def test_what_is_not_seen_fits_into_notes(dist):
    """A note of a trace has room for 255 bytes; the longest says which pools are not seen."""
    done = ours(dist, "import sys\nsys.modules['torch_npu'] = sys\nfrom msmemscope import _load\nprint(*_load.blind(), sep='\\n')")
    lines = done.stdout.splitlines()
    assert len(lines) == 2 and "driver is seen" in lines[1] and all(len(line.encode()) < 256 for line in lines), done
