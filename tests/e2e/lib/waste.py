# SPDX-License-Identifier: Apache-2.0
"""Inefficient memory, once more: a model that reads the rows of a run of one thread, all at once, and follows the manual's table.

    early_allocation     between the operator that allocates and the one of the first access lies another that frees
    late_deallocation    between the operator of the last access and the one that frees lies another that allocates
    temporary_idleness   more than `idle` operators between two accesses

An event outside of operators counts as an operator. Mended, a block lives from the begin of the operator of its first access to the
end of that of its last, and not while it is idle.
"""
from bisect import bisect_right
from collections import defaultdict

EARLY, LATE, IDLE = KINDS = "early_allocation", "late_deallocation", "temporary_idleness"


class Waste:
    """`found`: {allocation_id: its kinds}. `saved(pool, ids)`: bytes that the peak would be lower without the waste of these blocks."""

    def __init__(self, rows, idle=3000, kinds=KINDS, mem_size=0):
        self.idle, self.kinds, self.mem_size = idle, kinds, mem_size
        self.rows = [row for row in rows if row.event in ("MALLOC", "FREE", "ACCESS", "OP_LAUNCH")]
        assert len({row.tid for row in self.rows}) <= 1, "the model is of one thread"
        self.found = defaultdict(list)
        self.used = defaultdict(list)  # {pool: [(index, live bytes from there on)]}
        self.wasted = defaultdict(list)  # {allocation_id: [(first index, index behind the last)]}
        self.size, self.pool, self.stack = {}, {}, {}
        self._count()
        self._judge()

    def _count(self):
        """Ticks, and where the operator of each row begins and ends."""
        tick = depth = begin = 0
        live = defaultdict(int)
        self.tick, self.begin, self.end = [], [], []
        does = defaultdict(set)
        for index, row in enumerate(self.rows):
            if row.event == "OP_LAUNCH":
                starts = row.type.endswith("_START")
                if starts and depth == 0:
                    tick, begin = tick + 1, index
                depth += 1 if starts else -1
            elif depth == 0:
                tick, begin = tick + 1, index
            self.tick.append(tick)
            self.begin.append(begin)
            if row.event in ("MALLOC", "FREE"):
                does[row.event].add(tick)
                pool, ident = (row.type, row.device), row.attr["allocation_id"]
                self.pool[ident] = pool
                if row.event == "MALLOC":
                    self.size[ident] = row.attr["size"]
                    self.stack[ident] = row.python_stack
                live[pool] += self.size[ident] if row.event == "MALLOC" else -self.size[ident]
                self.used[pool].append((index, live[pool]))
        assert depth == 0, "an operator has no end"
        last = len(self.rows)
        self.end = [0] * last
        for index in reversed(range(last)):
            inside = index + 1 < last and self.begin[index + 1] == self.begin[index]
            self.end[index] = self.end[index + 1] if inside else index
        self.does = {event: sorted(ticks) for event, ticks in does.items()}

    def _lies_between(self, event, after, before):
        ticks = self.does.get(event, [])
        at = bisect_right(ticks, after)
        return at < len(ticks) and ticks[at] < before

    def _take(self, ident, kind, first, behind):
        if kind in self.kinds and self.size[ident] >= self.mem_size:
            if kind not in self.found[ident]:
                self.found[ident].append(kind)
            self.wasted[ident].append((first, behind))

    def _judge(self):
        made, used = {}, {}
        for index, row in enumerate(self.rows):
            ident = row.attr.get("allocation_id")
            if row.event == "MALLOC":
                made[ident] = index
            elif row.event == "ACCESS" and ident in made:
                if ident not in used:
                    if self._lies_between("FREE", self.tick[made[ident]], self.tick[index]):
                        self._take(ident, EARLY, made[ident], self.begin[index])
                elif self.tick[index] - self.tick[used[ident]] > self.idle:
                    self._take(ident, IDLE, self.end[used[ident]], self.begin[index])
                used[ident] = index
            elif row.event == "FREE" and ident in used and \
                    self._lies_between("MALLOC", self.tick[used[ident]], self.tick[index]):
                self._take(ident, LATE, self.end[used[ident]], index)
        self.found = {ident: ",".join(kind for kind in KINDS if kind in kinds) for ident, kinds in self.found.items() if kinds}

    def peak(self, pool, mended=()):
        """With the blocks of `mended` there only while they are needed."""
        change = [0] * (len(self.rows) + 1)
        value, before = {}, 0
        for index, bytes_ in self.used[pool]:
            value[index] = bytes_
        for ident in mended:
            for first, behind in self.wasted.get(ident, ()):
                change[first] -= self.size[ident]
                change[behind] += self.size[ident]
        most = less = 0
        for index in range(len(self.rows)):
            before = value.get(index, before)
            less += change[index]
            most = max(most, before + less)
        return most

    def saved(self, pool, mended):
        return self.peak(pool) - self.peak(pool, mended)
