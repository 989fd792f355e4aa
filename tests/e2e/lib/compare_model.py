# SPDX-License-Identifier: Apache-2.0
"""What a comparison of two runs must say: the memory of each call, from what the programs say of themselves, and which calls
belong together, by an alignment of our own.

    wanted("0", "KERNEL_LAUNCH", kernel_calls(first)["0"], kernel_calls(second)["0"])     rows of the file
"""
import said

HEAD = [["", "", "", "Base", "Compare"],
        ["Event", "Name", "Device Id", "Allocated Memory(byte)", "Allocated Memory(byte)", "Diff Memory(byte)"]]


def side_by_side(first, second):
    """Indices (i, j) of Myers' alignment, None where a side has nothing; a tie goes to the first."""
    reach, ways = {1: 0}, []
    for d in range(len(first) + len(second) + 1):
        ways.append({})
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            while x < len(first) and x - k < len(second) and first[x] == second[x - k]:
                x += 1
            reach[k], ways[d][k] = x, down
            if x >= len(first) and x - k >= len(second):
                return list(walk(first, second, ways))
    raise AssertionError


def walk(first, second, ways):
    k, downs = len(first) - len(second), []
    for way in reversed(ways[1:]):
        downs.append(way[k])
        k += 1 if way[k] else -1
    x = y = 0
    for down in [None, *reversed(downs)]:
        if down is not None:
            yield (None, y) if down else (x, None)
            x, y = x + (not down), y + down
        while x < len(first) and y < len(second) and first[x] == second[y]:
            yield x, y
            x, y = x + 1, y + 1


def wanted(device, event, first, second):
    """Rows of the file for two lists of (name, bytes)."""
    found = []
    for i, j in side_by_side([name for name, _ in first], [name for name, _ in second]):
        base, other = (None if i is None else first[i][1]), (None if j is None else second[j][1])
        name = first[i][0] if i is not None else second[j][0]
        found.append([event, name, device, "N/A" if base is None else str(base), "N/A" if other is None else str(other),
                      str((other or 0) - (base or 0))])
    return found


def kernel_calls(process, steps=None):
    """(name, change of the driver's memory since the launch before) for each launch, by device, as the program says; with `steps`
    only launches in these, and of memory only blocks that they allocate."""
    [events] = [events for events in process.threads.values() if any(event[0] == "launch" for event in events)]
    assert len(process.events("malloc")) == sum(event[0] == "malloc" for event in events), "one thread does it all"
    blocks = said.blocks_of(process)
    used, before, calls, live = {}, {}, {}, set()
    begun, current, range_id = 0, 0, None
    for op, ident, *rest in events:
        if op == "range_start" and rest[-1] == "step start":
            begun += 1
            current, range_id = begun, ident
        elif op == "range_end" and ident == range_id:
            current = 0
        elif steps is not None and current not in steps:
            continue
        elif op == "malloc" and blocks[ident][0] == "HAL":
            _, _, size, device, *_ = blocks[ident]
            used[device] = used.get(device, 0) + size
            live.add(ident)
        elif op == "free" and ident in live:
            _, _, size, device, *_ = blocks[ident]
            used[device] -= size
            live.remove(ident)
        elif op == "launch":
            device, _, name = rest
            device = str(device)
            calls.setdefault(device, []).append((name, used.get(device, 0) - before.get(device, 0)))
            before[device] = used.get(device, 0)
    return calls
