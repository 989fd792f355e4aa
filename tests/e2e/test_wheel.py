# SPDX-License-Identifier: Apache-2.0
"""pip install: command, collector, package and simulated NPU in one wheel, in environments that were empty before."""
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rows
import venvs

ROOT = venvs.ROOT
LIB = Path(__file__).resolve().parent / "lib"
TORCH = next((ROOT / "build" / "venv").glob("lib/python3*/site-packages"), None)


def preset(runner):
    return "aarch64" if runner else "release"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, runner):
    """From the build that the other tests run; that of another machine where a runner is set."""
    assert (ROOT / "build" / preset(runner) / "build.ninja").exists(), "run make"
    return venvs.build_wheel(tmp_path_factory.mktemp("wheel"), preset(runner))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """`pip install .`, without a network; the environment has pip and nothing else before."""
    environment = venvs.Environment(tmp_path_factory.mktemp("installed") / "env")
    # Nothing can be written there.
    environment.pip("install", ROOT, env=venvs.environment(HOME="/proc"))
    return environment


@pytest.fixture
def empty(installed, tmp_path):
    return venvs.Environment(tmp_path / "env", pip=installed)


@pytest.fixture(scope="module")
def package_alone(tmp_path_factory, installed):
    """Where no collector runs: a wheel for any machine."""
    place = tmp_path_factory.mktemp("any")
    made = venvs.build_wheel(place, "any")
    assert made.name.endswith("-py3-none-any.whl")
    installed.pip("install", "--target", place / "packages", made)
    return place / "packages"


def simulated(home, **more):
    """The environment of a program that finds the simulated NPU of an installation."""
    return venvs.environment(LD_LIBRARY_PATH=home / "simnpu" / "lib64", ASCEND_HOME_PATH=home / "simnpu", TRUTH="/dev/null", **more)


# ---- the file ----

@pytest.mark.qemu
def test_auditwheel_confirms_the_tag_of_everything_in_it(wheel, runner):
    venvs.run(ROOT / "tools" / "install-packages.sh", "wheel", env=os.environ)
    machine = "aarch64" if runner else platform.machine()
    said = venvs.run(ROOT / "build" / "venv-wheel" / "bin" / "auditwheel", "show", wheel).stdout
    assert f'following platform tag: "manylinux_2_17_{machine}"' in " ".join(said.split()), said
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        elves = [name for name in names if file.read(name)[:4] == b"\x7fELF"]
    assert not [name for name in names if "libunwind" in name]
    assert len([name for name in elves if "/simnpu/" in name]) >= 10
    assert {"bin/msmemscope", "lib64/libascend_kernel_hook.so"} <= {name.split("_home/")[-1] for name in elves}


def test_the_same_tree_gives_the_same_wheel(wheel, tmp_path):
    assert venvs.build_wheel(tmp_path, "release").read_bytes() == wheel.read_bytes()


def test_the_archive_of_the_source_has_all_that_a_build_needs(tmp_path):
    code = "import build_wheel, sys; print(build_wheel.build_sdist(sys.argv[1]))"
    name = venvs.run(sys.executable, "-c", code, tmp_path, env=venvs.environment(PYTHONPATH=ROOT / "tools")).stdout.strip()
    shutil.unpack_archive(tmp_path / name, tmp_path)
    [tree] = [path for path in tmp_path.iterdir() if path.is_dir()]
    ours = venvs.run("git", "-c", "safe.directory=*", "ls-files", cwd=ROOT).stdout.split("\n")
    assert {path for path in ours if path and (ROOT / path).is_file()} == {
        str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()} - {"PKG-INFO"}
    assert os.access(tree / "tools" / "build_wheel.py", os.X_OK)


# ---- the command ----

