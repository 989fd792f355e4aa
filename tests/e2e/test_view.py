# SPDX-License-Identifier: Apache-2.0
"""The page: what it shows is what the dump and `info` say, at any moment; only who has its token gets anything; names of the program
are text and nothing else. Part of it is seen by a real browser."""
import bisect
import json
import random
import re
import signal
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

LEAK_PY = """
import torch
kept = []
def grow():
    kept.append(torch.zeros(256, 256))
def step():
    work = torch.ones(512, 512) * 2
    grow()
    return work.sum()
weights = torch.randn(1024, 256)
import msmemscope
for _ in range(30):
    msmemscope.step()
    step()
"""


@pytest.fixture
def leak(msmemscope, python, out):
    script = out / "leak.py"
    script.write_text(LEAK_PY, encoding="utf-8")
    run = msmemscope("--device=cpu", "--analysis=leaks,decompose", "--call-stack=python", "--", *python, script,
                     output=out / "leak").check()
    return run.project()


def events_of(rows):
    """[(time, bytes in use)] of the pool, and {allocation id: (size, begin, end)}, from the dump itself."""
    used, blocks = [], {}
    for row in rows:
        if row.event not in ("MALLOC", "FREE"):
            continue
        used.append((row.time_ns, row.attr["total"]))
        ident = row.attr["allocation_id"]
        if row.event == "MALLOC":
            blocks[ident] = [row.attr["size"], row.time_ns, None]
        else:
            blocks[ident][2] = row.time_ns
    return used, blocks


# ---- what is shown ----

def test_what_the_page_asks_for_is_what_the_dump_has(msmemscope, view, leak):
    page, info, rows = view(leak.path), msmemscope.info(leak), leak.rows()
    used, blocks = events_of(rows)
    summary = page.ask("summary", process=0)
    [pool], zero = summary["pools"], min(row.time_ns for row in rows)
    assert (pool["pool"], pool["device"], pool["blocks"]) == ("HOST", "cpu", len(blocks))
    assert pool["peak_bytes"] == max(total for _, total in used) == info["pools"][0]["peak_bytes"]
    # step() ends a step and begins the next, as everywhere else.
    assert [number for number, _ in summary["steps"]] == list(range(1, 32))
    moment = page.ask("moment", process=0, pool=pool["index"], by="owner", at=pool["peak_ns"])
    assert moment["step"] == info["peak"]["step"]
    assert moment["used"] == pool["peak_bytes"] == sum(group["bytes"] for group in moment["groups"]) + moment["others"]
    times = [time for time, _ in used]
    rng = random.Random(15)
    for _ in range(40):
        begin, end = sorted(rng.randrange(summary["to_ns"]) for _ in range(2))
        width = rng.choice([1, 7, 300])
        series = page.ask("series", process=0, pool=pool["index"], **{"from": begin, "to": end + 1}, width=width, by="owner")
        length = end + 1 - begin
        for span in rng.sample(range(width), min(width, 5)):
            first, last = zero + begin + length * span // width, zero + begin + length * (span + 1) // width
            low, high = bisect.bisect_right(times, first), bisect.bisect_right(times, last)
            values = [total for _, total in used[max(0, low - 1):high]]
            assert (series["least"][span], series["most"][span]) == (min(values), max(values)) if values else \
                series["most"][span] is None
        # What groups hold at the end of the last span adds up to what lives then.
        alive = sum(size for size, start, stop in blocks.values() if start < zero + end + 1 and (stop is None or stop >= zero + end + 1))
        assert sum(held[-1] for held in series["held"]) == alive


def test_the_token_is_in_no_argument_that_others_could_read(msmemscope, leak, out):
    """The browser gets a file of this user's that leads to the page, and is gone when the page is."""
    opener = out / "opener"
    opener.write_text(f"#!/bin/sh\nstat -c %a \"$1\" > {out}/mode\ncp \"$1\" {out}/page.part\necho \"$1\" > {out}/argument\nmv {out}/page.part {out}/page\n")
    opener.chmod(0o755)
    started = msmemscope.start("view", leak.path, output=False, env={"BROWSER": opener, "XDG_RUNTIME_DIR": out})
    address = re.search(r"http://\S+token=([0-9a-f]{32})", started.process.stderr.readline().decode())
    for _ in range(6000):
        if (out / "page").exists():
            break
        time.sleep(0.01)
    argument = (out / "argument").read_text().strip()
    assert address[1] not in argument and Path(argument).parent == out
    assert (out / "mode").read_text() == "600\n" and address[0] in (out / "page").read_text()
    started.process.send_signal(signal.SIGTERM)
    started.finish()
    assert not Path(argument).exists()


