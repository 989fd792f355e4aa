# SPDX-License-Identifier: Apache-2.0
"""report.html, after launches and on request: what is in the file is what `info` says, whatever it is made from it stays small and says what
it leaves out; a browser shows it without a server. --text and --markdown are one screen for an issue."""
import html
import json
import os
import pickle
import re
import signal
import subprocess
from pathlib import Path

import pytest

from harness import FILES, engine_of
from viewed import answers

MOST_BYTES = 10_000_000
GROW_PY = """
import torch, msmemscope
kept = []
def grow():
    kept.append(torch.zeros(256, 256))
for _ in range(30):
    msmemscope.step()
    work = torch.ones(512, 512) * 2
    grow()
"""


def without_directories(command):
    return " ".join(word.rstrip("/").split("/")[-1] if word.startswith("/") else word for word in command.split(" "))


def check_against_info(report, process, number=0):
    """The answers about one process are what info --json has of it."""
    summary = report[f"summary/{number}///"]
    assert (summary["events"], summary["command"]) == (process["events"], without_directories(process["command"]))
    assert len(summary["steps"]) - process["steps"] in (0, 1), "a step that has not ended has begun"
    pools = {(pool["pool"], pool["device"]): pool for pool in summary["pools"]}
    assert pools.keys() == {(pool["pool"], pool["device"]) for pool in process["pools"] if pool["allocations"]}
    for one in process["pools"]:
        if not one["allocations"]:
            continue
        pool = pools[one["pool"], one["device"]]
        index = pool["index"]
        assert (pool["peak_bytes"], pool["blocks"]) == (one["peak_bytes"], one["allocations"])
        assert max(filter(None, report[f"series/{number}/{index}/place/"]["most"])) == one["peak_bytes"]
        for by in ("owner", "place"):
            moment = report[f"moment/{number}/{index}/{by}/peak"]
            assert moment["used"] == one["peak_bytes"] == moment["others"] + sum(group["bytes"] for group in moment["groups"])
        assert report[f"tree/{number}/{index}//all"]["nodes"][0][4:6] == [one["allocated_bytes"], one["allocations"]]
        assert report[f"tree/{number}/{index}//peak"]["nodes"][0][4] == one["peak_bytes"]
        for by in ("owner", "place"):
            segments = report.get(f"segments/{number}/{index}/{by}/peak")
            assert (segments is None) == (one["device"] == "cpu")
            if segments is not None:
                assert one["peak_bytes"] in (segments["used"], segments["loose_bytes"], segments["used"] + segments["loose_bytes"])
            usual = report[f"difference/{number}/{index}/{by}/usual"]
            for side, column in (("a", 1), ("b", 3)):
                assert sum(group[column] for group in usual["groups"]) == (usual[side].get("used") or 0)
        events = report[f"events/{number}/{index}//"]
        assert events["found"] >= one["allocations"] and len(events["events"]) == min(events["found"], 300)
        table = report[f"table/{number}/{index}//"]
        assert table["found"] <= one["allocations"] and len(table["blocks"]) == min(table["found"], 300)
    assert "error" not in report[f"waste/{number}///"]
    leaks = [(leak["verdict"], leak["bytes"], leak["blocks"]) for leak in summary["leaks"]]
    assert leaks == [(place["verdict"], place["bytes"], place["blocks"]) for place in process["places"] if place["verdict"] in ("leak", "suspect")]
    for leak in summary["leaks"]:
        [block] = report[f"block/{number}///{leak['block']}"]["blocks"]
        assert block["id"] == leak["block"]


@pytest.fixture
def grow(out):
    script = out / "grow.py"
    script.write_text(GROW_PY, encoding="utf-8")
    return script


def told(run):
    """The report that the screen names: in the directory of one process, or beside those of several."""
    [found] = FILES.finditer(run.stderr)
    files = Path(found["files"])
    return ((files.parent if "*" in files.name else files) / found["page"]).resolve()


