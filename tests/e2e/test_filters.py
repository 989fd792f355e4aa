# SPDX-License-Identifier: Apache-2.0
"""Which rows are written: steps, devices, and what a named analysis adds. The trace has everything; the files have exactly what
was asked for, not a row more or less."""
import re
import sys
from collections import Counter

import pytest

from said import seen, wanted

WIDE = "，"


def rows_by_step(process):
    """For the one thread that marks steps: {step: [row as said.seen() shows it]}, 0 for what is in none."""
    [tid] = [tid for tid, events in process.threads.items() if any(event[-1] == "step start" for event in events)]
    steps, current, range_id = {0: []}, 0, None
    rows = wanted(process, False).rows[tid]
    assert len(rows) == len(process.threads[tid])
    for event, (row, _) in zip(process.threads[tid], rows):
        if event[0] == "range_start" and event[-1] == "step start":
            current, range_id = len(steps), event[1]
        steps.setdefault(current, []).append(row)
        if event[0] == "range_end" and event[1] == range_id:
            current = 0
    return steps


@pytest.mark.parametrize("option, steps", [
    ("--steps=2", [2]), (f"--steps=3{WIDE}1", [1, 3]), ("--steps=1,2,3,4,5", [1, 2, 3, 4, 5]),
    (f"--steps=7,1,2{WIDE}3,4,5,6", [1, 2, 3, 4, 5, 6, 7]),
])
def test_the_listed_steps_are_written_and_nothing_else(client, option, steps):
    """With the range that makes the step, from its start to its end, which the original leaves out."""
    said = client("client_mstx", "--memory", "--rounds=7", options=[option])
    by_step = rows_by_step(said.process())
    assert len(by_step) == 8 and all(len(by_step[step]) >= 3 for step in steps)
    assert [seen(row) for row in said.rows()] == [row for step in steps for row in by_step[step]]
    assert "not reached" not in said.run.stderr


@pytest.mark.parametrize("option, missing", [
    ("--steps=2,6", "6"), (f"--steps=4294967295{WIDE}9,1", "4294967295, 9"),
    ("--steps=" + ",".join(map(str, range(4, 20))), "6, 7, 8, 9, 10, 11, 12, 13, 14, 15 and 4 more"),
])
def test_steps_that_never_came_are_named(client, option, missing):
    said = client("client_mstx", "--rounds=5", options=[option])
    assert f"msmemscope: --steps: {missing} not reached; the run had 5 steps\n" in said.run.stderr


def test_a_program_without_steps_leaves_no_rows_and_says_why(msmemscope, program):
    run = msmemscope("--steps=1", "--", *program("many_devices", 1), env={"TRUTH": "/dev/null"}).check()
    assert run.rows() == []
    assert "--steps: 1 not reached; the run had 0 steps\n" in run.stderr
    assert "peak" in run.stderr, "all that was recorded is still summed up"


def test_a_step_has_its_kernels_also_those_that_run_after_it(client):
    """And what the whole process does stands beside every choice of steps."""
    said = client("acl_train", "--steps=4", options=["--steps=2,3", "--level=kernel"])
    rows = said.rows()
    counts = Counter(row.type for row in rows)
    assert counts["ACL_INIT"] == counts["ACL_FINI"] == 1
    launches = len(said.process().events("launch"))
    assert counts["KERNEL_LAUNCH"] == counts["KERNEL_EXECUTE_START"] == counts["KERNEL_EXECUTE_END"] == launches / 2
    tasks = {kind: {(row.attr["streamId"], row.attr["taskId"]) for row in rows if row.type == kind}
             for kind in ("KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END")}
    assert tasks["KERNEL_LAUNCH"] == tasks["KERNEL_EXECUTE_START"] == tasks["KERNEL_EXECUTE_END"]
    assert counts["Range_start"] >= 2 and [row.name for row in rows if row.type == "Range_start"].count("step start") == 2


def test_all_steps_are_there_when_none_is_named(client):
    said = client("client_mstx", "--memory", "--rounds=7").exact()
    assert [row.name for row in said.rows()].count("step start") == 7


def devices(run):
    return {path.name for path in run.project().path.glob("device_*")}


