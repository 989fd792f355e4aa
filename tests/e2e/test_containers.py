# SPDX-License-Identifier: Apache-2.0
"""Which Python container grows where host memory does: each program prints what grows in it, by process."""
import json
import re
from pathlib import Path

import pytest

SECONDS = 20  # a program grows for so long; the judge takes 11 s and the two looks 10

# The level of each follows the clock, however busy the machine is. Children are forked, so that PyTorch is imported once.
KINDS = """
import asyncio, collections, ctypes, functools, gc, json, os, queue, sys, threading, time
import torch

RATE, PIECE = 2 << 20, 16 << 10
cache = {}


class Store:
    shared = []

    def __init__(self):
        self.rows = collections.deque()
        self.jobs = queue.Queue()


def piece():
    torch.zeros(64)
    return os.urandom(PIECE)


def paced(add):
    start, done = time.monotonic(), 0
    while (now := time.monotonic() - start) < SECONDS:
        while done * PIECE < RATE * now:
            add(done)
            done += 1
        time.sleep(0.02)


def global_dict():
    def add(number):
        cache[number] = piece()
    paced(add)


def class_attribute():
    paced(lambda number: Store.shared.append(piece()))


def cached():
    @functools.lru_cache(None)
    def lookup(number):
        return piece()
    paced(lookup)


def bounded():
    @functools.lru_cache(1 << 20)
    def lookup(number):
        return piece()
    paced(lookup)


def attribute():
    store = Store()
    paced(lambda number: store.rows.append((number, piece())))


def jobs():
    store = Store()
    thread = threading.Thread(target=paced, args=(lambda number: store.jobs.put(piece()),))
    thread.start()
    thread.join()


def closure():
    def make():
        seen = {}
        def remember(number):
            seen[str(number)] = {"data": [piece()]}
        return remember
    paced(make())


def server():
    sessions = {}
    async def serve():
        start, done = time.monotonic(), 0
        while (now := time.monotonic() - start) < SECONDS:
            while done * PIECE < RATE * now:
                sessions[done] = piece()
                done += 1
            await asyncio.sleep(0.02)
    asyncio.run(serve())


def library():
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    losses = []
    def add(number):
        torch.zeros(64)
        ctypes.memset(malloc(PIECE), 1, PIECE)
        losses.append(1.0)
    paced(add)


def warm_up():
    kept = []
    def add(number):
        data = piece()
        if number * PIECE < RATE * 4:
            kept.append(data)
    paced(add)


kinds = {}
for name in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        globals()[name]()
        os._exit(0 if gc.isenabled() else 1)
    kinds[pid] = name
failed = [kinds[pid] for pid, status in (os.wait() for _ in kinds) if status != 0]
print(json.dumps({"kinds": {str(pid): name for pid, name in kinds.items()}, "failed": failed}))
""".replace("SECONDS", str(SECONDS))

WORKERS = """
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class TextDataset(Dataset):
    def __init__(self):
        self.samples = {}
        self.start = None

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        self.start = self.start or time.monotonic()
        while len(self.samples) < (time.monotonic() - self.start) * 128:
            self.samples[len(self.samples)] = os.urandom(16 << 10)
        return torch.zeros(4)


if __name__ == "__main__":
    import ctypes
    hal = ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL) and ctypes.CDLL(None)
    hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
    assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), 1 << 20, 33 << 56 | 0x904400) == 0
    batches = iter(DataLoader(TextDataset(), batch_size=2, num_workers=2, multiprocessing_context=sys.argv[1]))
    next(batches)
    start = time.monotonic()
    while time.monotonic() - start < SECONDS:
        next(batches)
        time.sleep(0.02)
""".replace("SECONDS", str(SECONDS + 10))


def line_of(text, part):
    """The only line that has a text."""
    (line,) = [number for number, line in enumerate(text.split("\n"), 1) if part in line]
    return line


def growths(msmemscope, run):
    """Growths of host memory by pid of the process that has the trace."""
    return {project.pid: msmemscope.info(project)["host_growth"] for project in run.projects()}


def judged(msmemscope, out, words, count, *options, containers=True):
    """A run with a verdict on so many processes, with what grows in them. Where the machine's pace changes, there is none: then it runs again."""
    for turn in range(3):
        run = msmemscope(*options, "--", *words, output=Path(out) / str(turn)).check()
        found = [one for every in growths(msmemscope, run).values() for one in every]
        if sum(one["processes"] for one in found if one["containers"] or not containers) >= count:
            break
    return run


def named(growth):
    return {(container["type"], container["name"], container["owner"]) for container in growth["containers"]}


