# SPDX-License-Identifier: Apache-2.0
"""Where the tree lies that this package belongs to, with bin, lib64 and simnpu: inside the package as pip installs it, else two above."""
import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_INSIDE = os.path.join(_HERE, "_home")

HOME = _INSIDE if os.path.isdir(_INSIDE) else os.path.dirname(os.path.dirname(_HERE))