def test_a_moment_has_the_blocks_that_lived_then(view, leak):
    page = view(leak.path)
    used, blocks = events_of(leak.rows())
    zero, to = min(row.time_ns for row in leak.rows()), page.ask("summary", process=0)["to_ns"]
    rng = random.Random(16)
    for at in [0, to, *(rng.randrange(to) for _ in range(30))]:
        alive = {ident: size for ident, (size, start, stop) in blocks.items() if start <= zero + at and (stop is None or stop > zero + at)}
        table = page.ask("table", process=0, pool=0, at=at, to=to + 1, count=1000)
        assert (table["found"], table["bytes"]) == (len(alive), sum(alive.values()))
        assert {row["id"]: row["bytes"] for row in table["blocks"]} == alive
        assert [row["bytes"] for row in table["blocks"]] == sorted(alive.values(), reverse=True)
        moment = page.ask("moment", process=0, pool=0, by=rng.choice(["owner", "place"]), at=at)
        assert moment["others"] + sum(group["bytes"] for group in moment["groups"]) == sum(alive.values())
        [_, name, _, _, size, count], *nodes = page.ask("tree", process=0, pool=0, of="moment", at=at)["nodes"]
        assert (name, size, count) == ("all", sum(alive.values()), len(alive))
        assert sum(node[4] for node in nodes if node[0] == 0) <= size
    everything = page.ask("tree", process=0, pool=0, of="all")["nodes"][0]
    assert everything[4] == sum(size for size, _, _ in blocks.values())


def test_a_long_run_can_be_asked_about_while_it_is_read(msmemscope, view, dist, browser, out):
    steps, run = 200_000, None
    msmemscope("--", dist / "examples" / "leaky_npu", steps, output=out / "long").check()
    page, seen = view(out / "long"), []
    while not seen or not seen[-1]["complete"]:
        run = page.ask("summary", process=0, now=1)
        if run["pools"]:
            series = page.ask("series", process=0, pool=0, now=1, width=50)
            # It may have been read on meanwhile, never back.
            assert series["to_ns"] >= run["to_ns"] and len(series["most"]) == 50
        seen.append(run)
    assert not seen[0]["complete"], "the page has to open before the run is read"
    assert seen[0]["leaks"] == [] and not seen[0]["judged"], "findings come with the end"
    assert [one["events"] for one in seen] == sorted(one["events"] for one in seen)
    whole = page.ask("summary", process=0)
    assert whole == run and whole["events"] > 4 * steps
    # Blocks of the driver that no framework divides have the colours of their call sites.
    state = page.ask("segments", process=0, pool=0, by="place", at=whole["pools"][0]["peak_ns"])
    assert len({one["group"] for one in state["segments"]}) == len(state["groups"]) > 1
    # A question that does not say now waits for the end.
    assert view(out / "long").ask("summary", process=0) == whole
    shown = browser()
    shown.open(view(out / "long").address)
    shown.wait("performance.getEntriesByName('picture').length === 1 && document.getElementById('note').textContent === ''")
    # Names at the right end, of lines and of the peak, stand below each other.
    names = sorted(map(float, shown.run("document.getElementById('main').dataset.names").split()))
    assert len(names) >= 2 and all(after - before >= 16 for before, after in zip(names, names[1:])), names
    assert int(shown.run("document.querySelector('#pools small').textContent.replace(/.*, |\\D/g, '')")) == whole["pools"][0]["blocks"]


def test_of_many_steps_a_screen_has_some_and_a_moment_its_own(msmemscope, view, python, out):
    script = out / "steps.py"
    script.write_text("import torch, msmemscope\nfor _ in range(25_000):\n    x = torch.zeros(64)\n    msmemscope.step()\n", encoding="utf-8")
    page = view(msmemscope("--device=cpu", "--", *python, script, output=out / "steps").check().project().path)
    steps = page.ask("summary", process=0)["steps"]
    assert 5_000 <= len(steps) <= 10_000
    for number, begin in random.Random(3).sample(steps, 20):
        assert page.ask("moment", process=0, pool=0, by="owner", at=begin)["step"] == number
    [row] = page.ask("table", process=0, pool=0, sort="time", offset=20_001, count=1)["blocks"]
    assert page.ask("moment", process=0, pool=0, by="owner", at=row["start_ns"])["step"] == row["step"] > 10_000