def processes(msmemscope, *words):
    return json.loads(msmemscope("info", "--json", *words, output=False).check().stdout)["processes"]


# ---- after launches ----

def test_a_launch_leaves_a_report_of_what_it_found(msmemscope, python, grow, browser):
    run = msmemscope("--device=cpu", "--", *python, grow).check()
    project = run.project().path
    path = project / "report.html"
    assert told(run) == path
    assert path.stat().st_mode & 0o777 == 0o600 and path.stat().st_size < MOST_BYTES
    [process] = processes(msmemscope, project)
    assert process["verdict"] == "leak"
    report = answers(path)
    check_against_info(report, process)
    assert f"msmemscope view {project.name}" in report["about"]
    page = browser()
    page.open(path.as_uri())
    assert "grow" in page.wait("document.querySelector('.chip.bad')?.textContent")
    [pool] = process["pools"]
    shown = page.wait("document.querySelector('#right .big')?.textContent")
    assert float(shown.split()[0]) == pytest.approx(pool["peak_bytes"] / 2 ** 20, abs=0.06) and shown.endswith("MiB")
    assert f"{pool['allocations']:,} blocks" in page.run("document.getElementById('pools').textContent")
    # Each view has what it asks for.
    for tab in ("timeline", "blocks", "flame", "compare", "table", "table&list=events"):
        page.open(f"{path.as_uri()}?{tab.replace('&', '.')}#tab={tab}")
        page.wait("performance.getEntriesByName('picture').length")
        shown = {"compare": "document.querySelector('#compare tbody tr') !== null",
                 "table": "document.querySelector('#table tbody tr') !== null"}.get(tab.split("&")[0])
        if shown:
            page.wait(shown)
        page.wait("document.querySelector('#right .big') !== null")
        assert "not in this report" not in page.run("document.body.innerText")
    # The finding leads to its stack, which is in the file.
    page.open(path.as_uri())
    page.wait("document.querySelector('#findings .entry') !== null")
    page.press("#findings .entry", "() => true")
    page.wait("document.getElementById('right').textContent.includes('never freed')")
    assert page.errors == []


def test_every_view_fits_a_phone(msmemscope, dist, browser):
    """What is chosen can be seen, nothing sticks out to the right, and each picture has the width of the window."""
    run = msmemscope("--call-stack=c", "--", dist / "examples" / "leaky_npu").check()
    page = browser(width=390, height=844)
    page.open((run.project().path / "report.html").as_uri())
    page.wait("performance.getEntriesByName('picture').length && document.querySelector('#right .big') !== null")
    assert page.run("document.querySelector('#pools .entry').textContent").startswith("Driver (HAL) on NPU 0")
    for tab in ("Timeline", "Blocks", "Flame graph", "Segments", "Compare", "Table"):
        page.press("#tabs button", f"one => one.textContent === '{tab}'")
        page.wait(f"""(() => {{ const tab = document.querySelector('#tabs [aria-selected=true]'), box = tab.getBoundingClientRect();
            return tab.textContent === '{tab}' && box.left > -1 && box.right < 391; }})()""")
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.run("[...document.querySelectorAll('#main, #table, #compare')].filter(one => !one.hidden).map(one => one.getBoundingClientRect().width)") == [390]
        assert page.run("[...document.querySelectorAll('#tools > span')].every(one => one.scrollWidth <= one.clientWidth || one.clientWidth === 0)")
        if tab == "Segments":
            page.wait("Number(document.getElementById('main').dataset.segments) > 0")
            page.wait("document.getElementById('tools').textContent.includes(' in use, ')")
    assert page.errors == []


