# SPDX-License-Identifier: Apache-2.0
"""An unmodified torch_npu trains on the simulated NPU to the same losses as PyTorch on the CPU, and says what it cannot do."""
import ctypes

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


@pytest.mark.parametrize("wanted", ["", "none", "libopenblas.so.0"])
def test_products_are_right_with_a_blas_of_the_machine_and_without(client, wanted):
    """OpenBLAS is of tools/packages.txt; a large product opens it unless SIMNPU_BLAS says not to."""
    ctypes.CDLL("libopenblas.so.0")
    [found] = client.run("products.py", env={"SIMNPU_BLAS": wanted}).lines
    assert found["opened"] == (wanted != "none")
    assert max(found["differences"]) < 1e-6 and found["whole"] == 0, found


def test_a_blas_that_is_not_there_is_named_once(client):
    result = client.run("products.py", env={"SIMNPU_BLAS": "libnothing.so.9"})
    assert result.stderr.count("simnpu: SIMNPU_BLAS=libnothing.so.9 cannot be opened") == 1
    assert max(result.lines[0]["differences"]) < 1e-6 and not result.lines[0]["opened"]
