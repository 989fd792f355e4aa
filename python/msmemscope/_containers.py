# SPDX-License-Identifier: Apache-2.0
"""Which containers grow in a process whose host memory grows. The engine asks, some seconds apart; _who.py calls look().

    first time    identity and length of each list, dict, set and deque, of 8 items or more, are noted; nothing else is kept
    later         those that have more items now; what the new ones take, by a sample; those that explain what the process has more
                  resident are named by what refers to them (_keeper.py)

Where no container explains it (a library of C, one text or array that grows) nothing is said. No code of the program runs: lengths are
read by the collector, sizes are asked for of the interpreter's own types alone. One look takes a second of CPU time at most.
"""
import collections
import gc
import itertools
import os
import sys
import time
import types
from array import array
from typing import NamedTuple

from . import _keeper
from ._boot import note
from ._filled import filled, forget, is_own
from ._keeper import _GENERATORS, _LRU, _Arrays, _Scan, _cure, _dict_of_module, _dict_of_type, _has_base, _name_of_type, _slot_names
from ._native import collector

SECONDS = 1.0  # of CPU time that a look may take
MOST = 3  # containers that are named
_LEAST = 8  # items of a container that is noted
_ROOM = 1 << 16  # containers that are noted; with more, those of few items are left out
_CANDIDATES = 256  # whose new items are sampled
_SAMPLE = 32  # of these
_SHARE = 0.15  # of what the process has more resident: what a container must explain to be named
_SHARE_OF_MANY = 0.3  # the same of many together
_RISE = 256 << 10  # with less nothing can be said
_INSIDE = 64  # items of what an item refers to
_DEPTH = 5
_OBJECTS = 5000  # that are weighed

_basic_size = type.__dict__["__basicsize__"].__get__
_getsizeof = sys.getsizeof
_PLAIN_KINDS = frozenset(map(id, (str, bytes, bytearray, int, float, complex, array)))
_NOT_OWNED = frozenset(map(id, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.FrameType, type(None), bool, _LRU,
                                types.MethodType, *_GENERATORS)))
_BASES = (list, dict, set, collections.deque)
_SLOTS = {list: 8, dict: 80, set: 48, collections.deque: 8}  # bytes of a container for each item, about
_LINK = "_lru_list_elem"  # what the dict of an lru_cache has in place of results


class Grown(NamedTuple):
    """A container that grows; see the event host_container in src/trace/events.def."""
    what: str  # type: "list"
    name: str  # as a program would write it: "samples"
    owner: str  # whose it is: "class TextDataset (data.py:12)"
    filled: str  # the line that fills it, "" if it is not known
    holds: str  # type of its newest items, "" of several
    cure: str
    items: int
    gained: int
    gained_bytes: int


class _Notes(NamedTuple):
    process: int
    pairs: array  # identity, length
    time: float
    resident: int


_notes = None


def look(resident):
    """([Grown], milliseconds since the look before, bytes that the process has more resident since then); `resident`: that it has now."""
    torch = sys.modules.get("torch")
    parts = getattr(torch, "_C", None)
    guard = getattr(parts, "DisableTorchFunctionSubclass", None) or getattr(parts, "DisableTorchFunction", None)
    collects = gc.isenabled()
    gc.disable()
    try:
        if guard is None:
            return _look(None, resident)
        with guard():
            return _look(torch, resident)
    finally:
        forget()
        if collects:
            gc.enable()


def _look(torch, resident):
    global _notes
    process, before, now = os.getpid(), _notes, time.monotonic()
    scan = _Scan(torch, SECONDS)
    try:
        scan.begin()
        pairs = _lengths(scan)
        _notes = _Notes(process, pairs, now, resident)
        if before is None or before.process != process or not pairs:
            return [], 0, 0
        rise = resident - before.resident
        grown = _name(scan, _gains(before.pairs, pairs), rise) if rise >= _RISE and _keeper._frames_are_known() else []
        return grown, int((now - before.time) * 1000), max(rise, 0)
    finally:
        scan.end()


def _walk(scan, least, pairs, room, out=None):
    frames = scan.frames()
    slots = _Arrays.numbers([len(_slot_names(frame.f_code)) for frame in frames])
    left = int((scan.ends - time.thread_time()) * 500)  # half of it: names take some
    return collector.mscope_containers(scan.objects, frames, slots, collections.deque, least, max(left, 1), pairs.buffer_info()[0], room, out)


