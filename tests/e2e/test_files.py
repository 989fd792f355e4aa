# SPDX-License-Identifier: Apache-2.0
"""What lies in an output directory besides rows: the tree and its names, config.json, the log, the summary on stderr."""
import csv
import glob
import json
import os
import re
import stat
import signal
import subprocess
import time
from pathlib import Path

import pytest

import harness
import rows as rows_module

QUIET = {"TRUTH": "/dev/null"}
WIDE = "，"


def tree(project):
    return {str(path.relative_to(project.path)) for path in project.path.rglob("*") if not path.is_dir()}


def test_a_project_has_its_dumps_its_settings_its_log_and_its_trace(msmemscope, program):
    run = msmemscope("--", *program("many_devices", 2), env=QUIET).check()
    project = run.project()
    stamp = project.stamp
    names = {re.sub(r"memscope_dump_\d{14}", "memscope_dump_STAMP", name) for name in tree(project)}
    assert names == {"config.json", "findings.json", "report.txt", "report.html", "trace.msc", f"msmemscope_logs/msmemscope_{stamp}.log",
                     *(f"device_{device}/dump/memscope_dump_STAMP.csv" for device in ("0", "1", "cpu"))}
    assert abs(time.time() - time.mktime(time.strptime(stamp, "%Y%m%d%H%M%S"))) < 60, "local time"
    assert [path.name for path in run.out.iterdir()] == [project.path.name]


@pytest.mark.parametrize("zone, offset_h", [("UTC", 0), ("CST-8", 8), ("EST5", -5)])
def test_stamps_are_local_time(msmemscope, program, zone, offset_h):
    run = msmemscope("--log-level=info", "--", *program("many_devices", 1), env={**QUIET, "TZ": zone}).check()
    there = time.time() + offset_h * 3600
    stamps = [run.project().stamp, *(path.stem.rsplit("_", 1)[1] for path in run.project().dumps())]
    log = next(run.project().path.glob("msmemscope_logs/*.log")).read_text()
    stamps += [re.sub(r"\D", "", line[:19]) for line in log.splitlines()]
    for stamp in stamps:
        seconds = time.mktime(time.strptime(stamp, "%Y%m%d%H%M%S")) - time.mktime(time.gmtime(there))
        assert -60 < seconds < 60, stamp


def test_two_launches_in_one_second_do_not_share_a_directory(msmemscope, program):
    started = [msmemscope.start("--", *program("many_devices", 1), env=QUIET) for _ in range(6)]
    for run in started:
        run.finish().check()
    projects = rows_module.projects(msmemscope.out)
    assert len(projects) == 6 and all(project.rows() for project in projects)


def test_the_same_process_number_in_the_same_second_gets_another_name(msmemscope, program, out):
    """As in two containers that share a disk. The other directory is taken over by nobody."""
    script = f"mkdir -p {out}/msmemscope_$$_$(date +%Y%m%d%H%M%S)_ascend/x; exec {' '.join(program('many_devices', 1))}"
    for _ in range(5):
        run = msmemscope("--", "sh", "-c", script, env=QUIET).check()
        names = sorted(path.name for path in out.iterdir())
        if names[-1].endswith("_2"):
            break
        for path in out.iterdir():  # the second changed in between
            subprocess.run(["rm", "-r", path], check=True)
    assert names[-1] == names[0] + "_2", names
    assert [path.name for path in (out / names[0]).iterdir()] == ["x"]
    assert (out / names[1] / "report.txt").exists(), str(run)


def test_every_process_that_collects_has_a_directory_and_no_other(msmemscope, program, tmp_path):
    script = tmp_path / "ranks.sh"
    target = " ".join(program("many_devices", 1))
    script.write_text(f"for rank in 0 1 2; do RANK=$rank {target} & done; wait; ls / > /dev/null\n")
    run = msmemscope("bash", script, env=QUIET).check()
    assert len(run.projects()) == 3
    assert len({project.pid for project in run.projects()}) == 3
    for project in run.projects():
        assert {row.pid for row in project.rows()} == {project.pid}
        assert (project.path / "config.json").exists()


# ---- config.json ----

KEYS = ["SelectedStepList", "analysisType", "cStackDepth", "collectAllNpu", "collectCpu", "collectMode", "dataFormat",
        "dumpEventType", "enableCStack", "enableCompare", "enablePyStack", "eventType", "isEffective", "levelType", "logLevel",
        "npuSlots", "oomTopK", "outputDir", "pySiteDepth", "pyStackDepth", "watchConfig"]
