# SPDX-License-Identifier: Apache-2.0
"""What the files must show of a script that used npu.py: a model of windows, to be compared with the rows.

    wanted(truth, pid, recorded="window")    rows that the process must have, as tuples
    seen(row)                                a row as such a tuple
"""
import json

SHADOW = "shadow"


def read(path):
    """{pid: [(tid, what, arguments...)]} of a truth file."""
    processes = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        pid, *rest = json.loads(line)
        processes.setdefault(pid, []).append(tuple(rest))
    return processes


def wanted(events, traced=True, on=True):
    """`traced`: there is a trace from the beginning; without one, blocks that live at the first start() are known all the same, and
    numbered from there on. `on`: there are rows from the beginning."""
    rows, live, used, ident, step, gone = [], {}, {}, 0, 0, []
    for tid, what, *rest in events:
        if what == "start":
            if not traced:
                live = {address: (number, *block[1:]) for number, (address, block) in enumerate(live.items(), 1)}
                ident = len(live)
            traced = on = True
            # What was freed between windows is told when the next one begins, by the thread that begins it.
            rows += [(tid, *row) for row in sorted(gone, key=lambda row: row[5])]
            gone = []
            rows.append((tid, "SYSTEM", "START_TRACE"))
            for address, block in live.items():
                if not block[3]:
                    live[address] = (*block[:3], True)
                    rows.append((None, "MALLOC", "HAL", str(block[2]), address, block[1], block[0], SHADOW))
        elif what == "stop":
            on = False
            rows.append((tid, "SYSTEM", "STOP_TRACE"))
        elif what == "step" and on:
            step += 1
            rows.append((tid, "SYSTEM", "STEP", str(step)))
        elif what == "alloc":
            address, size, device = rest
            ident += 1
            used[device] = used.get(device, 0) + size
            live[address] = (ident, size, device, on)
            if on:
                rows.append((tid, "MALLOC", "HAL", str(device), address, size, ident, used[device]))
        elif what == "free" and rest[0] in live:
            ident_, size, device, shown = live.pop(rest[0])
            used[device] -= size
            if shown and on:
                rows.append((tid, "FREE", "HAL", str(device), rest[0], size, ident_, used[device]))
            elif shown:
                gone.append(("FREE", "HAL", str(device), rest[0], size, ident_, SHADOW))
    return rows


def seen(row):
    if row.event == "SYSTEM":
        return (row.tid, row.event, row.type, *([row.name] if row.name else []))
    # A block that is older than the window has the thread that took it; the model does not care which.
    tid = None if row.event == "MALLOC" and row.attr.get("shadow") else row.tid
    return (tid, row.event, row.type, row.device, row.ptr, row.attr["size"], row.attr["allocation_id"],
            SHADOW if row.attr.get("shadow") else row.attr["used"])
