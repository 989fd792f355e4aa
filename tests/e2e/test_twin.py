# SPDX-License-Identifier: Apache-2.0
"""The twin of PyTorch's allocator against results of real ones that were measured elsewhere; tests/twin has our own fixture."""
import hashlib
import json
import lzma
import subprocess
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared/data/allocator-golden.json.xz"


def played(targets, programs):
    """For each expected result of each program: (what is expected, lines, figures)."""
    text, expected = [], []
    for program in programs:
        text += ["program", *program["events"]]
        for result in program["expect"]:
            fraction = "-" if result["fraction"] is None else result["fraction"]
            text.append(f"run {result['torch']} {program['device_total']} {fraction} {result['conf'] or '-'}")
            expected.append(result)
    player = targets.parent / "twin/twin_player"
    output = subprocess.run([player], input="\n".join(text) + "\n", capture_output=True, text=True, check=True).stdout
    lines, runs = [], []
    for line in output.splitlines():
        if line.startswith("figures "):
            runs.append((lines, {name: int(value) for name, value in (word.split("=") for word in line.split()[1:])}))
            lines = []
        else:
            lines.append(line)
    return zip(expected, runs, strict=True)


def test_every_address_of_the_golden_file(targets):
    if not GOLDEN.exists():
        pytest.skip("no shared/data/allocator-golden.json.xz beside this checkout")
    wrong = []
    count = 0
    for result, (lines, figures) in played(targets, json.loads(lzma.open(GOLDEN).read())):
        count += 1
        if any(result[name] != value for name, value in figures.items()) or \
                hashlib.sha256("\n".join(lines).encode()).hexdigest() != result["addresses_sha256"]:
            wrong.append((result["torch"], result["conf"]))
    assert count == 1680
    assert not wrong
