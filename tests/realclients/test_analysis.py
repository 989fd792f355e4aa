# SPDX-License-Identifier: Apache-2.0
"""What the tool finds in programs of a real torch_npu."""
import collections

from clients import HERE


def line_of(program, text):
    """The number of the line with the text, and of no other."""
    lines = (HERE / "programs" / program).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, 1) if text in line]
    assert len(found) == 1
    return found[0]


def test_a_leak_is_found_by_its_line(client):
    result = client.trace("leak.py", tool=["--call-stack=python"]).check()
    report = result.stdout + result.stderr
    assert "Detected memory leaks on device 0" in report
    leaks = [line.strip() for line in report.split("Detected memory leaks")[1].split("SUMMARY")[0].splitlines()
             if "Pytorch Caching memory pool leak" in line or ".py(" in line]
    where = f"leak.py({line_of('leak.py', '# THE LEAK')}): <module>"
    assert len(leaks) >= 10 and all(line.endswith(where) for line in leaks[1::2]), leaks
    assert all("0.003906 Mb" in line or "0.004395 Mb" in line for line in leaks[::2]), leaks


def test_blocks_have_the_owners_that_the_model_has(client):
    """As many weights, gradients and states of the optimizer as there are."""
    result = client.trace("owners.py", tool=["--analysis=decompose", "--events=alloc,free,launch,access"]).check()
    rows = result.rows()
    owners = collections.Counter(row.attr.get("owner") for row in rows if row.type == "PTA" and row.event == "MALLOC")
    for kind in ("weight", "gradient", "optimizer_state"):
        assert owners[f"PTA@model@{kind}"] == result.value(kind), owners
    assert len([row for row in rows if row.event == "ACCESS"]) > 1000
