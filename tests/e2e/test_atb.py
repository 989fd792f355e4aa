# SPDX-License-Identifier: Apache-2.0
"""Operators and kernels of Ascend Transformer Boost, and the tensors that they take and give. The program under test,
tests/targets/atb/atb_ops.cpp, runs operators of a stand-in for libatb.so that has the real library's names and layouts: for both
forms of std::string, and for both layouts of the pack of an operator. It says in order what each of its threads did."""
import json
import sqlite3
from collections import Counter, defaultdict

import pytest

from atb import FORMS

EVERYTHING = ["--level=op,kernel", "--events=access,launch"]

DTYPES = {0: "FLOAT", 1: "FLOAT16", 2: "INT8", 3: "INT32", 4: "UINT8", 6: "INT16", 7: "UINT16", 8: "UINT32", 9: "INT64",
          10: "UINT64", 11: "DOUBLE", 12: "BOOL", 13: "STRING", 16: "COMPLEX64", 17: "COMPLEX128", 27: "BF16"}
ACL_DTYPES = {**DTYPES, 29: "INT4", 30: "UINT1", 33: "COMPLEX32"}
FORMATS = {0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 12: "NC1HWC0_C04", 16: "HWCN", 27: "NDHWC",
           29: "FRACTAL_NZ", 30: "NCDHW", 32: "NDC1HWC0", 33: "FRACTAL_Z_3D"}
ACL_FORMATS = {**FORMATS, 35: "NC", 47: "NCL"}


def dtype(number, level):
    if level == "kernel":
        return "TENSOR_DTYPE_" + DTYPES.get(number, "UNDEFINED")
    return "ACL_" + ACL_DTYPES.get(number, "DT_UNDEFINED")


def tensor_format(number, level):
    if level == "kernel":
        return "TENSOR_FORMAT_" + FORMATS.get(number, "UNDEFINED")
    return "ACL_FRACTAL_Z_3D" if number == 33 else "ACL_FORMAT_" + ACL_FORMATS.get(number, "UNDEFINED")


def wanted(events, levels, kinds):
    """The rows of a thread: (event, type, name, ptr, attr), with the client's own numbers of blocks as allocation_id."""
    places = {ident: (pool, address, size) for what, ident, pool, address, size, *_ in
              (event for event in events if event[0] == "block")}
    rows = []
    for what, *rest in events:
        if what in ("block", "unblock") and "block" in kinds:
            pool, address, size = places[rest[0]]
            rows.append(("MALLOC" if what == "block" else "FREE", pool, None, address,
                         {"allocation_id": rest[0], "addr": address, "size": size}))
        elif what == "op" and "op" in levels and "launch" in kinds:
            moment, name, path, workspace, size = rest
            rows.append(("OP_LAUNCH", f"ATB_{moment}", name, None,
                         {"path": path, "workspace_ptr": workspace, "workspace_size": size}))
        elif what == "kernel" and "kernel" in levels and "launch" in kinds:
            moment, name, path = rest
            rows.append(("KERNEL_LAUNCH", f"KERNEL_{moment}", name, None, {"path": path}))
        elif what == "access" and rest[0] in levels and "access" in kinds:
            level, kind, name, address, size, number, form, dims, ident = rest
            attr = {"allocation_id": ident} if ident else {}
            attr.update(addr=address, size=size, type="ATB", dtype=dtype(number, level), format=tensor_format(form, level),
                        shape="[" + "".join(f"{dim}," for dim in dims) + "]")
            rows.append(("ACCESS", kind, name, address, attr))
    return rows


def check(said, levels, kinds, devices=1):
    """Every thread's rows are what it did, in its order, on its device, with the blocks that it meant."""
    process = said.process()
    found = defaultdict(list)
    for row in said.rows():
        if row.event != "SYSTEM":
            found[row.tid].append(row)
    assert set(found) == set(process.threads)
    allocations = {}
    for tid, events in process.threads.items():
        expected = wanted(events, levels, kinds)
        for row, want in zip(found[tid], expected):
            assert (row.event, row.type, row.name, row.ptr) == want[:4], str(row)
            if row.event == "MALLOC":
                allocations[want[4]["allocation_id"]] = row.attr["allocation_id"]
            attr = dict(want[4])
            if "allocation_id" in attr:
                attr["allocation_id"] = allocations[attr["allocation_id"]]
            if row.event in ("MALLOC", "FREE"):
                assert attr.items() <= row.attr.items(), str(row)
            else:
                assert list(row.attr.items()) == list(attr.items()), str(row)
        assert len(found[tid]) == len(expected)
        assert len({row.device for row in found[tid]}) == 1
    assert {row.device for rows in found.values() for row in rows} == {str(device) for device in range(devices)}
    assert len(set(allocations.values())) == len(allocations)
    info = said.info()
    assert not any(info["losses"].values()), info["losses"]
    assert not any(info["oddities"].values()), info["oddities"]
    return Counter((row.event, row.type) for rows in found.values() for row in rows)