def test_a_leak_behind_a_wrapper_is_told_by_its_caller(msmemscope, dist, browser):
    """Every block of the example comes from device_alloc(): the page names who called it first, whole where there is room."""
    run = msmemscope("--call-stack=c", "--", dist / "examples" / "leaky_npu").check()
    [leak] = [place for place in processes(msmemscope, run.project().path)[0]["places"] if place["verdict"] == "leak"]
    path = run.project().path / "report.html"
    page = browser()
    page.open(path.as_uri())
    place = r"compute_loss \(leaky_npu\.c:\d+\) → device_alloc \(leaky_npu\.c:\d+\)"
    assert re.fullmatch(rf"LEAK \+82\.7 KiB/step  {place}", page.wait("document.querySelector('.chip.bad')?.textContent"))
    assert page.run("(() => { const chip = document.querySelector('.chip.bad'); return chip.scrollWidth <= chip.clientWidth; })()")
    # What the place holds is more than what was judged, and both stand side by side.
    row = page.wait("document.querySelector('#right .row.bad')?.textContent")
    assert leak["bytes"] == 10 * 256 << 10 and re.fullmatch(rf"{place}2\.25 MiB leaked, rest not judged2\.50 MiB", row)
    # The peak has its mark: in its time, on top of it.
    mark = page.wait("document.getElementById('main').dataset.peak").split(",")
    summary = answers(path)["summary/0///"]
    box = page.run("document.getElementById('main').getBoundingClientRect().toJSON()")
    share = (int(mark[0]) - 64) / (box["width"] - 64 - 8)
    assert share == pytest.approx(summary["pools"][0]["peak_ns"] / summary["to_ns"], abs=0.01) and 0 < int(mark[1]) < box["height"] / 3
    page.open(f"{path.as_uri()}?table#tab=table")
    page.wait("document.querySelector('#table tbody tr') !== null")
    cells = page.run("[...document.querySelectorAll('#table tbody tr')].map(row => row.children[1].textContent)")
    assert len(cells) == 92 and all(re.match(r"(make_weights|open_workspace|train_step|compute_loss) \(leaky_npu\.c:\d+\) → device_alloc", cell) for cell in cells)
    assert page.errors == []


SENT = """
import sys
sys.path.insert(0, sys.argv[1])
import helper, msmemscope
kept = []
def grow():
    kept.append(helper.make(256))
for _ in range(20):
    msmemscope.step()
    grow()
"""


def test_a_report_that_is_sent_names_no_directory_but_of_its_own_source(msmemscope, python, out, dist):
    """Neither the results', nor those of words of the command, of libraries or of the interpreter."""
    for name in ("site-packages", "work", "elsewhere"):
        (out / name).mkdir()
    (out / "site-packages" / "helper.py").write_text("import torch\ndef make(n):\n    return torch.zeros(n, n)\n", encoding="utf-8")
    script = out / "work" / "sent.py"
    script.write_text(SENT, encoding="utf-8")
    run = msmemscope("--device=cpu", "--call-stack=python:8,c:8", "--", *python, script, out / "site-packages", f"--data={out / 'elsewhere'}").check()
    path = run.project().path / "report.html"
    asked = out / "asked.html"
    msmemscope("report", run.project().path, "-o", asked, output=False).check()
    for one in (path, asked):
        report = answers(one)
        assert report["summary/0///"]["leaks"] and report["summary/0///"]["command"].endswith("sent.py site-packages --data=elsewhere")
        texts = []

        def walk(value, texts=texts):
            for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
                walk(inside)
            if isinstance(value, str):
                texts.append(value)

        walk(report)
        named = {text for text in texts if re.search(r"(^|[ =(])/\w", text)}
        assert named == {str(script)}, "places of the program's own source, and nothing else"
        assert "helper.py" in {Path(text).name for text in texts}


@pytest.mark.parametrize("option", ["--no-report", "--no-keep-trace"])
def test_no_report_where_none_is_wanted_or_none_can_be(msmemscope, dist, option):
    run = msmemscope(option, "--", dist / "examples" / "leaky_npu").check()
    assert "html" not in run.stderr and not list(run.out.rglob("*.html"))


def test_a_launch_of_nothing_has_no_report(msmemscope):
    run = msmemscope("--", "/bin/true").check()
    assert "html" not in run.stderr and not list(run.out.rglob("*.html"))


