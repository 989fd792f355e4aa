# SPDX-License-Identifier: Apache-2.0
"""advise against real reruns with torch.utils.checkpoint: requested bytes at the peak within 2 %, reserved ones within the range that is said"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, ROOT, Traced, call, check, row_files

TARGET = ROOT / "tests" / "targets" / "torch_advise.py"
NETWORKS = ("transformer", "cnn", "unet", "rnn", "room", "nested", "keeps", "301", "304", "307", "310")
DEVICE = {"DEVICE": os.environ.get("DEVICE", "cuda")}  # DEVICE=cpu is for trying the part without a GPU
CLOSE, WORTH, WIDEST = 0.02, 0.03, 0.1
TOGETHER = 4


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def key(one):
    return one["rule"], one.get("class"), one.get("which")


def compare_reserved(pool, truth):
    """Each range has what PyTorch's pool reserved in the rerun, and is at most 10 % wide."""
    said, wrong, compared, widest = {key(one): one for one in pool["advice"] if "reserved_high" in one}, [], 0, 0.0
    plain = truth.pop(("plain", None, None))
    for rule, reserved in truth.items():
        one = said.get(rule)
        if one is None:
            continue
        low, high = one["reserved_low"], one["reserved_high"]
        compared, widest = compared + 1, max(widest, (high - low) / low)
        if not low <= reserved <= high:
            wrong.append(f"{rule}: {low >> 20} to {high >> 20} MiB, PyTorch reserved {reserved >> 20} ({100 * (low / reserved - 1):+.1f} to {100 * (high / reserved - 1):+.1f} %)")
    if "reserved_peak" in pool and pool["reserved_peak"] != plain:
        print(f"recorded {pool['reserved_peak']} reserved, PyTorch says {plain}")
    print(*wrong, *[one for one in pool["refused"] if one.startswith("Reserved bytes")], sep="\n")
    if wrong or widest > WIDEST:
        raise AssertionError(f"{len(wrong)} of {compared} ranges are wrong, the widest is {100 * widest:.1f} %: {wrong[:1]}")
    return f"{compared} ranges, the widest is {100 * widest:.1f} %; {plain >> 20} MiB reserved without a change"


def compare(pool, truth):
    plain = truth.pop(("plain", None, None))
    said = {key(one): one["peak_bytes"] for one in pool["advice"]}
    wrong, compared, worst = [], 0, 0.0
    for rule, peak in truth.items():
        if rule in said:
            off = said[rule] / peak - 1
            compared, worst = compared + 1, max(worst, abs(off))
            wrong += [f"{rule}: {said[rule]} for {peak} ({100 * off:+.2f} %)"] if abs(off) > CLOSE else []
        elif peak < (1 - WORTH) * plain and not (rule[0] == "accumulate" and any("Gradient accumulation" in one for one in pool["refused"])):
            wrong.append(f"{rule}: {peak} of {plain} is not offered")
    if abs(pool["peak_bytes"] - plain) > CLOSE * plain:
        wrong.append(f"recorded peak {pool['peak_bytes']}, PyTorch says {plain}")
    print(*wrong, sep="\n")
    if wrong or compared == 0:
        raise AssertionError(f"{len(wrong)} of {compared} are wrong: {wrong[:1]}")
    return f"{compared} figures, the worst is {100 * worst:.2f} % off; peak {plain >> 20} MiB"


def run(place):
    options = [f"--device={'cpu' if DEVICE['DEVICE'] == 'cpu' else 'gpu'}", "--call-stack=python", "--analysis=decompose", "--format=none"]

    def judge(network):
        traced = Traced(place / network, options, [sys.executable, TARGET, "plain", network], env=DEVICE)
        [line] = lines(traced.done.stdout)
        [project] = [project for project in row_files.projects(traced.out) if project.pid == line["pid"]]
        answer = call([COMMAND, "advise", project.path, "--json"])
        truth, reserved = {}, {}
        for line in lines(call([sys.executable, TARGET, "truth", network], env=DEVICE).stdout):
            peak = line["peak_bytes"]
            truth[key(line)] = peak[0] if isinstance(peak, list) else peak
            if isinstance(peak, list):
                reserved[key(line)] = peak[1]
        [pool] = json.loads(answer.stdout)["pools"]
        return pool, truth, reserved

    with ThreadPoolExecutor(TOGETHER) as pool:
        jobs = {network: pool.submit(judge, network) for network in NETWORKS}
    for network, job in jobs.items():
        check(f"advise {network} within {100 * CLOSE:.0f} %")(lambda job=job: compare(*job.result()[:2]))
        if DEVICE["DEVICE"] != "cpu":
            check(f"advise {network}, reserved bytes")(lambda job=job: compare_reserved(*job.result()[::2]))
