# SPDX-License-Identifier: Apache-2.0
"""What pytest offers to the tests of this folder is described in fixtures.py."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from fixtures import *  # noqa: E402, F401, F403