def test_several_processes_share_a_report_beside_their_projects(msmemscope, python, out, browser):
    script, start = out / "rank.py", out / "start.sh"
    script.write_text("import os, torch\nkept = torch.zeros((int(os.environ['RANK']) + 1) << 18)\n", encoding="utf-8")
    start.write_text('for rank in 2 0 1; do RANK=$rank "$@"; done\n', encoding="utf-8")
    run = msmemscope("--device=cpu", "--", "/bin/sh", start, *python, script, output=out / "ranks").check()
    [path] = (out / "ranks").glob("*.html")
    assert told(run) == path and not list((out / "ranks").glob("*/report.html"))
    assert path.stat().st_mode & 0o777 == 0o600
    report = answers(path)
    assert [one["name"] for one in report["processes////"]["processes"]] == ["rank 0", "rank 1", "rank 2"]
    by_rank = sorted(processes(msmemscope, *(project.path for project in run.projects())), key=lambda one: one["rank"])
    for number, process in enumerate(by_rank):
        check_against_info(report, process, number)
    ranks = {one["process"]: one for one in report["ranks////"]["ranks"]}
    assert [ranks[number]["peak_bytes"] for number in range(3)] == [process["pools"][0]["peak_bytes"] for process in by_rank]
    # A directory with a report in it is read as before.
    assert [one["rank"] for one in by_rank] == [0, 1, 2]
    again = out / "again.html"
    msmemscope("report", out / "ranks", "-o", again, output=False).check()
    assert answers(again).keys() == report.keys()
    page = browser()
    page.open(f"{path.as_uri()}#tab=ranks")
    page.wait("document.getElementById('main')?.dataset.ranks === '3'")
    assert page.errors == []


def test_processes_without_ranks_are_told_by_their_names(msmemscope, dist, out):
    start = out / "start.sh"
    start.write_text('"$1" 3 & "$1" 5 & wait\n', encoding="utf-8")
    run = msmemscope("--", "/bin/sh", start, dist / "examples" / "leaky_npu", output=out / "two").check()
    [path] = (out / "two").glob("*.html")
    names = [one["name"] for one in answers(path)["processes////"]["processes"]]
    assert sorted(names) == sorted(f"leaky_npu (pid {project.pid})" for project in run.projects())


def test_of_many_processes_the_worst_are_there_in_full(msmemscope, dist, out, browser):
    """Nine hold little and end; three leak, and these have all views."""
    start, leaking = out / "start.sh", {3, 7, 11}
    start.write_text('for rank in $(seq 0 11); do\n  case $rank in 3|7|11) steps=60 ;; *) steps=1 ;; esac\n  RANK=$rank "$1" $steps\ndone\n', encoding="utf-8")
    msmemscope("--", "/bin/sh", start, dist / "examples" / "leaky_npu", output=out / "ranks").check()
    [path] = (out / "ranks").glob("*.html")
    report = answers(path)
    full = {number for number in range(12) if any(key.startswith(f"tree/{number}/") for key in report)}
    assert leaking < full and len(full) == 8 and "12 processes; the worst 8 are here in full" in report["about"]
    for number in range(12):
        summary = report[f"summary/{number}///"]
        assert summary["pools"][0]["peak_bytes"] > 0
        assert bool([one for one in summary["leaks"] if one["verdict"] == "leak"]) == (number in leaking)
        assert len(report[f"series/{number}/{summary['pools'][0]['index']}/owner/"]["most"]) == (1200 if number in full else 120)
    page = browser()
    short = min(set(range(12)) - full)
    page.open(f"{path.as_uri()}#process={short}&tab=flame")
    page.wait("document.getElementById('note')?.textContent.startsWith('not in this report')")
    page.open(f"{path.as_uri()}?again#tab=ranks")
    page.wait("document.getElementById('main')?.dataset.ranks === '12'")
    assert page.errors == []


