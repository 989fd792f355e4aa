# SPDX-License-Identifier: Apache-2.0
"""Hooks on functions of every shape: each does what it did, raises what it raised, and is the same object again after cleanup.

Checks itself; notes the owner of each block (told.py). Run by tests/e2e/test_hooks.py.
"""
import asyncio
import functools
import importlib
import inspect
import os
import pickle
import sys
import threading

import msmemscope
from msmemscope import _hooks_table as table
from told import said, take, tell

HERE = os.path.dirname(sys.modules["told"].__file__)
WARES = '''
import functools
from told import take
def plain(x, *rest, key=1):
    """Its text."""
    take("wares@plain")
    return x, rest, key
def raises():
    take("wares@raises")
    raise KeyError("mine")
def counts(to):
    for i in range(to):
        take("wares@counts")
        got = yield i
        if got: take("wares@counts")
    return "done"
async def waits(x):
    import asyncio
    take("wares@waits")
    await asyncio.sleep(0)
    take("wares@waits")
    return x
async def streams(to):
    for i in range(to):
        take("wares@streams")
        try:
            got = yield i
        except KeyError:
            got = "thrown"
        if got: take("wares@streams")
class Base:
    def method(self, x): take("wares@method"); return self, x
    @classmethod
    def of_class(cls, x): take("wares@of_class"); return cls, x
    @staticmethod
    def static(x): take("wares@static"); return x
    def inherited(self): take("wares@inherited"); return "base"
class Derived(Base):
    def method(self, x):
        take("wares@method")
        return super().method(x)
constant = 3
part = functools.partial(plain, 5)
'''
OTHER = "from wares import plain\n"
for name, text in (("wares", WARES), ("wares_other", OTHER)):
    with open(os.path.join(HERE, f"{name}.py"), "w", encoding="utf-8") as file:
        file.write(text)

PATHS = ("plain", "raises", "counts", "waits", "streams", "Base.method", "Base.of_class", "Base.static", "Derived.inherited")
table.FRAMEWORKS["wares"] = table.Framework("wares")
table.TABLE.append(table.Entry("wares", "1+", "all", ("decompose", "snapshot"), tuple(
    table.Target("wares", path, path, "wares@" + path.rpartition(".")[2], subclasses="method" in path) for path in PATHS)))


def on(kind="decompose"):
    msmemscope.init_framework_hooks("wares", "1.0", "all", kind)


def snapshot_of(wares):
    return [vars(wares)[name] for name in ("plain", "raises", "counts", "waits", "streams")], \
        [dict(vars(cls)) for cls in (wares.Base, wares.Derived)]


# ---- imported afterwards ----
on()
import wares  # noqa: E402
import wares_other  # noqa: E402

assert wares_other.plain is wares.plain
assert wares.plain(1, 2, key=3) == (1, (2,), 3) and wares.plain.__doc__ == "Its text." and wares.plain.__name__ == "plain"
assert str(inspect.signature(wares.plain)) == "(x, *rest, key=1)"
assert pickle.loads(pickle.dumps(wares.plain)) is wares.plain
try:
    wares.raises()
except KeyError as error:
    assert error.args == ("mine",)
else:
    raise AssertionError
take("")

# Generators: values, send, throw, close, result; no owner while they wait.
assert inspect.isgeneratorfunction(wares.counts)
for _ in wares.counts(2):
    take("")
one = wares.counts(2)
assert next(one) == 0 and one.send("more") == 1
take("")
try:
    one.throw(ValueError("out"))
except ValueError as error:
    assert error.args == ("out",)
one = wares.counts(3)
next(one)
one.close()


def outer():
    assert (yield from wares.counts(1)) == "done"


assert list(outer()) == [0]
take("")

# Coroutines that take turns, and async generators.
assert inspect.iscoroutinefunction(wares.waits) and inspect.isasyncgenfunction(wares.streams)


async def aside():
    for _ in range(3):
        take("")
        await asyncio.sleep(0)


async def both():
    assert (await asyncio.gather(wares.waits(1), aside(), wares.waits(2)))[::2] == [1, 2]
    seen = []
    async for value in wares.streams(2):
        take("")
        seen.append(value)
    assert seen == [0, 1]
    stream = wares.streams(3)
    assert await stream.__anext__() == 0 and await stream.asend("more") == 1
    assert await stream.athrow(KeyError()) == 2
    take("")
    await stream.aclose()
    async for value in wares.streams(5):
        break


asyncio.run(both())
take("")

