# SPDX-License-Identifier: Apache-2.0
"""Plays lists of requests with torch_npu's own pool, each on a device of its own until there are no more, and writes what the pool tells.

    pool_requests.py CASES.json OUT

A case has `events` ("a ID BYTES STREAM", "f ID", "e" for empty_cache(), "p POOL STREAM", "q POOL", "r POOL": a private pool begins, ends, is no
longer used) and `fraction` of the device's memory, or null. OUT/NUMBER.pickle is a memory snapshot with the history of the requests, and nothing
else but settings; a line of JSON has the figures of each.
"""
import json
import os
import pathlib
import pickle
import sys

import torch
import torch_npu  # noqa: F401 (it makes torch.npu)

SETTINGS = os.environ.get("PYTORCH_NPU_ALLOC_CONF", "")


class Player:
    def __init__(self, device):
        self.device = device
        torch.npu.set_device(device)
        self.streams = {}
        self.addresses = {}
        self.pools = {}  # private pools in use: number -> (pool, context)
        self.empties = []
        self.served = 0

    def stream(self, number):
        """0 is the one that every program has."""
        if number not in self.streams:
            self.streams[number] = torch.npu.current_stream() if number == 0 else torch.npu.Stream()
        return self.streams[number].npu_stream

    def request(self, which, size, stream):
        try:
            self.served += 1
            self.addresses[which] = torch_npu._C._npu_npuCachingAllocator_raw_alloc(size, self.stream(stream))
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            self.served -= 1

    def free(self, which):
        address = self.addresses.pop(which, None)
        if address is not None:
            torch_npu._C._npu_npuCachingAllocator_raw_delete(address)

    def end(self):
        """Leaves the device's pool as it was found."""
        for which in list(self.addresses):
            self.free(which)
        torch.npu.set_per_process_memory_fraction(1.0, self.device)
        torch.npu.empty_cache()
        torch.npu.reset_peak_memory_stats(self.device)
        torch.npu.reset_accumulated_memory_stats(self.device)

    def play(self, events):
        for event in events:
            kind, *numbers = event.split()
            if kind == "a":
                self.request(*map(int, numbers))
            elif kind == "f":
                self.free(int(numbers[0]))
            else:
                self.empties.append(len(entries(self.device)))
                torch.npu.empty_cache()


def entries(device):
    return [{key: value for key, value in entry.items() if key != "frames"} for entry in torch.npu.memory._snapshot()["device_traces"][device]]


def play(number, case, out):
    device = number % torch.npu.device_count()
    player = Player(device)
    if case["fraction"] is not None:
        torch.npu.set_per_process_memory_fraction(case["fraction"], device)
    # The history begins anew, and has no stacks.
    torch.npu.memory._record_memory_history("all", context=None, max_entries=1 << 20)
    player.play(case["events"])
    stats = torch.npu.memory_stats(device)
    # Before 2.10 a limit stays once there was one.
    share = {"device": device, "fraction": repr(case["fraction"] or (0.0 if number == device else 1.0)), "late": False,
             "device_bytes": torch.npu.get_device_properties(device).total_memory}
    settings = {"PYTORCH_NPU_ALLOC_CONF": SETTINGS, "torch_version": torch_npu.__version__, "memory_fractions": [share],
                "empty_cache": [{"device": device, "entry": entry} for entry in player.empties]}
    snapshot = {"segments": [], "device_traces": [[] for _ in range(device)] + [entries(device)], "allocator_settings": settings}
    (out / f"{number}.pickle").write_bytes(pickle.dumps(snapshot, protocol=4))
    print(json.dumps({"case": number, "reserved_peak": stats["reserved_bytes.all.peak"], "in_use_peak": stats["allocated_bytes.all.peak"],
                      "retries": stats["num_alloc_retries"], "ooms": stats["num_ooms"], "requests": player.served}), flush=True)
    player.end()


def main(cases, out):
    for number, case in enumerate(json.loads(pathlib.Path(cases).read_text(encoding="utf-8"))):
        play(number, case, pathlib.Path(out))


main(*sys.argv[1:])
