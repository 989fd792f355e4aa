# SPDX-License-Identifier: Apache-2.0
"""Runs entries of PyTorch's operator database (programs/opdb.py) on the simulated NPU, in as many processes as it takes: one ends when a
stream has failed. What is known of the results lies in two files:

    simnpu/opapi/not_computed.txt       what the simulated NPU refuses by name; it only gets shorter
    tests/realclients/ever_wrong.txt    entries that once were wrong without a word
"""
from collections import Counter

from clients import HERE, ROOT

TYPES = ("float32", "float16", "bfloat16", "int64", "bool", "complex64")
SAMPLES = 4
# Of the random numbers in samples. It stays, so that an entry that is right is right tomorrow; which entries run is chosen apart.
SEED = 1
LIMIT_S = 1800
# The CPU has no kernel for them, or they are of CUDA alone.
NOT_RUN = "none"


def listed(path):
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def not_computed():
    return set(listed(ROOT / "simnpu" / "opapi" / "not_computed.txt"))


def ever_wrong():
    return listed(HERE / "ever_wrong.txt")


def all_pairs(client):
    """Each "entry type" of the database."""
    result = client.run("opdb.py", "list")
    return [f"{line['entry']} {name}" for line in result.lines for name in line["types"]]


def run(client, pairs, samples=SAMPLES, seed=SEED):
    """A dictionary of entry, type, outcome and why for each pair; the outcome is also "crash" here."""
    results = []
    pairs = list(pairs)
    while pairs:
        out = client.directory()
        (out / "pairs").write_text("".join(f"{pair}\n" for pair in pairs), encoding="utf-8")
        ended = client.start(client.command("opdb.py", "run", samples, seed, out / "pairs"), None, out, LIMIT_S)
        done = [line for line in ended.lines if "outcome" in line]
        started = [line["start"] for line in ended.lines if "start" in line]
        assert started, ended.stderr[-4000:]
        results += done
        if len(started) > len(done):
            entry, name = started[-1].rsplit(maxsplit=1)
            results.append({"entry": entry, "type": name, "outcome": "crash", "why": f"exit code {ended.code}: {ended.stderr[-600:]}"})
        pairs = pairs[len(started):]
    return results


def reason(result):
    """Of a refusal, as not_computed.txt has it."""
    return result["why"].split(" (function")[0].strip()


def problems(results):
    """What must not be: differences that nobody mentioned, crashes, and refusals that are not on the list."""
    known = not_computed()
    found = [f"{one['entry']} {one['type']}: {one['outcome']}: {one['why']}" for one in results if one["outcome"] in ("wrong", "crash")]
    return found + [f"{one['entry']} {one['type']}: refused, which it was not before: {reason(one)}" for one in results
                    if one["outcome"] in ("refused", "failed") and reason(one) not in known]


def table(results):
    """The lines of the table in simnpu/README.md."""
    lines = ["| type | entries | right | refused by name | torch_npu's own | wrong |", "|---|---|---|---|---|---|"]
    for name in TYPES:
        counts = Counter(one["outcome"] for one in results if one["type"] == name and one["outcome"] != NOT_RUN)
        lines.append(f"| {name} | {sum(counts.values())} | {counts['right']} | {counts['refused'] + counts['failed']} | {counts['torch']} | "
                     f"{counts['wrong'] + counts['crash']} |")
    return lines
