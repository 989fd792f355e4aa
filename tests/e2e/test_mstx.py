# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges that a program sets by mstx stand in the dump as it set them, whatever generation of the header it was
compiled with, in C, C++ and Python, with a device and without."""
import contextlib
import csv
import re
import sqlite3
import sys
from collections import Counter

import pytest

import rows


def marks(said):
    return [(row.type, row.name) for row in said.rows() if row.event == "MSTX"]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("memory", [[], ["--memory"]], ids=["without-device", "with-memory"])
def test_marks_and_ranges_of_all_kinds_are_rows(client, threads, memory):
    """Nested, crossed, ended by another thread, in a domain, with messages that a careless writer would spoil."""
    said = client("client_mstx", f"--threads={threads}", *memory).exact()
    starts = [event for event in said.process().events("range_start")]
    ids = [event[1] for event in starts]
    assert len(set(ids)) == len(ids) and all(0 < ident < 1 << 32 for ident in ids)
    assert {event[2] for event in starts} == {None, "client"}, "the domain's ranges are among them"


@pytest.mark.parametrize("generation", ["first", "old", "new", "future"])
def test_tables_of_any_header_are_filled_and_no_slot_more(client, generation):
    said = client("mstx_tables", generation).exact()
    domains = 0 if generation == "first" else 3
    assert Counter(kind for kind, _ in marks(said)) == {
        "Mark": 2 + 2 * domains, "Range_start": 3 + domains, "Range_end": 3 + domains}


def test_objects_that_start_at_the_same_time_are_all_served(client):
    client("mstx_tables", "new", "--threads=8").exact()


def test_no_message_is_no_name(client):
    found = [row for row in client("mstx_tables", "new").rows() if row.type == "Mark"]
    assert [row.name for row in found] == ["core", None] + ["domain", None] * 3
    assert all(row.ptr is None and row.attr == {} for row in found)


def python(client, *lines, **options):
    """Runs Python with the library of mstx itself at hand, which takes bytes."""
    code = "\n".join(["import ctypes", "mstx = ctypes.CDLL('libms_tools_ext.so')", *lines])
    return client(None, command=[sys.executable, "-c", code], **options)


def valid(message):
    """Each byte that is no UTF-8 is U+FFFD in every file; the trace has it as it came."""
    return re.sub("[\udc80-\udcff]", "\ufffd", message.decode(errors="surrogateescape"))


def test_any_bytes_come_back_from_a_csv_reader(client):
    """Every byte but the one that ends a message: alone, together, and as text of many kinds."""
    messages = [bytes([byte]) for byte in range(1, 256)]
    messages += [bytes(range(1, 256)), b'"', b'""', b'a,"b",c', b"\r\n", b"\n\r\n", b" ", b"", b"=1+1", b"N/A",
                 "训练第一步 🚀".encode(), "\u2028\ufeff".encode(), b"%s%n", b"\xff\xfe half \xe8\xae", b"x" * 4096]
    said = python(client, f"for message in {messages!r}: mstx.mstxMarkA(message, None)")
    [path] = said.run.project().dumps()
    with path.open(newline="", encoding="utf-8") as file:
        names = [row[3] for row in csv.reader(file, strict=True)][1:]
    assert names == [valid(message) for message in messages]


def test_marks_of_older_tools_are_the_operators_and_accesses_that_they_tell_of(client):
    """Their Python code sends texts; what does not say enough stays a mark."""
    name = "torch._ops.aten.mul.Tensor"
    access = (f"memscope-aten-ac:ptr=%s;is_write=%s;is_read=%s;is_output=False;name={name};shape=torch.Size([2, 3]);"
              "dtype=torch.float32;tensor_size=24;device=npu:0")
    messages = [f"memscope-aten-b: name={name}", access % (4096, False, True), access % (0x2000, True, False),
                access % (0, True, False), access % (8192, False, False), f"memscope-aten-e: name={name}",
                "memscope-aten-b: nothing", access % ("nowhere", True, True), "memscope"]
    said = python(client, "acl = ctypes.CDLL('libascendcl.so')", "assert acl.aclInit(None) == acl.aclrtSetDevice(0) == 0",
                  f"for message in {messages!r}: mstx.mstxMarkA(message.encode(), None)", options=["--events=launch,access"])
    found = [row for row in said.rows() if row.event != "SYSTEM"]
    assert [(row.event, row.type) for row in found] == [
        ("OP_LAUNCH", "ATEN_START"), ("ACCESS", "READ"), ("ACCESS", "WRITE"), ("ACCESS", "UNKNOWN"), ("OP_LAUNCH", "ATEN_END"),
        ("MSTX", "Mark"), ("MSTX", "Mark"), ("MSTX", "Mark")]
    assert {row.name for row in found[:5]} == {name}
    assert [row.name for row in found[5:]] == [messages[6], messages[7], messages[8]]
    assert [(row.ptr, row.attr["size"], row.attr["type"], row.attr["dtype"], row.attr["shape"]) for row in found[1:4]] == [
        (address, 24, "PTA", "torch.float32", "torch.Size([2, 3])") for address in (4096, 8192, 8192)]


def test_long_messages_are_cut_at_4_kib(client):
    said = python(client, "mstx.mstxMarkA(b'y' * 10000, None)", "mstx.mstxMarkA(b'after', None)")
    assert marks(said) == [("Mark", "y" * 4096), ("Mark", "after")]


def test_manuals_example_in_cpp_without_acl_is_three_rows(client):
    """No device anywhere, so the rows are where those of the host are."""
    said = client("acl_train_cpp").exact()
    assert marks(said) == [("Mark", "MarkA"), ("Range_start", "step start"), ("Range_end", "Range end from id 1")]
    assert {row.device for row in said.rows()} == {"N/A"}
    assert [path.parent.parent.name for path in said.run.project().dumps()] == ["device_cpu"]


def test_manuals_example_in_cpp_with_work_holds_the_steps_memory(client):
    said = client("acl_train_cpp", "--work").exact()
    assert [(row.event, row.type) for row in said.rows()] == [
        ("SYSTEM", "ACL_INIT"), ("MSTX", "Mark"), ("MSTX", "Range_start"), ("MALLOC", "HAL"), ("MALLOC", "HAL"),
        ("FREE", "HAL"), ("FREE", "HAL"), ("MSTX", "Range_end"), ("SYSTEM", "ACL_FINI")]
    assert {row.device for row in said.rows() if row.event == "MSTX"} == {"0"}


def test_python_module_marks_15_steps(client, targets):
    said = client(None, command=[sys.executable, str(targets / "steps.py")]).exact()
    assert [name for kind, name in marks(said) if kind == "Range_start"] == ["step start"] * 15
    ends = [name for kind, name in marks(said) if kind == "Range_end"]
    assert ends == [f"Range end from id {number}" for number in range(1, 16)]
    # Each block lies in its own step.
    step, blocks = 0, []
    for row in said.rows():
        step += row.type == "Range_start"
        if row.event == "MALLOC":
            blocks.append((step, row.attr["size"]))
    assert blocks == [(number, number * 1000) for number in range(1, 16)]


def test_python_module_knows_the_tool(client):
    said = client(None, command=[sys.executable, "-c", "import mstx; print(mstx.get_tool_id()); mstx.mark()"])
    assert said.run.stdout == f"{0x1003}\n"
    assert marks(said) == [("Mark", None)]


def test_injected_library_of_another_tool_wins(client, targets, tmp_path):
    """Marks are the other tool's then, memory is still ours."""
    record = tmp_path / "record"
    said = client("client_mstx", "--memory", env={
        "MSTX_INJECTION_PATH": targets / "recorder" / "libascend_kernel_hook.so", "RECORD": record})
    assert '"message":"step start"' in record.read_text()
    assert Counter(row.event for row in said.rows()) == Counter(
        {"malloc": "MALLOC", "free": "FREE"}[event[0]] for event in said.process().events("malloc", "free"))