def test_two_moments_are_told_side_by_side(view, leak):
    page = view(leak.path)
    summary = page.ask("summary", process=0)
    (_, first), (_, last) = summary["steps"][5], summary["steps"][25]
    nodes = page.ask("tree", process=0, pool=0, of="moment", at=first, **{"and": last})["nodes"]
    [grown] = [node for node in nodes if node[1] == "grow"]
    assert grown[6] - grown[4] == 20 * 256 * 256 * 4 and grown[7] - grown[5] == 20 and grown[3] is True


def test_blocks_are_rectangles_of_time_and_address(view, leak):
    page = view(leak.path)
    _, blocks = events_of(leak.rows())
    answer = page.ask("blocks", process=0, pool=0, by="place", to=page.ask("summary", process=0)["to_ns"] + 1)
    rows = [answer["blocks"][i:i + 6] for i in range(0, len(answer["blocks"]), 6)]
    # What was freed at the moment it was allocated, by the clock, has no width.
    assert {row[0] for row in rows} == {ident for ident, (_, start, stop) in blocks.items() if stop is None or stop > start}
    assert all(blocks[ident][0] == size for ident, _, _, _, size, _ in rows) and answer["left_out"] == 0
    addresses = [row[3] for row in rows]
    assert addresses == sorted(addresses)
    inside = [any(low <= address and address + size <= low + length for low, length in answer["extents"]) for _, _, _, address, size, _ in rows]
    assert all(inside) and 1 <= len(answer["extents"]) <= 65


def test_leaks_are_named_and_their_tree_is_of_their_blocks(view, leak):
    page = view(leak.path)
    [found] = page.ask("summary", process=0)["leaks"]
    assert found["verdict"] == "leak" and "leak.py:5 grow" in found["place"] and found["bytes_per_step"] == 256 * 256 * 4
    nodes = page.ask("tree", process=0, pool=found["pool"], of="leaks")["nodes"]
    assert [node[1] for node in nodes if node[3]][-1] == "grow" and nodes[0][5] >= 28
    detail = page.ask("block", process=0, id=found["block"])["blocks"][0]
    assert detail["end_ns"] is None and "grow" in [frame.get("function") for frame in detail["frames"]]


def test_the_table_is_searched_by_place_and_owner(view, leak):
    page = view(leak.path)
    to = page.ask("summary", process=0)["to_ns"]
    found = page.ask("table", process=0, pool=0, to=to + 1, text="GROW", count=1000)
    assert found["found"] == 30 and {row["bytes"] for row in found["blocks"]} == {256 * 256 * 4}
    assert page.ask("table", process=0, pool=0, to=to + 1, text="no such")["found"] == 0
    small = page.ask("table", process=0, pool=0, to=to + 1, least=1 << 20, count=1000)
    assert small["found"] > 0 and min(row["bytes"] for row in small["blocks"]) >= 1 << 20
    pages = [page.ask("table", process=0, pool=0, to=to + 1, offset=at, count=10)["blocks"] for at in (0, 10)]
    whole = page.ask("table", process=0, pool=0, to=to + 1, count=20)["blocks"]
    assert pages[0] + pages[1] == whole


def test_csv_db_and_trace_give_the_same_page(msmemscope, view, leak):
    [csv], trace = leak.dumps(), leak.path / "trace.msc"
    answers = []
    for word in (leak.path, trace, csv):
        page = view(word)
        summary = page.ask("summary", process=0)
        tree = page.ask("tree", process=0, pool=0, of="all")["nodes"]
        answers.append(([(pool["pool"], pool["device"], pool["peak_bytes"], pool["blocks"]) for pool in summary["pools"]], tree[0][4:]))
    assert answers[0] == answers[1] == answers[2]


# ---- who may ask ----

