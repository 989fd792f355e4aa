# SPDX-License-Identifier: Apache-2.0
"""Ranges of the program's own in every form; prints [name, how many] of what must be there."""
import asyncio
import json

import msmemscope

count = {}


def note(name, times=1):
    count[name] = count.get(name, 0) + times


with msmemscope.RecordFunction("outer"):
    note("outer")
    with msmemscope.RecordFunction("inner, \"quoted\"\nin two lines"):
        note("inner, \"quoted\"\nin two lines")

try:
    with msmemscope.RecordFunction("raises"):
        note("raises")
        raise KeyError
except KeyError:
    pass


@msmemscope.RecordFunction("decorated")
def decorated(x, *, y):
    """Its text."""
    note("decorated")
    return x + y


assert decorated(1, y=2) == 3 and decorated.__name__ == "decorated" and decorated.__doc__ == "Its text."


@msmemscope.RecordFunction("again and again")
def recursive(depth):
    note("again and again")
    return recursive(depth - 1) if depth else 0


recursive(4)


@msmemscope.RecordFunction("协程")
async def coroutine(x):
    note("协程")
    await asyncio.sleep(0)
    return x


async def both():
    return await asyncio.gather(coroutine(1), coroutine(2))

assert asyncio.run(both()) == [1, 2]


@msmemscope.RecordFunction("values")
def values():
    note("values")
    received = yield 1
    return received


generator = values()
next(generator)
try:
    generator.send(5)
except StopIteration as end:
    assert end.value == 5

with msmemscope.RecordFunction("x" * 128):
    note("x" * 128)
for bad, error in (("x" * 129, ValueError), (7, TypeError)):
    try:
        msmemscope.RecordFunction(bad)
    except error:
        pass
    else:
        raise AssertionError(bad)
print(json.dumps(count))
