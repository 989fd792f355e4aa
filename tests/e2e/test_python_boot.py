# SPDX-License-Identifier: Apache-2.0
"""A Python script that the command starts has our package in it before its first line, and notices nothing of it."""
import json
import os
import shutil
import subprocess
import sys

import pytest

# What a script can see of how it was started, by names that mean the same in every run.
STATE = """
import sys, signal, warnings, gc, threading, os
print(__import__("json").dumps({
    "argv": sys.argv, "path": sys.path, "flags": repr(sys.flags), "main": sorted(set(globals()) - {"sys", "signal"}),
    "main_file": __name__, "filters": [repr(f) for f in warnings.filters], "profile": repr(sys.getprofile()),
    "trace": repr(sys.gettrace()), "signals": [repr(signal.getsignal(n)) for n in (2, 13, 15)], "gc": gc.get_threshold(),
    "hooks": [repr(sys.excepthook), repr(sys.displayhook)], "threads": threading.active_count(),
    "stdin": sys.stdin.fileno(), "open": sorted(os.listdir("/proc/self/fd"))}))
"""
SEEN = "import sys; m = sys.modules.get('msmemscope._boot'); print(m is not None, m and m.__file__)"


@pytest.fixture
def seen(dist):
    return f"True {dist / 'python' / 'msmemscope' / '_boot.py'}\n"


FLAGS = ["", "-I", "-E", "-S", "-I -S", "-X dev", "-O", "-u", "-B"]
# An isolated interpreter does not look for modules where it is started, with us or without.
WAYS = [(way, flags) for way in ("command", "file", "module", "stdin", "directory") for flags in FLAGS
        if not (way == "module" and "-I" in flags)]


@pytest.mark.parametrize("way, flags", WAYS, ids=lambda value: value.replace(" ", "") or "plain")
def test_the_package_is_there_before_the_first_line(msmemscope, tmp_path, seen, way, flags):
    """Whatever the flags, however the script is named; nothing of it is in PYTHONPATH."""
    (tmp_path / "made.py").write_text(SEEN, encoding="utf-8")
    (tmp_path / "__main__.py").write_text(SEEN, encoding="utf-8")
    words = {"command": ["-c", SEEN], "file": ["made.py"], "module": ["-m", "made"], "stdin": ["-"], "directory": ["."]}[way]
    with open(tmp_path / "made.py", "rb") as stdin:
        run = msmemscope("--", sys.executable, *flags.split(), *words, cwd=tmp_path, stdin=stdin)
    assert (run.returncode, run.stdout) == (0, seen), run


def test_an_interactive_interpreter_has_it_too(msmemscope, tmp_path, seen):
    (tmp_path / "typed").write_text(SEEN + "\n", encoding="utf-8")
    with open(tmp_path / "typed", "rb") as stdin:
        run = msmemscope("--", sys.executable, "-i", "-q", cwd=tmp_path, stdin=stdin).check()
    assert run.stdout == seen


def test_a_startup_file_has_it_too(msmemscope, tmp_path, seen):
    (tmp_path / "startup.py").write_text(SEEN, encoding="utf-8")
    run = msmemscope("--", sys.executable, "-i", "-q", env={"PYTHONSTARTUP": tmp_path / "startup.py"}).check()
    assert run.stdout == seen


def test_an_environment_of_its_own_has_it_too(msmemscope, tmp_path, seen):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    run = msmemscope("--", tmp_path / "env" / "bin" / "python", "-c", SEEN + "; print(sys.prefix)").check()
    assert run.stdout == seen + f"{tmp_path / 'env'}\n"


@pytest.mark.parametrize("flags", [[], ["-I"], ["-X", "dev"], ["-W", "error"]], ids=lambda flags: "".join(flags) or "plain")
def test_the_script_sees_the_interpreter_as_without_us(msmemscope, tmp_path, flags):
    (tmp_path / "state.py").write_text(STATE, encoding="utf-8")
    words = [sys.executable, *flags, tmp_path / "state.py", "an", "argument"]
    bare = msmemscope.bare(*words).check()
    run = msmemscope("--log-level=error", "--", *words).check()
    assert json.loads(run.stdout) == json.loads(bare.stdout)


# The interpreter appends hooks to a list whose head is a word of _PyRuntime; an entry is {next, hook, user}. Adds two and prints, for
# each, the users from its entry on if that entry is the head, and None if another one is before it.
AUDITED = """
import ctypes, os, struct
api = ctypes.pythonapi
hook = ctypes.cast(api.PyErr_CheckSignals, ctypes.c_void_p)  # a function that returns 0
for user in (1, 2):
    assert api.PySys_AddAuditHook(hook, ctypes.c_void_p(user)) == 0
runtime = ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime"))
memory = os.open("/proc/self/mem", os.O_RDONLY)
areas = [[int(number, 16) for number in line.split()[0].split("-")] for line in open("/proc/self/maps")]
[end] = [end for start, end in areas if start <= runtime < end]

def users(entry):
    found = []
    while entry:
        entry, called, user = struct.unpack("QQQ", os.pread(memory, 24, entry))
        if called != hook.value:
            return None
        found.append(user)
    return found

for first in (1, 2):
    heads = []
    for word, in struct.iter_unpack("Q", os.pread(memory, end - runtime, runtime)):
        if word % 8 == 0 and any(start <= word < end - 24 for start, end in areas):
            if struct.unpack("QQQ", os.pread(memory, 24, word))[1:] == (hook.value, first):
                heads.append(users(word))
    print(heads)
"""