def test_nobody_else_gets_anything(view, leak):
    page = view(leak.path)
    ok, headers, body = page.get("/")
    assert ok == 200 and b"<!DOCTYPE html>" in body and re.search(r"script-src 'nonce-[0-9a-f]{32}'", headers["Content-Security-Policy"])
    assert page.get("/api/summary", Host="localhost:1")[0] == 200, "people forward ports"
    for path in ("/", "/api/summary", "/api/processes"):
        assert page.refused(path, token="") == 403
        assert page.refused(path, token="0" * 32) == 403
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "127.0.0.1@evil.example"):
            assert page.refused(path, Host=host) == 403
        assert page.refused(path, Origin="http://evil.example") == 403
    for path in ("/etc/passwd", "/../../etc/passwd", "/api/../../etc/passwd", "/api/", "/api/nothing", "/%2e%2e/x"):
        assert page.refused(path) == 404
    request = urllib.request.Request(f"{page.base}/api/summary", data=b"x", headers={"X-Msmemscope-Token": page.token})
    with pytest.raises(urllib.error.HTTPError) as refusal:
        urllib.request.urlopen(request, timeout=10)
    assert refusal.value.code == 405
    assert "error" in page.ask("summary", process=7) and "error" in page.ask("block", process=0, id=10 ** 12)
    for question in ("pool=99", "width=0", "width=99999999", "from=9999999999999999999999", "from=5&to=2", "at=x", "offset=99999999999&count=9999999"):
        for what in ("series", "blocks", "tree", "table"):
            assert page.get(f"/api/{what}?process=0&{question}")[0] == 200


NAMES = ["<img src=x onerror=\"document.title='owned'\">", "</script><script>document.title='owned'</script>", "'\"; alert(1); //", "\u202enames"]


@pytest.fixture
def hostile(msmemscope, python, out):
    script = out / "<script>alert(1)<" / "x.py"
    script.parent.mkdir()
    script.write_text("import msmemscope, torch\nkept = []\ndef keep():\n    kept.append(torch.zeros(1000))\nfor name in " + repr(NAMES) + """:
    keep.__code__ = keep.__code__.replace(co_name=name, co_qualname=name) if hasattr(keep.__code__, "co_qualname") else keep.__code__.replace(co_name=name)
    with msmemscope.describe.describer(owner=name.replace("@", "")[:60]):
        keep()
""", encoding="utf-8")
    return msmemscope("--device=cpu", "--analysis=decompose", "--call-stack=python", "--", *python, script,
                      output=out / "hostile").check().project()


def test_names_are_text_and_nothing_else(msmemscope, view, hostile, browser, out):
    report = out / "r.html"
    msmemscope("report", hostile.path, "-o", report, output=False).check()
    text = report.read_text(encoding="utf-8")
    assert text.count("<script") == 2 and text.count("</script>") == 2 and "onerror=\"" not in text
    for address in (view(hostile.path).address, report.as_uri()):
        page = browser()
        page.open(address)
        for tab in ("timeline", "blocks", "flame", "compare", "table", "table&list=events"):
            page.run(f"location.hash = '#tab={tab}'")
            page.wait(f"document.querySelector('[aria-selected=true]')?.textContent.toLowerCase().startsWith('{tab[:4]}')")
            page.wait("document.getElementById('right').textContent.includes('At the peak')")
        assert page.run("document.title") != "owned" and page.run("document.images.length") == 0
        page.wait("document.body.textContent.includes('onerror')")  # it is shown as it is


# ---- in a browser ----

