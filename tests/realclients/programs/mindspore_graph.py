# SPDX-License-Identifier: Apache-2.0
"""A network of MindSpore that is compiled as a whole, compared with numpy's results; then what it says is a line of JSON."""
import json
import os
import sys

import numpy as np

import mindspore as ms
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("Ascend", 0)


class Net(nn.Cell):
    """A product, a sum and what is positive of it."""

    def construct(self, left, right, added):
        return ops.relu(ops.add(ops.matmul(left, right), added))


A, B, C = (np.random.default_rng(n).uniform(-1, 1, (20, 20)).astype(np.float32) for n in range(3))
for _ in range(3):
    RESULT = Net()(Tensor(A), Tensor(B), Tensor(C)).asnumpy()
assert np.allclose(RESULT, np.maximum(A @ B + C, 0), 1e-4, 1e-4), RESULT
print(json.dumps({"graph": "right"}), flush=True)
# Objects of the graph engine, of which there are only stubs, are destroyed at the end: free(): invalid pointer.
sys.stdout.flush()
os._exit(0)
