# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots that PyTorch wrote on an H200: right holders, each byte once, no false leak."""
import json
import lzma
import pickle
from pathlib import Path

import pytest

import torch_snapshots as snapshots

FIXTURES = sorted((Path(__file__).resolve().parents[1] / "fixtures" / "snapshots").glob("*.pickle.xz"))


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name.partition(".")[0])
def test_a_snapshot_of_a_gpu_is_told_as_it_is(out, msmemscope, path):
    copy = out / "snapshot.pickle"
    copy.write_bytes(lzma.decompress(path.read_bytes()))
    snapshot = pickle.loads(copy.read_bytes())
    info = json.loads(msmemscope("info", "--json", copy, output=False).check().stdout)
    text = msmemscope("info", "--all", copy, output=False).check().stdout
    assert snapshots.mistakes(snapshot, info, text) == []
    [process] = info["processes"]
    assert process["verdict"] != "leak" and "ERROR" not in text
    assert process["steps"] > 0 or {peak["step"] for peak in process["peaks"]} == {0}, "nothing marks a step"
    if path.name.startswith("streams"):
        assert process["steps"] == 7 and "No leak was found in steps 2 to 7." in text
    elif not path.name.startswith("graphs"):  # its layers come round as they do in inference
        assert not process["judgement"]["judged"]


def test_all_kinds_of_snapshots_are_here():
    assert {path.name.partition(".")[0].partition("-")[2] for path in FIXTURES} == {"all", "python", "none", "ring"}
