# SPDX-License-Identifier: Apache-2.0
"""Says which torch_npu it is."""
import json

import torch_npu

print(json.dumps({"release": torch_npu.__version__}))
