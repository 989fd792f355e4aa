# SPDX-License-Identifier: Apache-2.0
"""`msmemscope whatif` of memory snapshots that begin in the middle of a program: a ring buffer lost the start, or recording began late.

tests/twin/records.json.xz has what real allocators of PyTorch wrote into their history for random programs, and their segments at the
end (`tests/oracle/oracle.py records`).
"""
import json
import lzma
import pickle
from pathlib import Path

import pytest

RECORDS = json.loads(lzma.decompress((Path(__file__).resolve().parents[1] / "twin/records.json.xz").read_bytes()))
MIB = 1 << 20
RANGE = 1 << 40  # distance of made-up arenas


@pytest.fixture
def whatif(msmemscope, out):
    """whatif(snapshot, options..., code=0): the pools of the JSON document, and what went to standard error."""
    def ask(snapshot, *options, code=0):
        path = out / "snapshot.pickle"
        path.write_bytes(pickle.dumps(snapshot, protocol=4))
        result = msmemscope("whatif", *options, "--json", str(path), output=False)
        assert result.returncode == code, result
        return json.loads(result.stdout)["pools"] if result.stdout else result.stderr

    return ask


def cut(snapshot, share):
    trace = snapshot["device_traces"][0]
    return {**snapshot, "device_traces": [trace[int(len(trace) * share):]]}


@pytest.mark.parametrize("release", sorted({record["torch"] for record in RECORDS}))
def test_what_real_allocators_wrote_is_replayed_from_any_moment(whatif, release):
    for record in (record for record in RECORDS if record["torch"] == release):
        for share in (0, 0.13, 0.35, 0.6, 0.85):
            (pool,) = whatif(cut(record["snapshot"], share), f"--torch={release}", "--set=")
            assert pool["agrees"], (record["seed"], record["snapshot"]["allocator_settings"], share, pool["refusal"])


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_release_is_found_from_the_middle_as_well(whatif, share):
    for record in RECORDS[:8]:
        (pool,) = whatif(cut(record["snapshot"], share), "--set=", "--set=expandable_segments:True")
        assert pool["agrees"] and len(pool["settings"]) == 2


class Arena:
    """A history of one expandable segment of large blocks that are handed out and freed from its front."""

    def __init__(self, base=RANGE):
        self.base, self.mapped, self.trace = base, 0, []

    def entry(self, action, address, size, stream=0):
        self.trace.append({"action": action, "addr": address, "size": size, "stream": stream})

    def request(self, at, size):
        """A block `at` bytes from the start; maps what is needed for it."""
        while self.mapped < at + size:
            self.entry("segment_map", self.base + self.mapped, 20 * MIB)
            self.mapped += 20 * MIB
        self.entry("alloc", self.base + at, size)
        return self.base + at, size

    def free(self, block):
        self.entry("free_requested", *block)
        self.entry("free_completed", *block)

    def snapshot(self, blocks, first=0, **more):
        """`blocks`: what is in use at the end, by address; the arena is mapped from `first` bytes on."""
        at, rows = self.base + first, []
        for address, size in (*blocks, (self.base + self.mapped, 0)):
            if address > at:
                rows.append({"size": address - at, "requested_size": 0, "state": "inactive"})
            if size:
                rows.append({"size": size, "requested_size": size, "state": "active_allocated"})
            at = address + size
        segment = {"device": 0, "address": self.base + first, "total_size": self.mapped - first, "stream": 0, "segment_type": "large",
                   "is_expandable": True, "segment_pool_id": (0, 0), "blocks": rows}
        return {"segments": [segment], "device_traces": [self.trace], **more}


def test_settings_that_are_not_told_are_seen_in_the_segments(whatif, msmemscope, out):
    arena = Arena()
    kept, freed = arena.request(0, 30 * MIB), arena.request(30 * MIB, 25 * MIB)
    del arena.trace[:]
    arena.free(freed)
    last = arena.request(30 * MIB, 50 * MIB)
    (pool,) = whatif(arena.snapshot([kept, last]), "--set=", "--set=expandable_segments:True")
    assert pool["agrees"] and pool["set"] == "expandable_segments:True" and pool["reserved_peak"] == 80 * MIB
    assert "expandable_segments:True assumed)" in msmemscope("whatif", str(out / "snapshot.pickle"), output=False).stdout


