# SPDX-License-Identifier: Apache-2.0
"""Processes in the store while they run: after stop(), and every so many seconds. What is there is what the process held by then, once,
and the end takes its place. Programs wait for a file, which the test makes when it has seen their rows."""
import json
import sqlite3
import time
from pathlib import Path

import stores

PROCESS = "SELECT rank, outcome, events, trace FROM processes"
TABLES = ("pools", "places", "timeline", "owners", "losses")


def process_of(store):
    [(rank, outcome, events, trace)] = store.ask(PROCESS)
    return int(rank), outcome, int(events), trace


def wait_for(path):
    while not path.exists():
        time.sleep(0.005)


def ended_as_store_add_would(store, add, results, run):
    """One process, which has ended; adding it once more changes nothing."""
    before = {table: sorted(store.ask(f"SELECT * FROM {table}")) for table in TABLES}
    shown = process_of(store)
    add(store, results, f"--run={run}").check()
    assert {table: sorted(store.ask(f"SELECT * FROM {table}")) for table in TABLES} == before
    assert process_of(store) == shown and shown[1] == "ended"
    return shown


def test_a_process_is_stored_while_it_runs(store, add, fleet, msmemscope, program, out):
    started = msmemscope.start(f"--store={store.url}", "--store-every=1", "--", *program("waits", out / "go"), output=out / "results",
                               env={"RANK": 3, "MSMEMSCOPE_RUN": "live"})
    stores.awaited(store, "SELECT process FROM processes WHERE events >= 6")
    rank, outcome, events, trace = process_of(store)
    assert (rank, outcome) == (3, "running") and Path(trace).parent == out / "results"
    [shown] = fleet(store, "show", "live")["ranks"]
    assert shown["outcome"] == "running" and max(pool["peak_bytes"] for pool in shown["pools"]) == 4098
    text = msmemscope("fleet", "show", "live", "--store", store.url, output=False).check().stdout
    assert ", 1 still running, " in text.splitlines()[0], text
    (out / "go").touch()
    done = started.finish().check()
    assert "nothing is lost" not in done.stderr, str(done)
    assert ended_as_store_add_would(store, add, out / "results", "live")[2] >= events + 6


def test_every_process_is_there_once_however_often_it_was_stored(store, msmemscope, program, out):
    done = msmemscope(f"--store={store.url}", "--store-every=1", "--", *program("crowd", 12, 12, 5), output=out / "results",
                      env={"MSMEMSCOPE_RUN": "c"}).check()
    rows = store.ask("SELECT process, outcome FROM processes")
    assert len(rows) == len(done.projects()) and "running" not in {outcome for _, outcome in rows}


def engines(launch):
    """Descendants of a launch that are its engine or children of that."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        parents[int(stat.parent.name)] = (int(rest.split()[1]), name)
    found = []
    for pid, (parent, name) in parents.items():
        while parent in parents and parent != launch:
            parent = parents[parent][0]
        if parent == launch and name == "mscope-engine":
            found.append(pid)
    return found


def test_older_rows_never_take_the_place_of_newer_ones(add, msmemscope, program, out):
    """The store is locked while a process that runs is being written, until that process has ended."""
    store = stores.Sqlite(out)
    msmemscope(f"--store={store.url}", "--", *program("leaky_steps"), output=out / "first", env={"MSMEMSCOPE_RUN": "first"}).check()
    store.ask("DELETE FROM processes")
    lock = sqlite3.connect(store.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    started = msmemscope.start(f"--store={store.url}", "--store-every=1", "--", *program("waits", out / "go"), output=out / "results",
                               env={"MSMEMSCOPE_RUN": "live", "RANK": 0, "MSMEMSCOPE_STORE_WAIT": 60})
    while len(engines(started.pid)) < 2:
        time.sleep(0.005)
    (out / "go").touch()
    wait_for(out / "go.done")
    lock.execute("ROLLBACK")
    started.finish().check()
    for table in TABLES:
        store.ask(f"DELETE FROM {table} WHERE run NOT IN (SELECT run FROM processes)")
    assert ended_as_store_add_would(store, add, out / "results", "live")[2] >= 12


def test_a_store_that_was_away_meanwhile_is_no_matter(pg, add, msmemscope, program, out):
    pg.server.stop()
    started = msmemscope.start(f"--store={pg.url}", "--store-every=1", "--", *program("waits", out / "go"), output=out / "results",
                               env={"MSMEMSCOPE_RUN": "live", "RANK": 0})
    wait_for(out / "go.ready")
    pg.server.start()
    stores.awaited(pg, "SELECT process FROM processes WHERE outcome = 'running'")
    (out / "go").touch()
    done = started.finish().check()
    assert "nothing is lost" not in done.stderr, str(done)
    ended_as_store_add_would(pg, add, out / "results", "live")


# ---- Python ----

WINDOW = """
import json, os, subprocess, time
import msmemscope, npu

