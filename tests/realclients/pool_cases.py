# SPDX-License-Identifier: Apache-2.0
"""Random programs for the pool of the real torch_npu, and what our twin of it says about them.

The programs are those of tests/oracle. Each is played with torch_npu on the simulated NPU under several settings; `msmemscope whatif` must replay
each record address by address, and say from the record under default settings what the pool reserves under the others.
"""
import json
import random
import subprocess
import sys

from clients import ROOT

sys.path.insert(0, str(ROOT / "tests" / "oracle"))

import oracle  # pylint: disable=wrong-import-position

DEVICE_BYTES = 64 << 30  # of the simulated NPU


def case(seed):
    total, fraction, events = oracle.program(seed)
    return {"events": events, "fraction": None if total > DEVICE_BYTES else (fraction or 1.0) * total / DEVICE_BYTES}


def settings(seed, release):
    """A random text that a release of torch_npu accepts."""
    rng = random.Random(seed)
    minor = int(release.split(".")[1])
    parts = []
    if rng.random() < 0.5:
        parts.append("expandable_segments:True")
        if rng.random() < 0.3:
            parts.append(f"segment_size_mb:{rng.choice((20, 40, 100, 512))}")
        if rng.random() < 0.4:
            parts.append(f"base_addr_aligned_kb:{rng.choice((0, 1, 4, 8, 16))}")
    else:
        if rng.random() < 0.6:
            parts.append(f"max_split_size_mb:{rng.choice((20 if minor >= 13 else 21, 21, 32, 64, 128, 200, 512))}")
            if rng.random() < 0.4 and minor >= 13:
                parts.append(f"max_non_split_rounding_mb:{rng.choice((21, 40, 100))}")
        if rng.random() < 0.5:
            parts.append(f"garbage_collection_threshold:{rng.choice((0.1, 0.3, 0.6, 0.8, 0.95))}")
    if rng.random() < 0.4:
        parts.append("roundup_power2_divisions:" + rng.choice(
            ("1", "2", "4", "8", "16", "[256:1,512:2,1024:4,>:8]", "[1:4,64:2,>:1]", "[16:8,64:4]", "[4:2,32:16,>:4]", "[>:4]")))
    if rng.random() < 0.25 and minor >= 12:
        parts.append(f"large_segment_size_mb:{rng.choice((20, 32, 40, 64, 100))}")
    rng.shuffle(parts)
    return ",".join(parts)


def play(client, cases, text):
    """Each case with torch_npu under settings: a folder with a record for each, and the figures that the pool had; None: it refuses them."""
    out = client.directory()
    file = out / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    result = client.start(client.command("pool_requests.py", file, out), {"PYTORCH_NPU_ALLOC_CONF": text or None}, out, 600)
    if result.code != 0 and text and "set_device" in result.stderr and not result.lines:
        return None
    assert result.code == 0, f"[{text}] {result.stderr[-3000:]}"
    return out, [line for line in result.lines if "case" in line]


def refused(client, record, text):
    """Whether the twin does not take settings either."""
    done = subprocess.run([client.dist / "bin" / "msmemscope", "whatif", "--json", f"--set={text}", record], capture_output=True, text=True,
                          check=False)
    return done.returncode == 2 or "refused" in json.loads(done.stdout)["pools"][0]["settings"][0]


def whatif(client, record, *options):
    done = subprocess.run([client.dist / "bin" / "msmemscope", "whatif", "--json", *options, record], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)["pools"][0]


def replayed(client, out, figures, text):
    """What is wrong with the replays of records under their own settings, and the number of equal addresses."""
    wrong, addresses = [], 0
    for truth in figures:
        pool = whatif(client, out / f"{truth['case']}.pickle", f"--set={text}")
        same = pool["agrees"] and (pool["reserved_peak"], pool["in_use_peak"]) == (truth["reserved_peak"], truth["in_use_peak"])
        if not same:
            wrong.append(f"[{text}] case {truth['case']}: {pool.get('refusal')} {pool.get('reserved_peak')} {pool.get('in_use_peak')} not {truth}")
        addresses += truth["requests"]
    return wrong, addresses


def foretold(client, out, figures, under):
    """The same of what the records in `out` say about other settings; `under`: text -> what the pool had under it."""
    wrong, exact, ranges = [], 0, 0
    options = [f"--set={text}" for text in under]
    for truth in figures:
        if truth["ooms"]:
            continue  # what a refused request would have become is not in the record
        said = {one["set"]: one for one in whatif(client, out / f"{truth['case']}.pickle", *options)["settings"]}
        for text, others in under.items():
            other, one = others[truth["case"]], said[text]
            if other["ooms"]:
                if one.get("fits") is not False:
                    wrong.append(f"[{text}] case {truth['case']}: it does not fit, {one}")
                continue
            if one["low"] <= other["reserved_peak"] <= one["high"]:
                exact += one["reserved_peak"] == other["reserved_peak"]
                ranges += one["low"] != one["high"]
            else:
                wrong.append(f"[{text}] case {truth['case']}: {one}, not {other['reserved_peak']}")
    return wrong, exact, ranges


def recorded(client, cases, text):
    """The same cases under the tool, one on each device: what whatif says of the run, by device, and the figures that the pools had."""
    file = client.work / "cases.json"
    file.write_text(json.dumps(cases), encoding="utf-8")
    result = client.trace("pool_requests.py", file, client.work, env={"PYTORCH_NPU_ALLOC_CONF": text or None}, tool=["--events=alloc,free"]).check()
    return result.out, [line for line in result.lines if "case" in line]
