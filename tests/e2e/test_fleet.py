# SPDX-License-Identifier: Apache-2.0
"""One store of many ranks and runs: what goes in comes out, on SQLite and on PostgreSQL alike, and the ranks, places and commits that
were planted are named and nothing else. A sample is tried here; 1,024 ranks and 100 seeds by `make soak PART=fleet`."""
import json
import os
import random
import re
import resource
import shlex
import signal
import sqlite3
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fleet_ranks
import same
import stores
from harness import environment

WRITERS = 16


def counts(store):
    return {table: int(store.ask(f"SELECT count(*) FROM {table}")[0][0])
            for table in ("runs", "processes", "pools", "places", "timeline", "stacks", "stack_frames", "frames", "losses")}


def add_all(add, store, directory, *options, writers=WRITERS):
    """Several writers at once, each with its share of the files."""
    files = sorted(directory.iterdir())
    with ThreadPoolExecutor(writers) as pool:
        parts = [files[k::writers] for k in range(min(writers, len(files)))]
        for done in pool.map(lambda part: add(store, *part, *options), parts):
            done.check()


# ---- what goes in ----

@pytest.mark.parametrize("how, status, outcome", [("_exit", 7, "ended"), ("kill", -9, "SIGKILL")])
def test_a_process_without_an_end_record_has_ended_unless_its_signal_is_known(traced, add, out, how, status, outcome):
    """Workers of a DataLoader end by _exit()."""
    store = stores.Sqlite(out)
    add(store, traced("ends_by", how).exact(status).run.project().path).check()
    assert store.ask("SELECT outcome FROM processes") == [(outcome,)]


def test_the_store_says_what_was_not_recorded(traced, add, out):
    """By cause; a cause that lost nothing has no row."""
    store = stores.Sqlite(out)
    result = traced("sandbox", "prctl", 10, 1, 100, 7, driver="bare", stdout=True)
    project = result.run.project()
    assert result.info(project)["losses"]["sandboxed"] == 7
    add(store, project.path).check()
    assert store.ask("SELECT cause, events FROM losses") == [("sandboxed", 7)]


def test_the_store_says_what_the_json_document_says(msmemscope, traces, store, add):
    add(store, traces, "--run=real").check()
    projects = sorted(traces.glob("msmemscope_*_*"))
    document = json.loads(msmemscope("info", *projects, "--json", output=False).check().stdout)
    by_rank = {process["rank"]: process for process in document["processes"]}
    assert {int(row[0]) for row in store.ask("SELECT rank FROM processes")} == set(by_rank) == {0, 1, 2, 3}
    for rank, process in by_rank.items():
        [(key, verdict, steps, events, outcome)] = store.ask(
            "SELECT process, verdict, steps, events, outcome FROM processes WHERE rank = ?", rank)
        assert (verdict, int(steps), int(events), outcome) == (process["verdict"], process["steps"], process["events"], "ended")
        stored = {(device, pool): (int(peak), int(end)) for device, pool, peak, end in
                  store.ask("SELECT device, pool, peak_bytes, end_bytes FROM pools WHERE process = ?", int(key))}
        assert stored == {(pool["device"], pool["pool"]): (pool["peak_bytes"], pool["end_bytes"])
                          for pool in process["pools"] if pool["allocations"] or pool["peak_bytes"]}
        # The places of a pool add up to it, at the peak and at the end.
        for (device, pool), (peak, end) in stored.items():
            [(peaks, ends)] = store.ask("SELECT SUM(peak_bytes), SUM(end_bytes) FROM places WHERE process = ? AND device = ? AND pool = ?",
                                        int(key), device, pool)
            assert (int(peaks), int(ends)) == (peak, end)
            [(most,)] = store.ask("SELECT MAX(bytes) FROM timeline WHERE process = ? AND device = ? AND pool = ?", int(key), device, pool)
            assert int(most) == peak


def test_call_sites_have_the_names_of_the_document(msmemscope, store, add, python, out):
    """Two layers below one line of the program, which only the frames of the framework tell apart."""
    script = out / "two_layers.py"
    script.write_text("import torch\nimport msmemscope\nnet = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU())\nkept = []\n"
                      "for _ in range(14):\n    kept.append(net(torch.ones(64, 64)))\n    msmemscope.step()\n", encoding="utf-8")
    msmemscope("--device=cpu", "--", *python, script).check()
    [project] = out.glob("msmemscope_*")
    add(store, project, "--run=two").check()
    document = json.loads(msmemscope("info", project, "--json", output=False).check().stdout)
    names = {place["name"] for place in document["processes"][0]["places"] if place["verdict"] == "leak"}
    assert len(names) == 3 and sum("Linear" in name for name in names) == sum("GELU" in name for name in names) == 1, names
    stored = {row[0] for row in store.ask("SELECT label FROM places JOIN stacks ON places.stack = stacks.stack WHERE verdict = 'leak'")}
    assert stored == names


