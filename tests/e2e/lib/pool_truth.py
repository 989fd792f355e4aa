# SPDX-License-Identifier: Apache-2.0
"""PyTorch's pool on a GPU: what rows and snapshots of ours say, against what the pool itself says at the same moments.

A program prints {name: truth} as one line of JSON: at each of these moments it made a snapshot of ours of that name, and `truth` has the
pool's totals, sums by "STREAM PRIVATE-POOL", segments and what waits for streams.
"""
from collections import Counter


def at(rows, name):
    """The rows before a snapshot of that name, and what it says."""
    [place] = [i for i, row in enumerate(rows) if row.event == "SNAPSHOT" and row.name == name]
    return rows[:place], rows[place].attr


def blocks(rows, kind):
    found = {}
    for row in rows:
        if row.type == kind and row.event == "MALLOC":
            found[row.ptr] = row.attr
        elif row.type == kind and row.event == "FREE":
            found.pop(row.ptr, None)
    return found


def pool_differences(rows, said, only_known=False):
    """What rows and snapshots of ours say otherwise than PyTorch."""
    wrong = []

    def same(name, what, ours, theirs):
        if ours != theirs:
            wrong.append(f"{name} {what}: {ours} and not {theirs}")

    for name, truth in said.items():
        before, snapshot = at(rows, name)
        live, sums = blocks(before, "PTA"), Counter()
        for attr in live.values():
            place = f"{attr.get('stream', '?')} {attr.get('private_pool', '0-0')}"
            sums[place + " size"] += attr["size"]
            sums[place + " requested"] += attr.get("requested", 0)
        if not only_known:
            same(name, "blocks", dict(sums), truth["blocks"])
            same(name, "requested", snapshot.get("requested", 0) + truth["waiting"].get("requested", 0), truth["requested"])
        same(name, "waiting", snapshot.get("waiting"), truth["active"] - truth["allocated"])
        same(name, "private pools", snapshot.get("private_reserved", 0),
             sum(size for place, size in truth["pools"].items() if not place.endswith(" 0-0")))
    return wrong


def driver_differences(rows, said, exactly):
    """Each segment is a live row of the driver; `exactly`: and there are no others."""
    wrong = []
    for name, truth in said.items():
        before, _ = at(rows, name)
        live = {address: attr["size"] for address, attr in blocks(before, "HAL").items()}
        if exactly:
            if sum(live.values()) != truth["reserved"]:
                wrong.append(f"{name} driver rows: {sum(live.values())} and not {truth['reserved']}")
            continue
        missing = [(address, size) for address, size, expandable in truth["segments"] if not expandable and live.get(address) != size]
        if missing:
            wrong.append(f"{name}: {len(missing)} of {len(truth['segments'])} segments have no row, first {missing[:2]}")
    return wrong


def totals(said):
    last = said["full"]
    waiting = max(truth["active"] - truth["allocated"] for truth in said.values())
    private = sum(size for place, size in last["pools"].items() if not place.endswith(" 0-0"))
    return (f"requested {last['requested']} of {last['allocated']}, reserved {last['reserved']} -> {said['emptied']['reserved']}, "
            f"waiting {waiting}, private {private}, {len(last['pools'])} streams and pools")
