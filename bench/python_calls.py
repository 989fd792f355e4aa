# SPDX-License-Identifier: Apache-2.0
"""python_calls.py: what a call of an empty Python function and of a C function takes on this thread. Prints one line of JSON."""
import json
import time

CALLS = 100_000


def empty():
    pass


def nothing():
    start = time.thread_time_ns()
    for _ in range(CALLS):
        pass
    return time.thread_time_ns() - start


def measure(function, *arguments):
    start = time.thread_time_ns()
    if arguments:
        for _ in range(CALLS):
            function(1)
    else:
        for _ in range(CALLS):
            function()
    return time.thread_time_ns() - start


loop = min(nothing() for _ in range(7))
print(json.dumps({"python_ns": (min(measure(empty) for _ in range(7)) - loop) / CALLS,
                  "c_ns": (min(measure(abs, 1) for _ in range(7)) - loop) / CALLS}))