def test_adding_again_changes_nothing(traces, store, add):
    add(store, traces, "--run=real").check()
    before = counts(store)
    assert before["processes"] == 4 and before["runs"] == 1
    add(store, traces, "--run=real").check()
    assert counts(store) == before


def test_two_writers_of_the_same_rank_leave_it_once(traces, store, add):
    project = sorted(traces.glob("msmemscope_*_*"))[0]
    add(store, project, "--run=r").check()
    before = counts(store)
    with ThreadPoolExecutor(8) as pool:
        for done in pool.map(lambda _: add(store, project, "--run=r"), range(24)):
            done.check()
    assert counts(store) == before


HOSTILE = ("it's \"quoted\"; DROP TABLE runs; --", "line\nfeed\ttab\rreturn", "back\\slash \\x41 \\N \\.", "nul\0inside", "byte \udcff alone", "日本語 🙂",
           "x" * 4096, "$1 %s ?")


def test_names_come_back_unchanged(base, store, add, fleet, out):
    # The command line refuses control characters and what is no UTF-8.
    for number, name in enumerate(name for name in HOSTILE if name.isprintable()):
        fleet_ranks.make(base, out / str(number), run="x", ranks=1, places=2, planted=False, code=name)
        add(store, out / str(number), "--run", name).check()
        shown = fleet(store, "show", name)
        assert (shown["run"], shown["commit"]) == (name, name)


def test_texts_of_programs_survive_the_store(base, store, add, fleet, out):
    columns, [row] = base["processes"]
    for number, name in enumerate(HOSTILE):
        pools, rows = base["pools"]
        (out / "in").mkdir(exist_ok=True)
        fleet_ranks.write(out / "in" / f"{number}.rows", {
            "runs": base["runs"],
            "processes": (columns, [fleet_ranks.with_values(columns, row, process=number + 1, rank=number, name=fleet_ranks.escape(name))]),
            "pools": (pools, [fleet_ranks.with_values(pools, pool, process=number + 1) for pool in rows])})
    add(store, out / "in", "--run=names").check()
    shown = {rank["rank"]: rank["name"] for rank in fleet(store, "show", "names")["ranks"]}
    for number, name in enumerate(HOSTILE):
        if "\0" not in name:  # JSON of the command ends texts there; test_store.c reads them whole
            assert shown[number] == name.replace("\udcff", "\ufffd")


def test_an_older_store_is_upgraded_and_a_newer_one_refused(traces, store, add, fleet):
    add(store, traces, "--run=a").check()
    whole = fleet(store, "show", "a")
    for sql in ("DROP TABLE owners", "ALTER TABLE processes DROP COLUMN local_rank", "ALTER TABLE processes DROP COLUMN dry", "ALTER TABLE pools DROP COLUMN requested_bytes",
                "UPDATE store_version SET version = 1"):
        store.ask(sql)
    add(store, traces, "--run=b").check()
    assert store.ask("SELECT version FROM store_version") in ([(4,)], [("4",)])
    assert store.ask("SELECT COUNT(*) FROM owners") and store.ask("SELECT local_rank FROM processes")
    assert fleet(store, "show", "a")["ranks"] == whole["ranks"]
    store.ask("UPDATE store_version SET version = 99")
    refused = add(store, traces, "--run=c")
    assert refused.returncode == 1 and "version 99" in refused.stderr and "newer msmemscope" in refused.stderr, str(refused)


# ---- questions ----

def test_planted_ranks_are_named_and_no_others(base, store, add, fleet, out, fleets):
    wrong = []
    for seed in range(fleets):
        truth = fleet_ranks.make(base, out / str(seed), run=f"seed {seed}", ranks=64, places=60, seed=seed)
        add_all(add, store, out / str(seed), writers=4)
        shown = fleet(store, "show", f"seed {seed}")
        fault = fleet_ranks.wrong_in(shown, truth)
        if fault:
            wrong.append(f"seed {seed}: {fault}")
        [leak] = [group for group in shown["outliers"] if group["why"] == "leak"]
        assert [place["place"] for place in leak["places"]] == [truth["leaks_at"]]
        for group in shown["outliers"]:
            if group["why"] == "different":
                moved = {place["place"].split()[-1] for place in group["places"]}
                assert moved <= {name.split()[-1] for name in truth["moved"]}
    assert not wrong, "\n".join(wrong)


