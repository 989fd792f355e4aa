# SPDX-License-Identifier: Apache-2.0
"""init_framework_hooks(): phases of a framework as ranges, snapshots and owners, without a change of the program.

    table      _hooks_table.py says which functions of which modules, for each version
    finder     first in sys.meta_path: once one of these modules has been imported, attach() puts wrappers in place; modules that
               are there already get theirs at once
    wrappers   call prepared(), which does what the hooks of the moment want; with none of them it calls the function, nothing else
    children   find the same hooks in $MSMEMSCOPE_HOOKS (_boot.py), so worker processes have them, too

A wrapper may be pickled into a process that does not have this package (Ray does so): it holds plain values, and finds the
package when it is called.
"""
from __future__ import annotations

import functools
import os
import re
import sys
import threading
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from . import _boot, _native
from ._api import LABEL_POP, LABEL_PUSH
from ._hooks_table import DECOMPOSE, FRAMEWORKS, SNAPSHOT, TABLE, Entry, Target

ENVIRONMENT = "MSMEMSCOPE_HOOKS"
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200  # co_flags of functions
_ABSENT = object()

_lock = threading.RLock()


def _renew_lock():
    """A thread of the parent may have held it."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def _say(text, wish=None):
    """One line for the user; of hooks that the user has not asked for in this process, for the trace."""
    if wish is None or wish.asked:
        from . import _control
        _control.say(f"init_framework_hooks(): {text}", once=wish is not None)
    else:
        _boot.note(text)


# ---- versions ----

Numbers = Tuple[int, ...]


def _numbers(text: str) -> Optional[Numbers]:
    """0.11.0rc1 and 0.11.0+cpu are 0.11.0."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else None


def _named(framework: str, version: str) -> Optional[Numbers]:
    """A version as users write it."""
    numbers, short_from = _numbers(version), FRAMEWORKS[framework].short_from
    return (0, *numbers) if numbers and 0 < short_from <= numbers[0] else numbers


def _matches(versions: str, numbers: Optional[Numbers]) -> bool:
    if versions == "*":
        return True
    if numbers is None:
        return False
    low, dash, high = versions.partition("-")
    first = _numbers(low) or ()
    if low.endswith("+"):
        return numbers >= first
    last = _numbers(high) or () if dash else first
    return (numbers >= first if dash else numbers[:len(first)] == first) and numbers[:len(last)] <= last


def _installed(framework: str) -> str:
    """Version of the framework in this process, "" if it does not tell."""
    package, distribution, _ = FRAMEWORKS[framework]
    version = getattr(sys.modules.get(package), "__version__", None)
    if isinstance(version, str) and _numbers(version):
        return version
    if not distribution:
        return ""
    from importlib import metadata
    try:
        return metadata.version(distribution) or ""
    except Exception:  # there is none, or its files are damaged
        return ""


# ---- what is wanted ----

class Wish(NamedTuple):
    framework: str
    version: str  # "*": the installed one
    component: str
    type: str
    asked: bool = True  # by a call in this process; else inherited, or by analysis decompose


_wishes: List[Wish] = []
_told: List[Tuple[str, ...]] = []  # what children are to hook as well
_automatic = False  # analysis decompose is on
_by_hand = False  # the program has asked for decompose itself


def _entries(wish: Wish) -> List[Entry]:
    return [entry for entry in TABLE if entry.framework == wish.framework and entry.component == wish.component and wish.type in entry.types]


def _known(values):
    return ", ".join(dict.fromkeys(values))


def _problem(wish: Wish) -> str:
    """Why the table has nothing for a call; "" if it has."""
    if not all(isinstance(part, str) for part in wish[:4]):
        return "framework, version, component and hook_type must be str"
    entries = [entry for entry in TABLE if entry.framework == wish.framework]
    if not entries:
        return f"unknown framework '{wish.framework}'; there are: {_known(entry.framework for entry in TABLE)}"
    entries_of = [entry for entry in entries if entry.component == wish.component]
    if not entries_of:
        return f"{wish.framework} has no component '{wish.component}'; it has: {_known(entry.component for entry in entries)}"
    if not _entries(wish):
        there = _known(one for entry in entries_of for one in entry.types)
        return f"{wish.framework} {wish.component} has no hooks of type '{wish.type}'; it has: {there}"
    if wish.version != "*" and _by_name(wish) is None:
        there = _known(entry.versions for entry in _entries(wish))
        return f"version '{wish.version}' of {wish.framework} is unknown; known versions: {there}"
    return ""


