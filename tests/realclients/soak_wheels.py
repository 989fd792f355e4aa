# SPDX-License-Identifier: Apache-2.0
"""Older versions of torch_npu, each with the PyTorch of its time: training, rows against its own counters and a receiver of our own,
owners, and a leak by its line. The tests are those of the newest version where not said.

On x86-64 PyPI has these PyTorches with CUDA's libraries only, which nothing here uses: some 6 GB each, so this is a part of `make soak`.
The environments are build/venv-npu-VERSION, made when they are missing; without room for all, run one by `-k` and remove it.
"""
import pytest

from test_analysis import test_a_leak_is_found_by_its_line, test_blocks_have_the_owners_that_the_model_has  # pylint: disable=unused-import
from test_rows import *  # pylint: disable=wildcard-import,unused-wildcard-import
from test_training import losses_are_those_of_the_cpu

VERSIONS = ("2.6.0.post5", "2.1.0.post17", "2.9.0")
pytestmark = pytest.mark.parametrize("client", VERSIONS, indirect=True, scope="session")

# By default these versions give convolutions a layout of the device and call them through the compiler of operators, which is not
# simulated; not so on this chip.
CHIP = {"SIMNPU_SOC": "Ascend910_9392"}


def test_training_gives_the_losses_of_the_cpu(client):
    losses_are_those_of_the_cpu(client.run("train.py", env=CHIP))


def test_the_tool_changes_no_loss(client):
    losses_are_those_of_the_cpu(client.trace("train.py", tool=["--analysis=decompose", "--events=alloc,free,launch,access"],
                                             env=CHIP).check())


def test_a_convolution_that_needs_the_compiler_is_refused_by_name(client):
    result = client.start(client.command("train.py"), None, client.directory(), 240)
    assert result.code != 0 and "aclopCompileAndExecute of Conv2D is not simulated" in result.stderr
    assert len(result.lines) == 4, "the transformer comes first, and is trained"


def test_weights_gradients_states_and_activations_are_of_their_class(client):
    """These versions do not tell whether a hook of the program's would run for a look at a saved tensor; it is found out."""
    result = client.trace("classes.py", tool=["--analysis=decompose"]).check()
    last = {row.ptr: row.attr["owner"] for row in result.rows() if row.type == "PTA" and row.event == "MALLOC"}
    for name, count in (("weight", 4), ("gradient", 4), ("optimizer_state", 8), ("activation", 1)):
        assert [last[address] for address in result.value(name)] == [f"PTA@model@{name}"] * count
    report = " ".join((result.stdout + result.stderr).split())
    assert "activations are not labelled" not in report and "may be missing" not in report
