# SPDX-License-Identifier: Apache-2.0
"""What the tool finds in programs of a real torch_npu."""
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