def test_a_real_rank_that_differs_is_named_with_its_place(store, fleet, msmemscope, program, out):
    """Ten ranks of one program; one asks for more at one place, and says itself at which."""
    for rank in range(10):
        done = msmemscope("--call-stack=c", f"--store={store.url}", "--",
                          *program("planted", "--seed=4", f"--plant={'larger' if rank == 6 else 'none'}"), output=out / "results",
                          env={**store.env, "RANK": rank, "MSMEMSCOPE_RUN": "ten"}).check()
        if rank == 6:
            truth = json.loads(done.stdout)
    shown = fleet(store, "show", "ten")
    [group] = shown["outliers"]
    assert (group["why"], group["ranks"]) == ("more", [6])
    assert truth["place"] in group["places"][0]["place"] and group["places"][0]["delta_bytes"] > 0


JOB = """#!/bin/sh
# A launcher of two ranks, each recorded by itself; one of them below a shell of its own.
RANK=0 WORLD_SIZE=2 "$@" &
RANK=1 WORLD_SIZE=2 sh -c '"$@"; true' sh "$@"
wait
"""


def test_launches_of_one_second_are_runs_of_their_own_and_ranks_of_a_job_one(fleet, msmemscope, dist, program, out):
    """Two jobs of two ranks and two launches without ranks, none of which has a name: four runs."""
    url = f"sqlite:{out / 'fleet.db'}"
    (out / "job.sh").write_text(JOB, encoding="utf-8")
    words = [dist / "bin" / "msmemscope", f"--store={url}", f"--output={out / 'results'}", "--", *program("acl_train", "--steps=2")]
    started = [subprocess.Popen(list(map(str, command)), env=environment(dist), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for command in (["sh", out / "job.sh", *words], ["sh", out / "job.sh", *words], words, words)]
    assert [one.wait() for one in started] == [0] * 4
    with sqlite3.connect(out / "fleet.db") as connection:
        found = connection.execute("SELECT runs.name, COUNT(*), COUNT(DISTINCT processes.rank) FROM runs JOIN processes ON processes.run = runs.run "
                                   "GROUP BY runs.name ORDER BY runs.name").fetchall()
    connection.close()
    assert sorted(counts for _, *counts in found) == [[1, 0], [1, 0], [2, 2], [2, 2]], found
    names = [name for name, *_ in found]
    assert sum(re.fullmatch(r"run-\d{14}-[0-9a-f]{6}", name) is not None for name in names) == 2
    assert sum(re.fullmatch(r"sh-[0-9a-f]{8}", name) is not None for name in names) == 2, names
    # What is added once more later is the same run.
    msmemscope("store", "add", out / "results", "--to", url, output=False).check()
    with sqlite3.connect(out / "fleet.db") as connection:
        assert {name for (name,) in connection.execute("SELECT name FROM runs")} == set(names)
    connection.close()


def test_equal_ranks_have_no_outlier(base, store, add, fleet, out):
    fleet_ranks.make(base, out / "r", run="equal", ranks=40, places=30, planted=False)
    add_all(add, store, out / "r", writers=4)
    shown = fleet(store, "show", "equal")
    assert shown["outliers"] == [] and shown["rank_count"] == 40 and len(shown["hosts"]) == 5


def test_the_screen_of_a_run_fits(base, store, add, fleet, msmemscope, out):
    fleet_ranks.make(base, out / "r", run="wide", ranks=200, places=100, seed=3)
    add_all(add, store, out / "r", writers=4)
    text = msmemscope("fleet", "show", "wide", "--store", store.url, output=False).check().stdout
    assert len(text.splitlines()) <= 25 and max(map(len, text.splitlines())) <= 110, text
    assert "Ranks that stand out:" in text and "leaks" in text and "% more" in text and "other call sites" in text
    [peak] = [pool["peak_bytes"] for pool in fleet(store, "show", "wide")["pools"] if pool["main"]]
    said = re.search(r"^Peak of \w+: median (.*), nine of ten ranks up to (.*), least (.*), most (.*)$", text, re.M).groups()
    assert said == tuple(same.shown(int(peak[key])) for key in ("median", "p90", "least", "most")), peak


def test_a_run_that_is_not_there_is_told(traces, store, add, msmemscope):
    add(store, traces, "--run=here").check()
    done = msmemscope("fleet", "show", "there", "--store", store.url, output=False)
    assert done.returncode == 1 and "no run there; the latest are: here" in done.stderr, str(done)


def largest(truth, number=0):
    return sorted(truth["places"], key=lambda name: -truth["places"][name])[number]


@pytest.mark.parametrize("ranks", [(24, 24), (24, 40)], ids=["by rank", "by median"])
def test_places_that_grew_between_two_runs_are_named(base, store, add, fleet, out, ranks):
    truth = fleet_ranks.make(base, out / "a", run="a", ranks=ranks[0], places=40, seed=1, program=7, planted=False)
    grown, few = largest(truth, 2), largest(truth, 5)
    fleet_ranks.make(base, out / "b", run="b", ranks=ranks[1], places=40, seed=2, program=7, planted=False,
                     factor=lambda name, size: size * 1.25 if name == grown else size)
    fleet_ranks.make(base, out / "c", run="c", ranks=ranks[1], places=40, seed=3, program=7, planted=False, changed={3, 9},
                     factor=lambda name, size: size * 1.5 if name == few else size)
    fleet_ranks.make(base, out / "d", run="d", ranks=ranks[1], places=40, seed=4, program=7, planted=False)
    for name in "abcd":
        add_all(add, store, out / name, writers=2)
    [place] = fleet(store, "compare", "a", "b")["places"]
    assert (place["place"], place["kind"], place["ranks"]) == (grown, "grew", ranks[1])
    assert abs(place["delta_bytes"] / truth["places"][grown] - 0.25) < 0.02
    [place] = fleet(store, "compare", "a", "c")["places"]
    assert (place["place"], place["ranks"]) == (few, 2)
    assert abs(place["delta_bytes"] / truth["places"][few] - 0.5) < 0.05
    assert fleet(store, "compare", "a", "d")["places"] == []


def test_a_place_that_an_edit_moved_is_the_same_place(base, store, add, fleet, out):
    truth = fleet_ranks.make(base, out / "a", run="a", ranks=12, places=20, seed=1, program=7, planted=False)
    fleet_ranks.make(base, out / "b", run="b", ranks=12, places=20, seed=1, program=7, planted=False)
    name = largest(truth)
    for path in (out / "b").iterdir():
        text = path.read_text()
        number = name.split(":")[1].split(" ")[0]
        new = name.replace(f":{number}", ":999")
        text = text.replace(str(fleet_ranks.key(f"stack {name}")), str(fleet_ranks.key(f"stack {new}"))).replace(name, new)
        path.write_text(text)
    for run in "ab":
        add_all(add, store, out / run, writers=2)
    assert fleet(store, "compare", "a", "b")["places"] == []


@pytest.mark.parametrize("how", ["place", "tag", "spike", "last"])
def test_history_finds_the_commit(base, store, add, fleet, out, how, pasts):
    """The figure changes with one commit; a single run that is off is no change, the last one may be."""
    chance = random.Random(how)
    planted = pasts - 1 if how == "last" else chance.randrange(pasts // 4, 3 * pasts // 4)
    truth = fleet_ranks.make(base, out / "x", run="x", ranks=1, places=6, program=7, planted=False)
    name = largest(truth)
    for number in range(pasts):
        grown = number == planted if how == "spike" else number >= planted
        fleet_ranks.make(base, out / "r", run=f"run {number}", ranks=3, places=6, seed=number, program=7, planted=False,
                         code=f"commit{number}", start_ns=10**18 + number * 10**12, tags=("nightly", f"n{number % 2}"), prefix=f"{number:04d}-",
                         factor=lambda place, size: size * (1.2 if place == name and grown else 1))
    add(store, out / "r").check()
    words = ("--place", name.split(" ")[0]) if how != "tag" else ("--tag=nightly",)
    answer = fleet(store, "history", *words)
    assert len(answer["runs"]) == pasts
    changes = [(change["commit"], change["last_commit_before"]) for change in answer["changes"]]
    assert changes == ([] if how == "spike" else [(f"commit{planted}", f"commit{planted - 1}")])


def test_a_budget_is_kept_or_told(base, store, add, fleet, msmemscope, out):
    truth = fleet_ranks.make(base, out / "r", run="r", ranks=16, places=20, seed=5)
    add_all(add, store, out / "r", writers=2)
    name = largest(truth)
    total = max(pool["peak_bytes"] for rank in fleet(store, "show", "r")["ranks"] for pool in rank["pools"])
    budget = out / "budget"
    budget.write_text(f"# comment\n\npool PTA peak {total}\nplace * leaks 1\nplace \"{name}\" peak 1T\nowner * peak 1G\n")
    answer = fleet(store, "check", "r", "--budget", budget)
    assert [limit["over"] for limit in answer["limits"]] == [False] * 4
    budget.write_text(f"pool PTA peak {total - 1}\nplace * leaks 0\nplace \"{name}\" peak 1K\npool * growth 1K\n")
    answer = fleet(store, "check", "r", "--budget", budget, code=4)
    assert [limit["over"] for limit in answer["limits"]] == [True, True, True, False]
    assert set(answer["limits"][0]["ranks"]) <= set(truth["batch"]) and answer["limits"][1]["ranks"] == truth["leak"]
    text = msmemscope("fleet", "check", "r", "--budget", budget, "--store", store.url, output=False)
    assert text.returncode == 4 and f"over  place * leaks: 1 > 0 in 1 of 16 ranks: {truth['leak'][0]}" in text.stdout, str(text)
    # The client's pool reports no requests: there it is the peak of its blocks, also in rows that an older version stored.
    store.ask("UPDATE pools SET requested_bytes = NULL WHERE pool = 'PTA'")
    for most, over in ((total, False), (total - 1, True)):
        budget.write_text(f"pool PTA requested {most}\n")
        [limit] = fleet(store, "check", "r", "--budget", budget, code=4 if over else 0)["limits"]
        assert limit["over"] == over and limit["figure"] == "requested" and limit["worst"] == total
    store.ask("UPDATE pools SET requested_bytes = 1000 WHERE pool = 'PTA'")
    [limit] = fleet(store, "check", "r", "--budget", budget)["limits"]
    assert limit["worst"] == 1000 and not limit["over"]
    for line, said in (("pool PTA peek 1G", "no figure 'peek'"), ("heap * peak 1G", "is not pool"), ("place * requested 1G", "no figure 'requested'"), ("pool * peak lots", "is not a limit")):
        budget.write_text(line + "\n")
        refused = msmemscope("fleet", "check", "r", "--budget", budget, "--store", store.url, output=False)
        assert refused.returncode == 2 and said in refused.stderr, str(refused)


# ---- the dashboard ----

def test_every_query_of_the_dashboard_answers(base, pg, add, fleet, out):
    truth = fleet_ranks.make(base, out / "r", run="it's", ranks=16, places=20, seed=5)
    add_all(add, pg, out / "r", writers=2)
    shown = fleet(pg, "show", "it's")
    dashboard = json.loads((Path(__file__).parents[2] / "docs" / "grafana" / "msmemscope.json").read_text())
    [pool] = [pool for pool in shown["pools"] if pool["main"]]
    variables = {variable["name"]: variable.get("query", "") for variable in dashboard["templating"]["list"]}
    assert [("it's",)] == pg.ask(variables["run"]) and [(pool["pool"],)] == pg.ask(variables["pool"])
    answers = {}
    for panel in dashboard["panels"]:
        [target] = panel["targets"]
        sql = target["rawSql"].replace("${run:sqlstring}", "'it''s'").replace("${pool:sqlstring}", f"'{pool['pool']}'")
        assert "$" not in sql, sql
        answers[panel["title"]] = pg.ask(sql)
    assert answers["Ranks"] == [("16",)]
    assert float(answers["Median peak"][0][0]) == pool["peak_bytes"]["median"]
    assert float(answers["Largest peak"][0][0]) == pool["peak_bytes"]["most"]
    assert [row[0] for row in answers["Peak of each rank"]] == [str(rank) for rank in range(16)]
    [leak] = answers["Places that leak"]
    assert (leak[0], leak[2]) == (truth["leaks_at"], "1")
    assert len(answers["Ranks, hosts and devices"]) == 16 and answers["Memory over time, all ranks"] and answers["Median peak over runs"]
    assert dict(answers["Verdicts"]) == {"leak": "1", "ok": "15"}


# ---- a launch ----

def test_a_launch_stores_what_store_add_would(store, add, fleet, msmemscope, program, out):
    for rank in range(3):
        done = msmemscope("--call-stack=c", f"--store={store.url}", "--", *program("leaky_steps"), output=out / "results",
                          env={**store.env, "RANK": rank, "MSMEMSCOPE_RUN": "live", "MSMEMSCOPE_TAG": "a,b"}).check()
        assert "stored" not in done.stderr, str(done)
    live = fleet(store, "show", "live")
    tables = ("pools", "places", "timeline", "owners", "losses")
    before = {table: sorted(store.ask(f"SELECT * FROM {table}")) for table in tables}
    assert live["rank_count"] == 3 and before["places"] and before["timeline"]
    assert {row[0] for row in store.ask("SELECT tag FROM tags")} == {"a", "b"}
    add(store, out / "results", "--run=live").check()
    assert {table: sorted(store.ask(f"SELECT * FROM {table}")) for table in tables} == before
    assert fleet(store, "show", "live") == live


def test_a_launch_of_many_processes_stores_each(store, fleet, msmemscope, program, out):
    done = msmemscope("--", *program("crowd", 12, 12, 5), output=out / "results", env={**store.env, "MSMEMSCOPE_STORE": store.url, "MSMEMSCOPE_RUN": "c"})
    done.check()
    assert len(store.ask("SELECT process FROM processes")) == len(done.projects())
    # The screen says what to ask next, as it may be typed.
    [words] = re.findall(r"processes are stored; to compare them: msmemscope (fleet show .*)", done.stderr)
    shown = msmemscope(*shlex.split(words), output=False, env=store.env).check().stdout
    assert shown.startswith("Run c: ") and "still running" not in shown, shown


def test_a_store_that_is_not_there_is_told(msmemscope, out):
    done = msmemscope("fleet", "show", output=False, cwd=out)
    assert done.returncode == 1 and "no store memscopeStore.db; give one with --store=URL or $MSMEMSCOPE_STORE" in done.stderr, str(done)


def test_a_launch_goes_on_when_the_store_is_away(pg, add, msmemscope, program, out):
    alone = msmemscope.bare(*program("leaky_steps"))
    pg.server.stop()
    try:
        done = msmemscope(f"--store={pg.url}", "--", *program("leaky_steps"), output=out / "results",
                          env={"MSMEMSCOPE_RUN": "r", "MSMEMSCOPE_STORE_WAIT": 1})
    finally:
        pg.server.start()
    assert (done.returncode, len(done.stdout.splitlines())) == (alone.returncode, len(alone.stdout.splitlines()))
    [line] = [line for line in done.stderr.splitlines() if "nothing is lost" in line]
    assert "0 of 1 processes are stored" in line and f"store add {out / 'results'} --to" in line, str(done)
    add(pg, out / "results", "--run=r").check()
    assert len(pg.ask("SELECT process FROM processes")) == 1


def test_a_launch_with_a_wrong_store_does_not_begin(msmemscope, program, out):
    for url, said in (("oracle:x", "sqlite:FILE"), ("postgresql://a:secret@h/d", "~/.pgpass")):
        done = msmemscope(f"--store={url}", "--", *program("plain"), output=out / "results")
        assert done.returncode == 2 and said in done.stderr and "secret" not in done.stderr, str(done)
    assert not (out / "results").exists()


# ---- at scale ----

def test_many_ranks_that_end_together(base, store, add, msmemscope, out, armada):
    """16 writers at once. 1,024 ranks take less than 60 s to store, and 2 s and 200 MB to show: seconds of all processors, the server's
    too, so that a machine with other work says the same."""
    places = 500 if armada >= 1024 else 100
    truth = fleet_ranks.make(base, out / "r", run="armada", ranks=armada, places=places, seed=11)
    began = time.monotonic()
    add_all(add, store, out / "r", "--quiet")
    stored_s = time.monotonic() - began
    assert whole(store, "armada", armada, places)
    began, served_s = time.monotonic(), store.cpu_s()
    started = msmemscope.start("fleet", "show", "armada", "--store", store.url, "--json", output=False)
    answer = started.process.stdout.read()
    _, status, usage = os.wait4(started.pid, 0)
    shown_s = time.monotonic() - began
    cpu_s = usage.ru_utime + usage.ru_stime + store.cpu_s() - served_s
    started.process.returncode = os.waitstatus_to_exitcode(status)
    assert status == 0 and fleet_ranks.wrong_in(json.loads(answer), truth) is None
    print(f"{store.kind}: {armada} ranks x {places} places: stored in {stored_s:.1f} s, shown in {shown_s:.2f} s "
          f"({cpu_s:.2f} s of processors) and {usage.ru_maxrss >> 10} MB")
    if armada >= 1024:
        assert stored_s < 60 and cpu_s < 2 and usage.ru_maxrss < 200 << 10


# ---- faults ----

ONE_SENTENCE = "nothing is lost: fix the cause and run the same command again"


def refused(done, *said):
    """It failed in one sentence, and says that nothing is lost."""
    assert done.returncode == 1, str(done)
    [line] = done.stderr.strip().splitlines()
    assert ONE_SENTENCE in line and all(word in line for word in said), str(done)


def whole(store, run, ranks, places):
    """Every rank is there once, with all of its rows."""
    rows = store.ask("SELECT p.rank, COUNT(*) FROM processes p JOIN runs r ON r.run = p.run JOIN places s ON s.run = p.run AND "
                     "s.process = p.process WHERE r.name = ? GROUP BY p.rank ORDER BY p.rank", run)
    return [(int(rank), int(count)) for rank, count in rows] == [(rank, places) for rank in range(ranks)]


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGKILL, signal.SIGINT], ids=["crash", "kill", "shutdown"])
def test_a_server_that_dies_in_the_middle_costs_nothing(base, pg, msmemscope, out, how):
    ranks, places = 48, 300
    fleet_ranks.make(base, out / "r", run="r", ranks=ranks, places=places, seed=1)
    files = sorted((out / "r").iterdir())
    writers = [msmemscope.start("store", "add", *files[k::4], "--to", pg.url, "--store-wait=90", output=False) for k in range(4)]
    try:
        for least in (3, 20):
            while True:
                try:
                    done = int(pg.ask("SELECT COUNT(*) FROM processes")[0][0])
                except AssertionError:  # no tables yet
                    done = 0
                if done >= least or all(writer.process.poll() is not None for writer in writers):
                    break
            pg.server.stop(how)
            if how == signal.SIGKILL:
                time.sleep(1)  # its children notice
                (pg.server.data / "postmaster.pid").unlink(missing_ok=True)
            pg.server.start()
    finally:
        results = [writer.finish() for writer in writers]
    for result in results:
        result.check()
    assert whole(pg, "r", ranks, places)


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGKILL], ids=["crash", "kill"])
def test_a_server_killed_amid_copy_leaves_all_or_nothing(base, pg, add, msmemscope, out, how):
    """Another session is about to add one of the rows, so the server dies while COPY waits for it, for certain."""
    ranks, places = 6, 50
    fleet_ranks.make(base, out / "r", run="r", ranks=ranks, places=places, seed=1, planted=False)
    add(pg, out / "r").check()
    for sql in ("CREATE TABLE kept AS SELECT * FROM places LIMIT 1", "DELETE FROM processes", "DELETE FROM places"):
        pg.ask(sql)
    holder = pg.server.hold(pg.database, "INSERT INTO places SELECT * FROM kept")
    stores.awaited(pg, "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%INSERT INTO places%' AND wait_event = 'PgSleep'")
    writer = msmemscope.start("store", "add", out / "r", "--to", pg.url, "--store-wait=90", output=False)
    try:
        stores.awaited(pg, "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'COPY places%'")
        pg.server.stop(how)
        if how == signal.SIGKILL:
            time.sleep(1)  # its children notice
            (pg.server.data / "postmaster.pid").unlink(missing_ok=True)
    finally:
        holder.kill()
        holder.wait()
        if pg.server.process.poll() is not None:
            pg.server.start()
    writer.finish().check()
    assert whole(pg, "r", ranks, places)


