# SPDX-License-Identifier: Apache-2.0
"""The random networks of tests/targets/torch_layers.py on a GPU ($DEVICE): layers.py SEED COUNT."""
import os
import runpy
import sys
from pathlib import Path

import torch

torch.nn.DataParallel = lambda module: module  # on several devices it would copy the model
torch.set_default_device(os.environ.get("DEVICE", "cuda"))
targets = Path(__file__).resolve().parents[2] / "targets"
sys.path.insert(0, str(targets))
runpy.run_path(str(targets / "torch_layers.py"), run_name="__main__")