def test_injection_path_without_a_tool_is_no_obstacle(client, tmp_path):
    client("client_mstx", env={"MSTX_INJECTION_PATH": tmp_path / "nothing.so"}).exact()


# What marks a step: a range with the one message. --steps shows which rows lie in it.

def test_a_range_called_step_start_is_a_step_from_c(client):
    said = client("acl_train", "--steps=4", options=["--steps=2"])
    found = [row for row in said.rows() if row.event != "SYSTEM"]
    assert [(row.event, row.type) for row in (found[0], found[-1])] == [("MSTX", "Range_start"), ("MSTX", "Range_end")]
    assert (found[0].name, found[-1].name) == ("step start", "Range end from id 2")
    assert [(row.event, row.attr["size"]) for row in found if row.attr] == [
        ("MALLOC", 1056), ("MALLOC", 2097184), ("MALLOC", 4097), ("FREE", 4097), ("FREE", 2097184), ("FREE", 1056)]


def test_a_range_called_step_start_is_a_step_from_cpp(client):
    said = client("acl_train_cpp", "--work", options=["--steps=1"])
    assert [row.event for row in said.rows() if row.event != "SYSTEM"] == ["MSTX", "MALLOC", "MALLOC", "FREE", "FREE", "MSTX"]
    assert ("Mark", "MarkA") not in marks(said), "it lies before the step"


def test_a_range_called_step_start_is_a_step_from_python(client, targets):
    said = client(None, command=[sys.executable, str(targets / "steps.py")], options=["--steps=3,15"])
    assert [row.attr["size"] for row in said.rows() if row.event == "MALLOC"] == [3000, 15000]
    assert marks(said) == [("Range_start", "step start"), ("Range_end", "Range end from id 3"),
                           ("Range_start", "step start"), ("Range_end", "Range end from id 15")]