def test_an_empty_environment_has_the_whole_tool(installed):
    env = venvs.environment(PATH=f"{installed.place / 'bin'}:{os.environ['PATH']}")
    said = venvs.run("msmemscope", "selftest", env=env).stdout
    assert said.count("ok  ") == 6 and "BAD" not in said
    assert venvs.run("msmemscope", "--print-prefix", env=env).stdout == f"{installed.home}\n"
    assert venvs.run("msleaks", "--print-prefix", env=env).stdout == f"{installed.home}\n"
    assert (installed.place / "share" / "man" / "man1" / "msmemscope.1").exists()
    listed = installed.pip("show", "-f", "msmemscope").stdout
    assert "Version: " in listed and "Requires: \n" in listed


@pytest.mark.parametrize("words", [["bin/msleaks"], ["bin/python", "-m", "msleaks", "run"]], ids=len)
def test_the_old_name_has_its_own_directory(installed, tmp_path, words):
    example = installed.home / "examples" / "leaky_npu"
    venvs.run(installed.place / words[0], *words[1:], "--", example, "3", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["leaksDumpResults"]


@pytest.mark.parametrize("locale", [{}, {"LC_ALL": "C"}, {"LC_CTYPE": "POSIX", "MINE": "="}], ids=str)
def test_every_way_to_the_command_is_the_same(installed, dist, tmp_path, locale):
    """The program has the environment and the signals that the command was given; exit codes and words come through."""
    ways = [[dist / "bin" / "msmemscope"], [installed.command], [installed.python, "-m", "msmemscope"]]
    env = {"PATH": "/usr/bin:/bin", **locale}
    for words in ([], ["run"]):
        signals, variables = [], []
        for way in ways:
            line = [*way, *words, "-q", "-o", tmp_path / "out", "--"]
            signals.append(re.findall("^Sig(?:Blk|Ign|Cgt):.*", venvs.run(*line, "cat", "/proc/self/status", env=env).stdout, re.M))
            variables.append(sorted(name for name in venvs.run(*line, "env", env=env).stdout.splitlines()
                                    if not name.startswith(("LD_", "MSMEMSCOPE"))))
        assert signals[0] == signals[1] == signals[2] and len(signals[0]) == 3
        assert variables[0] == variables[1] == variables[2] == sorted(f"{name}={value}" for name, value in env.items())
    for words in (["--version"], ["--help"], ["info", "--help"], ["info", "/nonexistent"], ["--nosuch"], [],
                  ["--", "sh", "-c", "kill -9 $$"], ["-q", "run", "sh", "-c", "exit 7"]):
        first, *others = [venvs.run(*way, *words, check=False, cwd=tmp_path, env=env) for way in ways]
        for other in others:
            assert (other.returncode, other.stdout) == (first.returncode, first.stdout)
            assert re.sub(r"pid \d+", "", other.stderr) == re.sub(r"pid \d+", "", first.stderr)


def test_the_module_records_and_reads(installed, tmp_path):
    example = installed.home / "examples" / "leaky_npu"
    venvs.run(installed.python, "-m", "msmemscope", "run", "--call-stack=c", "-o", tmp_path, "--", example, "12")
    [project] = rows.projects(tmp_path)
    assert len([row for row in project.rows() if row.event == "MALLOC"]) == 38
    assert "compute_loss" in venvs.run(installed.python, "-m", "msmemscope", "info", project.path).stdout


LAYOUTS = {"target": ["--target", "{place}"], "prefix": ["--ignore-installed", "--prefix", "{place}"],
           "user": ["--user", "--ignore-installed"]}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_command_finds_the_package_in_every_layout(wheel, tmp_path, layout):
    """And through a link, as pipx makes them. The interpreter is Debian's: an environment knows no user."""
    place = tmp_path / "a place"
    env = venvs.environment(PYTHONUSERBASE=place, PIP_BREAK_SYSTEM_PACKAGES="1")
    venvs.run(venvs.PYTHON, "-m", "pip", "install", *(word.format(place=place) for word in LAYOUTS[layout]), wheel, env=env)
    [command] = [path for path in place.rglob("bin/msmemscope") if "_home" not in path.parts]
    (tmp_path / "link").symlink_to(command)
    prefix = venvs.run(tmp_path / "link", "--print-prefix").stdout.strip()
    assert prefix.startswith(str(place)) and prefix.endswith("/msmemscope/_home")


def test_a_command_without_its_package_says_what_to_do(installed, tmp_path):
    (tmp_path / "bin").mkdir()
    shutil.copy(installed.command, tmp_path / "bin")
    done = venvs.run(tmp_path / "bin" / "msmemscope", "--version", check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "python3 -m msmemscope" in done.stderr and str(tmp_path) in done.stderr


# ---- the life of an installation ----

OLDER = """
import sys, build_wheel
from pathlib import Path
build_wheel.version = lambda: "0.0.1"
close = build_wheel.Wheel.close
def with_more(self):
    self.add_text("msmemscope/_gone.py", "")
    self.add_text(f"{build_wheel.HOME}/lib64/libgone.so", "")
    return close(self)
build_wheel.Wheel.close = with_more
print(Path(sys.argv[1]) / build_wheel.make(sys.argv[1], "release"))
"""


def test_an_upgrade_leaves_nothing_of_the_older_one_and_an_uninstall_nothing_at_all(empty, wheel, tmp_path):
    before = empty.files()
    older = venvs.run(sys.executable, "-c", OLDER, tmp_path, env=venvs.environment(PYTHONPATH=ROOT / "tools")).stdout.splitlines()[-1]
    empty.pip("install", older)
    # The command is of another version than its package: one of another interpreter in the same prefix may be.
    assert venvs.run(empty.command, "--print-prefix").stdout == f"{empty.home}\n"
    assert (empty.home / "lib64" / "libgone.so").exists()
    empty.pip("install", "--upgrade", wheel)
    assert not [name for name in empty.files() if "gone" in name or "0.0.1" in name]
    venvs.run(empty.command, "selftest")
    venvs.run(empty.python, "-c", "import msmemscope, msleaks.tracer; msmemscope.start(); print(msmemscope.__version__)")
    empty.pip("uninstall", "-y", "msmemscope")
    assert empty.files() == before


def test_it_works_for_a_user_who_can_write_nowhere_but_in_one_directory(installed, wheel):
    """The installation belongs to somebody else, and so does the home directory. Only root can become another user."""
    place = Path("/var/tmp") / f"msmemscope-wheel-{os.getpid()}"
    place.mkdir(mode=0o755)
    try:
        environment = venvs.Environment(place / "env", pip=installed)
        environment.pip("install", wheel)
        before = environment.files()
        (place / "out").mkdir()
        (place / "out").chmod(0o777)
        (place / "readme.py").write_text(readme_script(""), encoding="utf-8")
        who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        options = {"cwd": place / "out", "env": simulated(environment.home, HOME="/proc", TMPDIR=place / "out"), **who}
        shutil.copy(LIB / "npu.py", place)
        assert "BAD" not in venvs.run(environment.command, "selftest", **options).stdout
        venvs.run(environment.python, "-B", place / "readme.py", **options)
        venvs.run(environment.command, "-q", "--", environment.python, place / "readme.py", **options)
        assert recorded(place / "out" / "memscopeDumpResults")
        assert environment.files() == before
    finally:
        shutil.rmtree(place)


def test_an_editable_installation_is_the_staged_tree(empty):
    empty.pip("install", "--editable", ROOT)
    dist = ROOT / "build" / "dist"
    assert venvs.run(empty.command, "--print-prefix").stdout == f"{dist}\n"
    found = venvs.run(empty.python, "-c", "import msmemscope; print(msmemscope.__file__)").stdout
    assert found == f"{dist / 'python' / 'msmemscope' / '__init__.py'}\n"


# ---- the package ----

TRAIN = """
import npu
data, kept = range(5), []
def train(batch):
    kept.append(npu.alloc(4096 * (batch + 1)))
"""
TRAIN_TORCH = """
import torch
data, kept = [torch.ones(100, 100) for _ in range(5)], []
def train(batch):
    kept.append((batch @ batch).sum())
    kept.append(batch + 1)
"""


def readme_script(before):
    """The example of README.md, with something to train."""
    [example] = re.findall(r"^From Python.*?```python\n(import msmemscope\n.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return f"{before or TRAIN}\n{example}\nprint('trained', len(kept))\n"


def recorded(results):
    """Rows of device memory, or of tensors, of the only project."""
    [project] = rows.projects(results)
    return [row for row in project.rows() if row.event == "MALLOC"]


@pytest.fixture(params=["npu", "torch"])
def example(request, installed, tmp_path):
    """The words that run the example of the manual, and how many allocations it makes at least."""
    script = tmp_path / "script.py"
    script.write_text(readme_script(TRAIN_TORCH if request.param == "torch" else ""), encoding="utf-8")
    shutil.copy(LIB / "npu.py", tmp_path)
    env = simulated(installed.home)
    if request.param == "torch":
        env = venvs.environment(PYTHONPATH=TORCH, PYTHONWARNINGS="ignore")
    return [installed.python, script], env, 10 if request.param == "torch" else 5


def test_the_example_of_the_readme_records_under_the_command(installed, example, tmp_path):
    words, env, count = example
    done = venvs.run(installed.command, "--collect-mode=deferred", "--", *words, cwd=tmp_path, env=env)
    assert done.stdout == f"trained {count}\n"
    found = rows.projects(tmp_path / "memscopeDumpResults")
    assert len([row for row in found[0].rows() if row.event == "MALLOC"]) >= 5, done.stderr


def test_the_example_of_the_readme_runs_without_the_command(example, tmp_path):
    """Whether it records there is for start() to say: in one line, if it does not."""
    words, env, count = example
    done = venvs.run(*words, cwd=tmp_path, env=env)
    assert done.stdout == f"trained {count}\n"
    assert done.stderr.count("nothing is recorded") + len(list((tmp_path / "results").glob("msmemscope_*"))) == 1, done.stderr


@pytest.mark.parametrize("names", [["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so"], ["libascend_kernel_hook.so"],
                                   ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", "libascend_kernel_hook.so",
                                    "libatb_abi_0_hook.so", "libatb_abi_1_hook.so"]], ids=len)
def test_two_exports_of_the_manual_are_enough(installed, tmp_path, names):
    """For any interpreter: the one here does not have the package."""
    lib = installed.home / "lib64"
    (tmp_path / "script.py").write_text(readme_script(""), encoding="utf-8")
    shutil.copy(LIB / "npu.py", tmp_path)
    env = simulated(installed.home, LD_PRELOAD=":".join(str(lib / name) for name in names))
    env["LD_LIBRARY_PATH"] = f"{lib}/:{env['LD_LIBRARY_PATH']}"
    done = venvs.run(venvs.PYTHON, "-I", "-c", "import msmemscope, sys; print(msmemscope.__file__)", env=env)
    assert (done.stdout, done.stderr) == (f"{installed.packages / 'msmemscope' / '__init__.py'}\n", "")
    done = venvs.run(venvs.PYTHON, "script.py", cwd=tmp_path, env=env)
    assert [row.attr["size"] for row in recorded(tmp_path / "results")] == [4096 * n for n in range(1, 6)], done.stderr


def test_the_environment_of_the_api_adds_no_packages_of_one_interpreter_to_all(installed):
    said = venvs.run(installed.command, "--load-api-env").stdout
    assert f"export LD_PRELOAD='{installed.home}/lib64/libascend_kernel_hook.so'" in said and "PYTHONPATH" not in said


LEAKY_TEST = """
import pytest, npu
kept = []
@pytest.mark.no_device_leaks
def test_leaky():
    kept.append(npu.alloc(3 << 20))
"""


def test_the_plugin_of_pytest_finds_the_collector(installed, tmp_path):
    (tmp_path / "test_suite.py").write_text(LEAKY_TEST, encoding="utf-8")
    env = simulated(installed.home, PYTHONPATH=f"/usr/lib/python3/dist-packages:{LIB}")
    done = venvs.run(installed.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "msmemscope.pytest_plugin",
                     tmp_path / "test_suite.py", cwd=tmp_path, env=env, check=False)
    assert "3.0 MiB in 1 block that the test allocated are still there when it has ended" in done.stdout, done


# Everything that programs call, as an instrumented script does.
INSTRUMENTED = """
import msmemscope, msmemscope.describe as describe
from msmemscope import tracer, watcher
class Tensor:
    "As much of a tensor as is looked at."
msmemscope.config(call_stack="c:10,python:5", events="launch,alloc,free", level="0", device="npu", analysis="leaks", output="x")
msmemscope.start()
tracer.start()
msmemscope.step()
with msmemscope.RecordFunction("forward"), describe.describer(owner="mine"), msmemscope.TakeSnapshot(name="now"):
    pass
@msmemscope.RecordFunction("backward")
@describe.describer(owner="mine")
def backward():
    return 7
assert backward() == 7
describe.describer(4096, owner="mine")
watcher.watch(4096, length=100, name="x", dump_nums=2)
watcher.remove(4096, length=100)
msmemscope.take_snapshot(device_mask=[0, 1], name="later")
tracer.stop()
msmemscope.stop()
msmemscope.stop()
assert msmemscope.__version__ and msmemscope.list_analyzers() and "start" in dir(msmemscope)
import msleaks
assert msleaks.start is msmemscope.start
print("ran")
"""
# What makes a machine of another kind. (The module random knows what this one has, and is there already.)
MACHINES = {
    "this": "",
    "no ctypes": "import sys; sys.modules['ctypes'] = None\n",
    "another system": "import os, random, sys; sys.platform = 'darwin'; del os.register_at_fork\n",
    "no names that are seen everywhere": "import ctypes\ndef nothing(*_): raise TypeError\nctypes.PyDLL = ctypes.CDLL = nothing\n",
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("first", ["", "import msleaks\n"], ids=["", "msleaks"])
def test_an_instrumented_script_runs_anywhere_and_says_one_line(package_alone, tmp_path, machine, first):
    script = tmp_path / "script.py"
    script.write_text(MACHINES[machine] + first + INSTRUMENTED, encoding="utf-8")
    done = venvs.run(venvs.PYTHON, script, cwd=tmp_path, env=venvs.environment(PYTHONPATH=package_alone, PYTHONDONTWRITEBYTECODE="1"))
    assert done.stdout == "ran\n"
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("msmemscope: nothing is recorded: "), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
    quiet = venvs.run(venvs.PYTHON, script, cwd=tmp_path, env=venvs.environment(PYTHONPATH=package_alone, MSMEMSCOPE_DISABLE="1"))
    assert quiet.stderr == ""


def test_to_import_it_is_one_file(package_alone, installed):
    """So it costs well under a millisecond; time is not what a test can measure."""
    code = "import sys; before = set(sys.modules); import msmemscope; print(sorted(set(sys.modules) - before))"
    for python, env in ((venvs.PYTHON, venvs.environment(PYTHONPATH=package_alone)), (installed.python, venvs.environment())):
        assert venvs.run(python, "-c", code, env=env).stdout == "['msmemscope']\n"


def test_the_package_alone_has_no_command_and_says_so(package_alone):
    env = venvs.environment(PYTHONPATH=package_alone, PATH="/usr/bin:/bin")
    done = venvs.run(venvs.PYTHON, "-m", "msmemscope", "--version", check=False, env=env)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "MSMEMSCOPE_ENGINE" in done.stderr


@pytest.mark.qemu
def test_what_the_wheel_holds_runs(wheel, runner, tmp_path):
    """As far as it can without pip, on the machine that it is for."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    [command] = tmp_path.rglob("_home/bin/msmemscope")
    command.chmod(0o755)
    assert venvs.run(*runner, command, "--print-prefix").stdout == f"{command.parents[1]}\n"
    [launcher] = tmp_path.rglob("*.data/scripts/msmemscope")
    launcher.chmod(0o755)
    done = subprocess.run([*runner, launcher], capture_output=True, text=True, check=False, env=venvs.environment(), timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1) and "python3 -m msmemscope" in done.stderr
