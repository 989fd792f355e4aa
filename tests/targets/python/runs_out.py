# SPDX-License-Identifier: Apache-2.0
"""runs_out.py KIND SEED: a script that takes memory of the driver until there is none, on a device of SIMNPU_HBM bytes.

KIND fills: steps of 50 ms and more that keep more each, by one of seven forms; prints {"full": STEP} at the end, and the step in progress into
the file $STEP. With `fast` as well it does not wait.
KIND short: one of eleven shapes; the first line on stdout is the causes that are true of it, and then a request is refused.
"""
import json
import os
import random
import sys
import time

import npu

TOTAL = int(os.environ["SIMNPU_HBM"][:-1]) << 20


def whole(size):
    return max(512, int(size) // 512 * 512)


# ---- fills ----

def ask(size, step):
    try:
        return npu.alloc(size, note=False)
    except AssertionError:
        print(json.dumps({"full": step}), flush=True)
        sys.exit(0)


def fills(chance, waits):
    planned, form = chance.randrange(32, 110), chance.choice(("one", "one", "replaced", "every", "two", "uneven", "three"))
    base, moving, pause = chance.uniform(.05, .4), chance.uniform(.01, .12), chance.uniform(.05, .09)
    every = chance.choice((2, 3)) if form == "every" else 1
    size = whole(TOTAL * (1 - base - moving) / planned * every / (2 if form == "replaced" else 1))
    weights, kept, history, length, step = [npu.alloc(whole(TOTAL * base / 8), note=False) for _ in range(8)], [], None, 0, 0
    while True:
        step += 1
        for block in [ask(whole(TOTAL * moving / 4 * chance.uniform(.6, 1)), step) for _ in range(4)]:
            npu.free(block, note=False)
        if form == "replaced":
            length += size
            longer = ask(length, step)
            if history is not None:
                npu.free(history, note=False)
            history = longer
        elif form == "two":
            kept.append(ask(size // 3, step))
            kept.append(ask(size - size // 3, step))
        elif form == "three":
            kept += [ask(int(size // 3 * chance.uniform(.7, 1.3)), step) for _ in range(3)]
        elif step % every == 0:
            kept.append(ask(int(size * chance.uniform(.5, 1.5)) if form == "uneven" else size, step))
        if waits:
            time.sleep(pause)
            with open(os.environ["STEP"] + ".new", "w", encoding="ascii") as file:
                file.write(str(step))
            os.replace(file.name, os.environ["STEP"])
            npu.step()
    return weights


# ---- short ----

def work(chance, rounds, most, steps=False):
    for _ in range(rounds):
        npu.free(npu.alloc(whole(TOTAL * most * chance.uniform(.5, 1)), note=False), note=False)
        if steps:
            npu.step()


def load(size):
    return npu.alloc(size, note=False)


def short(chance):
    kind = chance.choice(("third", "third_later", "third_in_steps", "row", "row_in_steps", "lines", "grows", "grows_in_steps", "two_lines_grow", "spike",
                          "spike_in_steps"))
    causes = {"third": "full growth", "third_later": "full growth", "third_in_steps": "full growth", "row": "growth", "lines": "growth full",
              "spike": "spike", "spike_in_steps": "spike"}
    print(json.dumps({"kind": kind, "causes": causes.get(kind, "growth").split()}), flush=True)
    if kind in ("third_in_steps", "row_in_steps"):
        count, kept = 2 if kind == "third_in_steps" else chance.randrange(4, 9), []
        size = whole(TOTAL * .97 / (count + chance.uniform(.1, .9)))
        work(chance, chance.randrange(12), .02, True)
        while True:
            work(chance, chance.randrange(1, 3), .02)
            kept.append(load(size))
            npu.step()
    if kind.startswith("third"):
        if kind == "third_later":
            work(chance, chance.randrange(5, 40), .02)
        size, form = whole(TOTAL * chance.uniform(.34, .49)), chance.randrange(2)
        kept = [npu.alloc(size, note=False) for _ in range(3)] if form == 0 else [load(size), load(size), load(size)]
    elif kind in ("row", "lines"):
        count = chance.randrange(4, 9)
        size, kept = whole(TOTAL / (count + chance.uniform(.1, .9))), []
        while kind == "row":
            kept.append(npu.alloc(size, note=False))
        for first in range(0, 12, 3):
            kept.append(npu.alloc(size, note=False))
            kept.append(load(size))
            kept.append(npu.alloc(size if first else size // 512 * 512, note=False))
    elif "grow" in kind:
        count, base = chance.randrange(8, 60), chance.uniform(.05, .5)
        size, kept = whole(TOTAL * (1 - base) / count), [npu.alloc(whole(TOTAL * base), note=False)]
        while True:
            work(chance, chance.randrange(1, 4), .05)
            if kind == "two_lines_grow":
                kept.append(npu.alloc(size // 2, note=False))
                kept.append(npu.alloc(size // 2, note=False))
            else:
                kept.append(npu.alloc(size, note=False))
            if kind == "grows_in_steps":
                npu.step()
    else:
        base, most = chance.uniform(.05, .4), chance.uniform(.01, .08)
        kept = [npu.alloc(whole(TOTAL * base), note=False)]
        work(chance, chance.randrange(8, 80), most, kind == "spike_in_steps")
        kept.append(npu.alloc(whole(TOTAL * chance.uniform(max(1 - base, .5) + .03, 1.6)), note=False))
    return kept


if sys.argv[1] == "fills":
    fills(random.Random(int(sys.argv[2])), "fast" not in sys.argv)
else:
    short(random.Random(int(sys.argv[2])))
