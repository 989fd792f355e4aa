# SPDX-License-Identifier: Apache-2.0
"""set_env.sh of the staged tree, in the shells that people have, under `set -eu`."""
import json
import os
import shutil
import subprocess
import sys

import pytest

import harness

SHELLS = ["bash", "dash"] + [shell for shell in ["zsh"] if shutil.which(shell)]
NAMES = ("PATH", "MANPATH", "PYTHONPATH")
REPORT = ("import json, os, sys; "
          "print(json.dumps([os.environ.get(name) for name in ('PATH', 'MANPATH', 'PYTHONPATH')]))")


@pytest.fixture(params=SHELLS)
def sourced(request, dist, out):
    """sourced(words..., home=tree, env={}): what NAMES are after `words` in a shell that may source `. "$home"/set_env.sh`."""
    def run(script, home=dist, env=None):
        # dash cannot know which file it reads, so one goes there first, as the file says.
        go = f'cd "{home}"; ' if request.param == "dash" else ""
        done = subprocess.run([request.param, "-euc", f'{go}{script}\n"{sys.executable}" -c "{REPORT}"'], cwd=out, timeout=60,
                              env={**harness.environment(dist, env), "home": str(home)}, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done
        return dict(zip(NAMES, json.loads(done.stdout.splitlines()[-1]))), done

    return run


SOURCE = '. "$home/set_env.sh"'
EMPTY = {"MANPATH": None, "PYTHONPATH": None}


def test_the_command_is_found_with_its_manual(sourced, dist):
    values, done = sourced(f"{SOURCE}; command -v msmemscope; command -v msleaks", env=EMPTY)
    assert done.stdout.splitlines()[:2] == [str(dist / "bin" / name) for name in ("msmemscope", "msleaks")]
    assert values["PATH"].startswith(f"{dist}/bin:")
    assert values["MANPATH"] == f"{dist}/share/man:"  # and then those of the system
    assert done.stderr == ""


def test_sourcing_twice_changes_nothing_more(sourced):
    for env in (EMPTY, {"MANPATH": "/a:/b", "PYTHONPATH": "/c"}):
        once, _ = sourced(SOURCE, env=env)
        assert sourced(f"{SOURCE}; {SOURCE}; {SOURCE}", env=env)[0] == once


def test_nothing_of_its_own_stays_in_the_shell(sourced):
    _, done = sourced(f"{SOURCE}; set | grep -c '^_msmemscope' || true", env=EMPTY)
    assert done.stdout.splitlines()[0] == "0"


def test_mstx_is_the_simulated_one_where_there_is_no_other(sourced, dist):
    values, done = sourced(f'{SOURCE}; python3 -c "import mstx; print(mstx.__file__)"', env=EMPTY)
    assert str(dist / "simnpu" / "python") in values["PYTHONPATH"].split(":")
    assert done.stdout.splitlines()[0] == str(dist / "simnpu" / "python" / "mstx" / "__init__.py")


def test_another_mstx_keeps_its_place(sourced, dist, out):
    (out / "real" / "mstx").mkdir(parents=True)
    (out / "real" / "mstx" / "__init__.py").write_text("raise RuntimeError('not imported to find out')\n")
    values, _ = sourced(SOURCE, env={"PYTHONPATH": out / "real"})
    assert str(dist / "simnpu" / "python") not in values["PYTHONPATH"].split(":")


@pytest.fixture
def home(dist, out):
    """A tree of one's own, with what set_env.sh looks at."""
    path = out / "tree with a blank"
    shutil.copytree(dist / "simnpu" / "python", path / "simnpu" / "python")
    (path / "bin").mkdir()
    shutil.copy(dist / "bin" / "msmemscope", path / "bin")
    shutil.copy(dist / "set_env.sh", path)
    return path


def test_the_current_directory_is_no_installation(sourced, home):
    """Python looks there first, but only today."""
    (home / "mstx.py").touch()
    values, _ = sourced(f'cd "$home"; {SOURCE}', home=home, env=EMPTY)
    assert values["PYTHONPATH"] == str(home / "simnpu" / "python")


def test_the_python_package_where_the_tree_has_it(sourced, home):
    (home / "python" / "msmemscope").mkdir(parents=True)
    values, _ = sourced(SOURCE, home=home, env={"PYTHONPATH": "/c"})
    assert str(home / "python") in values["PYTHONPATH"].split(":") and values["PYTHONPATH"].endswith(":/c")


def test_a_tree_without_the_command_is_refused(sourced, dist, out):
    home = out / "nothing"
    home.mkdir()
    shutil.copy(dist / "set_env.sh", home)
    values, done = sourced(SOURCE, home=home, env={"PYTHONPATH": "/c"})
    assert "no bin/msmemscope" in done.stderr and values["PYTHONPATH"] == "/c"


def test_scripts_can_ask_for_the_tree(msmemscope, dist, out):
    """Wherever it is called from, and by a link as well."""
    (out / "link").symlink_to(msmemscope.path)
    for tool in (msmemscope.path, out / "link"):
        run = msmemscope.bare(tool, "--print-prefix", "--no-such-option", cwd=out).check()
        assert (run.stdout, run.stderr) == (f"{dist}\n", "")


# ---- preloading for the API ----

LOAD, UNLOAD = (f'set -- --{word}-api-env; {SOURCE} "$1"' for word in ("load", "unload"))
SHOW = 'echo "P=${LD_PRELOAD-unset} L=${LD_LIBRARY_PATH-unset} M=${MSMEMSCOPE_LIB_PATH-unset}"'


def shown(done):
    return [line for line in done.stdout.splitlines() if line.startswith("P=")]


@pytest.fixture
def home_with_library(dist, home):
    """Below a path that the loader can preload from."""
    path = home.parent / "tree"
    home.rename(path)
    (path / "lib64").mkdir()
    shutil.copy(dist / "lib64" / "libascend_kernel_hook.so", path / "lib64")
    return path


@pytest.mark.parametrize("env, before", [
    ({"LD_LIBRARY_PATH": None}, ("unset", "unset")), ({"LD_PRELOAD": "/nowhere/a.so:/nowhere/b.so", "LD_LIBRARY_PATH": "/l"},
                                                      ("/nowhere/a.so:/nowhere/b.so", "/l")),
], ids=["empty", "others"])
def test_what_the_api_needs_is_set_once_and_taken_back(sourced, home_with_library, env, before):
    lib = home_with_library / "lib64"
    script = f"{LOAD}; {SHOW}; {LOAD}; {SHOW}; {UNLOAD}; {SHOW}; {UNLOAD}; {SHOW}; set | grep -c '^_msmemscope' || true"
    _, done = sourced(script, home=home_with_library, env={**EMPTY, **env})
    behind = [f":{value}" if value != "unset" else "" for value in before]
    loaded = f"P={lib}/libascend_kernel_hook.so{behind[0]} L={lib}{behind[1]} M={lib}"
    assert shown(done) == [loaded, loaded, *[f"P={before[0]} L={before[1]} M=unset"] * 2]
    assert "\n0\n" in done.stdout, "nothing of its own stays in the shell"


def test_programs_of_that_shell_can_use_the_api(sourced, home_with_library, dist, out):
    """No command, only a script that starts."""
    shutil.copytree(dist / "bin", home_with_library / "bin", symlinks=True, dirs_exist_ok=True)
    shutil.copytree(dist / "python", home_with_library / "python")
    script = out / "s.py"
    script.write_text(f"import msmemscope\nmsmemscope.config(output='{out}/results')\nmsmemscope.start()\nmsmemscope.stop()\n")
    _, done = sourced(f"{LOAD}; python3 '{script}'", home=home_with_library, env=EMPTY)
    assert os.listdir(out / "results"), done.stderr


def test_a_tree_without_the_library_is_refused_for_the_api(sourced, home):
    _, done = sourced(f"set +e; {LOAD}; echo $?; {SHOW}", home=home, env={**EMPTY, "LD_LIBRARY_PATH": None})
    assert done.stdout.splitlines()[:2] == ["1", "P=unset L=unset M=unset"] and "no library to preload" in done.stderr


@pytest.mark.parametrize("word", ["--load-api-env", "--unload-api-env"])
def test_what_must_be_sourced_is_not_run(msmemscope, dist, word):
    for words in (["bash", dist / "set_env.sh"], ["sh", dist / "set_env.sh"]):
        run = msmemscope.bare(*words, word)
        assert run.returncode != 0 and run.stdout == "" and "must be sourced" in run.stderr, run


@pytest.mark.parametrize("word", ["--load-api-env", "--unload-api-env"])
def test_the_command_at_a_terminal_says_what_to_type(dist, word):
    primary, secondary = os.openpty()
    done = subprocess.run([dist / "bin" / "msmemscope", word], stdout=secondary, stderr=subprocess.PIPE, text=True, check=False)
    os.close(secondary)
    os.set_blocking(primary, False)
    with pytest.raises((BlockingIOError, OSError)):
        os.read(primary, 1)
    os.close(primary)
    assert done.returncode == 2 and "must be sourced" in done.stderr
    assert f'type: eval "$(msmemscope {word})"' in done.stderr


@pytest.mark.parametrize("env, before", [
    ({"LD_LIBRARY_PATH": None}, ("unset", "unset")), ({"LD_PRELOAD": "/nowhere/a b.so:/nowhere/c'd.so", "LD_LIBRARY_PATH": "/l m"},
                                                      ("/nowhere/a:b.so:/nowhere/c'd.so", "/l m")),
], ids=["empty", "others"])
def test_a_shell_takes_what_the_command_prints_once_and_back(sourced, home_with_library, dist, env, before):
    """`eval "$(msmemscope --load-api-env)"`, in every shell, does what sourcing set_env.sh does."""
    (home_with_library / "python").mkdir()
    lib, command = home_with_library / "lib64", home_with_library / "bin" / "msmemscope"
    load, unload = (f'eval "$({command} --{word}-api-env)"' for word in ("load", "unload"))
    script = f"{load}; {SHOW}; {load}; {SHOW}; {unload}; {SHOW}; {unload}; {SHOW}"
    values, done = sourced(script, home=home_with_library, env={**EMPTY, **env})
    behind = [f":{value}" if value != "unset" else "" for value in before]
    loaded = f"P={lib}/libascend_kernel_hook.so{behind[0]} L={lib}{behind[1]} M={lib}"
    assert shown(done) == [loaded, loaded, *[f"P={before[0]} L={before[1]} M=unset"] * 2]
    assert values["PYTHONPATH"] == f"{home_with_library}/python"
    if env == {"LD_LIBRARY_PATH": None}:
        assert done.stderr == ""


def test_programs_of_a_shell_that_took_it_can_use_the_api(sourced, dist, out):
    script = out / "s.py"
    script.write_text(f"import msmemscope\nmsmemscope.config(output='{out}/results')\nmsmemscope.start()\nmsmemscope.stop()\n")
    _, done = sourced(f"eval \"$({dist}/bin/msmemscope --load-api-env)\"; python3 '{script}'", env=EMPTY)
    assert os.listdir(out / "results"), done.stderr
