# SPDX-License-Identifier: Apache-2.0
"""Who keeps the blocks of a call site: from an address of memory to the variable that holds it.

    sites of the engine (addresses)  ->  tensors whose storage lies there
    tensors  ->  objects that refer to them, level by level, until a name is met: a module's global, a local of a running function,
                 a class, a closure, a default argument, a functools cache
    tensors that no Python object refers to  ->  the nodes of autograd's graph that saved them, and the tensors whose graph that is

One scan takes a second at most and no code of the program runs in it: types are compared by identity, attributes are read by
descriptors of the interpreter's own types, keys are shown only if they are plain texts or numbers. Objects that the scan itself makes
are left out of it. The collector does the long walks (src/collector/python/referrers.c).
"""
import collections
import contextvars
import functools
import gc
import os
import re
import sys
import time
import types
from _thread import _local as _LOCAL
from importlib.machinery import SourceFileLoader
from typing import NamedTuple

from . import _renewed
from ._filled import added, filled, forget, function_lines, is_library, is_own
from ._native import collector, ctypes

SECONDS = 1.0  # of CPU time that a scan may take, but for the walk over all objects that is in progress
_LEVELS = 32
_IDS = 4096  # that one walk looks for
_EDGES = 1 << 15
_TENSORS = 1 << 18  # that are looked at
_NODES = 20000  # of graphs that are looked at
_ENOUGH = 0.9  # share of a site's tensors: an object that holds at least this many keeps the site
_PARTS = 24  # of a path

_PACKAGE = os.path.dirname(__file__) + os.sep
_name_of_type = type.__dict__["__name__"].__get__
_dict_of_type = type.__dict__["__dict__"].__get__
_mro_of_type = type.__dict__["__mro__"].__get__
_dict_of_module = types.ModuleType.__dict__["__dict__"].__get__
_LRU = type(functools.lru_cache(len))
_CELL = types.CellType if hasattr(types, "CellType") else type((lambda x: lambda: x)(0).__closure__[0])
_GENERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
_FRAMES_OF = {kind: kind.__dict__[name] for kind, name in zip(_GENERATORS, ("gi_frame", "cr_frame", "ag_frame"))}
_PARTIAL_FUNC = functools.partial.__dict__["func"].__get__
_METHOD_FUNC = types.MethodType.__dict__["__func__"].__get__
_PLAIN = (str, int, float, bool, bytes, type(None))
_LIMITS = ("maxsize", "_maxsize")  # of queues
_ITERATORS = (enumerate, zip, map, filter)  # which keep what they gave last
_QUEUES = {"queue": ".queue", "asyncio.queues": "._queue", "multiprocessing.queues": "._buffer"}  # module: where its classes have their items
# Where torch.nn.Module has what a program writes as attributes, or as items of a Sequential.
_OF_MODULES = ("._modules", "._parameters", "._buffers")
_PART = re.compile(r"\._(?:modules|parameters|buffers)\['([^']*)'\]")
_ONE = 2  # blocks of a call site at most, of which each may be the current value of one variable
_LINKED = 100000  # nodes of a linked list that are counted
_SEVERAL = 3  # blocks, at least, in each of several containers that grow
# Kinds of roots whose containers a program fills by a name that its text has.
_WRITTEN = ("global", "local", "class", "closure", "default")
# What the interpreter keeps of an error that nobody caught: it came after what kept the tensors.
_LAST = ("last_value", "last_traceback", "last_exc")


class Answer(NamedTuple):
    """What is said about one site; see the event keeper in src/trace/events.def."""
    address: int  # of the newest block that it was found for
    kind: str
    what: str  # type of what keeps: "list"
    name: str  # as a program would write it: "trainer.losses"
    root: str  # where the name begins: "global of train.py"
    items: int  # that the container has; 0: it is none
    held: int  # blocks of the site that it was found for
    looked: int  # that were looked for
    holds: str  # what each item is: "grad_fn -> AddmmBackward0"
    path: str  # from the root to one block
    cure: str
    full: bool = False  # the container has as many items as it may, and drops an old one for each new one
    most: int = 0  # items that the container may have; 0: no limit is known
    renewed: bool = False  # a variable, and no value of it is made from its old one


class _Root(NamedTuple):
    kind: str
    name: str  # "" if the path begins with the object itself
    words: str
    child: int  # node that it refers to
    order: int  # which of several is said
    code: object = None  # of the function that has the name
    weak: bool = False  # a library's function, which is an object like others: any variable that leads to it is better
    has_attributes: bool = False  # the node is the dict of what the name names


def _has_base(kind, base):
    bases = base if type(base) is tuple else (base,)
    return any(c is base for c in _mro_of_type(kind) for base in bases)


def _type_name(value):
    return _name_of_type(type(value))


def _file(path):
    return os.path.basename(path) if type(path) is str and path else ""


def _module_file(names):
    """The file of a module by its globals. The interpreter takes __file__ away when a script has ended."""
    path = names.get("__file__")
    if path is None and type(names.get("__loader__")) is SourceFileLoader:
        path = names["__loader__"].path
    return _file(path)


def _function_name(code):
    return code.co_name if code.co_name.startswith("<") else f"{code.co_name}()"


def _code_words(code):
    return f"{_function_name(code)} in {_file(code.co_filename)}"


def _defined_words(code):
    """Of a function that keeps something without being called: a person looks for its first line."""
    return f"{_function_name(code)} defined at {_file(code.co_filename)}:{code.co_firstlineno}"


def _code_of(value):
    """The code that a call of an object runs, without asking the object; None: it is not known."""
    if type(value) is functools.partial:
        value = _PARTIAL_FUNC(value)
    if type(value) is types.MethodType:
        value = _METHOD_FUNC(value)
    if type(value) is not types.FunctionType:
        value = next((names["__call__"] for names in map(_dict_of_type, _mro_of_type(type(value))) if "__call__" in names), None)
    return value.__code__ if type(value) is types.FunctionType else None


def _slot_names(code):
    cells = code.co_cellvars
    if sys.version_info >= (3, 11):
        cells = tuple(name for name in cells if name not in code.co_varnames)
    return code.co_varnames + cells + code.co_freevars


def _instance_dict(value):
    """The attributes of an object as a dict, without asking the object; None: it has none."""
    for kind in _mro_of_type(type(value)):
        found = _dict_of_type(kind).get("__dict__")
        if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType):  # the latter of types.SimpleNamespace
            attributes = found.__get__(value)
            return attributes if type(attributes) is dict else None
    return None


def _key(mapping, value):
    """The key of a value as text, "" if it is not plain; None: it is not there."""
    for key, found in dict.items(mapping):
        if found is value:
            return repr(key)[:60] if type(key) in _PLAIN else ""
    return None


def _attribute(value, child):
    """The name of the attribute of an object that is another one."""
    for kind in _mro_of_type(type(value)):
        for name, found in _dict_of_type(kind).items():
            if type(found) is types.MemberDescriptorType and type(name) is str:
                try:
                    if found.__get__(value) is child:
                        return name
                except AttributeError:  # a slot that is empty
                    pass
    attributes = _instance_dict(value)
    for name, found in dict.items(attributes) if attributes is not None else ():
        if found is child and type(name) is str:
            return name
    return None


def _limit(value, holder):
    """Items that a container may have; 0: there is no limit."""
    most = None
    if _is_queue(holder):
        attributes = _instance_dict(holder) or {}
        most = next((attributes[name] for name in _LIMITS if name in attributes), 0)
    elif _has_base(type(value), collections.deque):
        most = collections.deque.maxlen.__get__(value)
    elif type(value) is _LRU:
        most = _LRU.cache_info(value).maxsize
    return most if type(most) is int and most > 0 else 0


