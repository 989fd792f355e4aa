#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain program on a GPU: PYTHONPATH=build/dist/python python3 bench/plain_gpu.py [cuda|cpu] [DIR]

Takes 400 tensors in four threads between start() and unload(), without a preload, and says how many of them the dump has.
"""
import csv
import sys
import threading
from pathlib import Path

import msmemscope
import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
OUT = Path(sys.argv[2] if len(sys.argv) > 2 else "plain-gpu")


def main():
    old = [torch.empty(5003, device=DEVICE) for _ in range(50)]
    msmemscope.config(events="alloc,free", device="cpu" if DEVICE == "cpu" else "npu", output=str(OUT))
    msmemscope.start()
    kept = []

    def work(number):
        for i in range(100):
            kept.append(torch.empty((number * 100 + i + 1) * 4096, dtype=torch.int8, device=DEVICE))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    old.clear()
    addresses = {tensor.data_ptr() for tensor in kept}
    msmemscope.unload()
    seen = set()
    for path in OUT.glob("msmemscope_*/device_*/dump/*.csv"):
        with open(path, encoding="utf-8") as file:
            seen |= {int(row["Ptr"], 16) for row in csv.DictReader(file) if row["Event"] == "MALLOC"}
    print(f"{len(addresses & seen)} of {len(addresses)} blocks seen")
    return 0 if addresses <= seen else 1


if __name__ == "__main__":
    sys.exit(main())