def test_writers_that_are_killed_leave_all_of_a_rank_or_nothing(base, store, add, msmemscope, out):
    ranks, places = 48, 300
    fleet_ranks.make(base, out / "r", run="r", ranks=ranks, places=places, seed=1)
    files = sorted((out / "r").iterdir())
    writers = [msmemscope.start("store", "add", *files[k::4], "--to", store.url, output=False) for k in range(4)]
    stores.awaited(store, "SELECT process FROM processes")
    for writer in writers:
        writer.kill()
        writer.finish()
    rows = store.ask("SELECT p.process, COUNT(s.stack) FROM processes p LEFT JOIN places s ON s.run = p.run AND s.process = p.process "
                     "GROUP BY p.process")
    assert rows and {int(count) for _, count in rows} == {places}
    add_all(add, store, out / "r", writers=2)
    assert whole(store, "r", ranks, places)


def test_a_server_that_is_away_is_told_and_the_rows_come_later(traces, pg, add):
    pg.server.stop()
    try:
        refused(add(pg, traces, "--run=r", "--store-wait=1"), "postgresql:///", "connection")
    finally:
        pg.server.start()
    add(pg, traces, "--run=r").check()
    assert len(pg.ask("SELECT process FROM processes")) == 4


def test_a_server_that_only_reads_is_told(traces, pg, add, fleet):
    add(pg, traces, "--run=a").check()
    pg.server.ask(f"ALTER DATABASE {pg.database} SET default_transaction_read_only = on")
    refused(add(pg, traces, "--run=b", "--store-wait=1"), "read-only transaction")
    assert fleet(pg, "show", "a")["rank_count"] == 4
    pg.server.ask(f"ALTER DATABASE {pg.database} SET default_transaction_read_only = off")
    add(pg, traces, "--run=b").check()
    assert fleet(pg, "show", "b")["rank_count"] == 4


