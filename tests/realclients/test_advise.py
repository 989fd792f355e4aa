# SPDX-License-Identifier: Apache-2.0
"""advise for a real torch_npu: each figure is what its pool has at the peak when the program is changed so. Networks and changes are those of
tests/targets/torch_advise.py; more of them: python3 tests/targets/torch_advise.py."""
import json
import re

from clients import ROOT

TARGET = ROOT / "tests" / "targets" / "torch_advise.py"
NETWORK = "unet"
DEVICE = {"DEVICE": "npu"}
CLOSE, WORTH = 0.01, 0.02


def lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def key(one):
    return one["rule"], one.get("class"), one.get("which")


def record(client, network, env):
    """The first pool of advise, after a run under the tool."""
    traced = client.trace("", command=[client.python, TARGET, "plain", network], env=env,
                          tool=["--call-stack=python", "--analysis=decompose", "--format=none"]).check()
    [line] = lines(traced.stdout)
    [project] = traced.out.glob(f"msmemscope_{line['pid']}_*")
    advise = [client.dist / "bin" / "msmemscope", "advise", "--bandwidth=20G", project]
    answer = client.start([*advise, "--json"], None, client.directory(), 60).check()
    [pool] = json.loads(answer.stdout)["pools"]
    return pool, client.start(advise, None, client.directory(), 60).check().stdout


def test_what_the_pool_reserves_after_a_change_is_in_the_range(client):
    """Ranges are at most 10 % wide, and those of checkpoints are there; the pool itself says what it reserved."""
    env = {**DEVICE, "TIMES": "8", "CLASS": "Block"}
    pool, text = record(client, "transformer", env)
    truth = client.start([client.python, TARGET, "truth", "transformer"], env, client.directory(), 240).check()
    said, ranges = {key(one): one for one in pool["advice"]}, 0
    for line in lines(truth.stdout):
        [_, reserved] = line["peak_bytes"]
        if line["rule"] == "plain":
            assert pool["reserved_peak"] == reserved
            continue
        one = said[key(line)]
        if "reserved_high" in one:
            low, high, ranges = one["reserved_low"], one["reserved_high"], ranges + 1
            assert one["peak_bytes"] <= low <= reserved <= high <= 1.1 * low and high < pool["reserved_peak"], (line, one)
    assert ranges >= 3
    assert not any("reserved_high" in one for one in pool["advice"] if one["rule"] == "offload"), pool
    assert all("reserved_high" in said["checkpoint", "Block", which] for which in ("first half", "every other")), said
    head, *shown = text.splitlines()
    assert f"{pool['reserved_peak'] / 2 ** 20:.0f} MiB reserved, step " in head
    assert any(re.search(r"  checkpoint \w+ .*  reserves [\d.]+-[\d.]+ MiB  +torch_advise.py:\d+", line) for line in shown), text


def test_each_figure_is_what_the_changed_program_needs(client):
    pool, _ = record(client, NETWORK, DEVICE)
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
