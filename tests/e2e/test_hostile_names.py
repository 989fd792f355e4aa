# SPDX-License-Identifier: Apache-2.0
"""Names that a program chooses: none reaches a terminal raw, every file opens everywhere, and a csv gives them back."""
import csv
import json
import os
import pty
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from harness import environment

ESC, BEL, C1, BIDI, SEPARATOR = "\x1b[31m", "\x07", "\x9b1m", "\u202e", "\u2028"
EVIL = f"evil{ESC}{BEL}{C1}{BIDI}{SEPARATOR}\x7f"
# What a terminal must not see; line feeds and tabs are ours.
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

MARKS = {
    b"=cmd|'/c calc'!A1", b"+1", b"-1", b"@sum", EVIL.encode(), b"two\nlines, \"quoted\"", "内存".encode(),
    b"bytes \xff\xfe\x80 end", b"cut \xe5\x86", b"surrogate \xed\xa0\x80",
}

SCRIPT = f"""
import ctypes, os, npu
tools = ctypes.CDLL(os.path.join(os.environ["ASCEND_HOME_PATH"], "lib64", "libms_tools_ext.so"))
tools.mstxMarkA.argtypes = ctypes.c_char_p, ctypes.c_void_p
for message in {sorted(MARKS)!r}:
    tools.mstxMarkA(message, None)
exec(compile("def take():\\n    npu.alloc(8192)\\ntake()\\n", {EVIL + "script.py"!r}, "exec"))
"""


def shown(text):
    """As text for people has it."""
    return RAW.sub(lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\x80" else f"\\u{ord(found[0]):04x}", text)


@pytest.fixture
def hostile(msmemscope, out, dist):
    """A Python program with such marks, in a directory and with a script of such names. The run and its project."""
    place = out / EVIL
    place.mkdir()
    script = place / f"{EVIL}.py"
    script.write_text(SCRIPT, encoding="utf-8")
    libraries = ":".join(map(str, (dist / "python", Path(__file__).parent / "lib", dist / "simnpu" / "python")))
    env = {"PYTHONPATH": libraries, "TRUTH": "/dev/null"}

    def run(*options):
        return msmemscope("--call-stack=python", *options, "--", "/usr/bin/python3", script, env=env)

    return run


def test_a_terminal_sees_no_control_characters(hostile, msmemscope):
    run = hostile("--analysis=leaks,decompose").check()
    project = run.project()
    told = {
        "screen": run.stderr,
        "report": (project.path / "report.txt").read_text(encoding="utf-8"),
        "info": msmemscope("info", project.path, output=False).check().stdout,
        "json": msmemscope("info", project.path, "--json", output=False).check().stdout,
        "error": msmemscope("info", run.out / (EVIL + "is not there"), output=False).stderr,
        "log": next(project.path.glob("msmemscope_logs/*")).read_text(encoding="utf-8"),
    }
    for where, text in told.items():
        assert not RAW.findall(text), (where, text)
    assert shown(EVIL) in told["report"] and shown(EVIL) in told["info"] and shown(EVIL) in told["error"]
    assert EVIL in json.loads(told["json"])["processes"][0]["identity"]["command"]


def test_a_path_on_stdout_is_the_path_for_a_script_and_shown_to_a_person(hostile, msmemscope, dist):
    """The directory of the results was given such a name after the run."""
    project = hostile().check().project().path
    project = project.rename(project.parent / EVIL / project.name)
    words = [msmemscope.path, "export", project]
    path = msmemscope.bare(*words).check().stdout.rstrip("\n")
    assert Path(path).is_dir() and Path(path).parent == project.parent
    told = msmemscope.bare(*words, "--json").check().stdout
    assert not RAW.findall(told) and Path(json.loads(told)["project"]).parent == project.parent
    master, terminal = pty.openpty()
    subprocess.run([str(word) for word in words], stdout=terminal, stderr=subprocess.DEVNULL, timeout=60, check=True,
                   env=environment(dist))
    os.close(terminal)
    seen = os.read(master, 65536).decode().replace("\r\n", "\n")
    os.close(master)
    assert shown(EVIL) in seen and not RAW.findall(seen)


def replaced(mark):
    """Each byte that is no UTF-8 is one U+FFFD."""
    text = mark.decode("utf-8", "surrogateescape")
    return "".join("\ufffd" if "\udc80" <= char <= "\udcff" else char for char in text)


def test_csv_and_db_are_utf_8_and_give_names_back(hostile, msmemscope, out):
    """Whatever a name begins with; what was no UTF-8 is replaced, and nothing else."""
    expected = {replaced(mark) for mark in MARKS}
    project = hostile().check().project()
    [path] = project.dumps()
    with path.open(newline="", encoding="utf-8", errors="strict") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert {row["Name"] for row in rows if row["Event"] == "MSTX"} == expected
    stacks = [row["Call Stack(Python)"] for row in rows if row["Event"] == "MALLOC"]
    assert any(shown(EVIL) + "script.py(2): take" in stack for stack in stacks), stacks
    run = msmemscope("export", project.path, "--format=db", "-o", out / "db", output=False).check()
    [database] = Path(run.stdout.strip()).rglob("memscope_dump_*.db")
    db = sqlite3.connect(database)
    db.text_factory = lambda data: data.decode("utf-8", "strict")
    found = {name for (name,) in db.execute("SELECT Name FROM memscope_dump WHERE Event = 'MSTX'")}
    db.close()
    assert found == expected
    # The trace has the bytes as they came.
    again = [msmemscope("export", project.path, "-o", out / name, output=False).check().stdout.strip() for name in "ab"]
    assert [next(Path(place).rglob("memscope_dump_*.csv")).read_bytes() for place in again] == [path.read_bytes()] * 2
