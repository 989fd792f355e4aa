# SPDX-License-Identifier: Apache-2.0
"""The random networks of tests/targets/torch_layers.py on the NPU: layers.py SEED COUNT."""
import runpy
import sys
from pathlib import Path

import torch
import torch_npu  # noqa: F401 (it makes torch.npu)



class Gru(torch.nn.Linear):
    """In the place of a GRU, which the simulated NPU does not compute."""

    def __init__(self, width, inner, **_named):
        super().__init__(width, inner)

    def forward(self, x):
        return super().forward(x), None


torch.nn.GRU = Gru
torch.nn.DataParallel = lambda module: module  # on several devices it would copy the model
torch.set_default_device("npu")
targets = Path(__file__).resolve().parents[2] / "targets"
sys.path.insert(0, str(targets))
runpy.run_path(str(targets / "torch_layers.py"), run_name="__main__")