def test_beyond_two_million_events_it_is_made_on_request(msmemscope, dist):
    run = msmemscope("--events=none", "--analysis=none", "--", dist / "examples" / "leaky_npu", 400_000).check()
    project = run.project().path
    assert " (no page beyond 2 million events: msmemscope report makes it)\nMore:  msmemscope info " in run.stderr, run
    assert not (project / "report.html").exists()


def test_what_is_recovered_gets_its_report(msmemscope, program, dist):
    started = msmemscope.start("--", *program("two_acts", 100, 2000), env={"LD_LIBRARY_PATH": dist / "simnpu" / "lib64"}, stdin=subprocess.PIPE)
    assert started.process.stdout.readline() == b"ready\n", str(started.finish())
    os.kill(engine_of(started.pid), signal.SIGKILL)
    run = started.finish()
    assert not list(run.out.rglob("*.html"))
    recovered = msmemscope("recover", run.out, output=False).check()
    path = run.project().path / "report.html"
    assert told(recovered) == path
    check_against_info(answers(path), *processes(msmemscope, run.project().path))

# ---- on request ----

def snapshot(path, devices, blocks, places, depth=3):
    """A snapshot of PyTorch: so many blocks on each device, of sizes and lives that nothing compresses, from so many lines."""
    state, traces, segments = 12345, [], []
    for device in range(devices):
        entries, base = [], 0x7f0000000000
        alive, at = {}, base
        for number in range(blocks):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2 ** 64
            place = number % places
            frames = [{"name": f"layer_{place}_{i}", "filename": f"/srv/层/m{place}.py", "line": place + i + 1} for i in range(depth)]
            size = 512 * (1 + (state >> 40) % 4096)
            entries.append({"action": "alloc", "addr": at, "size": size, "stream": 0, "time_us": 10 ** 6 + number * 7 + (state >> 60), "frames": frames})
            alive[at] = size
            at += size
        segments.append({"device": device, "address": base, "total_size": at - base, "allocated_size": at - base, "active_size": at - base,
                         "requested_size": at - base, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                         "frames": [], "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}
                                                  for address, size in alive.items()]})
        traces.append(entries)
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": traces, "allocator_settings": {}}, protocol=4))


def test_a_report_stays_small_and_says_what_it_leaves_out(msmemscope, out):
    snapshot(out / "wide.pickle", devices=16, blocks=19_000, places=40, depth=1)
    msmemscope("report", out / "wide.pickle", "-o", out / "wide.html", output=False).check()
    assert 5_000_000 < (out / "wide.html").stat().st_size <= MOST_BYTES
    report = answers(out / "wide.html")
    left = int(re.search(r"(\d+) pictures did not fit into 10 MB", report["about"])[1])
    pools = [pool["index"] for pool in report["summary/0///"]["pools"] if not pool["driver"]]
    assert len(pools) == 16 and left > 0 and "msmemscope view wide.pickle" in report["about"]
    # What is told of a pool before its rectangles is there of each.
    for index in pools:
        for key in (f"series/0/{index}/place/", f"moment/0/{index}/owner/peak", f"tree/0/{index}//peak", f"tree/0/{index}//all", f"table/0/{index}//"):
            assert "error" not in report[key]
    assert any(key.startswith("blocks/") for key in report)


def test_a_report_of_many_places_stays_small(msmemscope, out, browser):
    snapshot(out / "places.pickle", devices=1, blocks=24_000, places=6_000, depth=6)
    msmemscope("report", out / "places.pickle", "-o", out / "places.html", output=False).check()
    assert (out / "places.html").stat().st_size <= MOST_BYTES
    [process] = processes(msmemscope, out / "places.pickle")
    summary = answers(out / "places.html")["summary/0///"]
    judged = sum(place["verdict"] in ("leak", "suspect") for place in process["places"])
    assert len(summary["leaks"]) <= 200 and len(summary["leaks"]) + summary["more_leaks"] >= judged
    page = browser()
    page.open((out / "places.html").as_uri())
    page.wait("performance.getEntriesByName('picture').length")
    assert page.errors == []