@pytest.mark.parametrize("kinds", [["global_dict", "class_attribute", "attribute", "closure"], ["cached", "bounded", "jobs", "server"]])
def test_what_grows_is_named(msmemscope, python, out, kinds):
    """A dict that the garbage collector does not know, a class attribute, an attribute, a closure; caches, a queue, a server's sessions."""
    script = Path(out) / "kinds.py"
    script.write_text(KINDS)
    run = judged(msmemscope, out, [*python, script, *kinds], len(kinds), "--device=cpu")
    truth = json.loads(run.stdout)
    assert truth["failed"] == []
    store = f"class Store (kinds.py:{line_of(KINDS, 'class Store')})"
    lookups = [number for number, line in enumerate(KINDS.split("\n"), 1) if "functools.lru_cache(" in line]
    expected = {
        "global_dict": ("dict", "cache", "global of kinds.py"),
        "class_attribute": ("list", "Store.shared", "class attribute of Store in kinds.py"),
        "cached": ("cache", "", f"functools.lru_cache of lookup() defined at kinds.py:{lookups[0]}"),
        "bounded": ("cache", "", f"functools.lru_cache of lookup() defined at kinds.py:{lookups[1]}"),
        "attribute": ("deque", "rows", store),
        "jobs": ("Queue", "jobs", store),
        # By its closure, or where the function runs just then as its local.
        "closure": ("dict", "seen", "remember()"),
        "server": ("dict", "sessions", "serve()"),
    }
    found = growths(msmemscope, run)
    for pid, kind in truth["kinds"].items():
        (growth,) = found[int(pid)]
        (container,) = growth["containers"]
        what, name, owner = expected[kind]
        assert (container["type"], container["name"]) == (what, name), (kind, growth)
        assert container["owner"] == owner or owner.endswith("()") and owner in container["owner"], (kind, growth)
        assert container["share"] > 0.5 and container["cure"], (kind, container)
        assert container["items_per_second"] == pytest.approx(128, rel=0.3), (kind, container)
        assert f"Growing: {container['sentence']}." in growth["sentence"]


def test_what_has_no_container_is_not_named(msmemscope, python, out):
    """A library that leaks beside a list of floats, and a program that stops growing."""
    script = Path(out) / "kinds.py"
    script.write_text(KINDS)
    run = judged(msmemscope, out, [*python, script, "library", "warm_up"], 1, "--device=cpu", containers=False)
    truth = json.loads(run.stdout)
    assert truth["failed"] == []
    found = {truth["kinds"][str(pid)]: growth for pid, growth in growths(msmemscope, run).items()}
    assert found["warm_up"] == []
    (growth,) = found["library"]
    assert growth["containers"] == [] and "Growing:" not in growth["sentence"]


def check_worker(growth):
    place = f"class TextDataset (data.py:{line_of(WORKERS, 'class TextDataset')})"
    assert named(growth) == {("dict", "samples", place)}, growth
    (container,) = growth["containers"]
    assert container["filled"] == f"data.py:{line_of(WORKERS, 'os.urandom')}" and container["share"] > 0.5
    assert container["items_per_second"] == pytest.approx(128, rel=0.3), container


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_what_a_worker_grows_by_is_named(msmemscope, python, out, device):
    """Also where workers have no trace of their own: only the main process uses the device."""
    script = Path(out) / "data.py"
    script.write_text(WORKERS)
    run = judged(msmemscope, out, [*python, script, "fork"], 4 if device == "cpu" else 2, f"--device={device}")
    assert len(run.projects()) == (3 if device == "cpu" else 1)
    (growth,) = [one for every in growths(msmemscope, run).values() for one in every if not one["own"]]
    assert growth["processes"] == 2
    check_worker(growth)
    said = " ".join(run.stderr.split())
    assert re.search(r"HOST MEMORY GROWS: RSS of 2 DataLoader workers .* growing: dict `samples` of class TextDataset \(data\.py:\d+\), [\d,]+ items", said), run.stderr
    assert "cure: remove items from the dict" in said


def test_what_a_spawned_worker_grows_by_is_named(msmemscope, python, out):
    """Its series in the main process has the import of PyTorch, which takes any time; its own has not."""
    script = Path(out) / "data.py"
    script.write_text(WORKERS)
    run = judged(msmemscope, out, [*python, script, "spawn"], 2, "--device=cpu")
    own = [one for every in growths(msmemscope, run).values() for one in every if one["own"]]
    assert len(own) == 2
    for growth in own:
        check_worker(growth)