def test_the_page_opens_on_the_answer(view, leak, browser, out):
    page = browser()
    page.open(view(leak.path).address)
    assert page.wait("document.querySelector('.chip.bad')?.textContent").startswith("LEAK +256.0 KiB/step  ")
    assert page.run("document.querySelector('#findings .entry').textContent").startswith("Leak: ")
    page.wait("document.querySelector('#right .big')?.textContent.includes('MiB')")
    page.press("#tools button", "one => one.textContent === 'by call site'")
    page.wait("[...document.querySelectorAll('#right .row')].some(row => row.textContent.includes('grow'))")
    # Something is drawn: several colours in the picture.
    colours = """(() => { const c = document.getElementById('main'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, seen = new Set();
        for (let i = 0; i < d.length; i += 4004) seen.add(d[i] + ',' + d[i + 1] + ',' + d[i + 2]); return seen.size; })()"""
    page.wait(f"{colours} > 3")
    # A click sets the moment, another with shift the second one, and the difference is told.
    page.click(500, 500)
    page.wait("location.hash.includes('at=')")
    page.click(900, 500, shift=True)
    page.wait("document.getElementById('right').textContent.includes('From A to B')")
    # Without a shift key: B where A is, then another A.
    page.click(500, 500)
    page.wait("location.hash.includes('at=') && !location.hash.includes('and=')")
    page.press("#right button", "one => one.textContent === 'set B here'")
    page.wait("location.hash.includes('and=')")
    page.click(900, 500)
    page.wait("/at=([^&]+)&and=(?!\\1(&|$))/.test(location.hash)")
    # The wheel zooms, "0" shows all again.
    page.wheel(700, 500, -200)
    page.wait("location.hash.includes('from=')")
    page.key("0")
    page.wait("!location.hash.includes('from=')")
    # A finding leads to its place.
    page.press("#findings .entry", "() => true")
    page.wait("location.hash.includes('of=leaks') && document.getElementById('right').textContent.includes('never freed')")
    page.key("2")
    page.wait("location.hash.includes('tab=blocks')")
    page.wait(f"{colours} > 3")
    page.key("Escape")
    page.wait("!location.hash.includes('at=')")
    page.run("document.getElementById('search').focus()")
    for letter in "grow":
        page.key(letter)
    page.run("document.getElementById('search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))")
    page.wait("document.querySelectorAll('#table tbody tr').length === 30")
    page.picture(out / "table.png")
    assert page.errors == []


def test_ranks_stand_side_by_side_worst_first(msmemscope, view, browser, python, out):
    script = out / "rank.py"
    script.write_text("import os, torch\nsize = {'0': 2, '1': 8, '2': 4}[os.environ['RANK']]\nkept = torch.zeros(size << 18)\n", encoding="utf-8")
    start = out / "start.sh"
    start.write_text('for rank in 2 0 1; do RANK=$rank "$@"; done\n', encoding="utf-8")
    msmemscope("--device=cpu", "--", "/bin/sh", start, *python, script, output=out / "ranks").check()
    opened, page = view(out / "ranks"), browser()
    assert [one["name"] for one in opened.ask("processes")["processes"]] == ["rank 0", "rank 1", "rank 2"]
    for rank, size in enumerate((2, 8, 4)):
        assert opened.ask("summary", process=rank)["pools"][0]["peak_bytes"] >= size << 20
    page.open(opened.address)
    page.wait("performance.getEntriesByName('picture').length")
    # Several processes: the page opens on them.
    page.wait("location.hash.includes('tab=ranks')")
    # The first row is the worst one: a click on it opens rank 1.
    page.wait("document.getElementById('main').dataset.ranks === '3'")
    place = json.loads(page.run("JSON.stringify(document.getElementById('main').getBoundingClientRect())"))
    page.click(place["x"] + 300, place["y"] + 12)
    page.wait("location.hash.includes('process=1') && location.hash.includes('tab=timeline')")
    page.wait("document.querySelector('#right .big')?.textContent.startsWith('8')")
    assert not page.errors


def test_a_report_needs_no_server(msmemscope, leak, browser, out):
    report = out / "report.html"
    run = msmemscope("report", leak.path, "-o", report, output=False).check()
    assert report.stat().st_size < 10 << 20 and (report.stat().st_mode & 0o777) == 0o600 and str(report) in run.stderr
    page = browser(width=1024, height=700)
    page.open(report.as_uri())
    assert "grow" in page.wait("document.querySelector('.chip.bad')?.textContent")
    for tab, proof in (("blocks", "by call site"), ("flame", "at the peak"), ("table", "")):
        page.run(f"location.hash = '#tab={tab}'")
        page.wait(f"document.getElementById('tools').textContent.includes('{proof}')")
    page.wait("document.querySelectorAll('#table tbody tr').length > 30")
    assert page.errors == []


def test_what_cannot_be_read_is_said_before_a_page_opens(msmemscope, out):
    (out / "nothing.csv").write_text("no header\n", encoding="utf-8")
    for word in (out / "missing", out / "nothing.csv"):
        run = msmemscope("view", word, "--no-browser", output=False)
        assert run.returncode in (1, 2, 3) and "open http" not in run.stderr and len(run.stderr.splitlines()) == 1


