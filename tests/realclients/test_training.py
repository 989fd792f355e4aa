# SPDX-License-Identifier: Apache-2.0
"""An unmodified torch_npu trains on the simulated NPU to the same losses as PyTorch on the CPU, and says what it cannot do."""
import pytest


def test_training_gives_the_losses_of_the_cpu(client):
    result = client.run("train.py")
    assert len(result.lines) == 8
    for line in result.lines:
        assert line["npu"] == pytest.approx(line["cpu"], abs=1e-5), line
        assert line["npu"][-1] < line["npu"][0], f"nothing was learned: {line}"
    assert "simnpu:" not in result.stderr, "everything that training needs is computed"