def _step(value, text):
    """What an object has as "[1]" or ".older"; None: it has none."""
    if text.startswith("["):
        index, kind = text[1:-1], tuple if _has_base(type(value), tuple) else list
        return kind.__getitem__(value, int(index)) if index.isdigit() and _has_base(type(value), kind) and int(index) < kind.__len__(value) else None
    for kind in _mro_of_type(type(value)):
        found = _dict_of_type(kind).get(text[1:])
        if type(found) is types.MemberDescriptorType:
            try:
                return found.__get__(value)
            except AttributeError:  # a slot that is empty
                return None
    return (_instance_dict(value) or {}).get(text[1:])


class _Arrays:
    """What the collector is given and fills in."""

    def __init__(self):
        self.edges = (ctypes.c_uint32 * (2 * _EDGES))()

    @staticmethod
    def numbers(values):
        return (ctypes.c_uint64 * max(1, len(values)))(*values)


class _NoTensor:
    """What tensors are in a process without PyTorch."""


class _Scan:
    """One scan. `nodes` are the objects that were met; all else is their ordinals in it."""

    def __init__(self, torch, seconds):
        self.torch = torch
        self.base = _NoTensor if torch is None else getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self.ends = time.thread_time() + seconds
        self.out_of_time = False
        self.nodes = []
        self.ordinals = {}  # id -> ordinal
        self.down = []  # ordinals that a node refers to
        self.up = []  # ordinals of nodes that refer to a node
        self.masks = []  # which targets a node leads to, a bit each
        self.tensors = []
        self.found = []  # what a walk has found
        self.objects = None
        self.arrays = _Arrays()
        self.skipped = []
        self.globals = {}  # id of a module's dict -> file or name
        self.paths = set()  # files of modules that sys.modules does not have, as of a script that runpy has run
        self.own = set()  # ids of dicts of our own modules

    # ---- the heap ----

    def begin(self, objects=None):
        """`objects`: of a scan before this one. Since 3.12 the collector lists them itself, and none are kept."""
        self.objects = gc.get_objects() if objects is None and sys.version_info < (3, 12) else objects
        for name, module in list(dict.items(sys.modules)):
            if _has_base(type(module), types.ModuleType):
                names = _dict_of_module(module)
                self.globals.setdefault(id(names), _module_file(names) or str(name))
                if str(name).partition(".")[0] == __package__:
                    self.own.add(id(names))
        skipped = [id(self), id(self.__dict__), id(self.nodes), id(self.tensors), id(self.found), id(self.objects)]
        self.skipped = skipped + list(self.own)

    def end(self):
        """Lets go of everything: the objects that were met have this scan among them."""
        for held in (self.nodes, self.tensors, self.found, self.down, self.up):
            del held[:]
        self.objects = None

    def late(self):
        if not self.out_of_time and time.thread_time() > self.ends:
            self.out_of_time = True
        return self.out_of_time

    def referrers(self, ids):
        """Puts objects that refer to one of `ids` into `found`; [(ordinal in found, index of the id)]."""
        del self.found[:]
        count = collector.mscope_referrers(self.objects, _Arrays.numbers(ids), len(ids), _Arrays.numbers(self.skipped),
                                           len(self.skipped), self.found, self.arrays.edges, _EDGES)
        edges = self.arrays.edges
        return [(edges[2 * i], edges[2 * i + 1]) for i in range(max(0, count))]

    def frames(self):
        """The frames of all threads but those of our own code."""
        seen = []
        for frame in sys._current_frames().values():
            while frame is not None:
                if not frame.f_code.co_filename.startswith(_PACKAGE):
                    seen.append(frame)
                frame = frame.f_back
        return seen

    def slots(self, frame, ids):
        """[(name of a variable, index of the id)] of a frame."""
        names = _slot_names(frame.f_code)
        out = (ctypes.c_uint32 * 256)()
        count = collector.mscope_frame_slots(frame, len(names), _Arrays.numbers(ids), len(ids), out, 128)
        return [(names[out[2 * i]], out[2 * i + 1]) for i in range(max(0, count))]

    # ---- tensors ----

    def find_tensors(self, wanted):
        """{address: [ordinals in tensors]} of the addresses that are wanted."""
        collector.mscope_instances(self.objects, self.base, self.tensors, _TENSORS)
        storage_of, memory_of = self.base.untyped_storage, self.torch.UntypedStorage.data_ptr
        at = {}
        for number, tensor in enumerate(self.tensors):
            if number % 1024 == 1023 and self.late():
                break
            try:
                address = memory_of(storage_of(tensor))
            except Exception:  # one without memory of its own
                continue
            if address in wanted and len(at.setdefault(address, [])) < 4:
                at[address].append(number)
        self.find_storages(wanted, at)
        return at

    def find_storages(self, wanted, at):
        """The same for storages that a program keeps without their tensor. They come after the tensors."""
        storages, memory_of = [], self.torch.UntypedStorage.data_ptr
        collector.mscope_instances(self.objects, self.torch.UntypedStorage, storages, _TENSORS)
        for storage in storages:
            try:
                address = memory_of(storage)
            except Exception:
                continue
            if address in wanted and len(at.setdefault(address, [])) < 4:
                at[address].append(len(self.tensors))
                self.tensors.append(storage)
        del storages[:]

    def grad_fn(self, tensor):
        return self.base.grad_fn.__get__(tensor) if _has_base(type(tensor), self.base) else None

    def arrays_over(self, tensors):
        """[(what refers, tensor or array that it refers to)] of NumPy's arrays over the memory of tensors, and whether all were seen.

        An array refers to its tensor without telling the garbage collector, so the references of all objects are looked through for them.
        A dict or tuple that has nothing but such objects is not known to it either.
        """
        numpy = sys.modules.get("numpy")
        kind = _dict_of_module(numpy).get("ndarray") if _has_base(type(numpy), types.ModuleType) else None
        if type(kind) is not type or not tensors:
            return [], True
        base_of = _dict_of_type(kind)["base"].__get__
        wanted = {id(tensor): tensor for tensor in tensors}
        objects = gc.get_objects() if self.objects is None else self.objects
        kinds = {kind, dict, tuple}
        ends = time.thread_time() + (self.ends - time.thread_time()) / 2  # the graphs come after it
        found, seen = [], set()
        for start in range(0, len(objects), 4096):
            if time.thread_time() > ends:
                return found, False
            todo = [(None, value) for value in gc.get_referents(*objects[start:start + 4096]) if type(value) in kinds and not gc.is_tracked(value)]
            while todo:
                holder, value = todo.pop()
                if type(value) is kind:
                    base = base_of(value)
                    while type(base) is kind:
                        base = base_of(base)
                    if id(base) in wanted:
                        found.append((value, wanted[id(base)]))
                        if holder is not None:
                            found.append((holder, value))
                elif id(value) not in seen:
                    seen.add(id(value))
                    todo += [(value, below) for below in gc.get_referents(value) if type(below) in kinds and not gc.is_tracked(below)]
        return found, True

    # ---- levels ----

    def add(self, value, mask):
        ordinal = self.ordinals.get(id(value))
        if ordinal is None:
            ordinal = self.ordinals[id(value)] = len(self.nodes)
            self.nodes.append(value)
            self.down.append([])
            self.up.append([])
            self.masks.append(0)
        if mask & ~self.masks[ordinal]:
            self.masks[ordinal] |= mask
            self._spread(ordinal)
        return ordinal

    def _spread(self, ordinal):
        """What a node leads to, all nodes that are known to refer to it lead to."""
        todo = [ordinal]
        while todo:
            child = todo.pop()
            for parent in self.up[child]:
                if self.masks[child] & ~self.masks[parent]:
                    self.masks[parent] |= self.masks[child]
                    todo.append(parent)

    def roots_of(self, ordinal, child):
        """The root that a node is, for what it refers to; None: what refers to it is to be found."""
        node = self.nodes[ordinal]
        kind = type(node)
        if kind is dict:
            file = self.module_of(node)
            if file is None:
                return None
            name = _key(node, self.nodes[child])
            name = name[1:-1] if name else "?"
            if file == "sys" and name in _LAST:
                return ()
            return _Root("global", name, f"global of {file}", child, 0)
        if kind is _LRU:
            wrapped = (_instance_dict(node) or {}).get("__wrapped__")
            code = wrapped.__code__ if type(wrapped) is types.FunctionType else None
            words = _defined_words(code) if code is not None else _type_name(wrapped)
            return _Root("lru_cache", "", f"functools.lru_cache of {words}", ordinal, 0)
        if kind is types.FunctionType:
            return self.function_root(node, child)
        if kind in _GENERATORS:  # one that waits; where it runs, its frame is met
            frame = _FRAMES_OF[kind].__get__(node)
            for name, _index in self.slots(frame, [id(self.nodes[child])]) if frame is not None else ():
                return _Root("local", name, f"local of {_code_words(frame.f_code)}", child, -1, frame.f_code)  # nearer than the generator
            return None
        if kind is contextvars.Context:
            return self.variable_of(node, child)
        if _has_base(kind, type):
            module = _dict_of_type(node).get("__module__")
            names = _dict_of_module(sys.modules[module]) if type(module) is str and module in sys.modules else {}
            file = _module_file(names) or str(module)
            return _Root("class", _name_of_type(node), f"class attribute of {_name_of_type(node)} in {file}", child, 2, has_attributes=True)
        return None

    def module_of(self, names):
        """The file or name of the module that has a dict as its globals; None: it is another dict."""
        if id(names) not in self.globals and "__builtins__" in names and "__name__" in names:
            self.paths.add(str(names.get("__file__")))
            return _module_file(names) or str(names.get("__name__"))
        return self.globals.get(id(names))

    def variable_of(self, context, child):
        """The context variable by which a context leads to `child`, a node of the tree of its values."""
        for variable, value in contextvars.Context.items(context):
            ordinal = self.ordinals.get(id(value))
            if ordinal is not None and self.masks[ordinal] & self.masks[child]:
                return _Root("context", contextvars.ContextVar.name.__get__(variable), "context variable", ordinal, 0)
        return None

    def function_root(self, node, child):
        value = self.nodes[child]
        code = node.__code__
        weak = is_library(code.co_filename)
        if value is node.__closure__:
            for index, cell in enumerate(node.__closure__):
                if id(cell) in self.ordinals and self.ordinals[id(cell)] in self.down[child]:
                    return _Root("closure", code.co_freevars[index], f"closure of {_defined_words(code)}",
                                 self.ordinals[id(cell)], 3, code, weak)
        if value is node.__defaults__:
            first = code.co_argcount - len(node.__defaults__)
            for index, default in enumerate(node.__defaults__):
                if id(default) in self.ordinals and self.ordinals[id(default)] in self.down[child]:
                    return _Root("default", code.co_varnames[first + index], f"default argument of {_defined_words(code)}",
                                 self.ordinals[id(default)], 3, code, weak)
        if value is node.__kwdefaults__:
            for name, default in dict.items(node.__kwdefaults__):
                if id(default) in self.ordinals and self.ordinals[id(default)] in self.down[child]:
                    return _Root("default", name, f"default argument of {_defined_words(code)}", self.ordinals[id(default)], 3, code, weak)
        if value is node.__dict__:
            return _Root("global", code.co_name, f"attribute of the function {_defined_words(code)}", child, 3, code, weak, True)
        return None

    def climb(self, groups):
        """Follows references backwards from the targets of each group, masks of bits; [roots] of each, and whether all was seen."""
        roots = []
        frontier = [o for o in range(len(self.nodes)) if self.masks[o]]
        whole, all_arrays = False, True
        for _level in range(_LEVELS):
            if not frontier or self.late():
                break
            whole = len(frontier) <= _IDS
            frontier = frontier[:_IDS]
            ids = [id(self.nodes[o]) for o in frontier]
            level_roots = []
            for frame in self.frames():
                for name, index in self.slots(frame, ids):
                    order = 1 if is_own(frame.f_code.co_filename) else 4  # the optimizer's own step() calls it `self`
                    level_roots.append(_Root("local", name, f"local of {_code_words(frame.f_code)}", frontier[index], order, frame.f_code))
            edges = self.referrers(ids)
            known = len(self.nodes)
            upper = []
            above = [(self.found[found], frontier[index]) for found, index in edges]
            if _level == 0:
                pairs, all_arrays = self.arrays_of(frontier, above, level_roots)
                above += pairs
            for value, child in above:
                ordinal = self.add(value, self.masks[child])
                if child not in self.down[ordinal]:
                    self.down[ordinal].append(child)
                    self.up[child].append(ordinal)
                    upper.append((ordinal, child))
            following = {}
            for ordinal, child in upper:
                root = self.roots_of(ordinal, child)
                if root:
                    level_roots.append(root)
                if (root is None or (root and self.of_many(ordinal))) and ordinal >= known:
                    following[ordinal] = None
            roots.append(level_roots)
            left = 0
            for group in groups:
                most = max((_count(self.masks[r.child] & group) for level in roots for r in level if not r.weak), default=0)
                if most < _ENOUGH * _count(group):
                    left |= group
            if not left:
                break
            frontier = [o for o in following if self.masks[o] & left]
        return roots, whole and all_arrays and not frontier and not self.out_of_time

    def of_many(self, ordinal):
        """Of many functions, generators, contexts or classes, each with one tensor, what holds them all is the answer."""
        kind = type(self.nodes[ordinal])
        return kind is types.FunctionType or kind in _GENERATORS or kind is contextvars.Context or _has_base(kind, type)

    def arrays_of(self, frontier, above, roots):
        """Arrays over tensors of the CPU that nothing else was found to refer to, as pairs of what refers and what it refers to."""
        held = {child for _value, child in above} | {root.child for root in roots}
        bare = [o for o in frontier if o not in held and _has_base(type(self.nodes[o]), self.base) and self.base.is_cpu.__get__(self.nodes[o])]
        found, whole = self.arrays_over([self.nodes[o] for o in bare])
        mask = {id(self.nodes[o]): self.masks[o] for o in bare}
        pairs = []
        for value, child in found:
            mask[id(value)] = mask.get(id(value), 0) | mask[id(child)]
            pairs.append((value, self.add(child, mask[id(child)])))
        return pairs, whole

    # ---- names ----

    def best(self, roots, group):
        """The root that leads to most of a group, the nearest of those that are as good; (root, how many). None: it leads to too few."""
        for weak in (False, True):
            levels = [(_count(self.masks[r.child] & group), number, r) for number, level in enumerate(roots) for r in level if r.weak == weak]
            most = max((count for count, _number, _root in levels), default=0)
            if most >= max(1, _count(group) / 3):
                good = [(number, root.order, root) for count, number, root in levels if count >= _ENOUGH * most]
                return min(good, key=lambda entry: entry[:2])[2], most
        return None, 0

    def walk(self, ordinal, group):
        """Ordinals from a root down to one target, the newest, and how many of them lead to all that the first leads to."""
        path, shared = [ordinal], 1
        most = _count(self.masks[ordinal] & group)
        while len(path) < _PARTS:
            below = [c for c in self.down[path[-1]] if c not in path and self.masks[c] & group]
            if not below:
                break
            best = max(below, key=lambda c: _count(self.masks[c] & group))
            if len(path) == shared and _count(self.masks[best] & group) >= _ENOUGH * most and most > 1:
                shared += 1
            else:
                best = max(below, key=lambda c: self.masks[c] & group)
            path.append(best)
        return path, shared

    def piece(self, parent, child, attribute):
        """How a program would write the step from an object to another, and whether the next step is an attribute; None: the one after it."""
        value, below = self.nodes[parent], self.nodes[child]
        kind = type(value)
        try:
            if _has_base(kind, dict):
                key = _key(value, below)
                if attribute is None:
                    return "", True
                if key is not None:
                    return (f".{key[1:-1]}" if attribute and key else f"[{key or '...'}]"), False
            for base in (list, tuple, collections.deque):
                if _has_base(kind, base):
                    for index, item in enumerate(base.__iter__(value)):
                        if item is below:
                            return f"[{index}]", False
            if kind is types.FrameType:
                for name, _index in self.slots(value, [id(below)]):
                    return f".{name}", False
            if _has_base(kind, _LOCAL):  # it has the attributes of each thread in a dict of their own
                return "", None
            if kind in (_CELL, types.MethodType, types.TracebackType) or kind in _GENERATORS:
                return "", False
            if below is _instance_dict(value):
                return "", True
            if _has_base(kind, self.base) and below is self.base._backward_hooks.__get__(value):
                return "._backward_hooks", False
            name = _attribute(value, below)
            return (f".{name}" if name else ""), False
        except RuntimeError:  # another thread changes it
            return "[...]", False

    def innermost(self, path, pieces, root):
        """Parts of the path of one block down to the container that has it, else down to the tensor itself."""
        for at in range(len(path) - 2, -1, -1):
            node = self.nodes[path[at]]
            if self.length(node) and not (root.has_attributes and at == 0) and (at == 0 or pieces[at - 1] not in _OF_MODULES and
                                                                              node is not _instance_dict(self.nodes[path[at - 1]])):
                return at + 1
        return len(path)

    def linked(self, path, pieces, shared):
        """(where in the path a linked list starts, how its next node is written, how many it has); None: there is none that leads to all."""
        for at in range(shared):
            for size in (1, 2):
                text = "".join(pieces[at:at + size])
                node = self.nodes[path[at]]
                if not text or pieces[at:at + size] != pieces[at + size:at + 2 * size] or \
                        any(type(self.nodes[path[at + n * size]]) is not type(node) for n in (1, 2)) or type(_step(node, text)) is not type(node):
                    continue
                count, kind, seen = 0, type(node), set()
                while type(node) is kind and (not text.startswith("[") or self.length(node)) and id(node) not in seen and count < _LINKED and not self.late():
                    seen.add(id(node))
                    count, node = count + 1, _step(node, text)
                return at, text, count
        return None

    def variables(self, targets):
        """[((where, name), whether it is a container that has them)] of all that refers to objects, as _renewed.py names them; None: not all
        that does is known to be a variable of the program."""
        found, frames = [], self.frames()
        values, children, parents = list(targets), [], []
        skipped = self.skipped
        self.skipped = [*skipped, *map(id, (targets, values, children, parents))]
        try:
            for level in range(3):
                ids = [id(value) for value in values]
                for frame in frames:
                    found += [((frame.f_code, name), level > 0) for name, _index in self.slots(frame, ids)]
                edges = self.referrers(ids)
                children[:] = [values[index] for _number, index in edges]
                parents[:] = [self.found[number] for number, _index in edges]
                del values[:]
                for child, parent in zip(children, parents):
                    names = self.names_in(parent, child, frames)
                    if names is None and _has_base(type(parent), (dict, list, tuple, collections.deque)):
                        values.append(parent)
                    elif names is None:
                        return None
                    found += [(name, level > 0) for name in names or ()]
                if not values or self.late():
                    break
            return None if values else found
        finally:
            self.skipped = skipped

    def names_in(self, parent, child, frames):
        """[(where, name)] by which an object refers to another one, as in variables(); None: by none."""
        kind = type(parent)
        if kind in _ITERATORS or kind is types.FrameType and any(parent is frame for frame in frames):
            return []
        if kind in _GENERATORS:
            frame = _FRAMES_OF[kind].__get__(parent)
            return [(frame.f_code, name) for name, _index in self.slots(frame, [id(child)])] if frame is not None else []
        if kind is dict:
            where = self.module_of(parent)
            return [(where, (_key(parent, child) or "")[1:-1])] if where is not None or self.is_of_object(parent) else None
        name = None if _has_base(kind, (dict, list, tuple, collections.deque)) else _attribute(parent, child)
        return [(None, name)] if name is not None else None

    def is_of_object(self, mapping):
        """Whether a dict has the attributes of an object, or the buffers or parameters of a module."""
        self.referrers([id(mapping)])
        return any(_instance_dict(value) is mapping or type(value) is dict and any(value.get(name[1:]) is mapping for name in _OF_MODULES)
                   or _is_module(value) and any((_instance_dict(value) or {}).get(name[1:]) is mapping for name in _OF_MODULES)
                   for value in list(self.found))

    def pieces(self, path, attribute):
        out, attribute = [], attribute
        for parent, child in zip(path, path[1:]):
            text, attribute = self.piece(parent, child, attribute)
            out.append(text)
        for at, function in enumerate(self.nodes[o] for o in path[:-2]):  # a variable of a closure by its name
            if type(function) is types.FunctionType and self.nodes[path[at + 1]] is function.__closure__:
                index = [id(cell) for cell in function.__closure__].index(id(self.nodes[path[at + 2]]))
                out[at:at + 2] = [f".{function.__code__.co_freevars[index]}", ""]
        return out

    def length(self, value):
        """Items of a container; 0: it is none."""
        for base in (list, dict, tuple, set, frozenset, collections.deque):
            if _has_base(type(value), base):
                return base.__len__(value)
        return _LRU.cache_info(value).currsize if type(value) is _LRU else 0

    def owner(self, path, pieces, shared):
        """What a program calls the keeper, and how many parts of the path its name has: for the dict of an object the object, for the
        deque of a queue the queue, for a dict of parameters the module."""
        if shared == len(path) and _has_base(type(self.nodes[path[-1]]), self.base):  # the tensor itself
            return self.nodes[path[-1]], shared - 1
        for at in range(shared - 1):
            whole = _PART.sub("", "".join(pieces[at:])) == "" or at == max(0, shared - 3) and pieces[shared - 2] in _OF_MODULES
            if whole and _is_module(self.nodes[path[at]]):
                return self.nodes[path[at]], at
        if shared >= 2 and pieces[shared - 2] in _OF_MODULES and _is_module(self.nodes[path[shared - 2]]):
            return self.nodes[path[shared - 2]], shared - 2
        holder = self.nodes[path[shared - 1]]
        for at in range(max(0, shared - 3), shared - 1):
            above = self.nodes[path[at]]
            if "".join(pieces[at:shared - 1]) in {_QUEUES.get(_dict_of_type(kind).get("__module__"), "-") for kind in _mro_of_type(type(above))}:
                return above, at
        if type(holder) is dict and shared >= 2:
            above = self.nodes[path[shared - 2]]
            if type(above) is not dict and _instance_dict(above) is holder:
                return above, shared - 1
        return holder, shared - 1

    def one_of_several(self, path, pieces, shared, group):
        """Where several containers below what leads to all blocks have many of them each: one past that of the path, and how many there are."""
        for at in range(shared, len(path) - 1):
            node, count = self.nodes[path[at]], _count(self.masks[path[at]] & group)
            several = -(-_count(group) // count)
            if (count >= _SEVERAL and several < count and type(node) is not tuple and self.length(node) and pieces[at - 1] not in _OF_MODULES and
                    node is not _instance_dict(self.nodes[path[at - 1]])):
                return at + 1, several
        return shared, 1

    def several_globals(self, roots, group):
        """{name: root} of the module whose globals lead to most of a group one by one, and how many they lead to."""
        modules = {}
        for root in (root for level in roots for root in level
                     if root.words.startswith("global of ") and self.masks[root.child] & group):
            modules.setdefault(root.words, {})[root.name] = root
        counts = {words: _count(functools.reduce(int.__or__, (self.masks[r.child] & group for r in found.values())))
                  for words, found in modules.items()}
        words = max(counts, key=lambda words: counts[words], default=None)
        return modules.get(words, {}), counts.get(words, 0)

    def special(self, path, pieces):
        """A kind that a path is of because of what it passes, or ""."""
        optimizer = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
        for ordinal, text in zip(path, pieces):
            kind = type(self.nodes[ordinal])
            if kind is types.TracebackType:
                return "exception"
            if text.startswith("._") and text.endswith("_hooks"):
                return "hook"
            if optimizer is not None and _has_base(kind, optimizer):
                return "optimizer"
        return ""


def _holder_words(value):
    """The type of what holds a tensor; of a function or partial, the function."""
    code = _code_of(value) if type(value) in (types.FunctionType, functools.partial) else None
    return _type_name(value) if code is None else f"{'partial of ' if type(value) is functools.partial else ''}{_defined_words(code)}"


def _reached(start, edges):
    """Ordinals that edges lead to from one, with it."""
    seen, todo = {start}, [start]
    while todo:
        for ordinal in edges[todo.pop()]:
            if ordinal not in seen:
                seen.add(ordinal)
                todo.append(ordinal)
    return seen


_PLAIN_KIND = 3


def _telling(value):
    """How much the type of an object says to a person, the least first: classes of the program, modules of a network, other classes."""
    kind = type(value)
    if kind in (dict, list, tuple, set, _CELL, types.FunctionType, types.MethodType) or _has_base(kind, type):
        return _PLAIN_KIND if kind is not dict else _PLAIN_KIND + 1
    module = _dict_of_type(kind).get("__module__")
    loaded = sys.modules.get(module) if type(module) is str else None
    path = _dict_of_module(loaded).get("__file__") if _has_base(type(loaded), types.ModuleType) else None
    if module == "__main__" or is_own(path):
        return 0
    return 1 if _is_module(value) else 2


def _is_part_of_function(value):
    return type(value) in (dict, tuple, _CELL, types.FunctionType, types.MethodType, functools.partial)


def _count(mask):
    return bin(mask).count("1")


_CONTAINERS = ("list", "dict", "deque", "set", "tuple", "OrderedDict", "defaultdict")
_CURES = {
    "lru_cache": "give lru_cache a smaller maxsize, or call its cache_clear()",
    "hook": "remove the hook (handle.remove()) or let it keep detached tensors of the latest step only",
    "exception": "do not keep the exception, or set its __traceback__ to None",
    "optimizer": "make a new optimizer for the new parameters, or remove the old ones from its param_groups and its state: both hold them",
    "graph": "detach() what is carried into the next step, so that the graph of earlier steps can go",
    "cycle": "break the cycle (a weak reference), or call gc.collect()",
    "finalize": "pass it no tensor, or let the object that it watches be freed",
    "cpp": "",
}


_CYCLE_CURE = "use torch.autograd.grad(), or set .grad to None after backward(create_graph=True)"


def _cure(kind, what, grad, scalar=False, in_graph=False, value=""):
    """`value`: the variable that is put into the container, "" if it is not known."""
    if kind in _CURES:
        return _CURES[kind]
    if what == "queue":
        return "give the queue a maxsize, or take its items sooner"
    container = what in _CONTAINERS
    word = what if container else "object"
    does = "append" if what in ("list", "deque") else "keep"
    if grad and scalar:
        forms = f"{value}.item() or {value}.detach()" if value else ".item() or .detach() of each"
        return f"{does} {forms}, or clear the {word}"
    if grad and in_graph:
        return f"{does} {f'{value}.detach()' if value else '.detach() of each'}, or clear the {word}"
    if grad:
        clear = f"remove items from the {word}" if container else "delete it"
        return f"{clear} when no longer needed; .detach() frees the graph alone, not the tensor"
    return f"remove items from the {word} when they are no longer needed" if container else "delete it when it is no longer needed"


def _linked_cure(text):
    if text.startswith("["):
        return f"keep as many as are needed: each of them holds the one before it, as its item {text}"
    return f"set {text} of an older node to None when those before it are no longer needed"


def _cure_of_items(what, item, in_graph, on_cpu):
    """Of a container of objects that have no detach(); "" if nothing special is to be said of them."""
    if _is_module(item):
        return f"remove the models from the {what}, or keep only their state_dict(){'' if on_cpu else ' on the CPU'}"
    if in_graph and _telling(item) < _PLAIN_KIND:
        return f"remove items from the {what}, or let each {_type_name(item)} keep .detach() of its tensors"
    return ""


def _as_written(name):
    """Parts of a module by the names that a program writes."""
    return _PART.sub(lambda match: f"[{match[1]}]" if match[1].isdigit() else f".{match[1]}", name)


def _newest(addresses, held):
    return addresses.get(max((bit for bit in addresses if bit & held), default=0), 0)


def _is_queue(value):
    return any(_dict_of_type(kind).get("__module__") in _QUEUES for kind in _mro_of_type(type(value)))


def _is_module(value):
    module = getattr(sys.modules.get("torch.nn.modules.module"), "Module", None)
    return module is not None and _has_base(type(value), module)


class _Site(NamedTuple):
    addresses: tuple
    blocks: int  # that live


class Scanner:
    """Answers for the sites of one question."""

    def __init__(self, torch, sites, seconds):
        self.scan = _Scan(torch, seconds)
        self.sites = sites

    def run(self):
        """[Answer or None] of the sites."""
        guard = getattr(self.scan.torch._C, "DisableTorchFunctionSubclass", None) or self.scan.torch._C.DisableTorchFunction
        collects = gc.isenabled()
        gc.disable()
        try:
            with guard():
                self.scan.begin()
                return self._answers()
        finally:
            self.scan.end()
            if collects:
                gc.enable()

    def _answers(self):
        scan = self.scan
        wanted = {address for site in self.sites for address in site.addresses}
        at = scan.find_tensors(wanted)
        groups, bits, addresses, bit = [], {}, {}, 1
        for site in self.sites:
            group = 0
            for address in site.addresses:
                for number in at.get(address, ()):
                    scan.add(scan.tensors[number], bit)
                    bits[bit] = number
                if address in at:
                    addresses[bit] = address
                    group |= bit
                    bit <<= 1
            groups.append(group)
        roots, whole = scan.climb([group for group in groups if group])
        answers = []
        for site, group in zip(self.sites, groups):
            answer = self._direct(site, group, addresses, roots, whole) if group else None
            answers.append(answer)
        self._graphs(answers, groups, addresses, at)
        self._gradients(answers, groups, at)
        for index, (site, group) in enumerate(zip(self.sites, groups)):
            if answers[index] is None:
                answers[index] = self._nothing(site, group, addresses, whole)
        return answers

    def _direct(self, site, group, addresses, roots, whole, in_graph=False):
        """`in_graph`: the blocks are what graphs of the tensors that are looked for have saved."""
        scan = self.scan
        root, most = scan.best(roots, group)
        apart, count = scan.several_globals(roots, group)
        if count >= max(2 * most, 2) and 2 * count >= _count(group):
            return self._globals(apart, group, addresses, len(site.addresses))
        if root is None:
            return None
        rest = group & ~functools.reduce(int.__or__, (scan.masks[r.child] for level in roots for r in level if not r.weak), 0)
        cycle = self._cycle(site, rest, addresses) if whole and (root.weak or _count(rest) > most) else None
        if cycle is not None:
            return cycle
        path, shared = scan.walk(root.child, group)
        pieces = scan.pieces(path, root.has_attributes)
        if _count(group & scan.masks[root.child]) == 1:
            shared = scan.innermost(path, pieces, root)
        linked = scan.linked(path, pieces, shared)
        if linked is not None:
            shared = linked[0] + 1
        shared, several = scan.one_of_several(path, pieces, shared, group & scan.masks[root.child]) if linked is None else (shared, 1)
        holder, named = scan.owner(path, pieces, shared)
        held = group & scan.masks[root.child]
        name, whole_name = root.name + "".join(pieces[:named]), root.name + "".join(pieces) or root.words
        if root.weak:  # by the object that the function belongs to; no whole name, so that a variable that was found before stays
            whole_name, first = "", next((n for n, o in enumerate(path[:named]) if not _is_part_of_function(scan.nodes[o])), named)
            name = name if first == named else _type_name(scan.nodes[path[first]]) + "".join(pieces[first:named])
        answer = Answer(_newest(addresses, held), root.kind, _type_name(holder), _as_written(name), root.words, 0, _count(held),
                        len(site.addresses), "", _as_written(whole_name), "")
        if root.words.startswith("class attribute of finalize in weakref") and answer.name == "finalize._registry":
            return answer._replace(what="", name="", root="arguments of weakref.finalize()", cure=_cure("finalize", "", False))
        answer = self._described(answer, root, path, pieces, shared, holder, in_graph)
        if linked is not None:
            return answer._replace(what="linked list", items=linked[2], holds="", cure=_linked_cure(linked[1]))
        if answer.what == "tensor" and answer.kind in _WRITTEN and len(site.addresses) <= _ONE and not in_graph:
            answer = self._of_one(answer, root, _count(group), [scan.nodes[o] for o in range(len(scan.nodes)) if scan.masks[o] & group and not scan.down[o]])
        also = self._also(roots, path, shared, held) if several == 1 and answer.items and answer.kind in _WRITTEN else ""
        if also:
            answer = answer._replace(root=f"{answer.root}; also in {also}", cure=f"{answer.cure}; {also} holds them too")
        return answer if several == 1 else answer._replace(root=f"{answer.root}, one of {several} such {answer.what}s", most=0)

    def _of_one(self, answer, root, blocks, tensors):
        """Of a variable that is the tensor itself: whether its values are made from old ones, and where."""
        name = answer.name.rpartition(".")[2]
        where = None if name != answer.name else root.code if root.code is not None else self._where(root)[0]
        others = self.scan.variables(tensors)
        renewed, line = _renewed.renewed([((where, name), False), *(others or ())], self.scan.paths)
        if renewed and others is not None:  # all blocks have been looked at, also where two variables have one each
            return answer._replace(renewed=True, cure="", held=blocks)
        if not line and name == answer.name:
            return answer
        cure = "bound it or reset it"
        if self.scan.grad_fn(tensors[0]) is not None:
            cure += "; .detach() frees the graph alone, not the tensor"
        return answer._replace(cure=f"{cure}; filled at {line}" if line else cure)

    def _also(self, roots, path, shared, held):
        """Another container that a variable leads to and that holds the same blocks: "list `metric.scores`"; "": none was met."""
        scan, most = self.scan, _count(held)
        if most < _SEVERAL:
            return ""
        around = _reached(path[shared - 1], scan.up) | _reached(path[shared - 1], scan.down)
        for ordinal, value in enumerate(scan.nodes):
            if ordinal in around or _count(scan.masks[ordinal] & held) < _ENOUGH * most or not most <= scan.length(value) or type(value) is tuple:
                continue
            above = _reached(ordinal, scan.up)
            for root in (root for level in roots for root in level if root.child in above and not root.weak and root.kind in _WRITTEN):
                way = self._way(root.child, ordinal)
                pieces = scan.pieces(way, root.kind == "class")
                if _instance_dict(scan.nodes[way[-2] if len(way) > 1 else ordinal]) is not value and "" not in (root.name, *pieces[-1:]):
                    return f"{_type_name(value)} `{_as_written(root.name + ''.join(pieces))}`"
        return ""

    def _way(self, start, end):
        """Ordinals from an object down to one below it."""
        down = self.scan.down
        before, todo = {start: start}, collections.deque([start])
        while end not in before:
            ordinal = todo.popleft()
            for child in down[ordinal]:
                if child not in before:
                    before[child] = ordinal
                    todo.append(child)
        way = [end]
        while way[-1] != start:
            way.append(before[way[-1]])
        return way[::-1]

    def _described(self, answer, root, path, pieces, shared, holder, in_graph):
        scan = self.scan
        target = scan.nodes[path[-1]]
        is_tensor = _has_base(type(target), scan.base)
        node = scan.grad_fn(target) if is_tensor else None
        kind, what, name = self._kind(root, path, pieces, shared), answer.what, answer.name
        hook = self._hook(path[0]) if root.kind in ("closure", "default") else ""
        if hook:
            kind = "hook"
        if holder is target:
            what = "tensor"
        if root.kind == "lru_cache":
            what, name = "cache", ""
        between = [_holder_words(scan.nodes[o]) for o in path[shared:-1]
                   if type(scan.nodes[o]) not in (_CELL, types.TracebackType) and not type(scan.nodes[o]) is dict]
        holds = ""
        if node is not None:
            holds = f"grad_fn -> {_type_name(node)}"
        inside = scan.nodes[path[shared - 1]]  # of a queue, the deque
        items = 0 if _is_module(holder) else scan.length(inside)
        if between and inside is not target and (items or not _is_module(holder)):
            holds = " -> ".join(between[:3]) + (f" -> {holds}" if holds else " -> tensor")
        line, value = filled(name, self._where(root)) if items and root.kind in _WRITTEN else ("", "")
        scalar = is_tensor and type(target) is scan.torch.Tensor and scan.base.numel(target) == 1
        item = scan.nodes[path[min(shared, len(path) - 1)]]
        cure = _cure(kind, "queue" if items and holder is not inside and type(holder) is not _LRU and _is_queue(holder) else what,
                     node is not None, scalar, in_graph, value if inside is not target and not between else "")
        if items and between and kind not in _CURES and what in _CONTAINERS:
            cure = _cure_of_items(what, item, in_graph, is_tensor and scan.base.is_cpu.__get__(target)) or cure
        most = _limit(inside, holder)
        full = most == items > 0 and not _is_queue(holder)
        limit = f"{'maxlen' if _has_base(type(inside), collections.deque) and not _is_queue(holder) else 'maxsize'} {most:,}"
        if full:
            cure, line = f"it is full ({limit}) and drops its oldest items: only larger ones make it grow", ""
        elif most > items > 0:
            cure, line = f"it stops growing when it is full ({limit}): make that smaller if it is too much", ""
        if in_graph and what == "tensor":
            cure = self._carried_cure(name, scalar, self._where(root))
        words = self._root_words(root, name)
        if hook:
            words = words.replace(" of ", f" of {hook} ", 1)
        elif kind == "hook":
            words += self._hook_words(path, pieces)
        return answer._replace(kind=kind, what=what, name=name, root=words, items=items, holds=holds, full=full, most=most,
                               cure=f"{cure}; filled at {line}" if line and cure else cure)

    def _kind(self, root, path, pieces, shared):
        """What the path passes, else where it starts. Of many optimizers it is not one of them that keeps too much, but what holds them all."""
        kind = self.scan.special(path, pieces)
        if kind == "optimizer":
            kind = self.scan.special(path[:shared], pieces[:shared])
        return kind or root.kind

    def _globals(self, several, group, addresses, looked):
        """Of tensors that a module has as globals, one by one."""
        scan = self.scan
        found = sorted(several.values(), key=lambda root: scan.masks[root.child] & group)
        held = functools.reduce(int.__or__, (scan.masks[root.child] & group for root in found))
        names = ", ".join(root.name for root in found[:3]) + (" ..." if len(found) > 3 else "")
        module = found[0].words[len("global of "):]
        return Answer(_newest(addresses, held), "global", "module", module.partition(".py")[0], f"its globals {names}", 0, _count(held), looked, "",
                      found[-1].name, "delete these globals when they are no longer needed")

    @staticmethod
    def _root_words(root, name):
        if root.kind == "class" or not root.name or name == root.name:
            return root.words
        return root.words.replace(root.kind, f"{root.kind} `{root.name}`", 1) if root.kind in ("global", "local") else root.words

    @staticmethod
    def _where(root):
        """The file, and the lines if it is a function, where a bare name is the variable that is meant."""
        if root.code is not None:  # a closure's variable belongs to a function around it
            return root.code.co_filename, None if root.kind == "closure" else function_lines(root.code)
        return (root.words[len("global of "):], None) if root.words.startswith("global of ") else ("", None)

    @staticmethod
    def _carried_cure(name, scalar, where):
        """Of a tensor whose graph grows with each step."""
        line, value = added(name, where) if scalar else ("", "")
        return f"add {value}.item() or {value}.detach(); added at {line}" if value else _cure("graph", "", True)

    def _hook_words(self, path, pieces):
        """Where a hook is defined that a path passes, the first that is below a module's or tensor's dict of hooks."""
        passed = False
        for ordinal, text in zip(path, ["", *pieces]):
            passed = passed or text.startswith("._") and text.endswith("_hooks")
            code = _code_of(self.scan.nodes[ordinal]) if passed else None
            if code is not None:
                words = _defined_words(code)
                return f", hook {_type_name(self.scan.nodes[ordinal])}.{words}" if code.co_name == "__call__" else f", hook {words}"
        return ""

    def _hook(self, ordinal):
        """What kind of hook of a module or tensor a function is by which something is kept, "" if of none: what refers to it, three levels up."""
        scan = self.scan
        functions = [o for o in range(len(scan.nodes)) if type(scan.nodes[o]) is types.FunctionType and
                     scan.masks[o] & scan.masks[ordinal]]
        level = [id(scan.nodes[o]) for o in functions]
        for _up in range(3):
            if not level or scan.late():
                return ""
            scan.referrers(level)
            level = []
            for value in list(scan.found):
                if _has_base(type(value), scan.base) and id(scan.base._backward_hooks.__get__(value)) in self._seen:
                    return "backward hook"
                if type(value) is dict:
                    for name, below in dict.items(value):
                        if type(name) is str and name.startswith("_") and name.endswith("_hooks") and id(below) in self._seen:
                            return name[1:-1].replace("_", " ")
                if _has_base(type(value), dict) or type(value) in (types.MethodType, functools.partial):
                    level.append(id(value))
            self._seen = set(level)
        return ""

    _seen = frozenset()
    _in_graphs: dict = {}  # of the addresses that graphs have saved

    # ---- graphs ----

    def _orphans(self, answers, groups, at):
        """Addresses of sites without an answer, which no object was found to refer to."""
        wanted = []
        for index, site in enumerate(self.sites):
            if answers[index] is None:
                wanted += site.addresses
        return wanted

    def _holders(self):
        """Tensors with a graph that an object or a variable refers to: ordinals in `tensors`."""
        scan = self.scan
        with_graph = [n for n, tensor in enumerate(scan.tensors) if scan.grad_fn(tensor) is not None][-_IDS:]
        ids = [id(scan.tensors[n]) for n in with_graph]
        if not ids:
            return []
        held = {index for _found, index in scan.referrers(ids)}
        for frame in scan.frames():
            held.update(index for _name, index in scan.slots(frame, ids))
        return [with_graph[index] for index in sorted(held)]

    def _graphs(self, answers, groups, addresses, at):
        """For memory that no Python object refers to: the tensors whose graph has saved it, and who keeps those."""
        scan = self.scan
        wanted = self._orphans(answers, groups, at)
        if not wanted or not scan.tensors or scan.late():
            return
        saved, nodes = self._saved(self._holders(), wanted)
        self._in_graphs = saved
        self._by_tensors(answers, saved, lambda *found: self._take_graphs(answers, *found, saved, nodes))

    def _by_tensors(self, answers, saved, take, skipped=()):
        """Has `take` answer for addresses by the tensors that lead to them, {address: ordinal in tensors}: those are looked for now, but
        not in the objects of the ids `skipped`."""
        scan = self.scan
        if not saved:
            return
        second = _Scan(scan.torch, max(0.05, scan.ends - time.thread_time()))
        second.begin(scan.objects)
        second.tensors = scan.tensors
        second.skipped += scan.skipped + [id(scan.nodes), id(scan.tensors), id(scan.__dict__), id(second.tensors), *skipped]
        bits, bit, found = {}, 1, []
        for index, site in enumerate(self.sites):
            group = 0
            for address in site.addresses:
                if answers[index] is None and address in saved:
                    second.add(scan.tensors[saved[address]], bit)
                    bits[bit] = address
                    group |= bit
                    bit <<= 1
            found.append(group)
        self.scan = second
        try:
            take(found, bits, *second.climb([group for group in found if group]))
        finally:
            self.scan = scan
            scan.out_of_time = scan.out_of_time or second.out_of_time
            second.tensors = []
            second.end()

    def _take_graphs(self, answers, found, bits, roots, whole, saved, nodes):
        for index, group in enumerate(found):
            if group and _count(group) >= len(self.sites[index].addresses) / 3:
                answer = self._direct(self.sites[index], group, bits, roots, whole, True)
                if answer is None and whole:
                    answers[index] = self._cycle(self.sites[index], group, bits)
                if answer is not None:
                    size = nodes.get(saved[answer.address], 0)
                    kind = "graph" if answer.kind in ("global", "local", "class", "closure", "default") else answer.kind
                    operations = f"{size:,} operation{'s' if size != 1 else ''}"
                    holds = f"{answer.holds} and its graph of {operations}" if answer.holds else ""
                    if answer.what == "tensor":
                        holds = f"{operations} so far, more with each step"
                    answers[index] = answer._replace(kind=kind, holds=holds)

    def _gradients(self, answers, groups, at):
        """For memory that a tensor holds as its gradient, in C++, and what the graph of such a gradient holds: who keeps the tensor."""
        scan = self.scan
        few = [site for site, answer in zip(self.sites, answers) if answer is not None and 3 * answer.held < answer.looked]
        wanted = self._orphans(answers, groups, at) + [address for site in few for address in site.addresses]
        if not wanted or scan.late():
            return
        of, cyclic, graphs, known = {}, set(), {}, len(scan.tensors)
        for number in range(known):
            if number % 1024 == 1023 and scan.late():
                return
            grad = self._gradient(scan.tensors[number])
            if grad is None:
                continue
            if scan.grad_fn(grad) is not None:
                graphs[len(scan.tensors)] = number
                scan.tensors.append(grad)
                cyclic.add(number)
            try:
                of.setdefault(scan.torch.UntypedStorage.data_ptr(scan.base.untyped_storage(grad)), number)
            except Exception:  # it is sparse
                continue
        if graphs:
            for address, holder in self._saved(graphs, wanted)[0].items():
                of.setdefault(address, graphs[holder])
            for address, numbers in at.items():
                of.update((address, number) for number in numbers if number in cyclic)
        left = set(wanted)
        of = {address: number for address, number in of.items() if address in left}
        # An optimizer has the parameters of a model; the model is the answer, if there is one.
        self._by_tensors(answers, of, lambda *found: self._take_gradients(answers, *found, of, cyclic), self._of_optimizers())
        self._by_tensors(answers, of, lambda *found: self._take_gradients(answers, *found, of, cyclic))
        for index, site in enumerate(self.sites):
            alone = [address for address in site.addresses if of.get(address) in cyclic]
            if (answers[index] is None or site in few) and alone and len(alone) >= len(site.addresses) / 3:
                what = f"the gradient of a {_type_name(scan.tensors[of[alone[-1]]])}: each keeps the other, and no variable leads to them"
                answers[index] = Answer(alone[-1], "graph", "", "", what, 0, len(alone), len(site.addresses), "", "Parameter.grad", _CYCLE_CURE)

    def _of_optimizers(self):
        """Ids of the containers in which optimizers have parameters."""
        kind = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
        found: list = []
        if kind is not None:
            collector.mscope_instances(self.scan.objects, kind, found, _IDS)
        attributes = [_instance_dict(optimizer) or {} for optimizer in found]
        groups = [group for own in attributes if type(own.get("param_groups")) is list for group in own["param_groups"] if type(group) is dict]
        return [id(own.get("state")) for own in attributes] + [id(group.get("params")) for group in groups]

    def _gradient(self, tensor):
        base = self.scan.base
        if not _has_base(type(tensor), base) or not base.requires_grad.__get__(tensor):
            return None
        # Any other has none, and warns.
        return base.grad.__get__(tensor) if base.is_leaf.__get__(tensor) or base.retains_grad.__get__(tensor) else None

    def _take_gradients(self, answers, found, bits, roots, whole, of, cyclic):
        for index, group in enumerate(found):
            if not group or _count(group) < len(self.sites[index].addresses) / 3:
                continue
            answer = self._direct(self.sites[index], group, bits, roots, whole, True)
            if answer is not None and answer.kind != "cycle" and (answer.held == answer.looked or of[answer.address] not in cyclic):
                cure = _CYCLE_CURE if of[answer.address] in cyclic else "set .grad to None when it is no longer needed (zero_grad() does)"
                answers[index] = answer._replace(kind="gradient", cure=cure, most=0, full=False)

    def _saved(self, holders, wanted):
        """{address: ordinal of the tensor whose graph has saved it}, {ordinal: nodes of its graph}."""
        scan = self.scan
        known = None
        for tensor in scan.tensors:
            try:
                storage = scan.base.untyped_storage(tensor)
                known = (scan.base._cdata.__get__(tensor), storage._cdata, scan.torch.UntypedStorage.data_ptr(storage))
            except Exception:
                continue
            if known[2]:
                break
        if known is None:
            return {}, {}
        function = getattr(scan.torch._C, "_FunctionBase", None)
        out = (ctypes.c_uint32 * 64)()
        numbers = _Arrays.numbers(wanted)
        saved, sizes, seen, total = {}, {}, {}, 0
        left = set(wanted)
        for holder in holders:
            todo, own = [scan.grad_fn(scan.tensors[holder])], set()
            while todo and total < _NODES and not scan.late():
                node = todo.pop()
                if id(node) in own:
                    continue
                own.add(id(node))  # graphs share nodes, those of weights for one
                total += 1
                if id(node) in seen:
                    continue
                seen[id(node)] = node
                in_object = function is not None and _has_base(type(node), function)
                count = collector.mscope_saved(node, in_object, *known, numbers, len(wanted), out, 64)
                if count < 0:
                    return saved, sizes
                for k in range(count):
                    saved.setdefault(wanted[out[k]], holder)
                    left.discard(wanted[out[k]])
                following = function.next_functions.__get__(node) if in_object else node.next_functions
                todo += [entry[0] for entry in following if entry[0] is not None]
            sizes[holder] = len(own)
            if not left:
                break
        return saved, sizes

    # ---- nothing that has a name ----

    def _nothing(self, site, group, addresses, whole):
        scan = self.scan
        newest = max((bit for bit in addresses if bit & group), default=0)
        address = addresses.get(newest, site.addresses[-1])
        looked = len(site.addresses)
        if scan.out_of_time or (group and not whole):
            return None
        cycle = self._cycle(site, group, addresses)
        if cycle is not None:
            return cycle
        above = [o for o in range(len(scan.nodes)) if scan.masks[o] & group and scan.down[o]]
        if above:
            top = scan.nodes[above[-1]]
            return Answer(address, "unnamed", _type_name(top), "", "no variable of Python leads to it", 0, _count(group), looked, "",
                          "", "")
        if any(address in self._in_graphs for address in site.addresses):
            return None  # it is not known what keeps the graph
        return Answer(address, "cpp", "", "", "", 0, _count(group), looked, "", "", "")

    def _cycle(self, site, group, addresses):
        """The answer for objects that only keep each other; None: they do not."""
        ring = self._ring(group)
        if not ring:
            return None
        what = _type_name(min((self.scan.nodes[o] for o in ring), key=_telling))
        return Answer(_newest(addresses, group), "cycle", what, "", "reference cycle", 0, _count(group), len(site.addresses), "", "",
                      _cure("cycle", what, False))

    def _ring(self, group):
        """Ordinals of objects that lead to each other and to a target; []: there are none."""
        scan = self.scan
        up = {o: [p for p in scan.up[o] if scan.masks[p] & group] for o in range(len(scan.nodes)) if scan.masks[o] & group}
        tops = [o for o, parents in up.items() if not parents]
        left = {o: len(parents) for o, parents in up.items()}
        while tops:  # what nothing leads to is in no ring, nor what only such objects lead to
            for child in scan.down[tops.pop()]:
                if child in left:
                    left[child] -= 1
                    if left[child] == 0:
                        tops.append(child)
        start = next((o for o, parents in left.items() if parents), None)
        if start is None:
            return []
        seen = set()
        while start not in seen:  # up, until one comes again
            seen.add(start)
            start = next(p for p in up[start] if left[p])
        return sorted(_reached(start, up) & _reached(start, scan.down))


def scan(sites, seconds=SECONDS):
    """[Answer or None] of sites, lists of addresses of blocks, the newest last. Nothing without PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not _frames_are_known() or getattr(torch, "_C", None) is None:
        return [None] * len(sites)
    try:
        return Scanner(torch, [_Site(tuple(addresses), len(addresses)) for addresses in sites], seconds).run()
    finally:
        forget()
        _renewed.forget()


@functools.lru_cache(None)
def _frames_are_known():
    """Tries the collector's walks on objects that are known: a variable of this function, and a list that holds it."""
    marker = [[]]
    ids = _Arrays.numbers([id(marker[0]), id(marker)])
    out = (ctypes.c_uint32 * 16)()
    frame = sys._getframe()
    names = _slot_names(frame.f_code)
    count = collector.mscope_frame_slots(frame, len(names), ids, 2, out, 8)
    # A frame with a variable that is itself lives until garbage is collected, and all that called it with it: tensors of the program, too.
    del frame
    if count != 1 or names[out[0]] != "marker" or out[1] != 1:
        return False
    found: list = []
    count = collector.mscope_referrers([marker], ids, 1, _Arrays.numbers([]), 0, found, out, 8)
    return count == 1 and found[0] is marker
