# SPDX-License-Identifier: Apache-2.0
"""train.py MODEL OPTIMIZER [graphs|compiled|leak] [hold]: eight training steps on a GPU, marked by NVTX. At the end a mark "measured",
and what PyTorch and the driver say at that moment, as a line of JSON; with `hold` also while it holds still (figures.py)."""
import ctypes
import json
import sys

import torch

from figures import hold

MODEL, OPTIMIZER, *MORE = sys.argv[1:]


def network():
    if MODEL == "transformer":
        layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
        return torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(16, 128, 512)
    layers = []
    for inner, outer in ((3, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(inner, outer, 3, padding=1), torch.nn.BatchNorm2d(outer), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(256 * 8 * 8, 10)), torch.randn(64, 3, 64, 64)


def leak_outside(driver):
    """Memory of the driver that PyTorch's pool does not know."""
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(3 << 20)) == 0


def main():
    driver = ctypes.CDLL("libcuda.so.1")
    model, data = network()
    model, data = model.cuda(), data.cuda()
    kinds = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    optimizer = torch.optim.AdamW(model.parameters(), capturable="graphs" in MORE, **kinds[OPTIMIZER])
    if "compiled" in MORE:
        model = torch.compile(model)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    if "graphs" in MORE:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    else:
        run = step
    for _ in range(8):
        torch.cuda.nvtx.range_push("step start")
        run()
        if "leak" in MORE:
            leak_outside(driver)
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    if "hold" in MORE:
        hold("trained")
    stats = torch.cuda.memory_stats()
    free, total = torch.cuda.mem_get_info()
    torch.cuda.nvtx.mark("measured")
    print(json.dumps({"allocated": stats["allocated_bytes.all.current"], "reserved": stats["reserved_bytes.all.current"],
                      "used": total - free}), flush=True)


main()
