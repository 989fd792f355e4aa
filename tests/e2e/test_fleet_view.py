# SPDX-License-Identifier: Apache-2.0
"""A run of the store in the browser: what the page shows is what `fleet show` and the tables say, the worst rank is on top, and a rank
opens the page of its trace where that lies here."""
import json
import re
import shutil
import urllib.error
import urllib.request

import pytest

import fleet_ranks
import stores
from browser import Browser

COLUMNS = 240
RUN = "it's"


class Viewed:
    """A running `msmemscope view STORE`."""

    def __init__(self, msmemscope, store, *words):
        started = msmemscope.start("view", store.url, *words, "--no-browser", output=False, env=store.env)
        line = started.process.stderr.readline().decode()
        found = re.fullmatch(r"msmemscope: open (http://127\.0\.0\.1:\d+/\?token=[0-9a-f]{32}) .*\n", line)
        assert found, line
        self.address = found[1]
        self.base, self.token = self.address.split("/?token=")

    def ask(self, path, token=None):
        request = urllib.request.Request(f"{self.base}{path}", headers={"X-Msmemscope-Token": self.token if token is None else token})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())


@pytest.fixture
def view(msmemscope):
    return lambda *words: Viewed(msmemscope, *words)


@pytest.fixture
def browser(tmp_path):
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


def drawn(browser, page, address=None):
    browser.open(address or page.address)
    browser.wait("performance.getEntriesByName('picture').length === 1")


