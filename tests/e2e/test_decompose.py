# SPDX-License-Identifier: Apache-2.0
"""Whose memory it is: owner in Attr, and the shares of owners in the report, which add up to what the program says it had."""
import json
import re
import sqlite3
from collections import Counter

import pytest

# The manual's list, by number.
MODULES = """SLOG IDEDD IDEDH HCCL FMK HIAIENGINE DVPP RUNTIME CCE HDC DRV MDCFUSION MDCLOCATION MDCPERCEPTION MDCFSM MDCCOMMON
MDCMONITOR MDCBSWP MDCDEFAULT MDCSC MDCPNC MLL DEVMM KERNEL LIBMEDIA CCECPU ASCENDDK ROS HCCP ROCE TEFUSION PROFILING DP APP TS
TSDUMP AICPU LP TDT FE MD MB ME IMU IMP GE MDCFUSA CAMERA ASCENDCL TEEOS ISP SIS HSM DSS PROCMGR BBOX AIVECTOR TBE FV MDCMAP
TUNE HSS FFTS OP UDF HICAID TSYNC AUDIO TPRT ASCENDCKERNEL ASYS ATRACE RTC SYSMONITOR AML INVLID_MOUDLE_ID""".split()
KEYS = ["allocation_id", "addr", "size", "used", "owner", "page_type", "alloc_type"]


def component(module):
    return f"CANN@{MODULES[module] if module < len(MODULES) else 'UNKNOWN'}"


def test_driver_memory_is_split_by_component(msmemscope, program):
    assert len(MODULES) == 76
    run = msmemscope("--analysis=decompose", "--", *program("components")).check()
    blocks = [tuple(map(int, line.split())) for line in run.stdout.splitlines()]
    assert len(blocks) == 80
    taken = {row.ptr: row for row in run.rows() if row.event == "MALLOC"}
    for device, module, size, address, _ in blocks:
        row = taken[address]
        assert (row.attr["owner"], row.attr["size"], row.device) == (component(module), size, str(device))
        assert [key for key in row.attr if key not in ("process_used", "device_used")] == KEYS
    assert not [row for row in run.rows() if row.event == "FREE" and "owner" in row.attr]
    peak, live = {"0": Counter(), "1": Counter()}, {"0": Counter(), "1": Counter()}
    for device, module, size, _, freed in blocks:
        peak[str(device)][component(module)] += size
        live[str(device)][component(module)] += 0 if freed else size
    found = msmemscope.info(run.project(), "--analysis=decompose")["decompose"]
    assert [(one["device"], one["event_type"]) for one in found] == [("0", "HAL"), ("1", "HAL")]
    for one in found:
        assert {owner["owner"]: owner["peak_bytes"] for owner in one["owners"]} == dict(peak[one["device"]])
        assert {owner["owner"]: owner["live_bytes"] for owner in one["owners"]} == dict(live[one["device"]])
        assert one["peak_bytes"] == peak[one["device"]].total() and one["live_bytes"] == live[one["device"]].total()


def tables(text):
    """{(pool, device): [(bytes at the peak, at the end, owner)]} of a report."""
    found, rows = {}, None
    for line in text.splitlines():
        head = re.fullmatch(r"(\w+) memory of (?:device )?(\w+) by owner", line)
        share = re.fullmatch(r" *([\d.]+ \w+) +([\d.]+ \w+)  (.+)", line)
        if head:
            rows = found.setdefault(head.groups(), [])
        elif rows is not None and share:
            rows.append(share.groups())
        elif "at its peak" not in line:
            rows = None
    return found


def test_shares_are_printed_for_each_device_and_add_up(client):
    said = client("leaky_steps", options=["--analysis=decompose"])
    want = {("HAL", "0"), ("PTA", "0"), ("HAL", "1"), ("PTA", "1"), ("MINDSPORE", "0"), ("ATB", "0"), ("HAL", "2")}
    report = (said.run.project().path / "report.txt").read_text()
    found = tables(report)
    assert found.keys() == want
    assert found["PTA", "0"][0][2] == "PTA" and all(rows[-1][2] == "total" for rows in found.values())
    assert "\nMemory of NPU 0 by class at the peak (" in said.run.stderr
    for text in (said.run.stderr, report):
        assert "Detected" not in text and "Alive" not in text, "leaks were not asked for"
    found = said.command.info(said.run.project(), "--analysis=decompose")
    usage = {(one["pool"], one["device"]): (one["peak_bytes"], one["live_bytes"]) for one in found["pools"]}
    for one in found["decompose"]:
        for at, key in enumerate(("peak_bytes", "live_bytes")):
            assert sum(owner[key] for owner in one["owners"]) == one[key] == usage[one["event_type"], one["device"]][at]


