# SPDX-License-Identifier: Apache-2.0
"""Every way in and out of a function: nested, recursive, by exception through Python and C, by generator, by comprehension, by
names that a file has to quote, of objects whose text has a place in it."""
import functools


def leaf(x):
    return len([x])


def nested(x):
    return leaf(x) + leaf(x + 1)


def recursive(depth):
    return 0 if depth == 0 else 1 + recursive(depth - 1)


def raises_in_c():
    try:
        getattr(object(), "nothing")
    except AttributeError:
        pass
    return sorted([3, 1, 2], key=lambda x: -x)


def raises(depth):
    if depth == 0:
        raise KeyError("at the bottom")
    raises(depth - 1)


def through_c():
    """An exception of a Python function that C called."""
    try:
        sorted([1, 2], key=lambda x: x.missing)
    except AttributeError:
        pass


def generator(count):
    for i in range(count):
        yield max(i, 1)


def left_early():
    values = generator(10)
    next(values)
    values.close()


class Thing:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "a thing, \"quoted\""

    @property
    def double(self):
        return self.value * 2

    @staticmethod
    def make(value):
        return Thing(value)


def 中文(x):
    return abs(x)


@functools.lru_cache(maxsize=None)
def cached(x):
    return leaf(x)


nested(1)
recursive(50)
raises_in_c()
try:
    raises(3)
except KeyError:
    pass
through_c()
list(generator(3))
left_early()
[Thing.make(i).double for i in range(3)]
sum(leaf(i) for i in range(3))
中文(-1)
cached(1), cached(1)
[].append(1)
"x".join(["a", "b"])
exec(compile("def quoted(x):\n    return hash(x)\nquoted(1)\n", "a \"name\", with\nall of it.py", "exec"))
for _ in range(100):
    exec(compile("leaf(1)", "<made in a loop>", "exec"))