def test_a_report_of_the_user_is_whole_or_not_there(msmemscope, dist, out):
    msmemscope("--no-report", "--", dist / "examples" / "leaky_npu", output=out / "run").check()
    old = out / "old.html"
    old.write_text("mine", encoding="utf-8")
    old.chmod(0o644)
    msmemscope("report", out / "run", "-o", old, output=False).check()
    assert old.stat().st_mode & 0o777 == 0o600 and "processes////" in answers(old)
    failed = msmemscope("report", out / "missing", "-o", out / "new.html", output=False)
    assert failed.returncode == 1 and not (out / "new.html").exists()
    failed = msmemscope("report", out / "run", "-o", out / "no" / "such.html", output=False)
    assert failed.returncode == 1 and "cannot write" in failed.stderr
    assert sorted(path.name for path in out.iterdir()) == ["old.html", "run"]


SECRET = "geheim"


@pytest.fixture
def secrets(msmemscope, python, out):
    script = out / f"{SECRET}.py"
    script.write_text(f"import torch, msmemscope\nkept = []\ndef {SECRET}():\n    kept.append(torch.zeros(256, 256))\n"
                      f"for _ in range(12):\n    msmemscope.step()\n    {SECRET}()\n", encoding="utf-8")
    return msmemscope("--device=cpu", "--no-report", "--", *python, script, output=out / f"run-{SECRET}").check().project().path


def test_an_anonymous_report_has_no_names_and_all_figures(msmemscope, secrets, out):
    [process] = processes(msmemscope, secrets)
    msmemscope("report", "--anonymize", secrets, "-o", out / "r.html", output=False).check()
    report = answers(out / "r.html")
    assert SECRET not in json.dumps(report) and "/" not in report["processes////"]["processes"][0]["name"]
    assert report["summary/0///"]["pools"][0]["peak_bytes"] == process["pools"][0]["peak_bytes"]
    assert report["summary/0///"]["leaks"][0]["bytes_per_step"] == process["places"][0]["bytes_per_step"]
    for form in ("--text", "--markdown"):
        shown = msmemscope("report", form, secrets, output=False).check().stdout
        hidden = msmemscope("report", form, "--anonymize", secrets, output=False).check().stdout
        assert SECRET in shown and SECRET not in hidden and "KiB per step" in hidden


# ---- for issues ----

def cells(line):
    """A row of a table as GitHub splits it: at bars, and a backslash takes what follows it."""
    assert line.startswith("|") and line.endswith("|")
    return [re.sub(r"\\\|", "|", cell).strip() for cell in re.findall(r"((?:\\.|[^|\\])*)\|", line[1:])]