DEFAULT = {"SelectedStepList": {"stepCount": 0, "stepIdList": [0, 0, 0, 0, 0]}, "analysisType": 1, "cStackDepth": 0,
           "collectAllNpu": True, "collectCpu": False, "collectMode": 0, "dataFormat": 0, "dumpEventType": 7,
           "enableCStack": False, "enableCompare": False, "enablePyStack": False, "eventType": 7, "isEffective": True,
           "levelType": 1, "logLevel": 2, "npuSlots": 0xffffffff, "oomTopK": 0, "pySiteDepth": 12, "pyStackDepth": 0,
           "watchConfig": {"end": "", "fullContent": False, "isWatched": False, "outputId": 4294967295, "start": ""}}


@pytest.mark.parametrize("options, changes", [
    ([], {}),
    ([f"--steps=1{WIDE}2,3", f"--device=npu:2{WIDE}npu:7", f"--events=alloc{WIDE}free,launch", f"--level=0{WIDE}1",
      f"--call-stack=c:20{WIDE}python:10", f"--analysis=leaks{WIDE}decompose", "--data-format=db"],
     {"SelectedStepList": {"stepCount": 3, "stepIdList": [1, 2, 3, 0, 0]}, "npuSlots": 0x84, "collectAllNpu": False,
      "levelType": 3, "cStackDepth": 20, "enableCStack": True, "pySiteDepth": 0, "pyStackDepth": 10, "enablePyStack": True,
      "analysisType": 3,
      "dataFormat": 1}),
    (["--steps=6,5,4,3,2,1", "--device=cpu", "--events=access", "--level=kernel", "--collect-mode=deferred",
      "--analysis=oom:7,inefficient", "--log-level=debug"],
     {"SelectedStepList": {"stepCount": 6, "stepIdList": [6, 5, 4, 3, 2, 1]}, "collectAllNpu": False, "npuSlots": 0,
      "collectCpu": True, "eventType": 15, "dumpEventType": 15, "levelType": 2, "collectMode": 1, "analysisType": 12,
      "oomTopK": 7, "logLevel": 0}),
    (["--events=none", "--level=", "--analysis=", "--call-stack=c", "-q"],
     {"eventType": 0, "dumpEventType": 0, "levelType": 0, "analysisType": 0, "cStackDepth": 50, "enableCStack": True,
      "logLevel": 3}),
], ids=["default", "examples", "others", "off"])
def test_the_settings_stand_in_config_json(msmemscope, program, options, changes):
    """In the keys and numbers of the original and one key more (pySiteDepth), sorted, four blanks of indent; these are the manual's lists, either comma."""
    run = msmemscope(*options, "--", *program("many_devices", 1), env=QUIET).check()
    path = run.project().path / "config.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600, "for the user alone, as everything else"
    config = json.loads(path.read_text())
    assert config == {**DEFAULT, "outputDir": str(run.out), **changes}
    assert list(config) == KEYS == sorted(KEYS)
    assert path.read_text() == json.dumps(config, indent=4, ensure_ascii=False) + "\n"


# ---- log ----

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[(DEBUG|INFO|WARN|ERROR) +\] \[\w+\.c:\d+\] (.+)")


def log_lines(run):
    [path] = run.project().path.glob("msmemscope_logs/msmemscope_*.log")
    lines = []
    for line in path.read_text().splitlines():
        match = LINE.fullmatch(line)
        assert match and line.index("]") == 28, line
        lines.append((match[1], match[2]))
    return lines


@pytest.mark.parametrize("option, shown, said", [
    (None, {"WARN"}, True), ("--log-level=warn", {"WARN"}, True), ("--log-level=warning", {"WARN"}, True),
    ("--log-level=error", set(), False), ("--log-level=info", {"INFO", "WARN"}, True),
    ("--log-level=debug", {"DEBUG", "INFO", "WARN"}, True), ("--verbose", {"DEBUG", "INFO", "WARN"}, True),
    ("--quiet", set(), False),
])
def test_the_level_says_what_is_logged_and_what_is_printed(msmemscope, program, option, shown, said):
    run = msmemscope(*([option] if option else []), "--steps=5", "--", *program("many_devices", 1), env=QUIET).check()
    lines = log_lines(run)
    assert {level for level, _ in lines} == shown
    assert ("step 5 was not reached" in [text for _, text in lines]) == ("WARN" in shown)
    assert (run.stderr != "") == said
    if "INFO" in shown:
        assert f"process {run.project().pid}, " in lines[0][1] and "many_devices: follows " in lines[0][1]
        assert any(re.fullmatch(rf"process {run.project().pid} ended: \d+ events, \d+ rows, 0 steps", text) for _, text in lines)


NEVER = "msmemscope: --steps: 99 not reached; the run had 12 steps"


@pytest.mark.parametrize("option, warns", [(None, True), ("--log-level=info", True), ("--log-level=warn", True),
                                           ("--log-level=error", False), ("-q", False)])