def _by_name(wish: Wish) -> Optional[Entry]:
    numbers = _named(wish.framework, wish.version)
    return next((entry for entry in _entries(wish) if wish.version == entry.versions or _matches(entry.versions, numbers)), None)


def _chosen(wish: Wish) -> Optional[Entry]:
    """The entry for the version that runs here. Its modules may have moved since the one that was named."""
    installed = _installed(wish.framework)
    entry = None if wish.version == "*" else _by_name(wish)
    if not installed:
        return entry or _entries(wish)[-1]
    numbers = _numbers(installed)
    if entry is not None and _matches(entry.versions, numbers):
        return entry
    right = next((one for one in _entries(wish) if _matches(one.versions, numbers)), None)
    if right is None:
        there = _known(one.versions for one in _entries(wish))
        _say(f"{wish.framework} {installed} is installed, which has no hooks; known versions: {there}", wish)
    elif entry is not None:
        _say(f"{wish.framework} {installed} is installed, not {wish.version}: hooks are those of {right.versions}", wish)
    return right


def _with_others(wish: Wish) -> List[Wish]:
    """A wish, and those that its entries bring along."""
    found = [wish]
    for entry in _entries(wish):
        for framework, component in entry.also:
            other = Wish(framework, "*", component, wish.type, False)
            if framework == wish.framework:
                other = other._replace(version=wish.version)
            if other not in found and _entries(other):
                found.append(other)
    return found


# ---- what a hooked call does ----

class _State(threading.local):
    """Of one thread: what is open, outermost first."""

    def __init__(self):
        self.calls: List[str] = []  # identifiers, and phases
        self.owners: List[str] = []
        self.spans: List[Tuple[str, int, str]] = []  # owner, whose call opened it, and its label


_state = _State()


def _drop(values, value):
    """The newest of them."""
    for at in range(len(values) - 1, -1, -1):
        if values[at] == value:
            del values[at]
            return


def _push(owner: str) -> str:
    """Opens a label; returns it, "" if it is open already. Inside another one of its component, only the part is named."""
    owners = _state.owners
    label = ""
    if owner and owner not in owners and _native.collector is not None:
        component, _, part = owner.partition("@")
        inside = any(one.partition("@")[0] == component for one in owners)
        label = part if part and inside else owner
        _native.collector.mscope_label(LABEL_PUSH, 0, 0, 0, label.encode())
    owners.append(owner)
    return label


def _pop(owner: str, label: str) -> None:
    _drop(_state.owners, owner)
    if label:
        _native.collector.mscope_label(LABEL_POP, 0, 0, 0, label.encode())


class _Inside:
    """One call. begin() and end() bound it; it is entered while it runs, so that a coroutine or generator that waits has no label."""

    def __init__(self, spec, types):
        self._identifier, self._phase, self._owner, self._tensors, _, _ = spec
        if not self._phase or self._phase in _state.calls:
            self._phase = ""
        self._decomposes = DECOMPOSE in types
        self._snapshots = SNAPSHOT in types and spec[1] and self._identifier not in _state.calls
        self._label, self._number = "", 0

    def begin(self):
        if self._phase and _native.collector is not None:
            self._number = _native.collector.mscope_phase(self._phase.encode(), 0)
        self._snapshot(f"{self._identifier}@Start")

    def end(self, fine):
        self._snapshot(f"{self._identifier}@End")
        if self._phase and fine:
            self._snapshot(self._phase)
        if self._number:
            _native.collector.mscope_phase(None, self._number)

    def _snapshot(self, name):
        if self._snapshots:
            from . import _snapshot
            _boot._guarded(_snapshot.of_current, name)

    def __enter__(self):
        _state.calls += (self._identifier, self._phase)
        self._label = _push(self._owner) if self._decomposes else ""

    def __exit__(self, *_raised):
        if self._decomposes:
            _pop(self._owner, self._label)
        _drop(_state.calls, self._phase)
        _drop(_state.calls, self._identifier)

    def made(self, result, args, kwargs):
        if self._decomposes and self._tensors:
            _boot._guarded(_label_tensors, self._tensors, result, args, kwargs)


