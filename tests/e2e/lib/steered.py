# SPDX-License-Identifier: Apache-2.0
"""A program on the simulated NPU that does what a test tells it, waits, and knows what it holds.

    program = Steered(scripts, ["--analysis=leaks"])       under the command; mode="start": by itself, with start()
    truth = program.do(["alloc", 4096, 0], ["step"], ["free", 2])

Each `do` is a line on its standard input; the answer is a line with what it holds by then, by device:
{"0": {"used", "peak", "blocks", "allocs", "frees"}}. Between two of them it waits, so figures of now are exactly these.
"""
import json
import os
import subprocess

import pytest

import harness
from scripts import PYTHON

SCRIPT = """
import json, os, random, sys, threading
import npu
import msmemscope
held = []
truth = {}
lock = threading.Lock()

def of(device):
    return truth.setdefault(str(device), {"used": 0, "peak": 0, "blocks": 0, "allocs": 0, "frees": 0})

def alloc(size, device=0):
    block = npu.alloc(size, device, note=False)
    one = of(device)
    one["used"] += size
    one["blocks"] += 1
    one["allocs"] += 1
    one["peak"] = max(one["peak"], one["used"])
    return [block, size, device]

def drop(entry):
    block, size, device = entry
    npu.free(block, note=False)
    one = of(device)
    one["used"] -= size
    one["blocks"] -= 1
    one["frees"] += 1

def keep(size, device=0):
    held.append(alloc(size, device))

def churn(count, seed):
    chance = random.Random(seed)
    mine = []
    for _ in range(count):
        if mine and chance.random() < 0.55:
            entry = mine.pop(chance.randrange(len(mine)))
            with lock:
                drop(entry)
        else:
            size, device = chance.choice((512, 4096, 65536)), chance.randrange(2)
            with lock:
                mine.append(alloc(size, device))
    with lock:
        held.extend(mine)

def free(index):
    drop(held.pop(index))

def free_all():
    while held:
        free(-1)

def threads(count, events, seed):
    crew = [threading.Thread(target=churn, args=(events, seed + i)) for i in range(count)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()

words = {"alloc": keep, "free": free, "free_all": free_all, "step": msmemscope.step, "churn": churn, "threads": threads,
         "start": msmemscope.start, "stop": msmemscope.stop}
if os.environ.get("BY_ITSELF"):
    msmemscope.config(output=os.environ["OUT"])
    msmemscope.start()
print(json.dumps({"pid": os.getpid()}), flush=True)
for line in sys.stdin:
    for what, *arguments in json.loads(line):
        words[what](*arguments)
    print(json.dumps(truth), flush=True)
"""


class Steered:
    def __init__(self, scripts, options=(), mode="command", env=None, name="steered.py"):
        self.results = scripts.results
        path = scripts.out / name
        path.write_text(SCRIPT, encoding="utf-8")
        changes = {**scripts.environment(env), "TRUTH": os.devnull}
        words = [PYTHON, str(path)]
        if mode == "start":
            changes.update(BY_ITSELF="1", LD_PRELOAD=str(scripts.dist / "lib64" / "libascend_kernel_hook.so"))
        else:
            words = [str(scripts.dist / "bin" / "msmemscope"), "-o", str(self.results), *options, "--", *words]
        self.errors = open(scripts.out / f"{name}.err", "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,  # pylint: disable=consider-using-with
                                        cwd=scripts.out, env=harness.environment(scripts.dist, changes), start_new_session=True)
        self.pid = self._answer()["pid"]

    def _answer(self):
        line = self.process.stdout.readline()
        self.errors.seek(0)
        assert line, self.errors.read()
        return json.loads(line)

    def do(self, *actions):
        self.process.stdin.write(json.dumps(actions) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self):
        self.process.stdin.close()
        code = self.process.wait(harness.TIMEOUT_S)
        self.errors.seek(0)
        assert code == 0, self.errors.read()

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


@pytest.fixture
def steered(scripts):
    programs = []

    def start(*arguments, **options):
        programs.append(Steered(scripts, *arguments, **options))
        return programs[-1]

    yield start
    for one in programs:
        one.close()
