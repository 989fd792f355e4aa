#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what pip installs. `pip install .` calls build_wheel() (PEP 517), `make wheel` runs this file:

    tools/build_wheel.py [release|aarch64|any] [FOLDER]      a wheel in FOLDER, default build/wheels

release is this machine's, aarch64 the cross build; any is the package alone, for machines on which the collector does not run: what
programs call there does nothing. The tree of `cmake --install` lies in the package as it is, so the command and the collector find
each other as they do everywhere:

    site-packages/msmemscope/*.py       the package
    site-packages/msmemscope/_home/     bin, lib64, simnpu, simcuda, examples, set_env.sh; the package takes the place of its folder python
    site-packages/msleaks/              the older name
    bin/msmemscope, bin/msleaks         tools/launcher.c
    share/                              manual page, completions, licences

Why no other backend: docs/decisions/0027-wheel.md. Only the standard library of Python 3.8 is used.
"""
import base64
import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = "msmemscope"
HOME = f"{NAME}/_home"
EARLIEST = (1980, 1, 1, 0, 0, 0)  # of all files: the same tree gives the same wheel

METADATA = """Metadata-Version: 2.1
Name: msmemscope
Version: {version}
Summary: Memory analysis for AI accelerators: leaks, peaks and waste of device memory, by call stack
License: Apache-2.0
Requires-Python: >=3.8
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """Wheel-Version: 1.0
Generator: msmemscope
Root-Is-Purelib: {pure}
{tags}
"""

# pytest loads this in every project; it imports nothing more without an option of its own.
ENTRY_POINTS = """[pytest11]
msmemscope = msmemscope._pytest_entry
"""

EDITABLE_COMMAND = """#!/bin/sh
exec '{command}' "$@"
"""


def version():
    return re.search(r"^project\(\w+ VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"), re.M)[1]


def metadata():
    return METADATA.format(version=version(), readme=(ROOT / "README.md").read_text(encoding="utf-8"))


# ---- the build ----

def run(*words):
    """Build output goes to the standard error: what hooks print on the other one is for pip."""
    if shutil.which(str(words[0])) is None:
        raise SystemExit(f"{words[0]} is missing: run tools/install-packages.sh build")
    subprocess.run([str(word) for word in words], cwd=ROOT, stdout=sys.stderr, check=True)


def is_ours(directory):
    """Whether we can build there: what is there was not made for another place, from which the tree was copied with its builds."""
    if not directory.exists():
        return os.access(ROOT, os.W_OK)
    cache = directory / "CMakeCache.txt"
    made_for = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)", cache.read_text(encoding="utf-8"), re.M) if cache.exists() else None
    return os.access(directory, os.W_OK) and (made_for is None or os.path.realpath(made_for[1]) == str(ROOT))


@contextlib.contextmanager
def built(preset):
    """The build of a preset, brought up to date: that in build/, or a temporary one where that cannot be."""
    if not sys.platform.startswith("linux"):
        raise SystemExit("the tool is for Linux; a wheel of the package alone, for every machine, is made there by: make wheel WHEEL=any")
    directory = ROOT / "build" / preset
    if is_ours(directory):
        if not (directory / "build.ninja").exists():
            run("cmake", "--preset", preset)
        yield build(directory)
        return
    with tempfile.TemporaryDirectory() as temporary:
        run("cmake", "--preset", preset, "-B", temporary, "-DMSCOPE_TESTS=OFF")
        yield build(temporary)


def build(directory):
    if shutil.which("ninja") is None:
        raise SystemExit("ninja is missing: run tools/install-packages.sh build")
    run("cmake", "--build", directory, "--target", "dist")
    return directory


def machine(command):
    """The processor that an ELF file is for, as tags name it."""
    with open(command, "rb") as file:
        number = int.from_bytes(file.read(20)[18:], "little")
    return {62: "x86_64", 183: "aarch64"}[number]


# ---- the wheel ----

class Wheel:
    """A zip file with a list of what is in it. Links become files: the format has none."""

    def __init__(self, folder, tags, pure):
        self.info = f"{NAME}-{version()}.dist-info"
        self.data = f"{NAME}-{version()}.data"
        self.name = f"{NAME}-{version()}-py3-none-{'.'.join(tags)}.whl"
        self.records = []
        self.path = Path(folder) / self.name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.part = self.path.with_suffix(".part")
        self.zip = zipfile.ZipFile(self.part, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.add_text(f"{self.info}/WHEEL", WHEEL.format(pure=str(pure).lower(), tags="\n".join(f"Tag: py3-none-{tag}" for tag in tags)))
        self.add_text(f"{self.info}/METADATA", metadata())
        self.add_text(f"{self.info}/entry_points.txt", ENTRY_POINTS)
        for licence in ("LICENSE", "NOTICE"):
            self.add(f"{self.info}/licenses/{licence}", (ROOT / licence).read_bytes())

    def add(self, name, content, executable=False):
        entry = zipfile.ZipInfo(name, EARLIEST)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = (0o100755 if executable else 0o100644) << 16
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(content)}")

    def add_text(self, name, text, executable=False):
        self.add(name, text.encode("utf-8"), executable)

    def add_tree(self, tree, below, wanted=lambda name: True):
        for path in sorted(tree.rglob("*")):
            name = path.relative_to(tree).as_posix()
            if path.is_file() and "__pycache__" not in name and wanted(name):
                self.add(f"{below}{name}", path.read_bytes(), os.access(path, os.X_OK))

    def close(self):
        record = f"{self.info}/RECORD"
        self.zip.writestr(zipfile.ZipInfo(record, EARLIEST), "\n".join([*self.records, f"{record},,", ""]))
        self.zip.close()
        self.part.replace(self.path)
        return self.name


def belongs(name):
    """Whether a file of the staged tree goes into the home: libunwind asks for a newer libc than the tag promises."""
    return not name.startswith(("python/", "share/", "lib64/libunwind", "bin/msleaks"))


def make(folder, preset):
    """The wheel of a preset, or "any"; returns its name."""
    with built("release" if preset == "any" else preset) as directory, tempfile.TemporaryDirectory() as temporary:
        stage, launcher = Path(temporary) / "home", Path(temporary) / "wheel"
        run("cmake", "--install", directory, "--prefix", stage)
        run("cmake", "--install", directory, "--component", "wheel", "--prefix", launcher)
        if preset == "any":
            tags = ["any"]
        else:
            tags = [f"manylinux_2_17_{machine(stage / 'bin' / NAME)}", f"manylinux2014_{machine(stage / 'bin' / NAME)}"]
        wheel = Wheel(folder, tags, preset == "any")
        wheel.add_tree(stage / "python", "")
        if preset != "any":
            wheel.add_tree(stage, f"{HOME}/", belongs)
            wheel.add_tree(stage / "share", f"{wheel.data}/data/share/")
            for name in (NAME, "msleaks"):
                wheel.add(f"{wheel.data}/scripts/{name}", (launcher / "launcher").read_bytes(), executable=True)
        return wheel.close()


# ---- what pip calls ----

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Without this, pip would build it all to read two files of the wheel."""
    info = Path(metadata_directory) / f"{NAME}-{version()}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata(), encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    return info.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return make(wheel_directory, (config_settings or {}).get("preset", "release"))


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The staged tree build/dist in the place of a copy of it: `make` brings changes into it."""
    with built("release") as directory:
        dist = ROOT / "build" / "dist"
        run("cmake", "--install", directory, "--prefix", dist)
    wheel = Wheel(wheel_directory, ["any"], True)
    wheel.add_text(f"{NAME}.pth", f"{dist / 'python'}\n")
    for name in (NAME, "msleaks"):
        command = str(dist / "bin" / name).replace("'", "'\\''")
        wheel.add_text(f"{wheel.data}/scripts/{name}", EDITABLE_COMMAND.format(command=command), executable=True)
    return wheel.close()


def build_sdist(sdist_directory, config_settings=None):
    words = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    files = os.fsdecode(subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout).split("\0")
    base = f"{NAME}-{version()}"
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(filter(None, files)):
            if (ROOT / name).is_file():
                tar.add(ROOT / name, f"{base}/{name}")
        information = metadata().encode("utf-8")
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(information)
        tar.addfile(entry, io.BytesIO(information))
    return f"{base}.tar.gz"


if __name__ == "__main__":
    PRESET = sys.argv[1] if len(sys.argv) > 1 else "release"
    FOLDER = sys.argv[2] if len(sys.argv) > 2 else ROOT / "build" / "wheels"
    print(Path(FOLDER) / make(FOLDER, PRESET))
