# SPDX-License-Identifier: Apache-2.0
"""Older versions of torch_npu, each with the PyTorch of its time: training, rows against its own counters and a receiver of our own, and
a leak by its line. The tests are those of the newest version.

PyPI has these PyTorches with CUDA's libraries only, which nothing here uses: some 6 GB each, so this is a part of `make soak`. The
environments are build/venv-npu-VERSION, made when they are missing; without room for all, run one by `-k` and remove it.
"""
import pytest

from test_analysis import test_a_leak_is_found_by_its_line  # pylint: disable=unused-import
from test_rows import *  # pylint: disable=wildcard-import,unused-wildcard-import
from test_training import test_training_gives_the_losses_of_the_cpu  # pylint: disable=unused-import

VERSIONS = ("2.6.0.post5", "2.1.0.post17", "2.9.0")
pytestmark = pytest.mark.parametrize("client", VERSIONS, indirect=True, scope="session")
