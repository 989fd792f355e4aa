# SPDX-License-Identifier: Apache-2.0
"""The comparison of rows with the truth must itself be able to fail: every kind of wrong row is found."""
import dataclasses
import json
from pathlib import Path

import pytest

import rows
import truth

TEXT = "\n".join(json.dumps(line) for line in [
    {"pid": 7, "tid": 8, "part": 0, "events": [["malloc", 0, 4096, 10, 0, "alloc", "normal"], ["free", 0],
                                               ["malloc", 1, 4096, 20, 0, "alloc", "huge"]]},
    {"pid": 7, "tid": 9, "part": 0, "events": [["malloc", 2, 8192, 30, -1, "host", "normal"], ["free", 1]]},
])


def row(ident, event, tid, device, address, allocation, size, used, **more):
    middle = {"pinned": True} if device == "cpu" else {}
    attr = {"allocation_id": allocation, "addr": address, "size": size, **middle, "used": used, **more}
    kind = "HOST_PINNED" if device == "cpu" else "HAL"
    return rows.Row(ident, event, kind, None, 1000 + ident, 7, tid, device, address, attr, [], [], Path("x.csv"), ident + 2)


def right():
    return [row(0, "MALLOC", 8, "0", 4096, 1, 10, 10, page_type="normal", alloc_type="alloc"),
            row(1, "MALLOC", 9, "cpu", 8192, 2, 30, 30),
            row(2, "FREE", 8, "0", 4096, 1, 10, 0),
            row(3, "MALLOC", 8, "0", 4096, 3, 20, 20, page_type="huge", alloc_type="alloc"),
            row(4, "FREE", 9, "0", 4096, 3, 20, 0)]


def check(found):
    [process] = truth.parse(TEXT).values()
    truth.check_rows(found, process)
    truth.check_order(found, (1000, 1010))


def changed(index, **fields):
    """The right rows with one row different; keys of Attr by name, the row's own fields as they are."""
    found = right()
    own = {key: value for key, value in fields.items() if key in rows.Row.__dataclass_fields__}
    attr = {key: value for key, value in fields.items() if key not in own}
    found[index] = dataclasses.replace(found[index], attr={**found[index].attr, **attr}, **own)
    return found


def test_right_rows_pass():
    check(right())
    [process] = truth.parse(TEXT).values()
    assert [block.size for block in process.live()] == [30]


@pytest.mark.parametrize("found", [
    right()[:-1],
    right()[1:],
    [*right(), right()[-1]],
    [right()[0], *right()],
    changed(0, tid=9),
    changed(0, pid=8),
    changed(0, device="1"),
    changed(0, size=11),
    changed(0, ptr=4097),
    changed(0, page_type="huge"),
    changed(0, alloc_type="create"),
    changed(1, type="HAL"),
    changed(2, allocation_id=3),
    changed(4, allocation_id=1),
    changed(3, allocation_id=7),
    changed(4, size=10),
    changed(3, used=30),
    changed(1, used=40),
    changed(2, page_type="normal"),
    changed(2, event="MALLOC"),
    changed(2, time_ns=1),
    changed(4, time_ns=1 << 62),
    changed(2, time_ns=1004),
])
def test_wrong_rows_fail(found):
    with pytest.raises(AssertionError):
        check(found)
