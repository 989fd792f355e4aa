#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recording costs a training step, by alternation inside one process:

    build/dist/bin/msmemscope --collect-mode=deferred -o /tmp/operators -- \\
        python3 bench/gpu/operators.py --device cuda --seconds 130

On the CPU: --device=cpu and --device cpu. Three models, from one that mostly launches to one that mostly computes. A round takes one
step with each way of recording, in random order, and one more without, for A/A; what counts is the ratio to the step without of
the same round. Prints medians of these ratios with intervals of 95 % (bootstrap), and with --json the same for a program. The dispatch
mode, slow and well known, has part in every fifth round.

"without" has the collector in the process, between two windows; the windows end without waiting for files. A window, and likewise a
stretch without, begins with a step that is not timed: a run has its names and stacks in the trace after the first.
"""
import argparse
import json
import random
import statistics
import sys
import time

import torch

from msmemscope import _aten, _boot, _callback, _control
from msmemscope._native import collector

# name -> (settings of the window, by the dispatch mode)
WAYS = {
    "names": ({"events": "alloc,free,launch"}, False),
    "names and accesses": ({"events": "alloc,free,launch,access"}, False),
    "memory events only": ({"events": "alloc,free"}, False),
    "memory, 20 Python frames": ({"events": "alloc,free", "call_stack": "python:20"}, False),
    "memory, 20 C frames": ({"events": "alloc,free", "call_stack": "c:20"}, False),
    "dispatch mode, names": ({"events": "alloc,free,launch"}, True),
    "dispatch mode, accesses": ({"events": "alloc,free,launch,access"}, True),
}
RECORDER, AGAIN, WITHOUT = "PyTorch's recorder", "A/A", "without"
RARE = 5  # rounds for one with the dispatch mode

# (name, layers, width, sequences, length)
MODELS = {
    "cuda": (("launch-bound", 6, 512, 16, 128), ("between", 8, 1024, 32, 256), ("compute-bound", 8, 2048, 32, 512)),
    "cpu": (("launch-bound", 4, 32, 4, 8), ("between", 4, 128, 8, 32), ("compute-bound", 4, 256, 16, 64)),
}


def by_dispatch_mode(way):
    return way in WAYS and WAYS[way][1]


class Bench:
    def __init__(self, device, layers, width, sequences, length):
        layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.data = torch.randn(sequences, length, width, device=device)
        self.wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
        # On the CPU the time that the process itself computes: the machine may be busy.
        self.clock = time.perf_counter if device == "cuda" else time.process_time

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.data).square().mean().backward()
        self.optimizer.step()

    def timed(self):
        self.wait()
        began = self.clock()
        self.step()
        self.wait()
        return self.clock() - began


def begin(way):
    if way == RECORDER:
        torch.cuda.memory._record_memory_history(max_entries=100000)
    elif way in WAYS:
        settings, by_mode = WAYS[way]
        _callback._state = "its functions" if by_mode else ""
        _aten._mode_noted = True
        _control.choose({"call_stack": "", **settings})
        collector.mscope_start(*_control._chosen())
        _boot.run(collector.mscope_wants())


def end(way):
    if way == RECORDER:
        torch.cuda.memory._record_memory_history(None)
    elif way in WAYS:
        _boot.run(0)
        collector.mscope_stop()
        _callback._state = ""
        _callback.observe(0)


def interval(values, samples=400):
    """Median and its interval of 95 %."""
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(samples))
    return statistics.median(values), medians[int(0.025 * samples)], medians[int(0.975 * samples)]


def measure(bench, ways, seconds):
    """{way: ratios to the step without}, and the median time of that step."""
    for way in ways:
        begin(way)
        for _ in range(3):
            bench.step()
        end(way)
    ratios, plain = {way: [] for way in ways}, []
    limit = time.monotonic() + seconds
    while time.monotonic() < limit or not plain:
        here = [way for way in ways if len(plain) % RARE == 0 or not by_dispatch_mode(way)]
        times = {}
        for way in random.sample([*here, WITHOUT], len(here) + 1):
            begin(way)
            bench.step()
            times[way] = bench.timed()
            end(way)
        plain.append(times[WITHOUT])
        for way in here:
            ratios[way].append(times[way] / times[WITHOUT])
    return ratios, statistics.median(plain)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=MODELS, default="cuda")
    parser.add_argument("--seconds", type=float, default=130, help="for each model")
    parser.add_argument("--models", type=int, default=3)
    parser.add_argument("--only", default="", help="ways that have this word in their names, and A/A")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if collector is None:
        sys.exit("operators.py: start it by msmemscope, with --collect-mode=deferred")
    if arguments.device == "cpu":
        torch.set_num_threads(1)
    random.seed(1)
    torch.manual_seed(1)
    ways = [way for way in (*WAYS, *([RECORDER] if arguments.device == "cuda" else [])) if arguments.only in way] + [AGAIN]
    if not arguments.json:
        print(f"PyTorch {torch.__version__}, Python {sys.version.split()[0]}, "
              f"{torch.cuda.get_device_name() if arguments.device == 'cuda' else 'CPU'}; the callback: {_callback.why_not() or 'found'}")
    else:
        _callback.why_not()
    for name, *shape in MODELS[arguments.device][:arguments.models]:
        bench = Bench(arguments.device, *shape)
        for _ in range(5):
            bench.step()
        ratios, plain = measure(bench, ways, arguments.seconds)
        rounds = len(ratios[AGAIN])
        if arguments.json:
            print(json.dumps({"model": name, "ms": plain * 1e3, "rounds": rounds,
                              "ratios": {way: interval(ratios[way]) for way in ways}}), flush=True)
            continue
        print(f"\n{name}: a step takes {plain * 1e3:.2f} ms without, {rounds} rounds")
        for way in ways:
            print("  {:26} {:6.4f}x  [{:.4f}, {:.4f}]".format(way, *interval(ratios[way])), flush=True)
        del bench


if __name__ == "__main__":
    main()