DRIVER = """
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
def take(size, device):
    assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), size, 33 << 56 | 0x904400 | device) == 0
mstx.mstxRangeStartA.restype = ctypes.c_uint64
"""


def test_only_its_own_end_ends_a_step(client):
    """Neither ranges inside it nor ranges with other names, however alike, make or end one."""
    said = python(client, DRIVER, """
for size in (1000, 2000):
    other = mstx.mstxRangeStartA(b"step start ", None)
    step = mstx.mstxRangeStartA(b"step start", None)
    inner = mstx.mstxRangeStartA(b"inner", None)
    mstx.mstxRangeEnd(ctypes.c_uint64(inner))
    mstx.mstxRangeEnd(ctypes.c_uint64(other))
    take(size, 0)
    mstx.mstxRangeEnd(ctypes.c_uint64(step))
    take(size + 1, 0)
""", options=["--steps=2"])
    assert [row.attr["size"] for row in said.rows() if row.event == "MALLOC"] == [2000]


def test_steps_and_marks_hold_for_all_devices_of_the_process(client):
    """One thread marks, on device 0; memory of other devices, also of other threads, lies in the same steps."""
    said = python(client, DRIVER, """
import threading
acl = ctypes.CDLL("libascendcl.so")
assert acl.aclrtSetDevice(0) == 0
for step in range(1, 4):
    id = mstx.mstxRangeStartA(b"step start", None)
    take(step * 1000, 0)
    take(step * 1000, 5)
    thread = threading.Thread(target=take, args=(step * 1000, 3))
    thread.start()
    thread.join()
    mstx.mstxRangeEnd(ctypes.c_uint64(id))
    for device in (0, 3, 5): take(7, device)
""", options=["--steps=2"])
    assert sorted((row.device, row.attr["size"]) for row in said.rows() if row.event == "MALLOC") == [
        ("0", 2000), ("3", 2000), ("5", 2000)]


@pytest.mark.parametrize("options, devices", [([], "035"), (["--device=npu:3,npu:5"], "35"), (["--data-format=db"], "035")],
                         ids=["all", "others", "db"])
def test_marks_and_steps_of_one_device_stand_in_the_file_of_every_device(client, tmp_path, options, devices):
    """Threads mark on device 0 and 3; also devices that come later, and those chosen by --device, have every mark and step."""
    said = python(client, DRIVER, """
import threading
acl = ctypes.CDLL("libascendcl.so")
assert acl.aclrtSetDevice(0) == 0
def other():
    assert acl.aclrtSetDevice(3) == 0
    mstx.mstxMarkA(b"other", None)
take(1000, 0)
for step in range(1, 7):
    id = mstx.mstxRangeStartA(b"step start", None)
    if step == 2: take(1000, 5)
    if step == 4: take(1000, 3)
    mstx.mstxRangeEnd(ctypes.c_uint64(id))
thread = threading.Thread(target=other)
thread.start()
thread.join()
""", options=options)
    project = said.run.project()
    if options == ["--data-format=db"]:
        files = {}
        for path in project.path.glob("device_*/dump/*.db"):
            with contextlib.closing(sqlite3.connect(path)) as db:
                files[path] = list(db.execute("SELECT \"Device Id\", Name FROM memscope_dump WHERE Event = 'MSTX' ORDER BY ID"))
    else:
        files = {path: [(row.device, row.name) for row in rows.read_rows(path) if row.event == "MSTX"]
                 for path in project.dumps()}
    marked = [("0", name) for step in range(1, 7) for name in ("step start", f"Range end from id {step}")] + [("3", "other")]
    assert {path.parents[1].name for path in files} == {f"device_{device}" for device in devices}
    assert list(files.values()) == [marked] * len(devices), files
    # Read back from these files alone, each happened once.
    (project.path / "trace.msc").unlink()
    document = said.command.info(project)
    assert document["steps"] == 6
    assert document["events_by_type"]["mark"] == len(marked)


def test_marks_without_a_device_stand_in_the_file_of_every_device(client):
    said = python(client, DRIVER, "mstx.mstxMarkA(b'early', None)", "take(1000, 0)", "take(1000, 5)", "mstx.mstxMarkA(b'late', None)")
    for path in said.run.project().dumps():
        found = [(row.device, row.name) for row in rows.read_rows(path) if row.event == "MSTX"]
        assert found == [("N/A", "early"), ("N/A", "late")], path
    assert len(said.run.project().dumps()) == 2


def test_marks_have_the_device_that_their_thread_has_set(client):
    said = client("acl_train", "--threads=4", "--devices=3", env={"ASCEND_RT_VISIBLE_DEVICES": "6,2,4"}).exact()
    devices = {}
    for row in said.rows():
        if row.event == "MSTX":
            devices.setdefault(row.tid, set()).add(row.device)
    assert sorted(devices.values(), key=sorted) == [{"2"}, {"4"}, {"6"}, {"6"}]