def columns_of(points, begin, end):
    """The most that was held in each of COLUMNS spans, of points [(time, bytes)] of one device."""
    most = [0] * COLUMNS
    for n, (time, held) in enumerate(points):
        later = points[n + 1][0] if n + 1 < len(points) else time + (time - points[n - 1][0] if n else 1)
        first, last = ((at - begin) * COLUMNS // (end - begin) for at in (time, later - 1))
        for column in range(first, min(last, COLUMNS - 1) + 1):
            most[column] = max(most[column], held)
    return most


def test_the_page_has_what_the_store_has(base, store, add, fleet, view, out):
    fleet_ranks.make(base, out / "r", run="x", ranks=24, places=20, seed=3)
    add(store, out / "r").check()
    page = view(store, "--run=x")
    assert page.ask("/api/fleet") == fleet(store, "show", "x")
    answer = page.ask("/api/timeline?pool=0")
    begin, end = answer["from_ns"], answer["to_ns"]
    rows = {}
    for rank, time, held in store.ask("SELECT p.rank, t.time_ns, t.bytes FROM timeline t JOIN processes p ON p.run = t.run AND "
                                      "p.process = t.process ORDER BY p.rank, t.point"):
        rows.setdefault(int(rank), []).append((int(time), int(held)))
    assert begin == min(points[0][0] for points in rows.values()) and len(answer["ranks"]) == len(rows) == 24
    for rank in answer["ranks"]:
        assert rank["values"] == columns_of(rows[rank["rank"]], begin, end)


def test_the_worst_rank_is_on_top_and_opens_its_trace(store, add, fleet, traces, view, browser, out):
    """One of four real ranks has lost its trace: that is said in a sentence."""
    shutil.copytree(traces, out / "results")
    add(store, out / "results", "--run=real").check()
    gone, *_ = [rank for rank in fleet(store, "show", "real")["ranks"] if rank["rank"] == 2]
    shutil.rmtree(gone["trace"])
    page = view(store)
    drawn(browser, page)
    shown = json.loads(browser.run("JSON.stringify([document.getElementById('title').textContent, document.getElementById('heat').dataset.ranks])"))
    assert shown == ["real: 4 ranks on 1 host", "4"]
    box = json.loads(browser.run("JSON.stringify(document.getElementById('heat').getBoundingClientRect())"))
    browser.click(box["left"] + 300, box["top"] + 18 + 4 + 5)
    first = fleet(store, "show", "real")["ranks"][0]["rank"]
    browser.wait(f"document.querySelector('#right h2')?.textContent === 'Rank {first}'")
    browser.press("#tools button", "one => one.textContent === 'by rank'")
    browser.click(box["left"] + 300, box["top"] + 18 + 4 + 5 + 2 * 18)
    browser.wait("document.querySelector('#right h2')?.textContent === 'Rank 2'")
    said = browser.wait("document.querySelector('#right p')?.textContent")
    assert said.startswith("Its trace is on ") and gone["trace"] in said
    browser.click(box["left"] + 300, box["top"] + 18 + 4 + 5 + 3 * 18)
    browser.wait("document.querySelector('#right h2')?.textContent === 'Rank 3'")
    browser.run("document.getElementById('open').click()")
    # The page of that trace, as of `msmemscope view RUN`.
    browser.wait("document.querySelector('#process option:checked')?.textContent.startsWith('rank 3, ')")
    browser.wait("document.querySelector('#pools small')?.textContent.startsWith('peak ')")
    [project] = [rank["trace"] for rank in fleet(store, "show", "real")["ranks"] if rank["rank"] == 3]
    peaks = {pool["peak_bytes"] for pool in page.ask("/api/summary?process=" + browser.run("location.hash.match(/process=(\\d+)/)[1]"))["pools"]}
    assert peaks & {int(peak) for (peak,) in store.ask("SELECT peak_bytes FROM pools WHERE process = (SELECT process FROM processes WHERE trace = ?)", project)}
    assert browser.errors == []


def test_ranks_that_stand_out_are_named_with_their_places(base, add, fleet, view, browser, out):
    store = stores.Sqlite(out)
    truth = fleet_ranks.make(base, out / "r", run=RUN, ranks=64, places=60, seed=5)
    add(store, out / "r").check()
    drawn(browser, view(store, "--run", RUN))
    entries = json.loads(browser.run("JSON.stringify([...document.querySelectorAll('#groups button')].map(one => one.textContent))"))
    assert len(entries) == 3 and f"rank {truth['leak'][0]} leaks" in entries[0] and truth["leaks_at"] in entries[0]
    assert any(f"ranks {', '.join(map(str, truth['batch']))} hold" in entry for entry in entries)
    browser.press("#groups button", "() => true")
    browser.wait(f"document.querySelector('#right h2')?.textContent === 'Rank {truth['leak'][0]}'")
    assert truth["leaks_at"] in browser.run("document.getElementById('right').textContent")
    browser.run("document.getElementById('heat').focus()")
    browser.key("ArrowDown")
    second = fleet(store, "show", RUN)["ranks"][1]["rank"]
    browser.wait(f"document.querySelector('#right h2')?.textContent === 'Rank {second}'")
    assert browser.errors == []


def test_names_are_text_and_strangers_get_nothing(base, add, view, browser, out):
    evil = "<img src=x onerror=\"document.title='evil'\">"
    store = stores.Sqlite(out)
    fleet_ranks.make(base, out / "r", run=evil, ranks=4, places=5, planted=False, code=evil)
    for path in (out / "r").iterdir():
        path.write_text(path.read_text().replace("node000", evil).replace("layer_0", evil))
    add(store, out / "r").check()
    page = view(store)
    for path in ("/api/fleet", "/api/timeline?pool=0", "/", "/rank"):
        with pytest.raises(urllib.error.HTTPError) as refusal:
            page.ask(path, token="0" * 32)
        assert refusal.value.code == 403
    assert page.ask("/api/timeline?pool=99") == {"error": "no such pool"}
    drawn(browser, page)
    browser.run("document.getElementById('heat').focus()")
    browser.key("ArrowDown")
    browser.wait("document.querySelector('#right h2')?.textContent.startsWith('Rank ')")
    assert browser.run("document.querySelectorAll('img').length") == 0 and evil in browser.run("document.body.textContent")
    assert "evil'" in browser.run("document.title") and browser.errors == []


def test_a_run_that_goes_on_grows_on_the_page(add, view, msmemscope, program, browser, out):
    store = stores.Sqlite(out)
    started = msmemscope.start(f"--store={store.url}", "--store-every=1", "--", *program("waits", out / "go"), output=out / "results",
                               env={"RANK": 0, "MSMEMSCOPE_RUN": "live"})
    stores.awaited(store, "SELECT process FROM processes WHERE outcome = 'running'")
    drawn(browser, view(store))
    assert "1 still running" in browser.run("document.getElementById('chips').textContent")
    (out / "go").touch()
    started.finish().check()
    browser.wait("!document.getElementById('chips').textContent.includes('still running')")
    assert browser.errors == []


def test_what_cannot_be_shown_is_told(base, add, msmemscope, out):
    store = stores.Sqlite(out)
    fleet_ranks.make(base, out / "r", run="here", ranks=3, places=5, planted=False)
    add(store, out / "r").check()
    for words, code, said in (((store.url, "--run=there"), 1, "no run there; the latest are: here"), (("sqlite:/nowhere/x.db",), 1, "/nowhere/x.db"),
                              ((store.url, store.url), 2, "--run"), (("postgresql://me:secret@host/db",), 2, "~/.pgpass"),
                              ((f"rows:{out}",), 2, "store add")):
        done = msmemscope("view", *words, "--no-browser", output=False)
        assert done.returncode == code and said in done.stderr and "secret" not in done.stderr, str(done)