@pytest.mark.parametrize("form", FORMS)
def test_operators_kernels_and_accesses_are_what_the_program_did(operators, form):
    """Of four threads on two devices, with names of any kind, nested operators, views into blocks, and one that throws."""
    said = operators(form, "--threads=4", "--devices=2", "--rounds=60", options=EVERYTHING)
    counts = check(said, {"op", "kernel"}, {"block", "launch", "access"}, devices=2)
    assert counts["ACCESS", "UNKNOWN"] > 1000 and counts["ACCESS", "WRITE"] > 1000
    # Each thread's last operator throws, so it has no end.
    assert counts["OP_LAUNCH", "ATB_START"] == counts["OP_LAUNCH", "ATB_END"] + 4 > 400
    assert counts["KERNEL_LAUNCH", "KERNEL_START"] == counts["KERNEL_LAUNCH", "KERNEL_END"] > 200
    names = {row.name for row in said.rows() if row.event == "OP_LAUNCH"}
    assert any(len(name.encode()) > 254 for name in names) and "算子Operation" in names


@pytest.mark.parametrize("options, levels, kinds", [
    ([], {"op"}, {"block", "launch"}),
    (["--level=op"], {"op"}, {"block", "launch"}),
    (["--level=0"], {"op"}, {"block", "launch"}),
    (["--level=kernel"], {"kernel"}, {"block", "launch"}),
    (["--level=1"], {"kernel"}, {"block", "launch"}),
    (["--level=0,1"], {"op", "kernel"}, {"block", "launch"}),
    (["--events=launch"], {"op"}, {"launch"}),
    (["--events=access"], {"op"}, {"block", "access"}),
    (["--events=access", "--level=kernel"], {"kernel"}, {"block", "access"}),
    (["--events=alloc"], {"op"}, {"block"}),
    (["--analysis=inefficient"], {"op"}, {"block", "launch", "access"}),
    (["--analysis=inefficient", "--level=op,kernel", "--events=alloc"], {"op", "kernel"}, {"block", "launch", "access"}),
])
@pytest.mark.parametrize("form", ["atb_abi0", "atb_abi1"])
def test_level_and_events_choose_the_rows(operators, form, options, levels, kinds):
    counts = check(operators(form, options=options), levels, kinds)
    events = {event for event, _ in counts}
    assert ("MALLOC" in events, "FREE" in events) == ("block" in kinds, "block" in kinds)
    assert ("OP_LAUNCH" in events) == ("op" in levels and "launch" in kinds)
    assert ("KERNEL_LAUNCH" in events) == ("kernel" in levels and "launch" in kinds)
    assert ("ACCESS" in events) == ("access" in kinds)


@pytest.mark.parametrize("form", ["atb_abi0", "atb_abi1"])
@pytest.mark.parametrize("options, ours", [
    (["--level=op", "--events=launch,access"], False),   # the program's own answers count, and what it saves is saved
    (["--level=kernel"], True),                          # ATB saves because we said so, so nothing is saved
    (["--level=kernel", "--events=alloc"], False),
])
def test_nothing_is_saved_on_our_behalf_and_all_that_the_program_saves(operators, form, options, ours):
    for save in ("0", "1"):
        said = operators(form, options=options, env={"ATB_SAVE": save})
        [[_, params, packs]] = said.process().events("saved")
        if ours or save == "0":
            assert (params, packs) == (0, 0)
        else:
            assert params == len(said.process().events("kernel"))
            # Before and after each operator; the one that throws has no after.
            assert packs == len(said.process().events("op"))


@pytest.mark.parametrize("form", ["atb_abi0", "atb_abi1"])
def test_accesses_in_a_db_have_the_same_values(operators, form):
    said = operators(form, "--rounds=20", options=[*EVERYTHING, "--data-format=db"])
    [path] = said.run.project().path.glob("device_*/dump/memscope_dump_*.db")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        found = [(event, kind, name, None if ptr == "N/A" else int(ptr, 16), json.loads(attr)) for event, kind, name, ptr, attr in
                 db.execute('select Event, "Event Type", Name, Ptr, Attr from memscope_dump order by ID')
                 if event in ("OP_LAUNCH", "KERNEL_LAUNCH", "ACCESS")]
    [events] = said.process().threads.values()
    expected = wanted(events, {"op", "kernel"}, {"launch", "access"})
    assert len(found) == len(expected) > 100
    for (*columns, attr), (*same, want) in zip(found, expected):
        assert columns == same
        assert list(attr) == list(want)
        for key, value in want.items():
            if key in ("addr", "workspace_ptr"):
                assert int(attr[key], 16) == value
            elif key != "allocation_id":
                assert attr[key] == str(value)


def test_before_recording_starts_the_program_s_own_probes_answer(operators):
    said = operators("atb_abi1", options=["--collect-mode=deferred", *EVERYTHING], env={"ATB_SAVE": "1"})
    [[_, params, packs]] = said.process().events("saved")
    assert (params, packs) == (len(said.process().events("kernel")), len(said.process().events("op")))
    assert [row for project in said.run.projects() for row in project.rows()
            if row.event in ("OP_LAUNCH", "ACCESS", "KERNEL_LAUNCH")] == []