# Methods of every kind.
base, derived = wares.Base(), wares.Derived()
assert base.method(1) == (base, 1) and derived.method(2) == (derived, 2)
assert wares.Base.of_class(1) == (wares.Base, 1) and wares.Derived.of_class(1) == (wares.Derived, 1) and base.static(4) == 4
assert derived.inherited() == "base"
block = base.inherited()
said[list(said)[-1]] = ""  # of the class itself it is not hooked


class Later(wares.Base):
    def method(self, x):
        take("wares@method")
        return x


assert Later().method(7) == 7

# ---- again and again ----
placed = snapshot_of(wares)
on()
on("snapshot")
assert snapshot_of(wares) == placed
take("")
wares.plain(1)

# Threads, while hooks come and go.
msmemscope.cleanup_framework_hooks()
plain_before = wares.plain
failed = []


def call():
    try:
        for _ in range(200):
            assert wares.Base.static(3) == 3 and next(wares.counts(1)) == 0
    except BaseException as error:  # pylint: disable=broad-except
        failed.append(error)


kept = dict(said)
threads = [threading.Thread(target=call) for _ in range(4)]
for thread in threads:
    thread.start()
for _ in range(50):
    on()
    msmemscope.cleanup_framework_hooks()
for thread in threads:
    thread.join()
assert not failed, failed
said.clear()
said.update(kept)
take("")

# ---- everything is what it was ----
assert wares.plain is plain_before and wares_other.plain is plain_before and not hasattr(wares.plain, "__wrapped__")
assert wares.part.func is plain_before
assert "inherited" not in vars(wares.Derived) and "__init_subclass__" not in vars(wares.Base)
assert isinstance(vars(wares.Base)["static"], staticmethod) and isinstance(vars(wares.Base)["of_class"], classmethod)
assert not any(hasattr(getattr(value, "__func__", value), "__wrapped__")
               for holder in (wares, wares.Base, wares.Derived, Later) for value in vars(holder).values() if callable(value))
assert "MSMEMSCOPE_HOOKS" not in os.environ
before = snapshot_of(wares)

# ---- imported before ----
on()
assert wares.plain is not plain_before and wares_other.plain is wares.plain
wares_other.plain(1)
msmemscope.cleanup_framework_hooks()
assert snapshot_of(wares) == before

# A bound method, taken while hooks were there, lives on with those that come back.
on()
bound = base.method
msmemscope.cleanup_framework_hooks()
bound(1)
said[list(said)[-1]] = ""
on()
bound(1)
msmemscope.cleanup_framework_hooks()

# Somebody wraps the wrapper: it stays, does nothing, and is not wrapped twice.
on()
hooked = wares.plain
wares.plain = functools.wraps(hooked)(lambda *args, **kwargs: hooked(*args, **kwargs))
theirs = wares.plain
msmemscope.cleanup_framework_hooks()
assert wares.plain is theirs
wares.plain(1)
said[list(said)[-1]] = ""
on()
assert wares.plain is theirs
wares.plain(1)
msmemscope.cleanup_framework_hooks()
wares.plain = plain_before

# A module that is loaded again has new functions.
on()
importlib.reload(wares)
wares.plain(1)
msmemscope.cleanup_framework_hooks()
assert not hasattr(wares.plain, "__wrapped__")

# One whose import fails at first, and one that asks for hooks while it is imported.
del sys.modules["wares"]
with open(os.path.join(HERE, "wares.py"), "w", encoding="utf-8") as file:
    file.write("import os\nif 'FAIL' in os.environ: raise OSError('not yet')\nimport asker\n" + WARES + "import colorsys\n")
with open(os.path.join(HERE, "asker.py"), "w", encoding="utf-8") as file:
    file.write("import msmemscope\nmsmemscope.init_framework_hooks('wares', '1.0', 'all', 'decompose')\n")
importlib.invalidate_caches()
os.environ["FAIL"] = "1"
on()
try:
    import wares  # noqa: F811
except OSError as error:
    assert error.args == ("not yet",)
else:
    raise AssertionError
del os.environ["FAIL"]
import wares  # noqa: E402, F811
wares.plain(1)
msmemscope.cleanup_framework_hooks()
del sys.modules["wares"], sys.modules["asker"]
import wares  # noqa: E402, F811
import wave  # noqa: E402, F401  # anything that is imported later
wares.plain(1)
msmemscope.cleanup_framework_hooks()
wares.plain(1)
said[list(said)[-1]] = ""
tell()
print("all fine")
