# SPDX-License-Identifier: Apache-2.0
"""The tools of the end-to-end tests must themselves be able to fail."""
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import pytest

import harness
import rows

MALLOC = '0,MALLOC,HAL,N/A,1700000000000000010,42,43,0,0x0000120000000000,' \
         '"{allocation_id:1,addr:0x0000120000000000,size:4096,used:4096,owner:CANN@RUNTIME,page_type:huge}",,' \
         '"libx.so(alloc+0x10) [0x10]\nmain() [0x20]\n"\n'
FREE = '1,FREE,HAL,N/A,1700000000000000020,42,44,0,0x0000120000000000,' \
       '"{allocation_id:1,addr:0x0000120000000000,size:4096,used:0}",,\n'
STOP = '2,SYSTEM,STOP_TRACE,N/A,1700000000000000030,42,42,N/A,N/A,,,\n'


def dump(out, text, device="0", header=rows.HEADER + "\n"):
    path = out / "msmemscope_42_20250101000000_ascend" / f"device_{device}" / "dump" / "memscope_dump_20250101000000.csv"
    path.parent.mkdir(parents=True)
    path.write_text(header + text, encoding="utf-8")
    return path


def test_attr_values_may_hold_commas():
    attr = rows.parse_attr("{size:24,inefficient_type:early_allocation,late_deallocation,shape:torch.Size([2, 3])}")
    assert attr == {"size": 24, "inefficient_type": "early_allocation,late_deallocation", "shape": "torch.Size([2, 3])"}
    assert rows.parse_attr("{shadow:true,addr:0x0000000000000010}") == {"shadow": True, "addr": 16}
    assert rows.parse_attr("") == {}


@pytest.mark.parametrize("text", ["size:1", "{bogus:1}", "{}", "{size:1,size:2}"])
def test_a_malformed_attr_is_refused(text):
    with pytest.raises(rows.RowError):
        rows.parse_attr(text)


def test_rows_of_all_devices_come_by_id(out):
    dump(out, FREE + MALLOC + STOP)
    dump(out, STOP, device="1")
    (project,) = rows.projects(out)
    assert (project.pid, project.stamp, project.vendor) == (42, "20250101000000", "ascend")
    found = project.rows()
    assert [row.event for row in found] == ["MALLOC", "FREE", "SYSTEM"]
    assert (found[0].ptr, found[0].tid, found[0].line) == (0x120000000000, 43, 3)
    assert found[0].c_stack == ["libx.so(alloc+0x10) [0x10]", "main() [0x20]"]
    assert found[2].ptr is None and found[2].name is None
    (block,) = rows.blocks(found)
    assert block.size == 4096 and block.free.id == 1


@pytest.mark.parametrize("text", [
    MALLOC[:-1],
    MALLOC.replace("\n", "\r\n"),
    MALLOC.replace(",42,43,", ",42,"),
    MALLOC.replace(",0x0000120000000000,", ",0x120000000000,"),
    MALLOC.replace("addr:0x0000120000000000", "addr:0x0000120000000001"),
    MALLOC.replace("size:4096,", ""),
    MALLOC.replace(",42,43,0,", ",42,43,host,"),
    MALLOC.replace("main() [0x20]\n", "main() [0x20]"),
])
def test_a_malformed_file_is_refused(out, text):
    with pytest.raises(rows.RowError):
        rows.read_rows(dump(out, text))


def test_another_header_is_refused(out):
    with pytest.raises(rows.RowError):
        rows.read_rows(dump(out, MALLOC, header="\ufeff" + rows.HEADER + "\n"))


@pytest.mark.parametrize("text", [
    FREE,
    MALLOC + MALLOC.replace("0,MALLOC", "5,MALLOC"),
    MALLOC + FREE + FREE.replace("1,FREE", "5,FREE"),
    MALLOC + FREE.replace("size:4096", "size:4097"),
    MALLOC + FREE.replace("0x0000120000000000", "0x0000120000000010"),
    MALLOC + FREE.replace("000020,", "000009,"),
])
def test_blocks_that_do_not_pair_are_refused(out, text):
    with pytest.raises(rows.RowError):
        rows.blocks(rows.read_rows(dump(out, text)))


def test_a_doubled_id_is_refused(out):
    dump(out, MALLOC + FREE.replace("1,FREE", "0,FREE"))
    with pytest.raises(rows.RowError):
        rows.projects(out)[0].rows()


def test_a_program_past_its_limit_is_killed_with_its_children_and_shown():
    script = "import subprocess, sys; print('before', flush=True); subprocess.run(['sleep', '100'])"
    began = time.monotonic()
    with pytest.raises(AssertionError, match="(?s)still running.*before"):
        harness.Started([sys.executable, "-c", script], None).finish(timeout=1)
    assert time.monotonic() - began < 8


def test_the_environment_holds_only_what_a_test_asks_for(monkeypatch, tmp_path):
    monkeypatch.setenv("MSMEMSCOPE_DISABLE", "1")
    monkeypatch.setenv("LD_PRELOAD", "x.so")
    monkeypatch.setenv("KEPT", "1")
    env = harness.environment(tmp_path, {"ADDED": 2, "KEPT": None})
    assert not {"MSMEMSCOPE_DISABLE", "LD_PRELOAD", "KEPT"} & env.keys()
    assert env["ADDED"] == "2" and env["LD_LIBRARY_PATH"] == f"{tmp_path}/simnpu/lib64"


FAILING = """
def test_files(out, tmp_path):
    (out / "left").touch()
    assert False

def test_target(program):
    program("no_such_target")

def test_good(out):
    print("gone:", out)
"""


def test_a_failed_test_names_its_files_and_what_to_do(targets, tmp_path):
    lib = Path(harness.__file__).parent
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(lib)!r})\nfrom fixtures import *\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FAILING, encoding="utf-8")
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--junitxml", tmp_path / "junit.xml",
                          f"--basetemp={tmp_path / 'tmp'}", tmp_path], capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "2 failed, 1 passed" in run.stdout, run
    [kept] = re.findall(r"- Files of this test are kept -+\n(.*)\n(.*)\n", run.stdout)
    assert (Path(kept[0]) / "left").exists() and Path(kept[1]).parent == tmp_path / "tmp"
    shutil.rmtree(kept[0])
    assert f"no target {targets / 'no_such_target'}: run make" in run.stdout
    [gone] = re.findall("gone: (.*)", run.stdout)
    assert not Path(gone).exists()
    cases = list(xml.etree.ElementTree.parse(tmp_path / "junit.xml").getroot().iter("testcase"))
    assert len(cases) == 3 and all(float(case.find("properties/property[@name='cpu_s']").get("value")) >= 0 for case in cases)
