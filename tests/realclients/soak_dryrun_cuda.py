# SPDX-License-Identifier: Apache-2.0
"""Dry runs with real wheels of PyTorch for CUDA, without CUDA: scripts of gpu/programs/dry.py. Each answer is equal to PyTorch's own counters in that
run, the allocator's rules give each of its addresses again, and what is not simulated is refused by name. That a card says the same is for
tests/gpu/run dryrun."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / "build/dist/bin/msmemscope"
SCRIPT = ROOT / "tests/gpu/programs/dry.py"
RELEASES = os.environ.get("DRY_TORCH", "2.6.0 2.9.1 2.11.0").split()
REFUSED = {"factorised": "cusolver", "transformed": "cufft", "compiled": r"torch\.compile\(\)", "other_streams": "record_stream",
           "searched": "the history of LBFGS follows from values", "repeated": r"repeat_interleave\(\) follows from values",
           "counted": r'"figures":"unsure".*"needs_with_other_values_bytes"'}
OF_LIBRARIES = ("convolutions", "unet", "channels_last", "recurrent")
PLAIN = "filelock typing_extensions sympy networkx jinja2 fsspec numpy".split()
NAMES = re.findall(r"^@script\ndef (\w+)\(", SCRIPT.read_text(), re.M)
WAYS = ROOT / "tests/gpu/programs/ways.py"
AT_MOST = ("routed", "curriculum", "scaler_that_skips")
UNSURE = {"mined": "They decide what it needs|needs_with_other_values", "packed": "on packed sequences is not simulated", "spectral": "cufft",
          "sparse_matrix": "cusparse"}
# Allocated, reserved and requested on an H200 with torch 2.11.0+cu130, the same in two runs each.
ON_A_CARD = {"attentions": (25527296, 54525952, 25526280), "attention_by_hand": (143655936, 169869312, 143654916),
             "many_heads": (88734720, 102760448, 88733032), "smoothed_and_masked": (175759872, 201326592, 172764064),
             "normed_weights": (97842688, 123731968, 97841164), "transposed_unet": (45648384, 67108864, 45632668),
             "whole_decoder": (122327552, 142606336, 122319020), "by_free_memory": (15322887680, 23691526144, 15322886184),
             "halved_batch": (137472528384, 137474605056, 137472528384)}


@pytest.fixture(name="python", scope="session", params=RELEASES)
def fixture_python(request):
    """An interpreter with this PyTorch and no library of CUDA."""
    place = ROOT / f"build/venv-cuda-{request.param}"
    if not (place / "whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        pip = [place / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", f"torch==={request.param}"], check=True)
        subprocess.run([*pip, *PLAIN], check=True)
        (place / "whole").touch()
    return place / "bin/python"


def dry(python, out, name, *options, script=SCRIPT):
    done = subprocess.run([COMMAND, "dryrun", "--json", "--steps=1000", *options, "--", python, script, name], cwd=out, capture_output=True, text=True,
                          check=False)
    return done, json.loads(done.stdout) if done.stdout else None


@pytest.mark.parametrize("name", NAMES)
def test_each_script_is_right_or_refused(python, tmp_path, name):
    done, answer = dry(python, tmp_path, name, "--device=h200")
    if name in REFUSED:
        assert done.returncode == 1 and re.search(REFUSED[name], done.stdout + done.stderr), (answer, done.stderr[-2000:])
        return
    assert done.returncode == 0, (answer, done.stderr[-2000:])
    said = json.loads([line for line in done.stderr.splitlines() if line.startswith('{"allocated"')][-1])
    assert answer.get("needs_from_bytes", answer["needs_bytes"]) <= said["allocated"] <= answer["needs_bytes"]
    assert answer.get("reserves_from_bytes", answer["reserves_bytes"]) <= said["reserved"] <= answer["reserves_bytes"]
    assert name in OF_LIBRARIES or answer["requested_bytes"] == said["requested"]
    ranges = ("from to",) if name in OF_LIBRARIES else ("exact", "from to")  # by the addresses that the driver hands out
    assert answer["figures"] in (("at most",) if name in ("masked", "expected_values", "sparse_rows", "generates") else ranges)
    replayed = subprocess.run([COMMAND, "whatif", answer["devices"][0]["project"]], capture_output=True, text=True, check=True).stdout
    same, of = re.search(r"replay agrees with the record: (\d+) of (\d+) addresses", replayed).groups()
    assert same == of


def holds(answer, allocated, reserved):
    return answer.get("needs_from_bytes", answer["needs_bytes"]) <= allocated <= answer["needs_bytes"] and \
        answer.get("reserves_from_bytes", answer["reserves_bytes"]) <= reserved <= answer["reserves_bytes"]


@pytest.mark.parametrize("name", re.findall(r"^@way\ndef (\w+)\(", WAYS.read_text(), re.M))
def test_each_other_way_is_right_or_says_what_it_is(python, tmp_path, name):
    done, answer = dry(python, tmp_path, name, "--device=h200", script=WAYS)
    if name in UNSURE:
        assert done.returncode == 1 and answer["figures"] == "unsure" and re.search(UNSURE[name], done.stdout), (answer, done.stderr[-2000:])
        return
    assert done.returncode == 0, (answer, done.stderr[-2000:])
    assert answer["figures"] in (("at most",) if name in AT_MOST else ("exact", "from to")), answer
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"allocated"')]
    assert not said or holds(answer, said[-1]["allocated"], said[-1]["reserved"])
    if name in ON_A_CARD and "2.11.0" in str(python):
        allocated, reserved, requested = ON_A_CARD[name]
        assert holds(answer, allocated, reserved) and answer.get("requested_bytes", requested) == requested


def test_the_card_and_the_settings_decide(python, tmp_path, monkeypatch):
    """The workspace of cuBLAS is of the card's capability; an allocator's setting is the real allocator's own."""
    needs = {device: dry(python, tmp_path, "plain_adam", f"--device={device}")[1]["needs_bytes"] for device in ("h200", "a100-80g")}
    assert needs["h200"] > needs["a100-80g"]
    plain = dry(python, tmp_path, "varied_lengths", "--device=h200")[1]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert dry(python, tmp_path, "varied_lengths", "--device=h200")[1]["reserves_bytes"] < plain["reserves_bytes"]


def test_an_exhausted_card_names_the_line(python, tmp_path):
    done, answer = dry(python, tmp_path, "llama_7b", "--device=a100-40g")
    [device] = answer["devices"]
    assert done.returncode == 4 and not device["fits"] and device["dies_in_step"] == 1 and re.match(r"dry\.py:\d+ ", device["dies_at"])
    assert answer["needs_bytes"] > 60 << 30
