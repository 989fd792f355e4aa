# SPDX-License-Identifier: Apache-2.0
"""What programs of tests/targets/cuda_*.c say that they did, and what rows say: two answers of one form,

    {(pid, tid): [("MALLOC", address, bytes, device, type), ("FREE", address), ...]}       device -1: the host

Without pytest, since tests/gpu runs where there is none.
"""
import json
import os

DRIVER = ("HAL", "HOST_PINNED")


def truth(place):
    """What the program's threads wrote into the file `truth` of a directory."""
    with open(os.path.join(place, "truth"), encoding="ascii") as file:
        lines = [json.loads(line) for line in file]
    return {(line["pid"], line["tid"]): [tuple(event) for event in line["events"]] for line in lines}


def seen(rows):
    """The same from rows of the driver's memory."""
    found = {}
    for row in sorted(rows, key=lambda row: (row.pid, row.id)):
        if row.type not in DRIVER or row.event not in ("MALLOC", "FREE"):
            continue
        event = ("FREE", row.ptr)
        if row.event == "MALLOC":
            event = ("MALLOC", row.ptr, row.attr["size"], -1 if row.device == "cpu" else int(row.device), row.type)
        found.setdefault((row.pid, row.tid), []).append(event)
    return found