def _label_tensors(function, result, args, kwargs):
    from . import _hooks_tensors, describe
    seen = set()
    for tensor, owner in getattr(_hooks_tensors, function)(result, args, kwargs):
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, the shard that lies here
        if id(tensor) not in seen:
            seen.add(id(tensor))
            describe.describer(tensor, owner=owner)


class _Whole:
    """A call from its beginning to its end, however it ends."""

    def __init__(self, inside):
        self._inside = inside

    def __enter__(self):
        self._inside.begin()

    def __exit__(self, kind, *_error):
        self._inside.end(kind is None)


def _plain(function, inside):
    def call(*args, **kwargs):
        with _Whole(inside):
            with inside:
                result = function(*args, **kwargs)
            inside.made(result, args, kwargs)
            return result
    return call


def _coroutine(function, inside):
    from .describe import _Resumed

    async def call(*args, **kwargs):
        with _Whole(inside):
            result = await _Resumed(inside, function(*args, **kwargs).__await__())
            inside.made(result, args, kwargs)
            return result
    return call


def _generator(function, inside):
    from .describe import _resumed

    def call(*args, **kwargs):
        with _Whole(inside):
            return (yield from _resumed(inside, function(*args, **kwargs)))
    return call


class _AsyncSteps:
    """What a wrapper drives in the place of an async generator."""

    def __init__(self, steps, inside):
        self._steps, self._inside = steps, inside
        self._begun = False

    async def _take(self, step):
        if not self._begun:
            self._begun = True
            self._inside.begin()
        try:
            return await step
        except BaseException as ended:
            self._end(isinstance(ended, StopAsyncIteration))
            raise

    def _end(self, fine):
        if self._begun and self._inside is not None:
            self._inside.end(fine)
            self._inside = None

    def __anext__(self):
        return self._take(self._steps.__anext__())

    def asend(self, value):
        return self._take(self._steps.asend(value))

    def athrow(self, raised):
        return self._take(self._steps.athrow(raised))

    async def aclose(self):
        try:
            await self._steps.aclose()
        finally:
            self._end(False)


def _async_generator(function, inside):
    from .describe import describer
    stepped = describer.__call__(inside, function)  # enters `inside` for each step

    def call(*args, **kwargs):
        return _AsyncSteps(stepped(*args, **kwargs), inside)
    return call


# ---- owners that stay open between two calls ----

def _close(owner, at):
    """Spans of the owner from this one on."""
    spans = _state.spans
    for one in [one for one in spans[at:] if one[0] == owner][::-1]:
        _drop(spans, one)
        _pop(owner, one[2])


def _span_at(owner, who):
    """Where the span is that a call of this object opened, else the newest of the owner, else behind all."""
    spans = _state.spans
    of_owner = [at for at, one in enumerate(spans) if one[0] == owner]
    return next((at for at in of_owner if spans[at][1] == who), of_owner[-1] if of_owner else len(spans))


def _spanning(function, owner, span):
    def call(*args, **kwargs):
        who = args[0] if args else None
        if span == "opens":
            # What a pass that raised has left open: nothing of it is on the stack when the same, or the outermost, begins again.
            if getattr(who, "_is_root", False) is True:
                _close(owner, 0)
            elif any(one[:2] == (owner, id(who)) for one in _state.spans):
                _close(owner, _span_at(owner, id(who)))
            _state.spans.append((owner, id(who), _push(owner)))
        fine = False
        try:
            result = function(*args, **kwargs)
            fine = True
            return result
        finally:
            if span == "ends":
                _close(owner, 0)
            elif span == "closes" or not fine:
                _close(owner, _span_at(owner, id(who)))
    return call


# ---- wrappers ----

_KINDS = {0: _plain, _COROUTINE: _coroutine, _GENERATOR: _generator, _ASYNC_GENERATOR: _async_generator}


def prepared(function, spec, types):
    """What a wrapper calls in the place of its function."""
    if not types:
        return function
    identifier, _, owner, _, span, kind = spec
    if span:
        return _spanning(function, owner, span) if DECOMPOSE in types else function
    # Most calls of torch.nn.Module are inside another one.
    if identifier in _state.calls and kind == 0:
        return function
    return _KINDS[kind](function, _Inside(spec, types))