@pytest.mark.parametrize("option, found", [
    (None, {0, 1, 2, 3, 4, 5, 6, 7}), ("--device=npu", {0, 1, 2, 3, 4, 5, 6, 7}), ("--device=npu:2,npu:7", {2, 7}),
    (f"--device=npu:2{WIDE}npu:7", {2, 7}), ("--device=npu:3,npu,npu:1", {0, 1, 2, 3, 4, 5, 6, 7}), ("--device=npu:31", set()),
    ("--device=cpu", set()),
])
def test_the_listed_devices_are_written(msmemscope, program, option, found):
    """Pinned memory of the host is written where no device was named, and with cpu."""
    words = [option] if option else []
    host = {"cpu"} if option in (None, "--device=cpu") else set()
    run = msmemscope(*words, "--", *program("many_devices", 8), env={"TRUTH": "/dev/null"}).check()
    assert devices(run) == {f"device_{device}" for device in {*found, *host}}
    count = Counter(row.device for row in run.rows())
    assert count.keys() == {*map(str, found), *host} and len({count[str(device)] for device in found}) <= 1
    # What is told is limited as the files are: on the screen, in the report and in the document.
    path = run.project().path
    report = (path / "report.txt").read_text()
    named = [int(device) for device in re.findall(r"^  device (\d+) +HAL ", report, re.MULTILINE)]
    assert named == sorted(found), "by number"
    for text in (report, run.stderr, msmemscope.bare(msmemscope.path, "info", "--all", path).check().stdout):
        assert {int(device) for device in re.findall(r"device (\d+)", text)} <= found, text
    assert ("  cpu  " in report) == bool(host)
    pools = msmemscope.info(run.project())["pools"]
    assert [pool["device"] for pool in pools] == [*map(str, sorted(found)), *host]
    # The trace has everything: who asks for another device later gets it.
    other = msmemscope.bare(msmemscope.path, "info", "--device=npu:5", path).check().stdout
    assert set(re.findall(r"device (\d+)", other)) == {"5"}


@pytest.mark.parametrize("option, device, size", [("--device=npu:1", "1", 1 << 20), ("--device=npu:4", "4", 3 << 20)])
def test_leaks_of_other_devices_are_not_told(client, option, device, size):
    """A program leaks on two devices; who asks for one of them hears of that alone."""
    code = """
import ctypes
mstx = ctypes.CDLL("libms_tools_ext.so")
mstx.mstxRangeStartA.restype = ctypes.c_uint64
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
for step in range(20):
    id = mstx.mstxRangeStartA(b"step start", None)
    for device, size in ((1, 1 << 20), (4, 3 << 20)):
        assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), size, 33 << 56 | 0x904400 | device) == 0
    mstx.mstxRangeEnd(ctypes.c_uint64(id))
"""
    said = client(None, command=[sys.executable, "-c", code], options=[option])
    told = said.run.stderr + (said.run.project().path / "report.txt").read_text()
    assert set(re.findall(r"on device (\w+)", told)) == {device}, told
    assert f"leak of {size / 2**20:f} Mb(s)" in told and "Detected memory leaks" in told
    places = said.info()["places"]
    assert places and {place["device"] for place in places} == {device}
    assert {example["size"] for place in places for example in place["examples"]} == {size}


def test_devices_are_those_of_the_machine(client):
    """Not the numbers that the program sees after ASCEND_RT_VISIBLE_DEVICES."""
    env = {"ASCEND_RT_VISIBLE_DEVICES": "4,6", "SIMNPU_DEVICES": "8"}
    said = client("client_pta", "--devices=2", options=["--device=npu:6"], env=env)
    assert {event[5] for event in said.process().events("register")} == {4, 6}
    assert {row.device for row in said.rows() if row.event in ("MALLOC", "FREE")} - {"cpu"} == {"6"}


BLOCKS = {"MALLOC", "FREE"}
ALWAYS = {"MSTX", "SYSTEM"}
LEAKS_OFF = "msmemscope: leak analysis is off: --events names neither alloc nor free\n"


@pytest.mark.parametrize("options, events, says", [
    ([], BLOCKS | {"KERNEL_LAUNCH"}, []),
    (["--events=launch"], {"KERNEL_LAUNCH"}, [LEAKS_OFF]),
    (["--events="], set(), [LEAKS_OFF]),
    (["--events=none", "--analysis="], set(), []),
    (["--events=launch", "--analysis=none"], {"KERNEL_LAUNCH"}, []),
    (["--events=none", "--analysis=leaks"], BLOCKS, []),
    (["--events=none", f"--analysis=leaks{WIDE}decompose"], BLOCKS, []),
    (["--events=launch", "--analysis=decompose"], BLOCKS | {"KERNEL_LAUNCH"}, []),
    (["--events=none", "--analysis=inefficient"], BLOCKS | {"KERNEL_LAUNCH"}, []),
    (["--events=none", "--analysis=oom:20"], BLOCKS, []),
])
def test_an_analysis_that_is_named_adds_its_events(client, options, events, says):
    """The default one adds nothing, and one line says when it is therefore off."""
    said = client("acl_train", "--steps=1", options=["--level=kernel", *options])
    assert {row.event for row in said.rows()} == events | ALWAYS
    assert (LEAKS_OFF in said.run.stderr) == (LEAKS_OFF in says)
