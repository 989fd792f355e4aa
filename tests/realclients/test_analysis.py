# SPDX-License-Identifier: Apache-2.0
"""What the tool finds in programs of a real torch_npu."""
import collections
import json
import re
import subprocess

import pytest

from clients import HERE


def line_of(program, text):
    """The number of the line with the text, and of no other."""
    lines = (HERE / "programs" / program).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(found) == 1
    return found[0]

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def test_a_leak_is_found_by_its_line(client):
    result = client.trace("leak.py", tool=["--call-stack=python"]).check()
    report = result.stdout + result.stderr
    assert "Detected memory leaks on device 0" in report
    [place] = re.findall(r"^  \+[\d.]+ \w+/step  (.*?)   ", report, re.M)
    assert place.endswith(f"leak.py:{line_of('leak.py', '# THE LEAK')}"), report
    found = report.split("Detected memory leaks")[1].split("SUMMARY")[0]
    [size] = re.findall(r"^Direct Pytorch Caching memory pool leak of (\S+) Mb\(s\) at 0x[0-9a-f]+ in kernel_\d+ at step \d+\.$", found,
                        re.M)
    assert size in ("0.003906", "0.004395"), found


def test_each_tensor_of_a_model_is_of_its_class_in_the_pool(client):
    """By address: weights, gradients, states of the optimizer and what the backward needs, and no tensor of another class."""
    result = client.trace("classes.py", tool=["--analysis=decompose"]).check()
    last = {row.ptr: row.attr["owner"] for row in result.rows() if row.type == "PTA" and row.event == "MALLOC"}
    wanted = {name: result.value(name) for name in ("weight", "gradient", "optimizer_state", "activation")}
    assert {name: len(addresses) for name, addresses in wanted.items()} == {
        "weight": 4, "gradient": 4, "optimizer_state": 8, "activation": 1}
    assert {name: {last[address] for address in addresses} for name, addresses in wanted.items()} == {
        name: {f"PTA@model@{name}"} for name in wanted}


def test_blocks_have_the_owners_that_the_model_has(client):
    """As many weights, gradients and states of the optimizer as there are."""
    result = client.trace("owners.py", tool=["--analysis=decompose", "--events=alloc,free,launch,access"]).check()
    rows = result.rows()
    owners = collections.Counter(row.attr.get("owner") for row in rows if row.type == "PTA" and row.event == "MALLOC")
    for kind in ("weight", "gradient", "optimizer_state"):
        assert owners[f"PTA@model@{kind}"] == result.value(kind), owners
    assert len([row for row in rows if row.event == "ACCESS"]) > 1000


def test_nearly_all_of_the_peak_has_a_class(client):
    """Of memory on the device, where backward passes run on threads of their own."""
    result = client.trace("owners.py", tool=["--analysis=decompose"]).check()
    live, now, peak = {}, collections.Counter(), collections.Counter()
    for row in result.rows():
        if row.type == "PTA" and row.event == "MALLOC":
            live[row.ptr] = "@".join(row.attr["owner"].split("@")[1:3]), row.attr["size"]
            now[live[row.ptr][0]] += row.attr["size"]
        elif row.type == "PTA" and row.event == "FREE" and row.ptr in live:
            owner, size = live.pop(row.ptr)
            now[owner] -= size
        if now.total() > peak.total():
            peak = now.copy()
    assert sum(size for name, size in peak.items() if name.startswith("model@")) >= 0.99 * peak.total() > 0, peak
    assert all(peak[f"model@{name}"] > 0 for name in ("weight", "optimizer_state", "input", "activation")), peak
    # The screen has these bytes by class for the device, in the order of their size, and they add up.
    head = re.search(r"^Memory of NPU 0 by class at the peak \(([\d.]+) (\w+), step \d+\)\n((?:  .*\n)+)", result.stderr, re.M)
    shown = {name: float(number) * UNITS[unit] for number, unit, name in re.findall(r"^ +([\d.]+) (\w+) +\d+ %  (.+)$", head[3], re.M)}
    for name, kind in (("weights", "weight"), ("optimizer state", "optimizer_state"), ("activations", "activation"), ("inputs", "input")):
        assert shown[name] == pytest.approx(peak[f"model@{kind}"], rel=0.02), (name, shown, peak)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert sum(shown.values()) == pytest.approx(float(head[1]) * UNITS[head[2]], rel=0.02)


def test_the_peak_falls_by_what_is_predicted(client):
    """A buffer that is there too early and one that stays too long, mended one by one and together. The device counts for itself."""
    peaks = {}
    for mended in ((), ("early",), ("late",), ("early", "late")):
        result = client.trace("waste.py", *mended, tool=["--analysis=inefficient"]).check()
        peaks[mended] = result.value("peak")
        if not mended:
            [project] = result.out.glob("msmemscope_*_ascend")
            document = json.loads(subprocess.run([client.dist / "bin" / "msmemscope", "info", "--json", "--all", project], check=True,
                                                 stdout=subprocess.PIPE).stdout)
            [told] = [pool for pool in document["processes"][0]["inefficient"] if pool["event_type"] == "PTA"]
    near = max(2 << 20, told["peak_bytes"] // 100)
    lines = {word: line_of("waste.py", f"# {word.upper()}") for word in ("early", "late")}
    for word, line in lines.items():
        [place] = [place for place in told["places"] if place["saved_bytes"] > near and
                   any(frame.get("line") == line and frame["file"].endswith("waste.py") for frame in place["frames"])]
        assert abs(peaks[()] - peaks[(word,)] - place["saved_bytes"]) <= near, (peaks, place)
    assert abs(peaks[()] - peaks["early", "late"] - told["saved_bytes"]) <= near, (peaks, told)
    assert [place["saved_bytes"] > near for place in told["places"]].count(True) == 2


def test_an_out_of_memory_has_the_step_that_an_optimizer_would_have_ended(client):
    result = client.trace("fills.py", env={"SIMNPU_HBM": "192M"}).check()
    place = f"fills.py:{line_of('fills.py', '# FILLS')}"
    assert re.search(rf"^OUT OF MEMORY on NPU 0, step {result.value('refused')}: ", result.stderr, re.M), result.stderr
    assert f"\nCause: growth. {place} keeps " in result.stderr, result.stderr