def _lengths(scan):
    """Identities and lengths of containers, one after the other."""
    pairs, least = array("Q", bytes(16 * _ROOM)), _LEAST
    count = _walk(scan, least, pairs, _ROOM)
    while count < 0 and least < 1 << 24 and not scan.late():
        least *= 4
        count = _walk(scan, least, pairs, _ROOM)
    if count < 0 or scan.ends - time.thread_time() < SECONDS / 2:
        note("which containers grow is known of a part of the program's objects: there are too many to look at all of them within a second")
    return pairs[:2 * max(count, 0)]


def _gains(before, now):
    """[identity, items, how many more than before, ...] of containers that were there before, those that gained most first."""
    out = array("Q", bytes(24 * _CANDIDATES))
    count = collector.mscope_gains(before.buffer_info()[0], len(before) // 2, now.buffer_info()[0], len(now) // 2, out.buffer_info()[0], _CANDIDATES)
    return out[:3 * count]


def _base(value):
    return next(base for base in _BASES if _has_base(type(value), base))


class _Weighing:
    """What objects take, as far as the interpreter's own types, NumPy's arrays and tensors of the CPU say."""

    def __init__(self, scan):
        self.seen = set()
        self.left = _OBJECTS
        self.scan = scan
        numpy = sys.modules.get("numpy")
        array_type = _dict_of_module(numpy).get("ndarray") if type(numpy) is types.ModuleType else None
        self.array = array_type if type(array_type) is type else None

    def weigh(self, value, depth=0):
        kind = type(value)
        if id(value) in self.seen or id(kind) in _NOT_OWNED or _has_base(kind, type) or self.left <= 0:
            return 0
        self.left -= 1
        self.seen.add(id(value))
        if id(kind) in _PLAIN_KINDS:
            return _getsizeof(value)
        if self.array is not None and _has_base(kind, self.array):
            names = _dict_of_type(self.array)
            base = names["base"].__get__(value)
            return names["nbytes"].__get__(value) + 112 if base is None else self.weigh(base, depth)
        if _has_base(kind, self.scan.base):
            return self._tensor(value)
        below = gc.get_referents(value) if depth < _DEPTH else []
        some = below[-_INSIDE:]
        inside = sum(self.weigh(item, depth + 1) for item in some)
        return _basic_size(kind) + 8 * len(below) + (inside * len(below) // len(some) if some else 0)

    def _tensor(self, tensor):
        base, storage = self.scan.base, self.scan.torch.UntypedStorage
        try:
            memory = base.untyped_storage(tensor)
            address = storage.data_ptr(memory)
            if not base.is_cpu.__get__(tensor) or address in self.seen:
                return 0
            self.seen.add(address)
            return storage.nbytes(memory) + 500
        except Exception:  # one without memory of its own
            return 0


def _newest(value, base):
    """Some of the items that came last; keys and values of a dict as pairs."""
    if base is list:
        return list.__getitem__(value, slice(-_SAMPLE, None))
    if base is dict:
        return list(itertools.islice(reversed(dict.items(value)), _SAMPLE))
    if base is collections.deque:
        return list(itertools.islice(collections.deque.__reversed__(value), _SAMPLE))
    return list(itertools.islice(set.__iter__(value), _SAMPLE))


def _weight_of_cached(scan, weighing, value, items):
    """Bytes of each result that an lru_cache has, by its dict, which shows none; those of the cache end with the newest."""
    scan.referrers([id(value)])
    cache = next((found for found in scan.found if type(found) is _LRU), None)
    weighing.seen.add(id(value))
    few = min(_SAMPLE, items)
    return sum(map(weighing.weigh, gc.get_referents(cache)[-3 * few:])) // few if cache is not None else 0


class _Candidate(NamedTuple):
    value: object
    items: int
    gained: int
    gained_bytes: int
    holds: str


def _holds(sample, base):
    """The type of items, "" if there are several."""
    names = {_name_of_type(type(item[1] if base is dict else item)) for item in sample}
    return names.pop() if len(names) == 1 else ""


def _candidate(scan, weighing, value, items, gained):
    base = _base(value)
    try:
        sample = _newest(value, base)
    except RuntimeError:  # another thread changes it
        return None
    holds = _holds(sample, base)
    if holds == _LINK:
        each, holds = _weight_of_cached(scan, weighing, value, items), ""
    else:
        weights = sorted(weighing.weigh(item[0]) + weighing.weigh(item[1]) if base is dict else weighing.weigh(item) for item in sample)
        each = weights[len(weights) // 2] if weights else 0
    return _Candidate(value, items, gained, gained * (each + _SLOTS[base]), holds)


def _name(scan, gains, rise):
    chosen, found = gains[::3], []
    if not chosen or _walk(scan, _LEAST, chosen, len(chosen), found) < 0:
        return []
    values = {id(value): value for value in found}
    weighing, candidates = _Weighing(scan), []
    for identity, items, gained in zip(chosen, gains[1::3], gains[2::3]):
        if identity in values and not scan.late():
            candidate = _candidate(scan, weighing, values[identity], items, gained)
            if candidate is not None:
                candidates.append(candidate)
    del found[:]
    candidates.sort(key=lambda candidate: candidate.gained_bytes, reverse=True)
    best = [candidate for candidate in candidates if candidate.gained_bytes >= _SHARE * rise][:MOST]
    many = len(candidates) if not best and sum(c.gained_bytes for c in candidates) >= _SHARE_OF_MANY * rise else 0
    if many:
        best = candidates[:1]
    values.clear()
    del candidates[:]
    return _named(scan, best, many)


def _named(scan, best, many):
    for number, candidate in enumerate(best):
        scan.add(candidate.value, 1 << number)
    scan.skipped.extend(map(id, (best, *best)))
    roots, _whole = scan.climb([1 << number for number in range(len(best))])
    grown = []
    for number, candidate in enumerate(best):
        root, _most = scan.best(roots, 1 << number)
        if root is not None:
            grown.append(_described(scan, root, candidate, 1 << number, many))
    return grown


def _described(scan, root, candidate, group, many):
    path, _shared = scan.walk(root.child, group)
    pieces = scan.pieces(path, root.kind == "class")
    holder, parts = scan.owner(path, pieces, len(path))
    what, name, owner = _name_of_type(type(holder)), root.name + "".join(pieces[:parts]), root.words
    base = _base(candidate.value)
    is_queue = holder is not candidate.value and _keeper._is_queue(holder)
    at = _own_object(scan, path[:parts + 1])
    if root.kind == "lru_cache":
        what, name = "cache", ""
    elif at is not None:
        kind = type(scan.nodes[path[at]])
        name, owner = "".join(pieces[at:parts]).lstrip("."), f"class {_name_of_type(kind)}{_class_place(kind)}"
    else:
        owner = _keeper.Scanner._root_words(root, name)
    line = ""
    if root.kind in _keeper._WRITTEN and root.kind != "lru_cache":
        line, _value = filled(f"self.{name}" if at is not None else name, _keeper.Scanner._where(root))
    cure = _cure(root.kind, "queue" if is_queue else base.__name__, False)
    if many > 1:
        owner += f", one of {many} that grow"
    return Grown(what, name, owner, line, candidate.holds, cure, candidate.items, candidate.gained, candidate.gained_bytes)


def _own_object(scan, path):
    """Where a path passes the nearest object of a class of the program itself; None: nowhere."""
    for at in range(len(path) - 2, -1, -1):
        value = scan.nodes[path[at]]
        kind = type(value)
        if not any(_has_base(kind, base) for base in _BASES) and not _has_base(kind, type) and is_own(_class_path(kind)):
            return at
    return None


def _class_path(kind):
    """The file that defines a class, "" if it is not known."""
    names = _dict_of_type(kind)
    module = names.get("__module__")
    module = sys.modules.get(module) if type(module) is str else None
    if type(module) is types.ModuleType and type(_dict_of_module(module).get("__file__")) is str:
        return _dict_of_module(module)["__file__"]
    return next((value.__code__.co_filename for value in names.values() if type(value) is types.FunctionType), "")


def _class_place(kind):
    """" (data.py:12)" of a class."""
    path, name = _class_path(kind), _name_of_type(kind)
    line = _dict_of_type(kind).get("__firstlineno__")
    if type(line) is not int:
        line = _line_of_class(path, name)
    return f" ({os.path.basename(path)}:{line})" if line else f" ({os.path.basename(path)})"


def _line_of_class(path, name):
    """The line that defines a class, by the text of its file; 0: there is none, or there are several."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return 0
    lines = [number for number, line in enumerate(text.split("\n"), 1)
             if line.lstrip().startswith("class ") and line.split()[1].partition("(")[0].rstrip(":") == name]
    return lines[0] if len(lines) == 1 else 0
