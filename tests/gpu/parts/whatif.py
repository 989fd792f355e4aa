# SPDX-License-Identifier: Apache-2.0
"""whatif: reserved peaks under other settings and limits, predicted from one default run, against PyTorch's own counters"""
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, PROGRAMS, Traced, call, check

SHAPES = ("fixed", "varied", "pictures", "serve")
SETTINGS = ("expandable_segments:True", "max_split_size_mb:64", "max_split_size_mb:256", "roundup_power2_divisions:4",
            "expandable_segments:True,roundup_power2_divisions:8")
CLOSE = 0.005


def said(shape, *options, settings=""):
    done = call([sys.executable, PROGRAMS / "whatif.py", shape, *options], {"PYTORCH_CUDA_ALLOC_CONF": settings})
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def asked(record, *options):
    [pool] = json.loads(call([COMMAND, "whatif", "--json", *options, record]).stdout)["pools"]
    assert pool["agrees"], pool
    return pool


def predicted(record, shape):
    """Each setting from the record, against a run under it."""
    pool = asked(record, *(f"--set={text}" for text in SETTINGS))
    exact = 0
    for setting in pool["settings"]:
        truth = said(shape, settings=setting["set"])["reserved"]
        close = abs(setting["reserved_peak"] - truth) <= CLOSE * truth
        assert close or setting["low"] <= truth <= setting["high"], f"{setting} and not {truth}"
        exact += setting["reserved_peak"] == truth
    return f"{exact} of {len(SETTINGS)} to the byte"


def limits(record, shape, truth):
    right = 0
    for share in (0.6, 0.8, 0.95):
        limit = int((truth["in_use"] + share * (truth["reserved"] - truth["in_use"])) // 512 * 512) if share > 0.6 else int(truth["in_use"] * 0.9)
        for text in ("", "expandable_segments:True"):
            [setting] = asked(record, f"--set={text}", f"--limit={limit}")["settings"]
            ooms = said(shape, f"--limit={limit}", settings=text)["ooms"]  # cuDNN goes on with less after one
            assert setting["fits"] == (ooms == 0), f"{limit} {text}: {setting} and {ooms} requests refused"
            right += 1
    return f"{right} of {right}"


def facts(place):
    """Release, memory fraction and calls of empty_cache() are in our trace and in the pickle that it is exported as."""
    limit = 40 << 30
    traced = Traced(place / "facts", [], [sys.executable, PROGRAMS / "whatif.py", "serve", f"--limit={limit}"])
    pool = asked(place / "facts", "--set=", "--set=expandable_segments:True")
    assert pool["torch"] == traced.value()["torch"].split("+")[0], pool["torch"]
    assert all(setting["fits"] for setting in pool["settings"]), pool
    call([COMMAND, "export", "--format=torch", "-o", place / "facts-pickle", place / "facts"])
    [path] = (place / "facts-pickle").rglob("*.pickle")
    kept = pickle.loads(path.read_bytes())["allocator_settings"]
    assert len(kept["empty_cache"]) == 4, kept  # 120 steps, one in 30
    [share] = kept["memory_fractions"]
    assert abs(float(share["fraction"]) * share["device_bytes"] - limit) < 1024, share
    return f"torch {pool['torch']}, {len(kept['empty_cache'])} calls of empty_cache()"


def batches(place):
    """Batch x1.5 and x2 of what two smaller runs had, of sizes for which the libraries choose the same kernels."""
    paths = []
    for batch in (16, 24):
        paths.append(place / f"fixed-{batch}.pickle")
        said("fixed", f"--batch={batch}", f"--snapshot={paths[-1]}")
    [pool] = json.loads(call([COMMAND, "whatif", "--json", "--batch=32,36,48", *paths]).stdout)["pools"]
    exact = 0
    for row in pool["batches"]:
        truth = said("fixed", f"--batch={row['batch']}")["reserved"]
        assert abs(row["reserved_peak"] - truth) <= CLOSE * truth, f"{row} and not {truth}"
        exact += row["reserved_peak"] == truth
    return f"{exact} of {len(pool['batches'])} to the byte, {pool['paired']} of {pool['allocations']} paired"


def spread(shape, settings):
    """Whether the truth itself jumps from run to run."""
    truths = sorted(said(shape, settings=settings)["reserved"] for _ in range(5))
    return f"{truths[0]} to {truths[-1]}: {(truths[-1] - truths[0]) / truths[0]:.2%}"


def of_shape(place, shape):
    snapshot = place / f"{shape}.pickle"
    truth = {}

    @check(f"{shape}: settings from a snapshot")
    def settings():
        truth.update(said(shape, f"--snapshot={snapshot}"))
        return predicted(snapshot, shape)

    @check(f"{shape}: limits from a snapshot")
    def fits():
        return limits(snapshot, shape, truth)

    @check(f"{shape}: our own trace agrees")
    def own():
        traced = Traced(place / f"trace-{shape}", [], [sys.executable, PROGRAMS / "whatif.py", shape])
        pool = asked(place / f"trace-{shape}")
        assert pool["reserved_peak"] == traced.value()["reserved"], pool
        return f"{pool['reserved_peak'] >> 20} MiB"

    @check(f"{shape}: a trace of expandable segments agrees")
    def expandable():
        Traced(place / f"expandable-{shape}", [], [sys.executable, PROGRAMS / "whatif.py", shape],
               {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
        pool = asked(place / f"expandable-{shape}")
        assert pool["set"] == "expandable_segments:True", pool
        return f"{pool['reserved_peak'] >> 20} MiB"


def run(place):
    check("facts of the pool are recorded")(lambda: facts(place))
    check("fixed: other batches")(lambda: batches(place))
    check("varied: five runs under max_split_size_mb:64")(lambda: spread("varied", "max_split_size_mb:64"))
    # Programs do not feel each other: each has its own pool and limit.
    with ThreadPoolExecutor(len(SHAPES)) as pool:
        list(pool.map(lambda shape: of_shape(place, shape), SHAPES))