def test_the_front_of_an_expandable_segment_that_is_mapped_later(whatif):
    """Before the record, the front was unmapped by empty_cache(); in it, a request gets it back. The record has no other sign of it."""
    arena = Arena()
    arena.mapped = 100 * MIB
    kept = (arena.base + 60 * MIB, 40 * MIB)
    arena.entry("segment_map", arena.base, 40 * MIB)
    arena.entry("alloc", arena.base, 40 * MIB)
    front = (arena.base, 40 * MIB)
    arena.free(front)
    small = arena.request(0, 15 * MIB)
    snapshot = arena.snapshot([small])
    snapshot["segments"][0]["total_size"] = 40 * MIB
    snapshot["segments"][0]["blocks"] = [{"size": 15 * MIB, "requested_size": 15 * MIB, "state": "active_allocated"},
                                         {"size": 25 * MIB, "requested_size": 0, "state": "inactive"}]
    back = dict(snapshot["segments"][0], address=kept[0], total_size=kept[1],
                blocks=[{"size": kept[1], "requested_size": kept[1], "state": "active_allocated"}])
    snapshot["segments"].append(back)
    (pool,) = whatif(snapshot, "--set=expandable_segments:True")
    assert pool["agrees"] and pool["reserved_peak"] == 80 * MIB


def test_memory_that_was_mapped_for_a_refused_request_stays(whatif):
    arena = Arena()
    first = arena.request(0, 60 * MIB)
    arena.entry("segment_map", arena.base + 60 * MIB, 20 * MIB)
    arena.mapped += 20 * MIB
    arena.entry("oom", 0, 500 * MIB)
    second = arena.request(60 * MIB, 15 * MIB)  # from what was mapped
    (pool,) = whatif(arena.snapshot([first, second], allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
    assert pool["agrees"] and pool["reserved_peak"] == 80 * MIB


def test_a_free_segment_of_a_stream_that_requests_nothing_more(whatif):
    """It was cached before the record began, and is given back in it."""
    trace = [{"action": "segment_alloc", "addr": RANGE, "size": 20 * MIB, "stream": 0}, {"action": "alloc", "addr": RANGE, "size": 5 * MIB, "stream": 0},
             {"action": "segment_free", "addr": 2 * RANGE, "size": 64 * MIB, "stream": 7},
             {"action": "alloc", "addr": RANGE + 5 * MIB, "size": 5 * MIB, "stream": 0}]
    segment = {"device": 0, "address": RANGE, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "is_expandable": False,
               "segment_pool_id": (0, 0), "blocks": [{"size": 5 * MIB, "requested_size": 5 * MIB, "state": "active_allocated"}] * 2 +
               [{"size": 10 * MIB, "requested_size": 0, "state": "inactive"}]}
    (pool,) = whatif({"segments": [segment], "device_traces": [trace], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}})
    assert pool["agrees"] and pool["reserved_peak"] == 84 * MIB


def test_records_that_end_before_a_free_segment_goes_do_not_lose_it(whatif):
    trace = [{"action": "segment_alloc", "addr": RANGE, "size": 20 * MIB, "stream": 0}, {"action": "alloc", "addr": RANGE, "size": 5 * MIB, "stream": 0}]
    segments = [{"device": 0, "address": at, "total_size": 20 * MIB, "stream": stream, "segment_type": "large", "is_expandable": False,
                 "segment_pool_id": (0, 0), "blocks": []} for at, stream in ((RANGE, 0), (2 * RANGE, 7))]
    segments[0]["blocks"] = [{"size": 5 * MIB, "requested_size": 5 * MIB, "state": "active_allocated"}]
    (pool,) = whatif({"segments": segments, "device_traces": [trace], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}})
    assert pool["agrees"] and pool["reserved_peak"] == 40 * MIB
