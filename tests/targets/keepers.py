# SPDX-License-Identifier: Apache-2.0
"""Random programs in one process, each with a planted keeper of tensors, and what the package says about it.

    keepers.py SEED COUNT [OBJECTS]

Every program is a module of its own with random names, keeps 12 to 48 tensors in one of the ways of KINDS, and has objects among them
whose every method counts that it was called. Prints one line for each: what was planted, what was said, whether code of the objects
ran, whether tensors lived on after the keeper was gone, and the CPU time. OBJECTS: as many further objects are there meanwhile.
"""
import gc
import json
import random
import sys
import time
import types
import weakref

import torch

from msmemscope import _keeper

calls = 0


def _counts(*_arguments, **_named):
    global calls
    calls += 1
    raise RuntimeError("code of the program ran")


class Hostile:
    """Every method that a scan might call."""
    __slots__ = ("value", "__weakref__")


for _name in ("__eq__", "__ne__", "__hash__", "__bool__", "__len__", "__iter__", "__repr__", "__str__", "__getattribute__", "__getattr__",
              "__contains__", "__call__", "__dir__", "__sizeof__", "__reduce__", "__format__", "__lt__", "__index__"):
    setattr(Hostile, _name, _counts)


class Shown(type):
    """A class whose own class runs code when it is asked."""
    __instancecheck__ = __subclasscheck__ = __eq__ = __hash__ = __repr__ = _counts


COMMON = """
import gc, functools, queue, threading, types, weakref, torch
from keepers import Hostile, make, look
refs = []
def new():
    tensor = make()
    refs.append(weakref.ref(tensor))
    return tensor
"""