@pytest.fixture
def hits(browser):
    """Opens a page and walks through views as a person does."""
    class Walk:
        def __init__(self, address, **size):
            self.page = browser(**size)
            self.page.open(address)
            self.page.wait("performance.getEntriesByName('picture').length && document.getElementById('note').textContent === ''")

        def tab(self, name):
            self.page.press("#tabs button", f"one => one.textContent === '{name}'")

        def text(self, what):
            return self.page.run(f"document.querySelector('{what}')?.textContent ?? ''")

        def has(self, where, text):
            return self.page.wait(f"document.querySelector('{where}')?.textContent.includes({json.dumps(text)})")
    return Walk


def test_every_view_can_be_walked_through(view, leak, hits, out):
    walk = hits(view(leak.path).address)
    page = walk.page
    # The leak is there without a click: a chip, a finding, and the red floor of the picture.
    walk.has(".chip.bad", "grow")
    walk.has("#findings .entry.bad", "grow")
    red = """(() => { const c = document.getElementById('main'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;
        for (let i = 0; i < d.length; i += 4) n += d[i] === 0xd7 && d[i + 1] === 0x26 && d[i + 2] === 0x3d; return n; })()"""
    page.wait(f"{red} > 2000")
    page.key("n")
    walk.has("#details", "never freed")
    walk.has("#details", "leak: ")
    walk.has("#details", "grow")
    # malloc(3) has no segments that would say something.
    assert page.run("[...document.querySelectorAll('#tabs button')].map(one => one.textContent)") == ["Timeline", "Blocks", "Flame graph", "Compare", "Table"]
    page.run("location.hash = '#tab=segments'")
    page.wait("document.querySelector('#tabs [aria-selected=true]')?.textContent === 'Timeline'")
    walk.tab("Compare")
    # From the end of the first step to that of the last whole one: 29 times what leaks in each.
    walk.has("#compare .side.grew", "+")
    place = page.wait("[...document.querySelectorAll('#compare tbody tr')].find(row => row.textContent.includes('grow'))?.textContent")
    assert "+7.25 MiB" in place and "+29" in place
    page.wait("document.querySelectorAll('#tools input[type=number]').length === 2")
    page.run("(() => { const [a, b] = document.querySelectorAll('#tools input[type=number]'); a.value = 5; b.value = 15; [...document.querySelectorAll('#tools button')].find(one => one.textContent === 'Compare steps').click(); })()")
    page.wait("[...document.querySelectorAll('#compare tbody tr')].find(row => row.textContent.includes('grow'))?.textContent.includes('+2.50 MiB')")
    page.press("#tools button", "one => one.textContent === 'as flame graph'")
    page.wait("location.hash.includes('of=difference') && [...document.querySelectorAll('#tools button')].some(one => one.textContent === 'A to B' && one.getAttribute('aria-pressed') === 'true')")
    walk.has("#right", "From A to B")
    walk.tab("Table")
    page.press("#tools button", "one => one.textContent === 'events'")
    page.wait("document.querySelectorAll('#table tbody tr').length > 50")
    page.wait("document.querySelector('#tools select option[value=FREE]') !== null")
    page.run("(() => { const choice = document.querySelector('#tools select'); choice.value = 'FREE'; choice.dispatchEvent(new Event('change')); })()")
    page.wait("[...document.querySelectorAll('#table tbody tr')].every(row => row.cells[1].textContent === 'FREE') && document.querySelectorAll('#table tbody tr').length > 10")
    # A link shows a colleague the same.
    state = page.run("location.hash")
    assert "tab=table" in state and "event=FREE" in state and "at=" in state
    other = hits(page.run("location.href")).page
    other.wait("document.querySelectorAll('#table tbody tr').length > 10")
    assert other.run("document.getElementById('table').textContent") == page.run("document.getElementById('table').textContent")
    # Dark and light.
    before = page.run("getComputedStyle(document.body).backgroundColor")
    page.run("document.getElementById('theme').click()")
    assert page.run("getComputedStyle(document.body).backgroundColor") != before
    assert page.errors == other.errors == []


