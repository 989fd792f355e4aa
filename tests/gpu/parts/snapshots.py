# SPDX-License-Identifier: Apache-2.0
"""memory snapshots that PyTorch itself writes: right holders, each byte once, no false leak; with all kinds of stacks, and cut histories"""
import json
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, PROGRAMS, call, check
from torch_snapshots import mistakes

WHOLE, RING = 10_000_000, 600
# 20 of them: workload, stacks, steps, entries that the history keeps.
CASES = [(workload, stacks, steps, WHOLE) for workload, steps in (("transformer", 12), ("cnn", 12), ("decode", 40), ("leak", 20))
         for stacks in ("all", "python", "none")] + \
        [("transformer", stacks, 1, WHOLE) for stacks in ("all", "python", "none")] + \
        [(workload, stacks, 12, RING) for workload in ("transformer", "cnn") for stacks in ("all", "python")] + [("leak", "all", 40, 6000)]
TOGETHER = 4


def record(place, workload, stacks, steps, entries):
    place.mkdir(parents=True)
    file = place / "snapshot.pickle"
    done = call([sys.executable, PROGRAMS / "snapshots.py", workload, stacks, steps, entries, file])
    said = json.loads(done.stdout.splitlines()[-1])
    info = json.loads(call([COMMAND, "info", "--json", file]).stdout)
    text = call([COMMAND, "info", "--all", file]).stdout
    return file, said, info, text


def run(place):
    with ThreadPoolExecutor(TOGETHER) as pool:
        jobs = [(case, pool.submit(record, place / str(number), *case)) for number, case in enumerate(CASES)]
    for case, job in jobs:
        @check(" ".join(str(word) for word in case[:3]) + (" ring" if case[3] != WHOLE else ""))
        def _(case=case, job=job):
            workload, stacks, steps, entries = case
            file, said, info, text = job.result()
            snapshot = pickle.loads(file.read_bytes())
            wrong = mistakes(snapshot, info, text)
            [process] = info["processes"]
            pools = {pool["pool"]: pool for pool in process["pools"]}
            for key, pool in (("requested", "PTA"), ("reserved", "HAL")):
                if pools[pool]["live_bytes"] != said[key]:
                    wrong.append(f"{key}: {pools[pool]['live_bytes']} instead of {said[key]}")
            if entries == WHOLE and pools["PTA"]["peak_bytes"] != said["requested_peak"]:
                wrong.append(f"peak: {pools['PTA']['peak_bytes']} instead of {said['requested_peak']}")
            leaks = [[frame["line"] for frame in one["frames"] if frame["user"]] for one in process["places"] if one["verdict"] == "leak"]
            if workload != "leak" and leaks:
                wrong.append(f"leaks at {leaks}")
            if steps == 1 and process["judgement"]["judged"]:
                wrong.append("one step was judged")
            if workload == "leak" and entries == WHOLE and (len(leaks) != 1 if stacks != "none" else process["verdict"] not in ("leak", "suspect")):
                wrong.append(f"{len(leaks)} leaks, verdict {process['verdict']}, and one was planted")
            if wrong:
                print(text[:3000], flush=True)
                raise AssertionError("; ".join(wrong))
            return f"{process['steps']} steps found, verdict {process['verdict']}, {len(snapshot['device_traces'][0])} entries"
