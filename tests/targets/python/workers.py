# SPDX-License-Identifier: Apache-2.0
"""Four threads that call functions at the same time, and the main thread too."""
import threading


def inner(x):
    return abs(-x)


def work(count):
    for i in range(count):
        inner(i)


def first():
    work(100)


def second():
    work(200)


def third():
    work(300)


def fourth():
    work(400)


threads = [threading.Thread(target=f) for f in (first, second, third, fourth)]
for thread in threads:
    thread.start()
work(50)
for thread in threads:
    thread.join()