def test_keys_move_the_view(view, leak, hits):
    walk = hits(view(leak.path).address)
    page = walk.page

    def span():
        return page.run("[...new URLSearchParams(location.hash.slice(1)).entries()].filter(([key]) => key === 'from' || key === 'to').map(([, value]) => Number(value))")
    page.key("w")
    page.wait("location.hash.includes('from=')")
    first = span()
    page.key("d")
    page.wait(f"location.hash.includes('from=') && !location.hash.includes('from={first[0]}&')")
    second = span()
    assert second[0] > first[0] and abs((second[1] - second[0]) - (first[1] - first[0])) <= 2
    page.key("a")
    page.wait(f"location.hash.includes('from={first[0]}')")
    page.key("s")
    page.key("s")
    page.wait("!location.hash.includes('from=')")
    page.run("window.prompt = () => '10'")
    page.key("g")
    page.wait("location.hash.includes('from=')")
    summary = page.run("fetch('/api/summary?process=0', { headers: { 'X-Msmemscope-Token': new URLSearchParams(location.search).get('token') } }).then(reply => reply.json())")
    begin = dict(summary["steps"])[10]
    assert abs(span()[0] - begin) <= 1
    page.key("?")
    page.wait("document.getElementById('keys').open")
    page.run("document.getElementById('keys').close()")
    page.key("/")
    assert page.run("document.activeElement.id") == "search"
    # Letters belong to the search now.
    page.key("w")
    page.wait("document.getElementById('search').value === 'w' && location.hash.includes('search=w')")
    for number, tab in enumerate(["timeline", "blocks", "flame", "compare", "table"], 1):
        page.run("document.getElementById('search').blur()")
        page.key(str(number))
        page.wait(f"location.hash.includes('tab={tab}')")
    assert page.errors == []


def test_two_runs_are_compared_at_once(msmemscope, view, python, hits, out):
    for name, size in (("small", 300), ("large", 700)):
        script = out / name / "train.py"
        script.parent.mkdir()
        script.write_text(f"import torch\ndef load():\n    return torch.zeros({size} * 1024)\ndata = load()\nx = torch.ones(100)\n", encoding="utf-8")
        msmemscope("--device=cpu", "--call-stack=python", "--", *python, script, output=out / f"run-{name}").check()
    walk = hits(view(out / "run-small", out / "run-large").address)
    assert "tab=compare" in walk.page.run("location.hash") and "with=1" in walk.page.run("location.hash")
    walk.page.wait("[...document.querySelectorAll('#compare tbody tr')].some(row => row.textContent.includes('load') && row.textContent.includes('+1.56 MiB'))")
    assert walk.page.errors == []


def test_a_thousand_processes_open_worst_first(msmemscope, view, dist, hits, out, processes_seen):
    """Copies of two small runs: the one that grows most per step, the shorter, comes first, and memory does not grow with their number."""
    many = out / "many"
    many.mkdir()
    kinds = {}
    for steps in (20, 60):
        run = msmemscope("--", dist / "examples" / "leaky_npu", steps, output=out / f"one{steps}").check()
        kinds[steps] = run.project().path / "trace.msc"
    for number in range(processes_seen):
        place = many / f"msmemscope_{1000 + number}_20260101000000_ascend"
        place.mkdir()
        (place / "trace.msc").hardlink_to(kinds[20 if number == processes_seen * 2 // 3 else 60])
    opened = view(many)
    assert len(opened.ask("processes")["processes"]) == processes_seen
    walk = hits(opened.address)
    walk.page.wait("location.hash.includes('tab=ranks')")
    walk.page.wait(f"document.getElementById('main').dataset.ranks === '{processes_seen}'")
    place = json.loads(walk.page.run("JSON.stringify(document.getElementById('main').getBoundingClientRect())"))
    walk.page.click(place["x"] + 300, place["y"] + 12)
    walk.page.wait(f"location.hash.includes('process={processes_seen * 2 // 3}&') && location.hash.includes('tab=timeline')")
    # Files of runs that are closed are closed.
    open_files = len(list(Path(f"/proc/{opened.started.process.pid}/fd").iterdir()))
    status = Path(f"/proc/{opened.started.process.pid}/status").read_text(encoding="ascii")
    assert open_files < 100 and int(re.search(r"^RssAnon:\s+(\d+) kB", status, re.M)[1]) < 512 << 10
    assert walk.page.errors == []
