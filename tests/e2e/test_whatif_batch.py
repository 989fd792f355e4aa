# SPDX-License-Identifier: Apache-2.0
"""`msmemscope whatif SMALL BIG --batch=...`: the pool with another batch.

Random programs whose truth is known: each is written for a batch, the twin (which is proven against the real allocator) plays it, and
what it gave is the memory snapshot that is asked about. The truth of another batch is the same program written for that batch.
"""
import json
import lzma
import pickle
import random
import subprocess
import zlib
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).resolve().parents[1] / "twin/snapshots"
MIB = 1 << 20
DEVICE = 1 << 37


class Program:
    """Requests and frees as the twin's player takes them."""

    def __init__(self):
        self.events, self.sites, self.count = [], [], 0

    def request(self, size, site):
        self.count += 1
        self.events.append(("a", self.count, int(size)))
        self.sites.append(site)
        return self.count

    def free(self, *ids):
        self.events += [("f", one) for one in ids]


def training(seed, batch, steps=3):
    """A network of random layers: weights, activations of a + b x batch, workspaces of constant size, gradients, an optimizer."""
    rng = random.Random(seed)
    layers = [(rng.randrange(1, 40) * 100_000, rng.randrange(1, 200) * 4096, rng.choice([0, 0, 64, 4096]), rng.random() < 0.3)
              for _ in range(rng.randrange(4, 12))]
    p = Program()
    weights = [p.request(weight, f"init{i}") for i, (weight, *_) in enumerate(layers)]
    states = []
    for step in range(steps):
        inputs, kept, gradients = p.request(batch * 8192, "data"), [], []
        for i, (weight, per_sample, constant, workspace) in enumerate(layers):
            if workspace:
                p.free(p.request(3_000_000, f"workspace{i}"))
            kept.append(p.request(constant + batch * per_sample, f"forward{i}"))
            mask = p.request(batch * per_sample // 4, f"mask{i}")
            if i % 2:
                p.free(mask)
            else:
                kept.append(mask)
        flow = p.request(batch * 4000, "loss")
        for i, (weight, per_sample, *_) in reversed(list(enumerate(layers))):
            following = p.request(batch * per_sample, f"backward{i}")
            gradients.append(p.request(weight, f"gradient{i}"))
            p.free(flow, kept.pop())
            flow = following
        p.free(flow, inputs, *kept)
        if step == 0:
            states = [p.request(weight, f"state{i}") for i, (weight, *_) in enumerate(layers)]
        p.free(*gradients)
    p.free(*weights, *states)
    return p


def decoding(seed, batch):
    """The cache of each sample grows by concatenation, sample by sample: the number of requests depends on the batch."""
    rng = random.Random(seed)
    p = Program()
    weight, per_token = p.request(30 * MIB, "init"), rng.randrange(4, 30) * 65536
    cache = 0
    for token in range(1, 30):
        for sample in range(batch):
            p.free(p.request(per_token, "one"))
        longer = p.request(batch * token * per_token, "cat")
        p.free(*([cache] if cache else []))
        cache = longer
    p.free(cache, weight)
    return p


def waiting(seed, batch):
    """The same requests for every batch, and old caches are kept for a time that depends on it."""
    rng = random.Random(seed)
    p = Program()
    held, per_sample = [], rng.randrange(10, 40) * 10000
    for turn in range(200):
        held.append(p.request(batch * per_sample * (1 + turn % 7), "cat"))
        if len(held) > batch:
            p.free(held.pop(0))
    p.free(*held)
    return p


def attention(seed, length):
    """Scores of attention grow with the square of the length."""
    rng = random.Random(seed)
    width = rng.randrange(8, 64) * 16
    p = Program()
    weights = [p.request(4 * width * width, f"init{i}") for i in range(6)]
    for _ in range(3):
        kept = []
        for i in range(6):
            kept.append(p.request(4 * 8 * length * width, f"qkv{i}"))
            kept.append(p.request(4 * 8 * length * length, f"scores{i}"))
        p.free(*reversed(kept))
    p.free(*weights)
    return p


@pytest.fixture
def play(targets):
    """play(program, limit=None): the lines and figures of the twin."""
    def run(program, limit=None):
        lines = [f"a {event[1]} {event[2]} 0" if event[0] == "a" else f"f {event[1]}" for event in program.events]
        fraction = "-" if limit is None else repr(limit / DEVICE)
        text = "\n".join(["program", *lines, f"run 2.11.0 {DEVICE} {fraction} -"]) + "\n"
        out = subprocess.run([targets.parent / "twin/twin_player"], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
        return out[:-1], {name: int(value) for name, value in (word.split("=") for word in out[-1].split()[1:])}

    return run


@pytest.fixture
def snapshot(play, out):
    """snapshot(program, name, sites): its memory snapshot as PyTorch would write it."""
    def make(program, name, sites=True):
        lines, _ = play(program)
        given, entries, reserved, live = iter(lines), [], 0, {}
        for event in program.events:
            if event[0] == "f":
                address, size = live.pop(event[1])
                entries += [{"action": action, "addr": address, "size": size, "stream": 0} for action in ("free_requested", "free_completed")]
                continue
            _, address, now = next(given).split()
            address, now = int(address, 16), int(now)
            if now > reserved:
                entries.append({"action": "segment_alloc", "addr": address, "size": now - reserved, "stream": 0})
            reserved = now
            live[event[1]] = (address, event[2])
            site = program.sites[event[1] - 1]
            frames = [{"filename": "/usr/lib/python3/site-packages/torch/nn.py", "name": "forward", "line": 7},
                      {"filename": "/data/train.py", "name": site, "line": 10 + zlib.crc32(site.encode()) % 10000}]
            entries.append({"action": "alloc", "addr": address, "size": event[2], "stream": 0, **({"frames": frames} if sites else {})})
        path = out / name
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": [entries], "allocator_settings": {}}, protocol=4))
        return path

    return make


@pytest.fixture
def ask(msmemscope):
    """ask(paths, options...): the pool of the JSON document."""
    def run(paths, *options, code=0):
        done = msmemscope("whatif", *options, "--json", *map(str, paths), output=False)
        assert done.returncode == code, str(done)
        [pool] = json.loads(done.stdout)["pools"]
        return pool

    return run


@pytest.mark.parametrize("seed", range(8))
def test_other_batches_of_random_trainings_are_predicted(ask, snapshot, play, seed):
    runs = [snapshot(training(seed, batch), f"b{batch}.pickle", sites=seed % 2 == 0) for batch in (8, 12)]
    pool = ask(runs, "--batch=16,24,4")
    assert pool["paired"] == pool["allocations"] and pool["not_linear"] == []
    for row in pool["batches"]:
        truth = play(training(seed, row["batch"]))[1]["reserved_peak"]
        assert row["low"] <= truth <= row["high"] or abs(row["reserved_peak"] - truth) <= 0.005 * truth, (row, truth)


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_batch_for_a_limit_is_the_largest_that_fits(ask, snapshot, play, seed):
    runs = [snapshot(training(seed, batch), f"b{batch}.pickle") for batch in (4, 8)]
    limit = play(training(seed, 20))[1]["reserved_peak"] // (2 * MIB) * 2 * MIB
    pool = ask(runs, "--batch=40", f"--limit={limit}")
    largest = next(batch for batch in range(60, 0, -1) if play(training(seed, batch), limit)[1]["ooms"] == 0)
    assert abs(pool["largest_batch"] - largest) <= 1, (pool, largest)
    assert pool["batches"][0]["fits"] is False


@pytest.mark.parametrize("program, words", [(decoding, "do not make the same requests"), (waiting, "do not free at the same moments")])
def test_loops_whose_requests_depend_on_the_batch_are_refused(ask, snapshot, program, words):
    for seed in range(3):
        runs = [snapshot(program(seed, batch), f"b{batch}.pickle", sites=seed > 0) for batch in (8, 12)]
        assert words in ask(runs, "--batch=24", code=1)["refusal"]


@pytest.mark.parametrize("seed", range(3))
def test_squares_need_a_third_run(ask, snapshot, play, seed):
    runs = [snapshot(attention(seed, length), f"length{length}.pickle", sites=seed != 1) for length in (512, 768, 1024)]
    refused = ask(runs[:2], "--batch=2048", code=1)
    assert "the square of the batch" in refused["refusal"] and "Give a third run" in refused["refusal"]
    if seed != 1:
        assert {site["call_site"].split()[1][:6] for site in refused["not_linear"]} == {"scores"}
    [row] = ask(runs, "--batch=2048")["batches"]
    truth = play(attention(seed, 2048))[1]["reserved_peak"]
    assert abs(row["reserved_peak"] - truth) <= 0.005 * truth


def test_what_the_h200_reserved_with_larger_batches(ask, out):
    """Batches 16 and 24 of a transformer, from snapshots of batches 8 and 12."""
    paths = []
    for name, batch in (("gpt", 8), ("gpt-batch12", 12)):
        paths.append(out / f"gpt-{batch}.pickle")
        paths[-1].write_bytes(lzma.decompress((SNAPSHOTS / f"{name}.pickle.xz").read_bytes()))
    pool = ask(paths, "--batch=16,24", "--torch=2.11")
    assert [row["reserved_peak"] for row in pool["batches"]] == [2885681152, 4236247040]


def test_batches_of_the_runs_are_read_from_names_or_said(ask, snapshot, msmemscope):
    runs = [snapshot(training(1, batch), name) for batch, name in ((12, "one-2-of-3.pickle"), (8, "two-3-of-2.pickle"))]
    done = msmemscope("whatif", "--batch=16", *map(str, runs), output=False)
    assert done.returncode == 2 and "Say them: --batch-of=4,8" in done.stderr
    pool = ask(runs, "--batch=16", "--batch-of=12,8")
    assert [run["batch"] for run in pool["runs"]] == [8, 12]
    for words, sentence in ((["--batch=16", "--batch-of=8"], "--batch-of has 1 numbers for 2 runs"),
                            (["--batch=16", "--batch-of=8", "--card=1G"], "--limit but not --card"),
                            (["--batch-of=8,12"], "for --batch=LIST")):
        done = msmemscope("whatif", *words, *map(str, runs), output=False)
        assert done.returncode == 2 and sentence in done.stderr, str(done)


def test_the_text_says_how_many_are_paired_and_the_largest_batch(snapshot, msmemscope):
    runs = [snapshot(training(2, batch), f"b{batch}.pickle") for batch in (8, 12)]
    text = msmemscope("whatif", "--batch=16", "--limit=100M", *map(str, runs), output=False).check().stdout
    assert "runs with batch 8 and 12" in text and "allocations are paired" in text and "recorded" in text and "largest batch" in text


def with_workspaces(batch):
    """A library takes workspaces whose size follows no line: 5 % of the memory."""
    p = Program()
    kept = [p.request(batch * 4 * MIB, f"forward{layer}") for layer in range(20)]
    p.free(p.request({8: 71_000_001, 12: 53_000_003}.get(batch, 60_000_001), "workspace"), *kept)
    return p


def test_sizes_that_follow_no_line_are_named_and_make_ranges(ask, snapshot, play):
    runs = [snapshot(with_workspaces(batch), f"b{batch}.pickle") for batch in (8, 12)]
    pool = ask(runs, "--batch=16", f"--limit={1500 * MIB}")
    assert [site["call_site"].split()[1] for site in pool["not_linear"]] == ["workspace"]
    [row] = pool["batches"]
    assert row["low"] < play(with_workspaces(16))[1]["reserved_peak"] < row["high"]
    # The search for the largest batch takes workspaces to grow with the batch.
    assert pool["largest_batch"] == 17


def test_python_gets_the_same(ask, snapshot, dist):
    runs = [snapshot(training(3, batch), f"b{batch}.pickle") for batch in (8, 12)]
    script = ("import json, sys, msmemscope\n"
              "print(json.dumps(msmemscope.whatif(sys.argv[1:], batch=[16, 24], batch_of=(8, 12), limit=1 << 30)))\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, *runs], env={"PYTHONPATH": str(dist / "python")}, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [ask(runs, "--batch=16,24", "--batch-of=8,12", f"--limit={1 << 30}")]
