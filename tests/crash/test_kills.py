# SPDX-License-Identifier: Apache-2.0
"""Random SIGKILLs at random moments of the program, of the engine, of the supervisor (the pid the user sees), and of several at once, lose no
call that had returned. `--kills=1000` for the full number; each failure names the seed that repeats it."""
import random
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

# Moments are spread over this; the program takes a little longer than that when it is left alone.
SPREAD_S = 0.3
AT_A_TIME = 3


def one_kill(crash, kind, number, seed):
    """Starts, kills, recovers where needed, and checks. Gives the number of rows that were checked."""
    chance = random.Random(seed)
    lanes = chance.choice([1, 1, 2, 4, 8])
    options = [*(["--call-stack=c:5"] if chance.random() < 0.3 else []), *(["--format=db"] if chance.random() < 0.3 else [])]
    victim = crash.start(lanes=lanes, events=chance.choice([2000, 12000, 40000]) // lanes, spread_ms=int(SPREAD_S * 1100),
                         options=options, refuses=chance.random() < 0.3, number=number)
    time.sleep(chance.uniform(0, SPREAD_S))
    if kind == "program":
        victim.kill("program")
    elif kind == "engine":
        victim.kill("engine")
    elif kind == "visible":
        victim.kill("visible")
    elif kind == "all":
        everybody = ["engine", "visible", "program"]
        chance.shuffle(everybody)
        victim.kill(*everybody)
    else:
        others = ["engine", chance.choice(["visible", "program"])]
        chance.shuffle(others)
        victim.kill(*others)
    victim.finish()
    recovered = False
    if kind in ("engine", "both", "all", "recovery") and victim.sessions():
        if kind == "recovery":
            for _ in range(2):
                started = crash.command.start("recover", victim.out, output=False)
                time.sleep(chance.uniform(0, 0.03))
                started.kill()
                started.finish()
        crash.recover(victim)
        recovered = True
    return victim.check(ended=kind == "engine"), recovered, victim


@pytest.mark.parametrize("kind, share", [("program", 25), ("engine", 20), ("both", 20), ("visible", 15),
                                         ("all", 10), ("recovery", 10)])
def test_a_random_kill_loses_no_call_that_had_returned(crash, kills, kill_seed, kind, share):
    def job(number):
        seed = kill_seed * 1000003 + number
        try:
            rows, recovered, victim = one_kill(crash, kind, number, seed)
        except AssertionError as error:
            raise AssertionError(f"kill {number} of {kind}, --kill-seed={kill_seed}: {error}") from error
        shutil.rmtree(victim.out)
        return rows, recovered

    count = max(1, kills * share // 100)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        results = list(pool.map(job, range(count)))
    print(f"{count} kills of {kind}: {sum(rows for rows, _ in results)} rows checked, "
          f"{sum(recovered for _, recovered in results)} recovered")
    if count >= 10:
        assert any(rows > 0 for rows, _ in results), "no kill came after the first event"
    if count >= 10 and kind in ("engine", "both", "all", "recovery"):
        assert any(recovered for _, recovered in results), "no kill left anything to recover"


@pytest.mark.parametrize("kind", ["program", "all"])
def test_a_kill_amid_checkpoints_loses_nothing(crash, kills, kill_seed, kind):
    """--max-trace drops chunks and leaves checkpoints: calls made, rows kept and figures said are the same. `--kills=7500`: 200 of these. Not
    with frees that fail: rows of a trace that was cut cannot be written again without them. When the engine is killed first and the machine
    is busy, the program reaches the limit before it is killed, too: what it made then is counted."""
    cut = 0
    for number in range(max(1, kills // 75)):
        chance = random.Random(kill_seed * 1000003 + number)
        victim = crash.start(lanes=2, events=300000, spread_ms=1200, options=["--max-trace=1M", "--no-report"],
                             number=number)
        time.sleep(chance.uniform(0.6, 1.5))
        victim.kill(*(["engine", "visible", "program"] if kind == "all" else [kind]))
        victim.finish()
        if victim.sessions():
            crash.recover(victim)
        try:
            rows = victim.check(bounded=True)
            _, project = victim.rows()
            info = crash.info(project)
            assert info["rows"] == rows, f"{rows} rows, said {info['rows']}"
        except AssertionError as error:
            raise AssertionError(f"kill {number} of {kind}, --kill-seed={kill_seed}: {error}") from error
        cut += info["dropped_events"] > 0
        shutil.rmtree(victim.out)
    print(f"{kind}: {cut} of {max(1, kills // 75)} traces were cut")
    if kills >= 750:
        assert cut > 0, "no kill came after a checkpoint"
