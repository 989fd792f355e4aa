# SPDX-License-Identifier: Apache-2.0
"""ledger.py WHAT: takes memory of a GPU in one way, and holds still (figures.py).

    inference   a transformer and a CNN in half precision, cuDNN's benchmark mode, a solver, a transform, sparse matrices
    libraries   cuBLAS with the workspace that it takes for itself, not PyTorch's
    nccl        a process group of one rank
    cache       a pool that grows by 2 GiB, is emptied, and grows again
    async       PyTorch's pool is the driver's own (backend:cudaMallocAsync in PYTORCH_CUDA_ALLOC_CONF)
    hog [LEFT]  no hold: has 4 GiB, or all but so many, until its stdin ends
"""
import ctypes
import os
import re
import sys
import tempfile

import torch

from figures import hold

GIB = 1 << 30


@torch.no_grad()
def inference():
    torch.backends.cudnn.benchmark = True
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).cuda().half().eval()
    layers = []
    for inner, outer in ((3, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(inner, outer, 5, padding=2), torch.nn.BatchNorm2d(outer), torch.nn.ReLU()]
    convolutions = torch.nn.Sequential(*layers).cuda().half().eval()
    for length in (64, 128, 512):
        encoder(torch.randn(8, length, 1024, device="cuda", dtype=torch.half))
    for side in (32, 64, 128):
        convolutions(torch.randn(16, 3, side, side, device="cuda", dtype=torch.half))
    hold("networks")
    matrix = torch.randn(2048, 2048, device="cuda")
    torch.linalg.solve(matrix, torch.randn(2048, 8, device="cuda"))
    torch.linalg.eigvalsh(matrix @ matrix.T)
    torch.fft.fft2(torch.randn(64, 512, 512, device="cuda"))
    torch.mm(torch.eye(2048, device="cuda").to_sparse_csr(), matrix)
    hold("solver, transform, sparse")


def loaded(pattern):
    """The file of a library that is loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sorted({line.split()[-1] for line in maps if re.search(pattern, line)})[0]


def libraries():
    a = torch.randn(1024, 1024, device="cuda")
    hold("before")
    cublas = ctypes.CDLL(loaded(r"/libcublas\.so"))
    handles = [ctypes.c_void_p() for _ in range(3)]
    one = ctypes.c_float(1)
    for handle in handles:
        assert cublas.cublasCreate_v2(ctypes.byref(handle)) == 0
        address = ctypes.c_void_p(a.data_ptr())
        assert cublas.cublasSgemm_v2(handle, 0, 0, 1024, 1024, 1024, ctypes.byref(one), address, 1024, address, 1024, ctypes.byref(one),
                                     ctypes.c_void_p(torch.empty_like(a).data_ptr()), 1024) == 0
    hold("cuBLAS alone")


def nccl():
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.set_device(0)
        data = torch.ones(32 << 20, device="cuda")
        hold("before")
        torch.distributed.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        torch.distributed.all_reduce(data)
        torch.distributed.all_gather_into_tensor(torch.empty_like(data), data)
        hold("NCCL")
        torch.distributed.destroy_process_group()


def cache():
    kept = torch.empty(GIB // 4, dtype=torch.uint8, device="cuda")
    blocks = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(32)]
    hold("full")
    del blocks
    hold("cached")
    torch.cuda.empty_cache()
    hold("emptied")
    blocks = [torch.empty(48 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
    hold("again")
    return kept, blocks


def by_driver():
    kept = [torch.empty((index % 9 + 1) << 20, dtype=torch.uint8, device="cuda") for index in range(200)]
    hold("full")
    del kept[::2]
    hold("half given back")


def hog():
    free, _ = torch.cuda.mem_get_info()
    block = torch.empty(free - int(sys.argv[2]) * GIB if len(sys.argv) > 2 else 4 * GIB, dtype=torch.uint8, device="cuda")
    block[:GIB].zero_()
    torch.cuda.synchronize()
    print("ready", flush=True)
    sys.stdin.read()


{"inference": inference, "libraries": libraries, "nccl": nccl, "cache": cache, "async": by_driver, "hog": hog}[sys.argv[1]]()