msmemscope.config(output=os.environ["OUT"], **json.loads(os.environ["CONFIG"]))
msmemscope.start()
kept = npu.alloc(3 << 20)
msmemscope.stop()
ranks = []
while not ranks:  # the store, the run and the process come one after the other
    told = subprocess.run([os.environ["COMMAND"], "fleet", "show", "live", "--store", os.environ["URL"], "--json"], capture_output=True)
    ranks = json.loads(told.stdout)["ranks"] if told.returncode == 0 else []
    time.sleep(0.02)
print(json.dumps(ranks))
msmemscope.start()
more = npu.alloc(5 << 20)
msmemscope.stop()
npu.free(more)
npu.free(kept)
"""


def window(scripts, dist, store, config, env):
    """Runs the script by itself; the rank that it saw in the store while it ran."""
    run = scripts.preloaded(WINDOW, {"COMMAND": dist / "bin" / "msmemscope", "URL": store.url, "CONFIG": config, "RANK": 5,
                                     "MSMEMSCOPE_RUN": "live", **env}).check()
    [rank] = json.loads(run.stdout)
    return run, rank


def test_a_window_of_python_is_stored_when_it_ends(store, add, scripts, dist):
    """By config(); the program goes on, and its end takes the place of what the window left."""
    run, rank = window(scripts, dist, store, f'{{"store": "{store.url}"}}', {})
    assert (rank["rank"], rank["outcome"]) == (5, "running") and max(pool["peak_bytes"] for pool in rank["pools"]) == 3 << 20
    assert "nothing is lost" not in run.stderr, run
    [(peak,)] = store.ask("SELECT MAX(peak_bytes) FROM pools")
    assert int(peak) == 8 << 20
    ended_as_store_add_would(store, add, scripts.results, "live")


def test_a_variable_is_enough_for_python(scripts, dist, add, out):
    store = stores.Sqlite(out)
    run, rank = window(scripts, dist, store, "{}", {"MSMEMSCOPE_STORE": store.url, "MSMEMSCOPE_STORE_EVERY": "1"})
    assert rank["outcome"] == "running" and "nothing is lost" not in run.stderr, run
    ended_as_store_add_would(store, add, scripts.results, "live")


def test_a_store_that_is_away_does_not_disturb_python(scripts, pg, add):
    pg.server.stop()
    try:
        run = scripts.preloaded("""
import os, msmemscope, npu
msmemscope.config(output=os.environ["OUT"], store=os.environ["URL"], store_every="1")
msmemscope.start()
npu.free(npu.alloc(1 << 20))
msmemscope.stop()
""", {"URL": pg.url, "MSMEMSCOPE_STORE_WAIT": 1, "RANK": 0, "MSMEMSCOPE_RUN": "r"}).check()
    finally:
        pg.server.start()
    [line] = [line for line in run.stderr.splitlines() if "nothing is lost" in line]
    assert "0 of 1 processes are stored" in line and f"store add {scripts.results} --to" in line, run
    add(pg, scripts.results, "--run=r").check()
    assert process_of(pg)[:2] == (0, "ended")


def test_a_wrong_store_of_config_is_told(scripts):
    run = scripts.preloaded("""
import msmemscope, npu
for url in ("postgresql://me:secret@host/db", "postgres://host/db?user=me&password=secret", "postgresql:///db?sslpassword=secret"):
    try:
        msmemscope.config(store=url)
    except ValueError as error:
        print(error)
msmemscope.config(store="oracle:x")
msmemscope.start()
npu.free(npu.alloc(4096))
""").check()
    lines = run.stdout.splitlines()
    assert len(lines) == 3 and all("~/.pgpass" in line and "secret" not in line for line in lines), run
    assert "a store is sqlite:FILE" in run.stderr and "secret" not in run.stderr and not run.out.exists(), run
