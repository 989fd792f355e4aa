# SPDX-License-Identifier: Apache-2.0
"""advise against real reruns with torch.utils.checkpoint: requested bytes at the peak within 2 %"""
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, ROOT, Traced, call, check, row_files

TARGET = ROOT / "tests" / "targets" / "torch_advise.py"
NETWORKS = ("transformer", "cnn", "unet", "rnn", "room", "nested", "keeps", "301", "304", "307", "310")
DEVICE = {"DEVICE": os.environ.get("DEVICE", "cuda")}  # DEVICE=cpu is for trying the part without a GPU
CLOSE, WORTH = 0.02, 0.03
TOGETHER = 4


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def key(one):
    return one["rule"], one.get("class"), one.get("which")


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
        truth = {}
        for line in lines(call([sys.executable, TARGET, "truth", network], env=DEVICE).stdout):
            peak = line["peak_bytes"]
            truth[key(line)] = peak[0] if isinstance(peak, list) else peak
        return compare(json.loads(answer.stdout)["pools"][0], truth)

    with ThreadPoolExecutor(TOGETHER) as pool:
        jobs = {network: pool.submit(judge, network) for network in NETWORKS}
    for network, job in jobs.items():
        check(f"advise {network} within {100 * CLOSE:.0f} %")(job.result)
