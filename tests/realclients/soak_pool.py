# SPDX-License-Identifier: Apache-2.0
"""Many random programs under many settings of torch_npu's pool: `make soak PART=npu-pool`. MSMEMSCOPE_SEED and MSMEMSCOPE_TEXTS choose them."""
import os

import pytest
from pool_cases import case, foretold, play, refused, replayed, settings

CASES = 40
# Of torch_npu: that of build/venv-npu, and others beside the PyTorch of the same version (up to 7 GB each).
RELEASES = (None, *os.environ.get("MSMEMSCOPE_NPU_RELEASES", "").split())


@pytest.mark.parametrize("client", RELEASES, indirect=True)
def test_the_twin_is_the_pool_of_torch_npu(client):
    release = client.run("version.py").value("release")
    seed = int(os.environ.get("MSMEMSCOPE_SEED", 1))
    texts = dict.fromkeys(["", *(settings(seed + number, release) for number in range(int(os.environ.get("MSMEMSCOPE_TEXTS", 12))))])
    cases = [case(seed + number) for number in range(CASES)]
    wrong, addresses, under = [], 0, {}
    for text in texts:
        played = play(client, cases, text)
        if played is None:
            if not refused(client, record[0] / "0.pickle", text):
                wrong.append(f"[{text}] only torch_npu refuses this")
            continue
        out, figures = played
        found, equal = replayed(client, out, figures, text)
        wrong += found
        addresses += equal
        if text == "":
            record = out, figures
        else:
            under[text] = figures
    found, exact, ranges = foretold(client, *record, under)
    print(f"torch_npu {release}: {len(texts)} settings, {CASES} programs: {addresses} addresses; of the figures for other settings {exact} to the byte, {ranges} are ranges")
    assert not wrong + found, "\n".join(wrong + found)
