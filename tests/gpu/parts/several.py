# SPDX-License-Identifier: Apache-2.0
"""two GPUs: one process on both, peer copies, a process for each; by numbers, in the other order and by UUID"""
import json
import sys

from checks import COMMAND, PROGRAMS, call, check


def gpus():
    lines = call(["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]).stdout.splitlines()
    return {uuid.strip(): index.strip() for index, uuid in (line.split(",") for line in lines)}


def judge(place, what, visible, numbers):
    place.mkdir(parents=True)
    done = call([COMMAND, "-o", place / "out", f"--summary-json={place / 'summary'}", "--", sys.executable, PROGRAMS / "several.py", what],
                {"CUDA_VISIBLE_DEVICES": visible} if visible else None)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    with open(place / "summary", encoding="utf-8") as file:
        processes = {process["pid"]: process for process in json.load(file)["processes"]}
    wrong, told = [], []
    for line in said:
        # The machine's number, whatever the program calls it.
        device = numbers["GPU-" + line["uuid"].removeprefix("GPU-")]
        process = processes[line["pid"]]
        pools = [pool for pool in process["pools"] if pool["pool"] == "PTA" and pool["device"] == device]
        ledger = [one for one in process.get("devices", ()) if one["device"] == device]
        if len(pools) != 1 or pools[0]["peak_bytes"] != line["peak"]:
            wrong.append(f"GPU {device}: {[pool['peak_bytes'] for pool in pools]} instead of {line['peak']}")
        if len(ledger) != 1 or ledger[0]["last"]["pools_bytes"] != line["reserved"]:
            wrong.append(f"GPU {device}: pools {[one['last']['pools_bytes'] for one in ledger]} instead of {line['reserved']}")
        elif ledger[0]["peak"]["unknown_bytes"] * 100 > ledger[0]["peak"]["used_bytes"]:
            wrong.append(f"GPU {device}: unknown {ledger[0]['peak']['unknown_bytes']} of {ledger[0]['peak']['used_bytes']}")
        if "rank" in line and process["rank"] != line["rank"]:
            wrong.append(f"rank {process['rank']} instead of {line['rank']}")
        told.append(f"GPU {device} {line['peak'] >> 20} MiB" + (f", peer {line['peer']}" if "peer" in line else ""))
    used = {pool["device"] for process in processes.values() for pool in process["pools"] if pool["pool"] in ("PTA", "HAL")}
    if used - {numbers["GPU-" + line["uuid"].removeprefix("GPU-")] for line in said}:
        wrong.append(f"memory on {sorted(used)}")
    if wrong or len(said) != 2:
        print(done.stderr[-3000:], flush=True)
        raise AssertionError("; ".join(wrong) or f"{len(said)} lines")
    return "; ".join(told)


def run(place):
    numbers = gpus()
    uuids = sorted(numbers, key=numbers.get)
    if len(numbers) < 2:
        raise SystemExit(f"this part needs two GPUs, and nvidia-smi lists {len(numbers)}")
    orders = {"as they are": None, "in the other order": f"{numbers[uuids[1]]},{numbers[uuids[0]]}", "by UUID": f"{uuids[1]},{uuids[0]}"}
    for what in ("one", "peer", "ranks"):
        for name, visible in orders.items():
            @check(f"{what}, {name}")
            def _(what=what, name=name, visible=visible):
                return judge(place / f"{what}-{name.replace(' ', '-')}", what, visible, numbers)