def test_no_level_hides_what_an_analysis_found(msmemscope, program, option, warns):
    """A level is about messages: warnings go, the leaks that were looked for stay, and so does the report."""
    words = [*([option] if option else []), "--analysis=leaks", "--steps=99"]
    run = msmemscope(*words, "--", *program("leaky_steps", "--steps=12"), env=QUIET).check()
    assert "====== ERROR: Detected memory leaks on device 0 ======\n" in run.stderr
    assert re.search(r"^LEAK on NPU \d+: .* per step, ", run.stderr, re.MULTILINE) and "\nDirect Pytorch Caching memory pool leak of " in run.stderr
    assert "====== SUMMARY: " in run.stderr
    assert (NEVER in run.stderr.splitlines()) == warns
    assert ("msmemscope: running as root" in run.stderr) == (warns and os.geteuid() == 0)
    assert "Detected memory leaks on device 0" in (run.project().path / "report.txt").read_text()


@pytest.mark.parametrize("option", ["--log-level=error", "-q"])
def test_a_quiet_run_without_a_finding_says_nothing(msmemscope, program, option):
    run = msmemscope(option, "--", *program("acl_train", "--steps=1"), env=QUIET).check()
    assert run.stderr == "" and len(run.rows()) > 10


def test_a_killed_program_is_said_to_be_killed(msmemscope, program):
    started = msmemscope.start("--log-level=info", "--", *program("two_acts", 100, 100), env=QUIET, stdin=subprocess.PIPE)
    assert started.process.stdout.readline() == b"ready\n"
    [child] = [int(path.split("/")[2]) for path in find_processes("two_acts")]
    os.kill(child, signal.SIGKILL)
    run = started.finish()
    assert run.returncode == -signal.SIGKILL
    assert any(re.match(rf"process {child} was killed: ", text) for _, text in log_lines(run))


def find_processes(name):
    """Paths in /proc of the running programs of this name that have the collector."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            exe = os.readlink(f"/proc/{pid}/exe")
            if os.path.basename(exe) == name and "libascend_kernel_hook" in open(f"/proc/{pid}/maps", encoding="utf-8").read():
                found.append(f"/proc/{pid}/")
        except OSError:
            continue
    return found


# ---- names ----

def test_any_name_comes_back_from_a_plain_csv_reader(client):
    """Commas, quotes, line breaks, Chinese, and what a spreadsheet would take for a formula."""
    said = client("client_mstx", "--rounds=1")
    marks = [event[-1] for event in said.process().events("mark")]
    assert {"with, comma", 'with "quotes" and \'others\'', "two\nlines", "训练第一步", "=1+1", "+sum", "-minus", "@at"} <= set(marks)
    [dump] = said.run.project().dumps()
    with dump.open(newline="", encoding="utf-8") as file:
        names = [row["Name"] for row in csv.DictReader(file) if row["Event Type"] == "Mark"]
    assert names == ["N/A" if mark is None else mark for mark in marks]


# ---- the end of a run ----

def test_the_summary_is_one_screen(msmemscope, program):
    """Usage of each device and pool, where the files are, what to type next, which then works."""
    run = msmemscope("--call-stack=c:20", "--", *program("many_devices", 2), env=QUIET).check()
    lines = run.stderr.splitlines()
    assert len(lines) <= 24 and run.stdout == ""
    for place in (r"PEAK of the driver \(HAL\) on NPU \d: ", r"NPU \d    driver \(HAL\) ", "the CPU  pinned host memory "):
        [line] = [line for line in lines if re.match(place, line)]
        assert re.search(r"(peak|:) [\d.]+ \w+.*[,;] at the end [\d.]+ \w+ in \d+ blocks?", line)
    [files] = harness.FILES.finditer(run.stderr)
    assert Path(files["files"]).resolve() == run.project().path
    assert "many_devices" in msmemscope(*files["more"].split(), output=False).check().stdout


def test_of_many_processes_the_summary_stays_short(msmemscope, program):
    target = " ".join(program("many_devices", 2))
    run = msmemscope("--", "sh", "-c", f"for i in 1 2 3 4 5 6; do {target}; done", env=QUIET).check()
    lines = run.stderr.splitlines()
    assert len(lines) <= 25
    [files] = harness.FILES.finditer(run.stderr)
    assert files["page"].startswith("report_")
    assert {Path(path).resolve() for path in glob.glob(files["files"])} == {project.path for project in run.projects()}
    assert msmemscope(*files["more"].split(), output=False).check().stdout.count("many_devices (pid ") == 1


def test_without_a_trace_nothing_is_offered(msmemscope, program):
    run = msmemscope("--no-keep-trace", "--", *program("many_devices", 1), env=QUIET).check()
    assert not harness.MORE.search(run.stderr) and "trace.msc" not in tree(run.project())
