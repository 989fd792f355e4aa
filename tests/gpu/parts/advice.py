# SPDX-License-Identifier: Apache-2.0
"""advise against real reruns with torch.utils.checkpoint: requested bytes at the peak within 2 %"""
import json
import os
import sys

from checks import COMMAND, ROOT, Traced, call, check, row_files

TARGET = ROOT / "tests" / "targets" / "torch_advise.py"
NETWORKS = ("transformer", "cnn", "unet", "rnn", "nested", "keeps", "301", "304", "307", "310")
DEVICE = {"DEVICE": os.environ.get("DEVICE", "cuda")}  # DEVICE=cpu is for trying the part without a GPU
CLOSE, WORTH = 0.02, 0.03


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
        elif peak < (1 - WORTH) * plain:
            wrong.append(f"{rule}: {peak} of {plain} is not offered")
    if abs(pool["peak_bytes"] - plain) > CLOSE * plain:
        wrong.append(f"recorded peak {pool['peak_bytes']}, PyTorch says {plain}")
    print(*wrong, sep="\n")
    if wrong or compared == 0:
        raise AssertionError(f"{len(wrong)} of {compared} are wrong: {wrong[:1]}")
    return f"{compared} figures, the worst is {100 * worst:.2f} % off; peak {plain >> 20} MiB"


def run(place):
    options = [f"--device={'cpu' if DEVICE['DEVICE'] == 'cpu' else 'gpu'}", "--call-stack=python", "--analysis=decompose", "--format=none"]
    traced = Traced(place / "advice", options, [sys.executable, TARGET, "plain", *NETWORKS], env=DEVICE)
    projects = {project.pid: project for project in row_files.projects(traced.out)}
    truths = {}
    for line in lines(call([sys.executable, TARGET, "truth", *NETWORKS], env=DEVICE).stdout):
        peak = line["peak_bytes"]
        truths.setdefault(line["network"], {})[key(line)] = peak[0] if isinstance(peak, list) else peak
    for line in lines(traced.done.stdout):
        @check(f"advise {line['network']} within {100 * CLOSE:.0f} %")
        def _(line=line):
            answer = call([COMMAND, "advise", projects[line["pid"]].path, "--json"])
            return compare(json.loads(answer.stdout)["pools"][0], truths[line["network"]])
