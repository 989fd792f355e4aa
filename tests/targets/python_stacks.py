# SPDX-License-Identifier: Apache-2.0
"""python_stacks.py [CASE...]: allocates device memory from Python functions of all kinds, each block with a size of its own, and
prints for each size the frames as the interpreter itself tells them: {"size": [[file, line, function], ...]}, innermost first.
The frames are walked at the call's own line, in the function that makes it, so they are exactly those of the allocation."""
import asyncio
import ctypes
import json
import os
import sys
import threading

FLAG = 33 << 56 | 0x904400  # what aclrtMalloc passes for normal pages

ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
hal.halMemFree.argtypes = [ctypes.c_void_p]

truth = {}
sizes = iter(range(4096, 1 << 40, 4096))


def frames(frame):
    """What the interpreter says of a frame and its callers."""
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)])
        frame = frame.f_back
    return found


def allocate():
    address, size = ctypes.c_void_p(), next(sizes)
    truth[size], result = frames(sys._getframe()), hal.halMemAlloc(ctypes.byref(address), size, FLAG)
    assert result == 0
    return address


def nested():
    def inner():
        return allocate()
    return inner()


def freed():
    address = nested()
    size = max(truth)
    truth[f"free {size}"], result = frames(sys._getframe()), hal.halMemFree(address)
    assert result == 0


class Tensor:
    def __init__(self):
        self.address = allocate()

    @property
    def 属性(self):
        return allocate()

    @classmethod
    def 类方法(cls):
        return cls()

    def __del__(self):
        allocate()


def objects():
    Tensor.类方法().属性
    del Tensor().address


def lambdas():
    (lambda: allocate())()
    return list(map(lambda _: (
        allocate()), range(2)))


def comprehensions():
    return ([allocate() for _ in range(2)], {allocate().value for _ in range(1)},
            {0: allocate() for _ in range(1)}, list(allocate() for _ in range(2)))


def generator():
    yield allocate()
    try:
        yield allocate()
    finally:
        allocate()


def delegating():
    yield from generator()


def generators():
    for _ in delegating():
        allocate()
    left = generator()
    next(left)
    left.close()


async def coroutine(depth):
    await asyncio.sleep(0)
    if depth > 0:
        await coroutine(depth - 1)
    return allocate()


async def several():
    await asyncio.gather(coroutine(3), coroutine(1))


def coroutines():
    asyncio.run(several())


def compiled():
    """Texts compiled and thrown away: new functions at the addresses of the old ones."""
    for i in range(50):
        text = "\n" * (i % 7) + "def made():\n" + "    pass\n" * (i % 5) + "    return allocate()\nmade()"
        exec(compile(text, f"<text {i % 3}>", "exec"), {"allocate": allocate})
        eval(compile("\n" * (i % 2) + "allocate()", "<eval>", "eval"))


def recursion(depth=2000):
    return allocate() if depth == 0 else recursion(depth - 1)


def deep():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    recursion()
    sys.setrecursionlimit(limit)


def names():
    """Files and functions whose names need quoting, or more than one byte a character."""
    for file, function in (("a,b.py", "f"), ('say "x".py', "f"), ("目录/文件.py", "函数"), ("é.py", "café"),
                           ("😀.py", "f"), ("a b.py", "ß"), ("x" * 300 + ".py", "y" * 300)):
        space = {"allocate": allocate}
        exec(compile(f"def {function}():\n\n    allocate()\n", file, "exec"), space)
        space[function]()


def handled():
    try:
        allocate() and nested() and [][0]
    except IndexError:
        allocate()
    finally:
        allocate()


def decorated():
    import functools

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args):
            function(*args)
            return function(*args)
        return wrapper

    @twice
    @twice
    def called(_):
        allocate()
    called(functools.reduce(lambda a, b: allocate(), range(3)))


def sorting():
    """Called back from C."""
    sorted([3, 1, 2], key=lambda value: (allocate(), value)[1])


def threads():
    def work():
        for _ in range(20):
            nested()
    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    held = [threading.Thread(target=work_at_once, args=(10001 + 1000 * i,)) for i in range(4)]
    for thread in held:
        thread.start()
    for thread in held:
        thread.join()


def work_at_once(first):
    for i in range(200):
        address, size = ctypes.c_void_p(), first + 2 * i  # odd, as no other is
        truth[size], result = frames(sys._getframe()), hal.halMemAlloc(ctypes.byref(address), size, FLAG)
        assert result == 0
        hal.halMemFree(address)


def locked():
    """Through PyDLL, with the interpreter's lock held."""
    held = ctypes.PyDLL(None).halMemAlloc
    address, size = ctypes.c_void_p(), next(sizes)
    truth[size], result = frames(sys._getframe()), held(ctypes.byref(address), ctypes.c_ulonglong(size),
                                                        ctypes.c_ulonglong(FLAG))
    assert result == 0


def forked():
    nested()
    pid = os.fork()
    if pid == 0:
        nested()
        print(json.dumps(truth), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    nested()


CASES = {name: value for name, value in list(globals().items())
         if callable(value) and name in ("nested", "freed", "objects", "lambdas", "comprehensions", "generators", "coroutines",
                                         "compiled", "deep", "names", "handled", "decorated", "sorting", "threads", "locked")}

for name in sys.argv[1:] or CASES:
    globals()[name]()
print(json.dumps(truth))
