# SPDX-License-Identifier: Apache-2.0
"""An unmodified torch_npu trains on the simulated NPU to the same losses as PyTorch on the CPU, and says what it cannot do."""
import pytest


def losses_are_those_of_the_cpu(result):
    assert len(result.lines) == 8
    for line in result.lines:
        assert line["npu"] == pytest.approx(line["cpu"], abs=1e-5), line
        assert line["npu"][-1] < line["npu"][0], f"nothing was learned: {line}"
    assert "simnpu:" not in result.stderr, "everything that training needs is computed"


def test_training_gives_the_losses_of_the_cpu(client):
    losses_are_those_of_the_cpu(client.run("train.py"))


def test_the_tool_changes_no_loss(client):
    """With all that it does to operators: a gradient that gets lost below it would change them."""
    losses_are_those_of_the_cpu(client.trace("train.py", tool=["--analysis=decompose", "--events=alloc,free,launch,access"]).check())