def test_nothing_is_left_in_the_interpreter_that_costs(msmemscope):
    """With any audit hook in its list, the interpreter builds a tuple for each of its events, and id() is one. Ours is gone: the next
    hook is the first of the list, as without us."""
    words = [sys.executable, "-c", AUDITED]
    assert msmemscope.bare(*words).check().stdout == "[[1, 2]]\n[]\n"
    assert msmemscope("--", *words).check().stdout == "[[1, 2]]\n[]\n"


def test_an_import_in_the_script_gives_the_same_objects(msmemscope, dist):
    code = ("import sys; before = sys.modules['msmemscope']; import msmemscope; print(msmemscope is before, "
            "msmemscope.__file__)")
    wanted = f"True {dist / 'python' / 'msmemscope' / '__init__.py'}\n"
    assert msmemscope("--", sys.executable, "-c", code).check().stdout == wanted
    assert msmemscope("--", sys.executable, "-c", code, env={"PYTHONPATH": dist / "python"}).check().stdout == wanted


def test_what_needs_no_python_code_brings_none(msmemscope):
    run = msmemscope("--events=alloc,free", "--analysis=", "--", sys.executable, "-c", SEEN).check()
    assert run.stdout == "False None\n"
    assert msmemscope.bare(sys.executable, "-c", SEEN).check().stdout == "False None\n"
    run = msmemscope("--", sys.executable, "-c", SEEN, env={"MSMEMSCOPE_DISABLE": "1"}).check()
    assert run.stdout == "False None\n"


@pytest.mark.parametrize("options", [[], ["--events=alloc"], ["--collect-mode=deferred", "--level=kernel"]], ids=" ".join)
@pytest.mark.parametrize("name", ["msmemscope", "msleaks"])
def test_a_script_may_import_the_package_without_having_it_in_its_path(msmemscope, dist, name, options):
    """One that has its own module of that name keeps it, unless ours is there already."""
    run = msmemscope(*options, "--", sys.executable, "-c", f"import sys, {name}, {name}.tracer; print({name}.__file__, {name}.tracer.__name__); "
                     "assert not any('msmemscope' in place for place in sys.path)").check()
    assert run.stdout == f"{dist}/python/msmemscope/__init__.py msmemscope.tracer\n"


def preloaded(dist, **more):
    return {"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so", **more}


@pytest.mark.parametrize("way, flags", WAYS, ids=lambda value: value.replace(" ", "") or "plain")
def test_a_preloaded_script_may_import_the_package_without_having_it_in_its_path(msmemscope, dist, out, tmp_path, way, flags):
    """Whatever the flags; nothing of ours has run before, and nothing is left behind."""
    text = ("import sys; assert not [name for name in sys.modules if 'msmemscope' in name]; import msleaks, msmemscope.tracer; "
            "print(msmemscope.__file__)")
    for name in ("made.py", "__main__.py"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = {"command": ["-c", text], "file": ["made.py"], "module": ["-m", "made"], "stdin": ["-"], "directory": ["."]}[way]
    for more in ({}, {"MSMEMSCOPE_DISABLE": "1"}):
        with open(tmp_path / "made.py", "rb") as stdin:
            run = msmemscope.bare(sys.executable, *flags.split(), *words, cwd=tmp_path, stdin=stdin, env=preloaded(dist, **more)).check()
        assert (run.stdout, run.stderr) == (f"{dist}/python/msmemscope/__init__.py\n", "")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("flags", [[], ["-I"], ["-X", "dev"], ["-W", "error"]], ids=lambda flags: "".join(flags) or "plain")
def test_a_preloaded_script_sees_the_interpreter_as_without_us(msmemscope, dist, tmp_path, flags):
    (tmp_path / "state.py").write_text(STATE, encoding="utf-8")
    words = [sys.executable, *flags, tmp_path / "state.py"]
    bare, ours = msmemscope.bare(*words).check(), msmemscope.bare(*words, env=preloaded(dist)).check()
    assert json.loads(ours.stdout) == json.loads(bare.stdout) and ours.stderr == bare.stderr


def test_a_module_of_the_scripts_own_by_that_name_stays_its_own(msmemscope, dist, tmp_path):
    (tmp_path / "msmemscope.py").write_text("print('mine')", encoding="utf-8")
    (tmp_path / "script.py").write_text("import msmemscope", encoding="utf-8")
    assert msmemscope.bare(sys.executable, tmp_path / "script.py", env=preloaded(dist)).check().stdout == "mine\n"
    # Nothing is found where the package is not beside the library.
    shutil.copy(dist / "lib64" / "libascend_kernel_hook.so", tmp_path)
    run = msmemscope.bare(sys.executable, "-I", "-c", "import msmemscope", env={"LD_PRELOAD": tmp_path / "libascend_kernel_hook.so"})
    assert run.returncode == 1 and "ModuleNotFoundError: No module named 'msmemscope'" in run.stderr


CHILDREN = """
import multiprocessing, os, subprocess, sys
def child(queue):
    queue.put("msmemscope._boot" in sys.modules)
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(method, queue.get())
        process.join()
    print("run", subprocess.run([sys.executable, "-c", "import sys; print('msmemscope._boot' in sys.modules)"],
                                stdout=subprocess.PIPE).stdout)
    print("shell", subprocess.run(f"exec {sys.executable} -c 'import sys; print(\\"msmemscope._boot\\" in sys.modules)'",
                                  shell=True, stdout=subprocess.PIPE).stdout)
"""


def test_children_have_it_by_themselves(msmemscope, tmp_path):
    (tmp_path / "children.py").write_text(CHILDREN, encoding="utf-8")
    run = msmemscope("--", sys.executable, tmp_path / "children.py").check()
    assert run.stdout == "fork True\nspawn True\nforkserver True\nrun b'True\\n'\nshell b'True\\n'\n"


@pytest.fixture
def broken(dist, tmp_path):
    """A copy of what is installed, whose package fails."""
    copy = tmp_path / "dist"
    shutil.copytree(dist, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "simnpu"))
    return copy