def test_a_server_whose_disk_is_full_is_told(base, pg, add, out):
    ranks, places = 40, 1000
    fleet_ranks.make(base, out / "r", run="r", ranks=ranks, places=places, seed=1)
    pg.server.restart(file_bytes=3 << 20)
    try:
        refused(add(pg, out / "r", "--store-wait=1"), "could not")
    finally:
        pg.server.restart()
    add(pg, out / "r").check()
    assert whole(pg, "r", ranks, places)


def test_a_password_is_taken_from_libpqs_own_places_alone(traces, pg, add, out):
    pg.server.ask("CREATE ROLE guarded LOGIN PASSWORD 'open sesame' SUPERUSER")
    rules = pg.server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text("local all guarded scram-sha-256\n" + before)
    pg.server.process.send_signal(signal.SIGHUP)
    try:
        pg.url = pg.url.replace("user=tester", "user=guarded")
        for _ in range(100):  # the server reads its rules in its own time
            done = add(pg, traces, "--run=r", env={"PGPASSWORD": "wrong"})
            if done.returncode:
                break
        began = time.monotonic()
        refused(add(pg, traces, "--run=r", env={"PGPASSWORD": "wrong"}), "password authentication failed")
        assert time.monotonic() - began < 30  # it is not tried again
        add(pg, traces, "--run=r", env={"PGPASSWORD": "open sesame"}).check()
        passfile = out / "pgpass"
        passfile.write_text("*:*:*:guarded:open sesame\n")
        passfile.chmod(0o600)
        add(pg, traces, "--run=r", env={"PGPASSFILE": passfile}).check()
    finally:
        rules.write_text(before)
        pg.server.process.send_signal(signal.SIGHUP)
    for url in ("postgresql://guarded:secret@host/db", "postgresql://host/db?user=x&password=secret", "postgresql:///db?sslpassword=secret"):
        pg.url = url
        done = add(pg, traces)
        assert done.returncode == 2 and "~/.pgpass" in done.stderr and "secret" not in done.stderr, str(done)