def tables(text):
    """All tables, each as a list of rows; every row has as many cells as its head."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(cells(line))
        elif rows:
            assert {len(row) for row in rows} == {len(rows[0])}, rows
            assert all(re.fullmatch(r"-{3}:?", cell) for cell in rows[1])
            found.append([rows[0], *rows[2:]])
            rows = []
    return found


def code(cell):
    """What a cell with a name shows."""
    if cell.startswith("<code>"):
        inside = cell.removeprefix("<code>").removesuffix("</code>")
        assert not re.search(r"[<>`|*_\[\]]", inside), "nothing in it is markup"
        return html.unescape(inside)
    assert cell.count("`") == 2 and cell[0] == cell[-1] == "`", cell
    return cell[1:-1]


def test_text_and_markdown_fit_a_screen_and_name_the_leak(msmemscope, python, grow):
    run = msmemscope("--device=cpu", "--no-report", "--", *python, grow).check()
    text = msmemscope("report", "--text", run.project().path, output=False).check().stdout
    assert "LEAK on the CPU: " in text and "grow.py:5 grow" in text and len(text.splitlines()) <= 25 and "System: Linux " in text
    assert max(map(len, text.splitlines())) <= 100
    [process] = processes(msmemscope, run.project().path)
    markdown = msmemscope("report", "--markdown", run.project().path, output=False).check().stdout
    assert markdown.startswith("### msmemscope: memory leak\n") and len(markdown.splitlines()) <= 45
    about, places, pools, peak = tables(markdown)
    assert dict((row[0], code(row[1])) for row in about[2:])["Command"] == process["command"]
    assert places[1][0] == "**leak**" and code(places[1][1]).endswith("grow.py:5 grow") and "256.0 KiB per step" in places[1][3]
    assert pools[1][0] == "HOST on cpu" and pools[1][3] == "grows"
    info = msmemscope("info", run.project().path, output=False).check().stdout
    assert [row[1] for row in peak[1:]] == re.findall(r"^  \S+ \S+  (\d+ %)  ", info.split("Peak of HOST")[1], re.M)[:len(peak) - 1], "one figure"
    assert "grow.py:5 grow" in [code(row[2]).removeprefix("grow.py:9 -> ") for row in peak[1:]]


NAMES = ["a|b", "c\\|d", "`tick`", "``", "<img src=x>", "*star* _under_ [x](y)", "&amp; @user #12", "层 名", "x\ny", "|", "\\"]


def test_no_name_is_markup(msmemscope, out):
    """Each name is a function of its own that holds a block; all of them stand in tables as they are, but for line ends."""
    for name in NAMES:
        snapshot(out / "one.pickle", devices=1, blocks=3, places=1, depth=1)
        data = pickle.loads((out / "one.pickle").read_bytes()) | {"segments": []}
        for entry in data["device_traces"][0]:
            entry["frames"][0]["name"] = name
        (out / "one.pickle").write_bytes(pickle.dumps(data, protocol=4))
        markdown = msmemscope("report", "--markdown", out / "one.pickle", output=False).check().stdout
        shown = [code(row[2]) for table in tables(markdown) if table[0][2:] == ["Call site"] for row in table[1:]]
        wanted = name.replace("\n", "\\x0a")
        assert any(place.endswith(f"m0.py:1 {wanted}") for place in shown), (name, shown)


def test_a_code_block_is_not_ended_by_what_is_in_it(msmemscope, python, out):
    """A note names a file whose name is a fence."""
    folder = out / "````"
    folder.mkdir()
    script = folder / "x.py"
    script.write_text("import torch\nkept = torch.zeros(1000)\n", encoding="utf-8")
    project = msmemscope("--device=cpu", "--no-report", "--", *python, script, output=out / "run").check().project().path
    lines = msmemscope("report", "--markdown", project, output=False).check().stdout.splitlines()
    fences = [line for line in lines if re.match(r"`{3,}", line)]
    assert len(fences) in (0, 2)
    if fences:
        fence = fences[0].removesuffix("text")
        assert fences[1] == fence and all(fence not in line for line in lines[lines.index(fences[0]) + 1:lines.index(fences[1])])


def test_many_processes_are_one_ticket(msmemscope, dist, out):
    start = out / "start.sh"
    start.write_text('for rank in $(seq 0 11); do RANK=$rank "$1" 1; done; RANK=12 "$1" 40\n', encoding="utf-8")
    msmemscope("--no-report", "--", "/bin/sh", start, dist / "examples" / "leaky_npu", output=out / "ranks").check()
    markdown = msmemscope("report", "--markdown", out / "ranks", "-o", out / "ticket.md", output=False).check()
    assert markdown.stdout == ""
    text = (out / "ticket.md").read_text(encoding="utf-8")
    assert (out / "ticket.md").stat().st_mode & 0o777 == 0o600 and "13 processes, 1 with a finding" in text and len(text.splitlines()) <= 50
    ranks = tables(text)[1]
    assert ranks[0] == ["Process", "Verdict", "Highest peak", "Leaks"] and len(ranks) == 9 and "rank 12" in code(ranks[1][0]) and ranks[1][1] == "leak"
    assert len(msmemscope("report", "--text", out / "ranks", output=False).check().stdout.splitlines()) <= 25