# Kind: (program, kinds that are right, name, what the root must have). N is a random name, M another, COUNT the number of tensors.
KINDS = {
    "list": ("""
N = []
for step in range(COUNT):
    N.append(new())
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "list of tuples": ("""
N = []
for step in range(COUNT):
    N.append((step, Hostile(), new()))
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "dict": ("""
N = {}
for step in range(COUNT):
    N[step] = [Hostile(), new()]
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "local": ("""
def main():
    N = []
    other = Hostile()
    for step in range(COUNT):
        tensor = new()
        N.append(tensor)
    look()
main()
def clear():
    pass
""", ("local",), "N", "local of main() in FILE"),
    "attribute": ("""
class Trainer:
    def __init__(self):
        self.other = Hostile()
        self.M = []
N = Trainer()
for step in range(COUNT):
    N.M.append(new())
look()
def clear():
    N.M.clear()
""", ("global",), "N.M", "global `N` of FILE"),
    "attribute of a local's attribute": ("""
class Part:
    __slots__ = ("M", "other")
class Trainer:
    pass
def run(N):
    for step in range(COUNT):
        N.part.M[str(step)] = {"t": new(), "h": Hostile()}
    look()
def main():
    trainer = Trainer()
    trainer.part = Part()
    trainer.part.M = {}
    run(trainer)
main()
def clear():
    pass
""", ("local",), "N.part.M", "local `N` of run() in FILE"),
    "closure": ("""
def make_step():
    N = []
    def step():
        N.append(new())
    return step
M = make_step()
for step in range(COUNT):
    M()
look()
def clear():
    global M
    M = None
""", ("closure",), "N", "closure of step() defined at FILE:"),
    "default argument": ("""
def M(tensor, N=[]):
    N.append(tensor)
for step in range(COUNT):
    M(new())
look()
def clear():
    M.__defaults__[0].clear()
""", ("default",), "N", "default argument of M() defined at FILE:"),
    "keyword default": ("""
def M(tensor, *, N={}):
    N[len(N)] = tensor
for step in range(COUNT):
    M(new())
look()
def clear():
    M.__kwdefaults__["N"].clear()
""", ("default",), "N", "default argument of M() defined at FILE:"),
    "global of another module": ("""
import sys
other = types.ModuleType("M_module")
other.__file__ = "/somewhere/M_module.py"
sys.modules["M_module"] = other
other.N = []
for step in range(COUNT):
    other.N.append(new())
look()
def clear():
    del sys.modules["M_module"]
    other.N.clear()
""", ("global",), "N", "global of M_module.py"),
    "class attribute": ("""
class M:
    N = {}
for step in range(COUNT):
    M.N[step] = new()
look()
def clear():
    M.N.clear()
""", ("class",), "M.N", "class attribute of M in FILE"),
    "queue of a thread": ("""
N = queue.Queue()
stop = threading.Event()
def work(jobs):
    stop.wait()
thread = threading.Thread(target=work, args=(N,), daemon=True)
thread.start()
for step in range(COUNT):
    N.put(new())
look()
def clear():
    stop.set()
    thread.join()
    N.queue.clear()
""", ("global", "local"), "N", ""),
    "lru_cache": ("""
@functools.lru_cache(maxsize=None)
def N(step):
    return new()
for step in range(COUNT):
    N(step)
look()
def clear():
    N.cache_clear()
""", ("lru_cache",), "", "functools.lru_cache of N() defined at FILE:"),
    "hook": ("""
M = torch.nn.Linear(8, 8)
def add_hook(module):
    N = []
    def hook(module, given, made):
        N.append(new())
    return module.register_forward_hook(hook)
handle = add_hook(M)
for step in range(COUNT):
    M(torch.zeros(1, 8))
look()
def clear():
    handle.remove()
""", ("hook",), "N", "closure of forward hook hook() defined at FILE:"),
    "hook of a tensor": ("""
N = torch.ones(3, requires_grad=True)
def with_tensor(tensor):
    return lambda gradient: gradient if tensor is None else None
for step in range(COUNT):
    N.register_hook(with_tensor(new()))
look()
def clear():
    N._backward_hooks.clear()
""", ("hook",), "N._backward_hooks", "of FILE, hook <lambda> defined at FILE:"),
    "generator": ("""
def gather():
    N = []
    while True:
        N.append((yield))
M = gather()
next(M)
for step in range(COUNT):
    M.send(new())
look()
def clear():
    M.close()
""", ("local",), "N", "local of gather() in FILE"),
    "coroutine": ("""
class Next:
    def __await__(self):
        return (yield)
async def gather():
    N = []
    while True:
        N.append(await Next())
M = gather()
M.send(None)
for step in range(COUNT):
    M.send(new())
look()
def clear():
    M.close()
""", ("local",), "N", "local of gather() in FILE"),
    "functions in a list": ("""
N = []
def later(tensor):
    return lambda: tensor
for step in range(COUNT):
    N.append(later(new()))
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "namespace": ("""
N = types.SimpleNamespace(M=[])
for step in range(COUNT):
    N.M.append(new())
look()
def clear():
    N.M.clear()
""", ("global",), "N.M", "global `N` of FILE"),
    "exception": ("""
N = []
def fail():
    big = new()
    raise ValueError("no")
for step in range(COUNT):
    try:
        fail()
    except ValueError as error:
        N.append(error)
look()
def clear():
    N.clear()
""", ("exception",), "N", "global of FILE"),
    "exceptions through one function": ("""
N = []
def fail(given):
    big = new()
    raise ValueError("no")
def main():
    for step in range(COUNT):
        given = new()
        try:
            fail(given)
        except ValueError as error:
            N.append(error)
main()
look()
def clear():
    N.clear()
""", ("exception",), "N", "global of FILE"),
    "context variable": ("""
import contextvars
N = contextvars.ContextVar("N")
for step in range(COUNT):
    N.set(N.get(()) + (new(),))
look()
def clear():
    N.set(())
""", ("context",), "N", "context variable"),
    "list of a context variable": ("""
import contextvars
N = contextvars.ContextVar("N", default=None)
M = [contextvars.ContextVar(f"M{number}") for number in range(40)]
for number, variable in enumerate(M):
    variable.set([number])
N.set([])
for step in range(COUNT):
    N.get().append((Hostile(), new()))
look()
def clear():
    N.set(None)
""", ("context",), "N", "context variable"),
    "contexts in a list": ("""
import contextvars
M = contextvars.ContextVar("M")
N = []
for step in range(COUNT):
    context = contextvars.copy_context()
    context.run(M.set, new())
    N.append(context)
del context
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "variables of a thread": ("""
N = threading.local()
N.M = []
for step in range(COUNT):
    N.M.append(new())
look()
def clear():
    N.M.clear()
""", ("global",), "N.M", "global `N` of FILE"),
    "registry of a metaclass": ("""
class M(type):
    N = {}
    def __new__(cls, name, bases, words):
        made = super().__new__(cls, name, bases, words)
        cls.N[name] = made
        return made
for step in range(COUNT):
    M(f"Part{step}", (), {"mask": new()})
look()
def clear():
    M.N.clear()
    gc.collect()
""", ("class",), "M.N", "class attribute of M in FILE"),
    "globals one by one": ("""
import sys
M = sys.modules[__name__]
for step in range(COUNT):
    setattr(M, f"N_{step}", new())
look()
def clear():
    for step in range(COUNT):
        delattr(M, f"N_{step}")
""", ("global",), "program_NUMBER", "its globals N_"),
    "partial": ("""
N = {}
for step in range(COUNT):
    N[step] = functools.partial(print, new())
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "bound methods": ("""
N = []
class M:
    __slots__ = ("value", "other")
    def __init__(self):
        self.value, self.other = new(), Hostile()
        N.append(self.ended)
    def ended(self):
        pass
for step in range(COUNT):
    M()
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "futures of an executor": ("""
from concurrent.futures import ThreadPoolExecutor
N = []
with ThreadPoolExecutor(1) as pool:
    for step in range(COUNT):
        N.append(pool.submit(new))
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "tasks": ("""
import asyncio
N = set()
async def serve():
    return new()
async def main():
    for step in range(COUNT):
        N.add(asyncio.ensure_future(serve()))
        await asyncio.sleep(0)
    await asyncio.sleep(0)
asyncio.run(main())
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "records of a log": ("""
import logging, logging.handlers
M = logging.getLogger("M")
M.setLevel(logging.INFO)
M.propagate = False
N = logging.handlers.MemoryHandler(1000)
M.addHandler(N)
for step in range(COUNT):
    M.info("at %s", (Hostile(), new()))
look()
def clear():
    N.buffer.clear()
    M.removeHandler(N)
    del logging.Logger.manager.loggerDict["M"]
""", ("global",), "N.buffer", "global `N` of FILE"),
    "finalizers": ("""
class M:
    pass
N = []
for step in range(COUNT):
    N.append(M())
    weakref.finalize(N[-1], print, new()).atexit = False
look()
def clear():
    for finalizer in [f for f in weakref.finalize._registry]:
        finalizer.detach()
""", ("class",), "", "arguments of weakref.finalize()"),
    "parts of a module": ("""
class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", new())
N = torch.nn.Sequential(*[torch.nn.Sequential(Part()) for step in range(COUNT)])
look()
def clear():
    global N
    N = None
    gc.collect()
""", ("global",), "N", "global of FILE"),
    "lists of the blocks of a model": ("""
class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.M = []
class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleList(Part() for _ in range(3))
N = Whole()
for step in range(COUNT):
    for part in N.parts:
        part.M.append(new())
del part
look()
def clear():
    for part in N.parts:
        part.M.clear()
""", ("global",), "N.parts[2].M", "global `N` of FILE, one of 3 such lists"),
    "two lists of a dict": ("""
N = {"train": [], "validate": []}
for step in range(COUNT):
    N["train"].append(new())
    N["validate"].append((Hostile(), new()))
look()
def clear():
    N.clear()
""", ("global",), "N['validate']", "one of 2 such lists"),
    "tensors of each step in a list of dicts": ("""
N = []
for step in range(COUNT):
    N.append({f"layer{number}": new() for number in range(5)})
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "defaultdict of lists": ("""
import collections
N = collections.defaultdict(list)
for step in range(COUNT):
    N[f"user{step}"].append(new())
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "cycle of parents and children": ("""
gc.disable()
class N:
    def __init__(self, above=None):
        self.above, self.below, self.tensor = above, [], new()
def build():
    top = N()
    top.below.append(N(top))
for step in range(COUNT):
    build()
look()
def clear():
    gc.enable()
    gc.collect()
""", ("cycle",), "", ""),
    "graph of losses": ("""
M = torch.nn.Linear(8, 8)
N = []
def forward():
    tensor = new()
    return (tensor @ M.weight).sum()
for step in range(COUNT):
    N.append(forward())
look()
def clear():
    N.clear()
""", ("graph",), "N", "global of FILE"),
    "graph of a state": ("""
M = torch.nn.Linear(8, 8)
def main():
    N = torch.zeros(8, 8)
    for step in range(COUNT):
        tensor = new()
        N = torch.tanh(M(N + tensor * M.weight))
        del tensor
    look()
main()
def clear():
    pass
""", ("graph",), "N", "local of main() in FILE"),
    "storage": ("""
N = []
def main():
    for step in range(COUNT):
        N.append(new().untyped_storage())
main()
look()
def clear():
    N.clear()
""", ("global",), "N", "global of FILE"),
    "cycle": ("""
class N:
    pass
gc.disable()
def build():
    first, second = N(), N()
    first.other, second.other = second, first
    first.tensor = new()
for step in range(COUNT):
    build()
look()
def clear():
    gc.enable()
    gc.collect()
""", ("cycle",), "", ""),
    "cpp": ("""
N = []
for step in range(COUNT):
    future = torch.futures.Future()
    future.set_result(new())
    N.append(future)
del future
look()
def clear():
    N.clear()
""", ("cpp",), "", ""),
}

SYLLABLES = ("lo", "his", "buf", "run", "acc", "kee", "ten", "met", "sta", "res", "tor", "fer")
addresses = []
answers = []


def make():
    tensor = torch.zeros(8, 8)
    addresses.append(tensor.untyped_storage().data_ptr())
    return tensor


def look():
    global calls
    calls = 0
    before = time.thread_time()
    answer = _keeper.scan([addresses[-32:]])[0]
    answers.append((answer, calls, time.thread_time() - before))


def fill(text, words):
    for key, value in words.items():
        text = text.replace(key, value)
    return text


def run(number, kind, randomness):
    names = ["".join(randomness.sample(SYLLABLES, 3)) for _ in range(2)]
    file = f"program_{number}.py"
    words = {"COUNT": str(randomness.randint(12, 48)), "FILE": file, "M_module": f"{names[1]}_module", "NUMBER": str(number)}
    source, kinds, name, root = KINDS[kind]
    # Whole words only: N and M are parts of others.
    import re

    def plant(text):
        text = fill(text, words)
        text = re.sub(r"\bN(_?)\b", rf"{names[0]}\1", text)
        return re.sub(r"\bM\b", names[1], text)

    module = types.ModuleType(f"program_{number}")
    module.__file__ = f"/programs/{file}"
    sys.modules[module.__name__] = module
    del addresses[:]
    exec(compile(COMMON + plant(source), module.__file__, "exec"), module.__dict__)
    answer, ran, seconds = answers.pop()
    module.tensor = module.step = None
    module.clear()
    living = sum(reference() is not None for reference in module.refs)
    del sys.modules[module.__name__]
    right = answer is not None and answer.kind in kinds and answer.name == plant(name) and plant(root) in answer.root
    print(json.dumps({"kind": kind, "right": right, "calls": ran, "living": living, "seconds": round(seconds, 3),
                      "expected": [kinds, plant(name), plant(root)], "said": answer and answer._asdict()}), flush=True)


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    heap = [[] for _ in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0)]
    randomness = random.Random(seed)
    kinds = list(KINDS)
    randomness.shuffle(kinds)
    gc.collect()
    for number in range(count):
        run(number, kinds[number % len(kinds)], randomness)
    del heap


if __name__ == "__main__":
    sys.modules["keepers"] = sys.modules["__main__"]
    main()