@pytest.mark.parametrize("damage", ["raises", "is no Python", "is gone", "exits"])
def test_a_package_that_fails_is_a_note_and_nothing_else(msmemscope, broken, targets, dist, out, damage):
    boot = broken / "python" / "msmemscope" / "_boot.py"
    texts = {"raises": "raise RuntimeError('broken on purpose')", "is no Python": "def (", "exits": "import sys\nsys.exit(3)"}
    if damage == "is gone":
        shutil.rmtree(broken / "python")
    else:
        boot.write_text(texts[damage], encoding="utf-8")
    env = {"PYTHONPATH": dist / "simnpu" / "python"}
    words = [sys.executable, targets / "steps.py", "1"]
    bare = msmemscope.bare(*words, env=env).check()
    msmemscope.path = broken / "bin" / "msmemscope"
    run = msmemscope("--log-level=error", "--", *words, env=env).check()
    assert len(json.loads(run.stdout)["events"]) == len(json.loads(bare.stdout)["events"])
    assert "Traceback" not in run.stderr
    assert [row.event for row in run.rows()].count("MALLOC") == 1
    info = msmemscope.info(run.project())
    [note] = [text for text in info["notes"] if "msmemscope's Python code does not run" in text]
    assert {"raises": "RuntimeError: broken on purpose", "is no Python": "SyntaxError", "is gone": "ModuleNotFoundError",
            "exits": "SystemExit"}[damage] in note


def test_ctrl_c_during_the_start_reaches_the_script(msmemscope, broken):
    """The user's interrupt is not swallowed with our own failures: it ends the script as it would have without us."""
    boot = broken / "python" / "msmemscope" / "_boot.py"
    boot.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10**7): pass\n", encoding="utf-8")
    msmemscope.path = broken / "bin" / "msmemscope"
    run = msmemscope("--", sys.executable, "-c", "print('not told')")
    assert (run.returncode, run.stdout) == (-2, "") and "KeyboardInterrupt" in run.stderr


def test_the_hook_of_torch_runs_once_when_it_comes(msmemscope, dist, tmp_path):
    """A module of that name: its own loader, its own spec; a failure to import it is the script's to see, and to try again."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os\nif os.path.exists(os.environ['FLAG']):\n    os.remove(os.environ['FLAG'])\n    raise ImportError('first time')\n"
        "value = 7\n", encoding="utf-8")
    code = """
import sys, msmemscope._boot as boot
calls = []
finders = len(sys.meta_path)
boot.when_imported("torch", lambda module: calls.append(module.value))
try:
    import torch
except ImportError as error:
    print(error)
import torch
import torch
print(calls, type(torch.__loader__).__name__, torch.__spec__.loader is torch.__loader__, torch.__spec__.name)
boot.when_imported("torch", lambda module: calls.append("at once"))
print(calls)
"""
    flag = tmp_path / "flag"
    flag.touch()
    env = {"PYTHONPATH": f"{dist / 'python'}{os.pathsep}{tmp_path}", "FLAG": flag}
    run = msmemscope.bare(sys.executable, "-c", code, env=env).check()
    assert run.stdout == "first time\n[7] SourceFileLoader True torch\n[7, 'at once']\n"


def test_a_framework_that_fails_to_import_is_shown_as_without_us(msmemscope, tmp_path):
    (tmp_path / "torch.py").write_text("def f():\n    raise OSError('no such library')\nf()\n", encoding="utf-8")
    (tmp_path / "script.py").write_text("import torch\n", encoding="utf-8")
    bare = msmemscope.bare(sys.executable, tmp_path / "script.py")
    run = msmemscope("--log-level=error", "--", sys.executable, tmp_path / "script.py")
    assert bare.returncode == run.returncode == 1
    assert "no such library" in bare.stderr and bare.stderr in run.stderr