def test_a_step_has_shares_of_its_own_and_none_of_pools_that_come_later(client):
    said = client("leaky_steps", options=["--analysis=decompose"])
    found = {(one["event_type"], one["device"]): one for one in said.command.info(said.run.project(), "--analysis=decompose", "--steps=1,3")["decompose"]}
    for one in found.values():
        assert [step["step"] for step in one["steps"]] == [1, 3]
        for at, step in enumerate(one["steps"]):
            for key in ("peak_bytes", "end_bytes"):
                assert sum(owner["steps"][at][key] for owner in one["owners"]) == step[key] <= one["peak_bytes"]
    for pool in ("ATB", "MINDSPORE"):
        first, third = found[pool, "0"]["steps"]
        assert first == {"step": 1, "peak_bytes": 0, "end_bytes": 0}, "it is used in step 3 for the first time"
        assert third["peak_bytes"] == third["end_bytes"] == found[pool, "0"]["peak_bytes"] > 0


def test_pools_are_named(client):
    said = client("leaky_steps", options=["--analysis=leaks,decompose"])
    owners = {row.type: row.attr["owner"] for row in said.rows() if row.event == "MALLOC"}
    assert owners == {"PTA": "PTA", "ATB": "ATB", "MINDSPORE": "MINDSPORE", "HAL": "CANN@APP"}
    report = (said.run.project().path / "report.txt").read_text()
    for words in ("memory leaks on device", "Gap Analysis", "memory of device 0 by owner"):
        assert words in report, "both analyses run"
    assert "\nSUSPECT on " in said.run.stderr and "\nMemory of NPU 0 by class at the peak (" in said.run.stderr


def test_workspaces_are_named(client):
    said = client("client_workspace", options=["--analysis=decompose"])
    assert {row.attr["owner"] for row in said.rows() if row.event == "MALLOC" and row.type == "PTA_WORKSPACE"} == \
        {"PTA_WORKSPACE"}


@pytest.mark.parametrize("options", [[], ["--analysis=leaks"], ["--analysis="]])
def test_owners_are_only_for_who_asks(client, options):
    said = client("leaky_steps", "--steps=2", options=options)
    assert not [row for row in said.rows() if "owner" in row.attr]
    assert "by class" not in said.run.stderr


def test_owners_come_from_any_trace_also_one_recorded_without(client, tmp_path):
    said = client("leaky_steps", "--steps=2")
    project = said.run.project().path
    said.command("export", project, "--analysis=decompose", "--format=db", output=tmp_path / "again").check()
    [path] = (tmp_path / "again").glob("*/device_0/dump/*.db")
    attrs = [json.loads(attr) for attr, in sqlite3.connect(path).execute(
        "SELECT Attr FROM memscope_dump WHERE Event = 'MALLOC' AND \"Event Type\" = 'PTA'")]
    assert attrs and {attr["owner"] for attr in attrs} == {"PTA"}
    assert "PTA memory of device 0 by owner" in next((tmp_path / "again").glob("*/report.txt")).read_text()


WINDOW = """
import os, msmemscope, npu
msmemscope.config(output=os.environ["OUT"], analysis="leaks,decompose")
npu.start()
first, second = npu.alloc(8192), npu.alloc(16384)
npu.free(first)
npu.stop()
"""


@pytest.mark.parametrize("under_command", [False, True])
def test_a_program_may_ask_for_owners_itself(scripts, under_command):
    """Through config(), also one that the command started without asking for them."""
    run = scripts.command(WINDOW, "--collect-mode=deferred") if under_command else scripts.preloaded(WINDOW)
    project = run.check().project()
    owners = {row.attr["size"]: row.attr["owner"] for row in project.rows() if row.event == "MALLOC"}
    assert owners[8192] == owners[16384] == "CANN@SLOG"
    report = (project.path / "report.txt").read_text()
    assert tables(report) == {("HAL", "0"): [("24.0 KiB", "16.0 KiB", "CANN@SLOG"), ("24.0 KiB", "16.0 KiB", "total")]}
    assert "Leaks are not judged" in report, "both were asked for"