def test_a_machine_without_libpq_is_told(traces, pg, add, out):
    (out / "libpq.so.5").write_text("")
    refused(add(pg, traces, env={"LD_LIBRARY_PATH": out}), "libpq.so.5 is not installed")


def test_the_helper_runs_with_an_old_glibc(dist):
    told = subprocess.run(["readelf", "-V", dist / "bin" / "msmemscope-pg"], capture_output=True, text=True, check=True).stdout
    versions = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", told)}
    assert versions and max(versions) <= (2, 17)


def test_a_file_that_cannot_grow_is_told(base, add, msmemscope, out):
    def small():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    ranks, places = 40, 500
    fleet_ranks.make(base, out / "r", run="r", ranks=ranks, places=places, seed=1)
    store = stores.Sqlite(out)
    done = msmemscope.start("store", "add", out / "r", "--to", store.url, output=False, preexec_fn=small).finish()
    refused(done, store.url)
    add(store, out / "r").check()
    assert whole(store, "r", ranks, places)


def test_a_damaged_file_of_rows_is_told(base, add, out):
    fleet_ranks.make(base, out / "r", run="r", ranks=2, places=5, planted=False)
    first, second = sorted((out / "r").iterdir())
    first.write_text(first.read_text()[:-40])
    done = add(stores.Sqlite(out), out / "r")
    assert done.returncode == 3 and first.name in done.stderr and "1 process is stored" in done.stderr, str(done)
