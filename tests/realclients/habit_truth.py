# SPDX-License-Identifier: Apache-2.0
"""Habits of scripts (programs/habits.py) on the simulated NPU as a dry run has it, against the computing one: torch_npu's own peaks."""

REFUSED = {"recurs": "simnpu: aclnnLSTM: it is not simulated"}
AT_MOST = {"keeps_only_some"}
DRY = {"SIMNPU_SHAPES": "1", "TASK_QUEUE_ENABLE": "0"}


def compare(client, *names):
    """Runs habits both ways; each has the same figures to the byte, or is refused by name, or is at most as large as said. How many of each."""
    real, dry = ({line.pop("habit"): line for line in client.run("habits.py", *names, env={"SIMNPU_WORKSPACE": "none", **more}, timeout=600).lines}
                 for more in ({}, DRY))
    assert list(real) == list(dry) and real
    counts = {"exact": 0, "at most": 0, "refused by name": 0}
    for name, found in dry.items():
        if name in REFUSED:
            assert REFUSED[name] in found["why"], (name, found)
            counts["refused by name"] += 1
        elif name in AT_MOST:
            assert real[name]["allocated"] < found["allocated"] and real[name]["reserved"] <= found["reserved"], (name, real[name], found)
            counts["at most"] += 1
        else:
            assert "raised" not in found and found == real[name], (name, real[name], found)
            counts["exact"] += 1
    return counts
