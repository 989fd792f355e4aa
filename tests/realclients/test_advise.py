# SPDX-License-Identifier: Apache-2.0
"""advise for a real torch_npu: each figure is what its pool has at the peak when the program is changed so. Networks and changes are those of
tests/targets/torch_advise.py; more of them: python3 tests/targets/torch_advise.py."""
import json

from clients import ROOT

TARGET = ROOT / "tests" / "targets" / "torch_advise.py"
NETWORK = "unet"
DEVICE = {"DEVICE": "npu"}
CLOSE, WORTH = 0.01, 0.02


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def key(one):
    return one["rule"], one.get("class"), one.get("which")


def test_each_figure_is_what_the_changed_program_needs(client):
    traced = client.trace("", command=[client.python, TARGET, "plain", NETWORK], env=DEVICE,
                          tool=["--call-stack=python", "--analysis=decompose", "--format=none"]).check()
    [line] = lines(traced.stdout)
    [project] = traced.out.glob(f"msmemscope_{line['pid']}_*")
    answer = client.start([client.dist / "bin" / "msmemscope", "advise", "--json", "--bandwidth=20G", project], None, client.directory(), 60).check()
    [pool] = json.loads(answer.stdout)["pools"]
    truth = client.start([client.python, TARGET, "truth", NETWORK], DEVICE, client.directory(), 120).check()
    said, compared = {key(one): one for one in pool["advice"]}, set()
    for line in lines(truth.stdout):
        rule, [peak, _] = key(line), line["peak_bytes"]
        if rule[0] == "plain":
            plain = peak
            assert pool["peak_bytes"] == plain
        elif rule not in said:
            assert peak > (1 - WORTH) * plain or rule[0] == "accumulate" and any("Gradient accumulation" in one for one in pool["refused"]), (rule, peak, plain)
        else:
            one = said.pop(rule)
            assert abs(one["peak_bytes"] - peak) <= CLOSE * peak, (rule, one, peak)
            assert rule[0] != "offload" or one["seconds_per_step"] == round(2 * one["moved_bytes_per_step"] / (20 << 30), 6)
            compared.add(rule)
    assert {rule for rule, _, _ in compared} >= {"checkpoint", "offload"} and len(compared) >= 6, compared
    assert {rule for rule, _, _ in said} <= {"optimizer_state"}, said