def _kind(function):
    while isinstance(function, functools.partial):
        function = function.func
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    return flags & (_COROUTINE | _GENERATOR | _ASYNC_GENERATOR)


def _wrapped(function, spec, types):
    """Plain values only, and nothing of this module: see above."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_dynamo_compiling", bool)
    kind = spec[-1]

    def prepare():
        try:
            from msmemscope._hooks import prepared as found
        except ImportError:
            return function
        return found(function, spec, types)

    if kind == _COROUTINE:
        async def inner(*args, **kwargs):
            return await prepare()(*args, **kwargs)
    elif kind == _GENERATOR:
        def inner(*args, **kwargs):
            return (yield from prepare()(*args, **kwargs))
    elif kind == _ASYNC_GENERATOR:
        async def inner(*args, **kwargs):
            steps = prepare()(*args, **kwargs)
            try:
                item = await steps.__anext__()
                while True:
                    try:
                        value = yield item
                    except GeneratorExit:
                        raise
                    except BaseException as raised:
                        item = await steps.athrow(raised)
                    else:
                        item = await steps.asend(value)
            except StopAsyncIteration:
                return
            finally:
                await steps.aclose()
    else:
        def inner(*args, **kwargs):
            if is_compiling():
                return function(*args, **kwargs)
            return prepare()(*args, **kwargs)
    return functools.wraps(function)(inner)


class _Wrap:
    """A name in a class or module, and what was there."""

    def __init__(self, holder, name, raw, own, spec_of):
        self.holder, self.name, self.raw, self.own = holder, name, raw, own
        self.types: List[str] = []
        method = isinstance(raw, (staticmethod, classmethod))
        function = raw.__func__ if method else raw
        inner = _wrapped(function, (*spec_of, _kind(function)), self.types)
        self.inner = inner
        self.placed = type(raw)(inner) if method else inner

    def place(self):
        setattr(self.holder, self.name, self.placed)
        self._replace_copies(self.raw, self.placed)

    def remove(self):
        """False: somebody has wrapped the wrapper, which stays and does nothing any more."""
        self.types.clear()
        if vars(self.holder).get(self.name) is not self.placed:
            return False
        if self.own:
            setattr(self.holder, self.name, self.raw)
        else:
            delattr(self.holder, self.name)
        self._replace_copies(self.placed, self.raw)
        return True

    def _replace_copies(self, old, new):
        """Of a function that other modules have imported by name."""
        for module in () if isinstance(self.holder, type) else list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict) and names.get(self.name) is old:
                names[self.name] = new


_wraps: Dict[Tuple[int, str], _Wrap] = {}
_families: Dict[int, Tuple[type, Any, Any, List[Tuple[str, Target, str]]]] = {}  # classes whose subclasses are hooked


def _find(module, path):
    """(class or module, name) of a path, None if there is no such thing."""
    holder, (*classes, name) = module, path.split(".")
    for one in classes:
        holder = getattr(holder, one, None)
        # Ray's decorator has put an object in the place of the class.
        holder = getattr(getattr(holder, "__ray_metadata__", None), "modified_class", holder)
        if not isinstance(holder, type):
            return None
    if classes:
        there = any(name in vars(base) for base in holder.__mro__)
    else:
        there = name in vars(holder)
    return (holder, name) if there else None


def _raw(holder, name):
    """What a class or module has under a name, and whether it is its own."""
    if name in vars(holder):
        return vars(holder)[name], True
    return next(vars(base)[name] for base in holder.__mro__ if name in vars(base)), False


def _wraps_over(raw, wrap):
    """Whether something that was put in the place of a wrapper calls it."""
    function = getattr(raw, "__func__", raw)
    for _ in range(32):
        if function is wrap.inner:
            return True
        function = getattr(function, "__wrapped__", None)
        if function is None:
            break
    return False


def _put(holder, name, target, type_):
    """Hooks one name; False if it is no function."""
    raw, own = _raw(holder, name)
    wrap = _wraps.get((id(holder), name))
    if wrap is None or not (raw is wrap.placed or raw is wrap.raw or _wraps_over(raw, wrap)):
        other = next((one for one in _wraps.values() if raw is one.placed and one.types), None)
        if other is not None and (own or type_ in other.types):
            other.types += [] if type_ in other.types else [type_]
            return True  # a function that was imported by name, or the base class is hooked
        function = raw.__func__ if isinstance(raw, (staticmethod, classmethod)) else raw
        if not callable(function) or isinstance(function, type):
            return False
        path, _, method = target.path.rpartition(".")
        spec_of = f"{target.module}@{path}@{method}", target.phase, target.owner, target.tensors, target.span
        wrap = _Wrap(holder, name, raw, own, spec_of)
    if type_ not in wrap.types:
        wrap.types.append(type_)
    if raw is wrap.raw:
        try:
            wrap.place()
        except (AttributeError, TypeError):
            return False  # of a class that cannot be changed
    _wraps[id(holder), name] = wrap
    return True


def _put_family(holder, name, target, type_):
    """A class, those derived from it, and those that will be."""
    found = _put(holder, name, target, type_)
    todo = list(type.__subclasses__(holder))
    for one in todo:
        if name in vars(one):
            _put(one, name, target, type_)
        todo += type.__subclasses__(one)
    if id(holder) not in _families:
        before = vars(holder).get("__init_subclass__", _ABSENT)
        placed = _told_of_subclasses(holder, before)
        holder.__init_subclass__ = placed
        _families[id(holder)] = holder, before, placed, []
    _families[id(holder)][3].append((name, target, type_))
    return found


def _told_of_subclasses(holder, before):
    def __init_subclass__(cls, **kwargs):
        if before is _ABSENT:
            super(holder, cls).__init_subclass__(**kwargs)
        else:
            before.__get__(None, cls)(**kwargs)
        with _lock:
            for name, target, type_ in _families[id(holder)][3] if id(holder) in _families else ():
                if name in vars(cls):
                    _put(cls, name, target, type_)
    return classmethod(__init_subclass__)


# ---- modules that are there, and modules that come ----

_waiting: Dict[str, None] = {}  # names of modules that are hooked once they are imported
_finding = set()
_unfinished: Dict[str, str] = {}  # name of a module that is being imported -> its name in sys.modules
_trying = False
_main = None  # name of the program, if it is such a module


class _Loader(_boot._Loader):
    def exec_module(self, module):
        # Put back first, so that the module's code finds its own loader.
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _boot._guarded(attach, module.__name__, sys.modules.get(module.__name__, module))

    exec_module.__code__ = exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if not _trying:
            _look_at_main()
            if _unfinished:
                _boot._guarded(_try_unfinished)
        if name not in _waiting or name in _finding:
            return None
        _finding.add(name)
        try:
            spec = _boot.find_spec(name, path, target)
        finally:
            _finding.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, None)
        return spec


def _is_complete(module):
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _look_at_main():
    """`python -m verl.trainer.main_ppo`: the program itself is the module, and nobody imports it."""
    global _main
    name = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
    if name != _main and name in _waiting:
        _main = name
        _unfinished[name] = "__main__"


def _try_unfinished():
    """Modules that were being imported when they were asked for. None of them tells when it is ready, so each import looks."""
    global _trying
    _trying = True
    try:
        for name, key in list(_unfinished.items()):
            module = sys.modules.get(key)
            complete = key != "__main__" and _is_complete(module)
            if attach(name, module, quiet=not complete) or complete:
                _unfinished.pop(name, None)
    finally:
        _trying = False


def attach(name, module, quiet=False):
    """Hooks what is wanted of a module. True: all of it is there."""
    if name == _DYNAMO:
        _skip_ours()
        return True
    whole = True
    with _lock:
        for wish in list(_wishes):
            if not any(target.module == name for entry in _entries(wish) for target in entry.targets):
                continue
            entry = _chosen(wish)
            missing = []
            for target in entry.targets if entry is not None else ():
                if target.module != name:
                    continue
                found = _find(module, target.path)
                put = _put_family if target.subclasses and found and isinstance(found[0], type) else _put
                if (found is None or not put(*found, target, wish.type)) and not target.seldom:
                    missing.append(target.path)
            whole = whole and not missing
            if missing and not quiet:
                version = _installed(wish.framework) or wish.version
                _say(f"{name} of {wish.framework} {version} has no {', '.join(missing)}: not hooked", wish)
    return whole


_DYNAMO = "torch._dynamo"


def _skip_ours():
    """torch.compile does not look into wrappers, but at what they call."""
    torch = sys.modules["torch"]
    skip = getattr(torch._dynamo.eval_frame, "skip_code", None) or torch._C._dynamo.eval_frame.skip_code
    skip(_wrapped(_skip_ours, ("", "", "", "", "", 0), []).__code__)


def _want(wishes):
    """Adds wishes; modules that are there get their hooks at once."""
    wishes = [wish for wish in wishes if not any(wish[:4] == one[:4] for one in _wishes)]
    _wishes.extend(wishes)
    if _Finder not in sys.meta_path and _wishes:
        sys.meta_path.insert(0, _Finder)
        _look_at_main()
    for name in dict.fromkeys([_DYNAMO, *(target.module for wish in wishes for entry in _entries(wish) for target in entry.targets)]):
        _waiting[name] = None
        module = sys.modules.get(name)
        if module is not None and not _is_complete(module):
            _unfinished[name] = name
        elif module is not None:
            _boot._guarded(attach, name, module)


def _take_out():
    """All hooks; the functions are what they were."""
    for wrap in reversed(_wraps.values()):
        wrap.remove()  # the entry stays: who holds the wrapper, as a bound method, finds it working when hooks come back
    for holder, before, placed, _ in _families.values():
        if vars(holder).get("__init_subclass__") is placed:
            if before is _ABSENT:
                del holder.__init_subclass__
            else:
                holder.__init_subclass__ = before
    _families.clear()
    _wishes.clear()
    _waiting.clear()
    _unfinished.clear()
    if _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


# ---- who asks ----

def _tell_children():
    if _told:
        os.environ[ENVIRONMENT] = ";".join(map(":".join, _told))
    else:
        os.environ.pop(ENVIRONMENT, None)


def _ask(wish):
    global _by_hand
    if wish.type == DECOMPOSE and not _by_hand:
        _by_hand = True
        _automatic_off()
    if wish[:4] not in _told:
        _told.append(wish[:4])
    _want(_with_others(wish))


def init_framework_hooks(framework: str, version: str, component: str, hook_type: str) -> None:
    """Hooks the phases of a framework, now or when it is imported, in this process and in its later children.

    framework   "vllm_ascend", "vllm", "verl", "mindspeed_llm", "pytorch"
    version     of the framework, such as "0.11.0"; "*" is the one that is installed
    component   "worker", "TaskRunner", "training", "fsdp1", "fsdp2"
    hook_type   "decompose": owners of the memory that the phases allocate; "snapshot": rows SNAPSHOT when they start and end

    Both write an MSTX range for each phase. For a combination that the table (_hooks_table.py) does not have, one line says so, and nothing is
    hooked.
    """
    wish = Wish(framework, version, component, hook_type)
    with _lock:
        problem = _problem(wish)
        if problem:
            _say(problem)
            return
        _ask(wish)
        _tell_children()


def cleanup_framework_hooks() -> None:
    """Takes out all hooks: every function is what it was."""
    global _by_hand, _automatic, _main
    with _lock:
        _by_hand = _automatic = False
        _main = None
        _take_out()
        _told.clear()
        _tell_children()


def _automatic_off():
    global _automatic
    if _automatic:
        _automatic = False
        wishes = [wish for wish in _wishes if wish.asked or wish.type == SNAPSHOT]
        _take_out()
        _want(wishes)


def automatic(on: bool) -> None:
    """Analysis decompose begins or ends: owners of all frameworks, unless the program has chosen."""
    global _automatic
    with _lock:
        if not on:
            _automatic_off()
        elif not _automatic and not _by_hand:
            _automatic = True
            chosen = dict.fromkeys((entry.framework, entry.component) for entry in TABLE if entry.automatic and DECOMPOSE in entry.types)
            _want([Wish(framework, "*", component, DECOMPOSE, False) for framework, component in chosen])


def inherit() -> None:
    """The hooks of the process that started this one."""
    with _lock:
        for text in os.environ.get(ENVIRONMENT, "").split(";"):
            parts = text.split(":")
            if len(parts) == 4 and not _problem(Wish(*parts)):
                _ask(Wish(*parts, asked=False))
