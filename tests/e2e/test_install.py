# SPDX-License-Identifier: Apache-2.0
"""make install: the tool in a directory of its own below a prefix, and working from there. make uninstall, tarball, deb."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"


@pytest.fixture(scope="module")
def installed(tmp_path_factory, runner):
    """The prefix, with a blank in its path and without a DESTDIR."""
    if runner or not (BUILD / "cmake_install.cmake").exists():
        pytest.skip("there is no release build of this machine to install")
    prefix = tmp_path_factory.mktemp("some where") / "prefix"
    install(f"PREFIX={prefix}")
    return prefix


def make(*words):
    # What is built is what the other tests run; building again would change it under them.
    done = subprocess.run(["make", "-s", "-o", "all", "-o", "dist", *words], cwd=ROOT, capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(*words):
    make("install", *words)


def command(prefix, out):
    """The installed command; its simulated NPU is the one that programs find."""
    return harness.Command(prefix / "lib" / "msmemscope", out, [])


def names(directory):
    return {path.name for path in directory.iterdir()}


def test_nothing_lies_among_files_of_others(installed, dist):
    assert names(installed) == {"bin", "lib", "share"}
    assert names(installed / "bin") == {"msmemscope", "msleaks"}
    assert names(installed / "lib") == {"msmemscope"}
    assert names(installed / "lib" / "msmemscope") == names(dist) - {"share"} | {"installed.txt"}
    assert (installed / "share" / "man" / "man1" / "msmemscope.1").exists()
    assert names(installed / "share") == names(dist / "share")


def test_it_records_from_there(installed, program, out):
    tool = command(installed, out)
    tool.path = installed / "bin" / "msmemscope"
    run = tool("--", *program("threads", 2, 100)).check()
    assert {row.event for row in run.rows()} >= {"MALLOC", "FREE"}
    again = tool("export", run.project().path, "--format=db", output=False).check()
    assert list(Path(again.stdout.strip()).glob("device_0/dump/*.db"))
    for name in ("msmemscope", "msleaks"):
        assert tool.bare(installed / "bin" / name, "--print-prefix").check().stdout == f"{installed}/lib/msmemscope\n"


def test_it_examines_itself(installed, out):
    tool = command(installed, out)
    tool.path = installed / "bin" / "msmemscope"
    assert "BAD" not in tool("selftest", output=False).check().stdout
    assert str(installed) in tool("doctor", output=False).stdout


def test_a_copy_without_links_works(installed, program, out):
    copy = out / "copy"
    shutil.copytree(installed, copy)
    assert not (copy / "bin" / "msmemscope").is_symlink()
    tool = command(copy, out / "results")
    tool.path = copy / "bin" / "msmemscope"
    assert tool("--", *program("threads", 1, 10)).check().rows()


SCRIPT = """
import msmemscope
msmemscope.start()
msmemscope.stop()
"""


def test_a_shell_that_sources_it_has_command_manual_and_python(installed, out):
    """The loader takes no preload from a path with a blank, so the Python interface is tried in another prefix."""
    prefix = out / "opt"
    install(f"PREFIX={prefix}")
    home = prefix / "lib" / "msmemscope"
    (out / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        ["bash", "-euc", '. "$1"/set_env.sh --load-api-env\necho "$PATH"\necho "$MANPATH"\npython3 "$2" >&2', "bash", home,
         out / "script.py"], env=harness.environment(home, {"MANPATH": None, "PYTHONPATH": None}),
        cwd=out, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    path, manual = done.stdout.splitlines()
    assert path.startswith(f"{home}/bin:") and manual == f"{prefix}/share/man:"
    # What the script did came through the preloaded collector and the engine that it started beside itself.
    assert list(out.glob("memscopeDumpResults/msmemscope_*/device_*/dump/*.csv")), done.stderr


def contents(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


@pytest.mark.parametrize("destination", ["", "package"], ids=["", "DESTDIR"])
def test_uninstall_takes_away_what_install_brought_and_nothing_else(installed, out, destination):
    """Folders that were there stay, with what is in them; what an older version had is not left by an upgrade."""
    prefix = out / "some where"
    words = [f"PREFIX={prefix}"] + ([f"DESTDIR={out / destination}"] if destination else [])
    place = out / destination / str(prefix).lstrip("/") if destination else prefix
    (place / "share" / "man").mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin" / "other").touch()
    before = contents(place)
    install(*words)
    (place / "lib" / "msmemscope" / "lib64" / "older.so").touch()
    (place / "lib" / "msmemscope" / "python" / "msmemscope" / "__pycache__").mkdir(exist_ok=True)
    install(*words)
    assert not (place / "lib" / "msmemscope" / "lib64" / "older.so").exists()
    assert (place / "bin" / "msmemscope").exists() and (place / "share" / "doc" / "msmemscope" / "LICENSE").exists()
    (place / "share" / "zsh" / "site-functions" / "_other").touch()
    make("uninstall", *words)
    others = ["share/zsh", "share/zsh/site-functions", "share/zsh/site-functions/_other"]
    assert contents(place) == sorted(before + others)
    with pytest.raises(AssertionError, match="nothing was installed there"):
        make("uninstall", *words)
    assert contents(place) == sorted(before + others)


def test_the_tarball_runs_where_it_is_unpacked(installed, dist, program, out):
    shutil.unpack_archive(ROOT / make("tarball").splitlines()[-1], out / "un packed")
    [tree] = (out / "un packed").iterdir()
    assert re.fullmatch(r"msmemscope-[\d.]+", tree.name) and names(tree) == names(dist)
    assert harness.Command(tree, out / "results", [])("--", *program("threads", 1, 10)).check().rows()


def test_the_package_for_debian_has_the_tool_in_its_place(installed, program, out):
    file = ROOT / make("deb").splitlines()[-1]
    fields = subprocess.run(["dpkg-deb", "--field", file], capture_output=True, text=True, check=True).stdout
    assert "Package: msmemscope\n" in fields and "Depends: libc6 (>= 2.17)\n" in fields
    subprocess.run(["dpkg-deb", "--extract", file, out / "root"], check=True)
    usr = out / "root" / "usr"
    assert names(usr) == {"bin", "lib", "share"} and "installed.txt" not in names(usr / "lib" / "msmemscope")
    tool = command(usr, out / "results")
    tool.path = usr / "bin" / "msmemscope"
    assert tool("--", *program("threads", 1, 10)).check().rows()


def test_destdir_is_honoured(installed, out):
    install("PREFIX=/opt/some where", f"DESTDIR={out}/package")
    prefix = out / "package" / "opt" / "some where"
    assert names(prefix) == {"bin", "lib", "share"}
    assert os.readlink(prefix / "bin" / "msmemscope") == "../lib/msmemscope/bin/msmemscope"
    assert (prefix / "bin" / "msleaks").resolve() == (prefix / "lib" / "msmemscope" / "bin" / "msmemscope").resolve()


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("good", [False, True])
def test_the_demo_shows_its_build_as_one_line(tmp_path, terminal, good):
    """With a build that says three lines; all of it is on the screen only if it fails."""
    for name in ("tools", "bin", "build/dist/bin", "build/dist/examples"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "demo.sh", tmp_path / "tools")
    stubs = {"tools/install-packages.sh": "", "bin/make": f"printf '[1/3] cc a.c\\n[2/3] cc b.c\\nb.c: said\\n[3/3] ld\\n'; exit {int(not good)}\n",
             "build/dist/bin/msmemscope": "mkdir -p build/demo; echo row > build/demo/memscope_dump_1.csv; echo page > build/demo/report.html\n"}
    for name, text in stubs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)
    line = f"PATH={tmp_path}/bin:$PATH sh {tmp_path}/tools/demo.sh"
    words = ["script", "-qec", line, "/dev/null"] if terminal else ["sh", "-c", line]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    assert (done.returncode == 0) == good, done
    built = done.stdout.split(b"$ build/dist")[0]
    if good:
        assert built.strip().count(b"\n") == 0 and b"cc a.c" not in built and b"said" not in built, built
        assert done.stdout.split()[-1].decode() == f"file://{tmp_path.resolve()}/build/demo/report.html", "the page's address comes last"
    else:
        assert b"b.c: said" in done.stdout + done.stderr
    assert (b"\r\033[KBuilding msmemscope [2/3]" in done.stdout) == terminal


OLDEST = {"PyTorch, CPU tensors": "2.1.2", "torch_npu (Ascend Extension for PyTorch)": "2.1.0", "CANN": "8.2.RC1", "ATB": "8.2.RC1",
          "MindSpore": "2.7.0"}


def test_the_page_of_versions_has_the_oldest_ones_and_how_they_were_checked():
    """Each row says where its check is; the parts of `make soak` that it names exist."""
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    table = page.split("## Versions")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")][1:]
    for software, version in OLDEST.items():
        [(_, oldest, _, how)] = [row for row in rows if row[0].split(" (")[0] == software.split(" (")[0]]
        assert version in oldest, (software, oldest)
        assert re.search(r"\b(CI|soak|by hand|simulated NPU)\b", how), (software, how)
    # What CI and soak install is what the page says they do.
    def text(name):
        return (ROOT / name).read_text(encoding="utf-8")

    wheels = re.search(r"^VERSIONS = \((.*)\)", text("tests/realclients/soak_wheels.py"), re.M)[1]
    graphs = re.search(r"^VERSIONS = \((.*)\)", text("tests/realclients/soak_mindspore.py"), re.M)[1]
    installed = dict(re.findall(r"^(?:pip|npu) +(torch|torch_npu)==(\S+)", text("tools/packages.txt"), re.M))
    for start, versions, where in (
            ("PyTorch, CPU tensors", [installed["torch"]], "CI"), ("torch_npu", [installed["torch_npu"]], "CI"),
            ("PyTorch, CPU tensors", [re.search(r"^torch=\$\{TORCH:-(\S+)\}", text("tools/soak.sh"), re.M)[1]], "soak"),
            ("torch_npu", re.findall(r'"([^"]+)"', wheels), "soak"), ("MindSpore", re.findall(r'"([^"]+)"', graphs), "soak")):
        [row] = [" ".join(row) for row in rows if row[0].startswith(start)]
        assert versions and where in row and all(version in row for version in versions), (start, versions, where, row)
    parts = re.search(r'^parts="([^"]*)"', (ROOT / "tools" / "soak.sh").read_text(encoding="utf-8"), re.M)[1].split()
    named = set(re.findall(r"PART=(\w+)", page))
    assert named and named <= set(parts), named - set(parts)
