# SPDX-License-Identifier: Apache-2.0
"""whatif on NPUs: our twin of torch_npu's pool against the real one, on a few random programs; `make soak PART=npu-pool` has the rest."""
import json
import os
import random
import subprocess

from pool_cases import case, foretold, play, recorded, replayed

# A device for each. The second half has one stream and is always the same.
ANY, FIXED = 4, 4
SETTINGS = "expandable_segments:True,roundup_power2_divisions:4", "max_split_size_mb:64,garbage_collection_threshold:0.6"


def test_the_twin_is_the_pool_of_torch_npu(client):
    """Each record is replayed address by address and foretells the pool under other settings: exactly from requests, within a range from a trace."""
    seed = int(os.environ.get("MSMEMSCOPE_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"MSMEMSCOPE_SEED={seed}")
    cases = [case(seed + number) for number in range(ANY)] + [one_stream(case(300 + number)) for number in range(FIXED)]
    text = SETTINGS[seed % len(SETTINGS)]
    record = play(client, cases, "")
    other, truth = play(client, cases, text)
    wrong = replayed(client, *record, "")[0] + replayed(client, other, truth, text)[0] + foretold(client, *record, {text: truth})[0]
    assert not wrong, f"MSMEMSCOPE_SEED={seed}\n" + "\n".join(wrong)
    check_trace(client, *recorded(client, cases, ""), text, truth)


def check_trace(client, run, figures, text, truth):
    """A trace has neither streams nor requests. What it cannot know of the first half, it refuses."""
    pools = whatif(client, run, "--set=", f"--set={text}")
    assert [int(pool["device"]) for pool in pools] == list(range(ANY + FIXED))
    for device, pool in enumerate(pools):
        if not pool["agrees"]:
            assert device < ANY and pool["left_at"] is not None and "settings" not in pool, pool
        elif device >= ANY:
            said = {one["set"]: one for one in pool["settings"]}
            assert (pool["reserved_peak"], pool["in_use_peak"]) == (figures[device]["reserved_peak"], figures[device]["in_use_peak"])
            assert said[""]["reserved_peak"] == figures[device]["reserved_peak"]
            assert said[text]["low"] <= truth[device]["reserved_peak"] <= said[text]["high"], (device, text)
    assert all(pool["agrees"] for pool in pools[ANY:])


def one_stream(made):
    events = [" ".join([*event.split()[:3], "0"]) if event[0] == "a" else event for event in made["events"]]
    return {"events": events, "fraction": None}


def whatif(client, run, *options):
    done = subprocess.run([client.dist / "bin" / "msmemscope", "whatif", "--json", *options, run], capture_output=True, text=True, check=False)
    return json.loads(done.stdout)["pools"]


def test_another_batch_is_foretold_from_two_runs_on_an_npu(client):
    """From snapshots to the byte; from traces, which have blocks instead of requests, within a range."""
    small, big, other = (client.trace("batches.py", batch, "snapshot.pickle").check() for batch in (2, 4, 7))
    truth = [line["reserved"] for line in other.lines if "reserved" in line]
    for runs, exact in (([run.out / "snapshot.pickle" for run in (small, big)], True), ([run.out for run in (small, big)], False)):
        done = subprocess.run([client.dist / "bin" / "msmemscope", "whatif", "--json", "--batch=7", "--batch-of=2,4", *runs], capture_output=True, text=True,
                              check=True)
        [pool] = json.loads(done.stdout)["pools"]
        [said] = pool["batches"]
        assert pool["allocations"] == pool["paired"] and said["low"] <= truth[0] <= said["high"]
        assert said["reserved_peak"] == truth[0] or not exact
