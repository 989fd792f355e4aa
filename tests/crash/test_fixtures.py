# SPDX-License-Identifier: Apache-2.0
"""Traces of every version of the format stay readable and mean the same (tests/fixtures/README.md)."""
import gzip
import json
import shutil
from pathlib import Path

import pytest

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
NAMES = sorted(path.name[:-len(".json")] for path in FIXTURES.glob("v*.json"))


def differences(wanted, found, place=""):
    """Where `found` does not say what `wanted` says; what it says besides is fine.

    >>> differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "new": 3}], "also": 4})
    []
    >>> differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 5}]})
    ['.a.1.b: 5 instead of 2']
    >>> differences({"a": [1]}, {"a": []})
    ['.a: 0 entries instead of 1']
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [line for key in wanted for line in
                (differences(wanted[key], found[key], f"{place}.{key}") if key in found else [f"{place}.{key}: missing"])]
    if isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            return [f"{place}: {len(found)} entries instead of {len(wanted)}"]
        return [line for n, pair in enumerate(zip(wanted, found)) for line in differences(*pair, f"{place}.{n}")]
    return [] if wanted == found else [f"{place}: {found!r} instead of {wanted!r}"]


def test_each_version_has_a_packed_and_a_raw_trace():
    assert NAMES and set(NAMES) == {f"v{version}.{kind}" for version in range(1, len(NAMES) // 2 + 1) for kind in ("msc", "raw")}


@pytest.mark.parametrize("name", NAMES)
def test_a_trace_of_this_version_means_what_it_meant(msmemscope, tmp_path, name):
    if name.endswith(".raw"):
        (tmp_path / name).write_bytes(gzip.decompress((FIXTURES / f"{name}.gz").read_bytes()))
    else:
        shutil.copy(FIXTURES / name, tmp_path)
    run = msmemscope("info", name, "--json", "--all", output=False, cwd=tmp_path)
    assert run.returncode == (3 if name.endswith(".raw") else 0), run
    assert differences(json.loads((FIXTURES / f"{name}.json").read_text()), json.loads(run.stdout)["processes"][0]) == []
