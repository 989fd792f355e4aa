# SPDX-License-Identifier: Apache-2.0
"""Programs on the stand-in CUDA driver of tests/fakes, and what they say that they did.

    run = cuda("cuda_random", 1, 4, 200)          traced; keywords: options of the command, env
    truth(run), seen(run)                         {(pid, tid): [("MALLOC", address, bytes, device, type), ("FREE", address), ...]}
"""
import json
import os

import pytest

DRIVER = ("HAL", "HOST_PINNED")


@pytest.fixture
def cuda_env(targets, out):
    """Variables by which a program finds the stand-in, a machine of its own."""
    return {
        "LD_LIBRARY_PATH": str(targets.parent / "fakes"),
        "FAKE_CUDA_STATE": str(out / "gpus"),
        "TRUTH": str(out / "truth"),
        "CUDA_INJECTION64_PATH": None, "NVTX_INJECTION64_PATH": None, "CUDA_VISIBLE_DEVICES": None, "CUPTI_LIBRARY": None,
    }


@pytest.fixture
def cuda(msmemscope, program, cuda_env):
    def run(name, *arguments, options=("--call-stack=c:20",), env=None):
        return msmemscope(*options, "--", *program(name, *arguments), env={**cuda_env, **(env or {})}).check()
    return run


def truth(run):
    """What the program's threads wrote."""
    with open(os.path.join(run.out, "truth"), encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return {(line["pid"], line["tid"]): [tuple(event) for event in line["events"]] for line in lines}


def seen(run):
    """The same from the rows of the driver's memory."""
    found = {}
    for row in sorted(run.rows(), key=lambda row: (row.pid, row.id)):
        if row.type not in DRIVER or row.event not in ("MALLOC", "FREE"):
            continue
        event = ("FREE", row.ptr)
        if row.event == "MALLOC":
            event = ("MALLOC", row.ptr, row.attr["size"], -1 if row.device == "cpu" else int(row.device), row.type)
        found.setdefault((row.pid, row.tid), []).append(event)
    return found
