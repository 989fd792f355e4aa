# SPDX-License-Identifier: Apache-2.0
"""One run, whatever names it: info and export answer the same from trace, project, results directory, csv and db."""
import json
import os
import shutil
import signal
import socket
import time
from pathlib import Path

import pytest

import rows


@pytest.fixture
def run(msmemscope, dist, out):
    """A run with its trace, in csv. It uses one device, so that one file has all of its rows."""
    msmemscope.out = out / "run"
    return msmemscope("--", dist / "examples" / "leaky_npu", 6).check()


@pytest.fixture
def info(msmemscope):
    """info(word, status=0): what the verb tells as JSON, and what it says on stderr."""
    def ask(word, status=0):
        done = msmemscope("info", word, "--json", "--all", output=False)
        assert done.returncode == status, str(done)
        return json.loads(done.stdout)["processes"][0] if done.stdout else None, done.stderr

    return ask


def facts(answer):
    """What trace and dump both know. Usage of the driver comes from records that are no rows."""
    return (answer["pid"], answer["steps"], answer["pools"], sorted(
        (block["address"], block["size"], block["device"], block["thread"], block["time_ns"]) for block in answer["live_blocks"]))


def same(row):
    """What a row says, whatever its number and its call stack are."""
    return row.event, row.type, row.name, row.time_ns, row.tid, row.device, row.ptr, row.attr.get("size"), row.attr.get("used")


def exported(msmemscope, word, *words, status=0):
    done = msmemscope("export", word, *words, output=False)
    assert done.returncode == status, str(done)
    [path] = done.stdout.splitlines()
    [project] = [project for project in rows.projects(Path(path).parent) if project.path == Path(path)]
    return project, done


def memory(project):
    return [same(row) for row in project.rows() if row.event in ("MALLOC", "FREE")]


def forms(run, msmemscope, out):
    """Every way to name the run; the first three have the trace."""
    project = run.project().path
    yield project / "trace.msc"
    yield project
    yield run.out
    bare = out / "bare" / project.name
    shutil.copytree(project, bare)
    (bare / "trace.msc").unlink()
    yield bare
    yield bare.parent
    yield bare / "device_0" / "dump"
    yield from bare.glob("device_0/dump/memscope_dump_*.csv")
    database, _ = exported(msmemscope, project, "--format=db", "-o", out / "db")
    yield database.path
    yield database.path.parent
    yield from database.path.glob("device_0/dump/*.db")


def test_info_tells_the_same_of_every_form(run, msmemscope, info, out):
    whole = None
    for number, word in enumerate(forms(run, msmemscope, out)):
        answer, said = info(word)
        whole = whole or facts(answer)
        assert facts(answer) == whole and said == "" and answer["trace"] == str(word) and not answer["damaged"], word
        text = msmemscope("info", word, output=False).check().stdout
        # A dump knows nothing of how the process ended and what the tool cost.
        assert ("ended by itself" in text) == ("ns per event" in text) == (number < 3), word
    assert whole[2] and whole[3]


def test_export_writes_the_same_rows_of_every_form(run, msmemscope, out):
    wanted = memory(run.project())
    assert wanted
    for number, word in enumerate(forms(run, msmemscope, out)):
        project, done = exported(msmemscope, word, "-o", out / f"export{number}")
        assert memory(project) == wanted and done.stderr == "", word
        assert (project.path / "report.txt").exists() and (project.path / "config.json").exists()


def test_results_of_a_dump_lie_beside_its_project(run, msmemscope, out):
    project = run.project().path
    (project / "trace.msc").unlink()
    [source] = project.glob("device_0/dump/memscope_dump_*.csv")
    for number, word in enumerate((source, source.parent, project), 2):
        assert exported(msmemscope, word)[0].path == Path(f"{project}_{number}")
    alone = out / "alone.csv"
    shutil.copy(source, alone)
    assert exported(msmemscope, alone)[0].path == out / project.name


def test_several_projects_are_listed_in_one_sentence(run, msmemscope, out):
    project = run.project().path
    shutil.copytree(project, f"{project}_2")
    for verb in ("info", "export"):
        done = msmemscope(verb, run.out, output=False)
        assert (done.returncode, done.stdout) == (1, ""), str(done)
        assert done.stderr == f"msmemscope: {run.out} has 2 projects ({project.name}, {project.name}_2); choose one\n"
    both = json.loads(msmemscope("info", "--json", *sorted(run.out.glob("msmemscope_*")), output=False).check().stdout)
    assert len(both["processes"]) == 2


def test_what_means_no_run_is_refused_by_every_verb(msmemscope, out):
    empty = out / "empty"
    empty.mkdir()
    text = out / "text"
    text.write_text("nothing\n")
    for word, need in ((empty, "has no trace, no memscope_dump file and no project"), (text, "is neither a trace nor a dump"),
                       (out / "absent", "No such file or directory")):
        for words in (["info", word], ["export", word], ["--compare", f"--input={word},{word}"]):
            done = msmemscope(*words, output=False, cwd=out)
            lines = [line for line in done.stderr.splitlines() if str(word) in line]
            assert done.returncode == 1 and done.stdout == "" and len(lines) == 1 and need in lines[0], str(done)


def odd_files(place):
    """What is no file, under names that it may have: a FIFO that nobody writes, a device without an end, a socket."""
    place.mkdir()
    os.mkfifo(place / "fifo")
    (place / "device").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place / "socket"))
    return sorted(place.iterdir())


def test_what_is_no_file_is_refused_at_once(run, msmemscope, out):
    project = run.project().path
    for odd in odd_files(out / "odd"):
        inside = out / f"project_{odd.name}" / project.name
        shutil.copytree(project, inside)
        (inside / "trace.msc").unlink()
        odd.rename(inside / "trace.msc")
        named = odd.with_suffix(".csv")
        for word in (inside, inside.parent, inside / "trace.msc"):
            for words in (["info", word], ["export", word], ["--compare", f"--input={word},{project}"],
                          ["--compare", f"--input={project},{word}"]):
                done = msmemscope(*words, output=False, cwd=out, timeout=30)
                assert done.returncode == 1 and done.stdout == "" and " a file" in done.stderr, str(done)
        (inside / "trace.msc").rename(named)
        done = msmemscope("info", named, output=False, timeout=30)
        assert done.returncode == 1 and "neither a file" in done.stderr, str(done)


def test_recover_waits_for_nothing_that_is_no_file(msmemscope, out):
    for odd in odd_files(out / "odd"):
        assert msmemscope("recover", odd, output=False, timeout=30).returncode == 1
        place = out / f"place_{odd.name}"
        place.mkdir()
        odd.rename(place / ".msmemscope_1.where")
        assert msmemscope("recover", place, output=False, timeout=30).returncode == 0


@pytest.mark.parametrize("kind", [2, 3])
def test_a_trace_that_unpacks_to_gigabytes_takes_no_memory(run, msmemscope, program, out, kind):
    trace = run.project().path / "trace.msc"
    before, before_rows = trace.stat().st_size, msmemscope.info(run.project())["rows"]
    msmemscope.bare(*program("trace_bomb", trace, kind, 100)).check()
    assert trace.stat().st_size - before < 1 << 20, "it is no bomb"
    done = msmemscope.bare("prlimit", f"--as={256 << 20}", "--", msmemscope.path, "info", "--json", trace)
    assert done.returncode == 3, str(done)
    [answer] = json.loads(done.stdout)["processes"]
    assert answer["damaged"] and answer["damage"]["skipped_bytes"] > 200000 and answer["rows"] == before_rows


def test_a_damaged_dump_answers_with_what_is_left(run, msmemscope, info, out):
    [source] = run.project().path.glob("device_0/dump/memscope_dump_*.csv")
    damaged = out / "damaged.csv"
    lines = source.read_text().splitlines(keepends=True)
    damaged.write_text("".join([*lines[:3], "junk\n", *lines[3:]]))
    need = f"msmemscope: {damaged} is damaged: 1 rows were left out, the first in damaged.csv line 4: "
    answer, said = info(damaged, status=3)
    assert answer["damaged"] and said.startswith(need) and said.count("\n") == 1
    project, done = exported(msmemscope, damaged, "-o", out / "export", status=3)
    assert done.stderr.startswith(need) and memory(project) == memory(run.project())


def test_of_rows_of_two_processes_each_is_a_run(run, msmemscope, out):
    [source] = run.project().path.glob("device_0/dump/memscope_dump_*.csv")
    pid = run.project().rows()[0].pid
    mixed, half = out / "mixed.csv", out / "half.csv"
    body = source.read_text().splitlines(keepends=True)
    other = [line.replace(f",{pid},", f",{pid + 1},") for line in body[1:len(body) // 2]]
    mixed.write_text("".join(body + other))
    half.write_text("".join([body[0], *other]))
    alone = [json.loads(msmemscope("info", "--json", path, output=False).check().stdout)["processes"][0] for path in (source, half)]
    both = json.loads(msmemscope("info", "--json", mixed, output=False).check().stdout)["processes"]
    assert [one["pid"] for one in both] == [pid, pid + 1]
    for found, wanted in zip(both, alone):
        for key in ("pid", "events", "rows", "steps", "pools", "places", "peaks", "verdict"):
            assert found[key] == wanted[key], key
    listed = json.loads(msmemscope("export", "--json", mixed, "-o", out / "both", output=False).check().stdout)
    assert [one["pid"] for one in listed] == [pid, pid + 1]
    assert [memory(project) for project in rows.projects(out / "both")] == \
        [memory(exported(msmemscope, path, "-o", out / path.stem)[0]) for path in (source, half)]
    files = msmemscope("export", "--format=jsonl", mixed, "-o", out / "lines", output=False).check().stdout.split()
    assert [f"msmemscope_{number}_" in path for path, number in zip(files, (pid, pid + 1))] == [True, True]
    text = msmemscope("report", "--text", mixed, output=False).check().stdout
    assert text.startswith("2 processes")


def test_an_unfinished_trace_is_recovered_by_its_own_name(msmemscope, dist, out):
    """info names a raw trace and says recover; the same word then does it."""
    started = msmemscope.start("--", dist / "examples" / "leaky_npu", 1_000_000_000)
    end = time.monotonic() + 20
    while not list(out.glob("msmemscope_*/device_0/dump/*.csv")) and time.monotonic() < end:
        time.sleep(0.01)
    os.killpg(started.pid, signal.SIGKILL)
    started.finish()
    end = time.monotonic() + 20
    [raw] = out.glob(".msmemscope_*/[0-9]*.raw")
    done = msmemscope("info", raw, output=False)
    assert done.returncode == 3 and f"{raw} is incomplete; run: msmemscope recover" in done.stderr
    # All were killed at once, but they do not die in the same moment.
    while raw.exists() and time.monotonic() < end:
        assert msmemscope("recover", raw, output=False).returncode == 0
    [project] = rows.projects(out)
    assert (project.path / "trace.msc").exists() and not raw.exists()
    done = msmemscope("recover", project.path / "trace.msc", output=False).check()
    assert done.stderr == f"msmemscope: nothing to recover in {project.path / 'trace.msc'}\n"

# ---- call stacks of dumps ----

TWO_SITES = """
import npu
kept = []
for _ in range(12):
    block = npu.alloc(5000)
    kept.append(npu.alloc(5000))
    npu.step()
    npu.free(block)
"""


def test_a_dump_alone_has_the_call_sites_of_its_stacks(scripts, msmemscope):
    """Blocks of both call sites have one size, which does not tell them apart."""
    run = scripts.command(TWO_SITES, "--call-stack=python")
    [place] = [place for place in msmemscope.info(run.project())["places"] if place["verdict"] == "leak"]
    [dump] = run.project().dumps()
    [alone] = [place for place in json.loads(msmemscope("info", "--json", dump, output=False).check().stdout)["processes"][0]["places"]
               if place["verdict"] == "leak"]
    assert place["frames"][0]["file"].endswith("npu.py") and alone["frames"] == place["frames"]
    assert [alone[key] for key in ("blocks", "bytes", "bytes_per_step")] == [place[key] for key in ("blocks", "bytes", "bytes_per_step")]


def test_a_dump_alone_knows_what_a_model_holds(scripts, msmemscope, out):
    """The state of an optimizer grows with its first steps and is no leak; its owner is in the rows."""
    [dump] = scripts.command(TWO_SITES, "--call-stack=python").project().dumps()
    found = {}
    for owner in ("", "owner:PTA@model@optimizer_state,"):
        path = out / f"memscope_dump_{len(owner)}.csv"
        path.write_text(dump.read_text(encoding="utf-8").replace("{allocation_id", "{" + owner + "allocation_id"), encoding="utf-8")
        [process] = json.loads(msmemscope("info", "--json", "--analysis=leaks,decompose", path, output=False).check().stdout)["processes"]
        found[owner] = {(place["verdict"], place["reason"]) for place in process["places"]}
    assert "leak" in {verdict for verdict, _ in found[""]}
    assert {verdict for verdict, _ in found["owner:PTA@model@optimizer_state,"]} == {"kept"}, found


FRAMES = [
    ("/a/b.py(17): train", {"file": "/a/b.py", "line": 17, "function": "train"}),
    ("/a (1): x/b.py(3): <lambda>", {"file": "/a (1): x/b.py", "line": 3, "function": "<lambda>"}),
    ("b.py(3): f(4): g", {"file": "b.py(3): f", "line": 4, "function": "g"}),
    ("b.py(): f", {"file": "", "function": "b.py(): f"}), ("(3): f", {"file": "", "line": 3, "function": "f"}), ("): ", {"file": "", "function": "): "}),
    ("b.py(99999999999999): f", {"file": "", "function": "b.py(99999999999999): f"}), ("words", {"file": "", "function": "words"}),
]


def test_any_text_may_be_a_stack_of_a_dump(msmemscope, out):
    stack = "".join(f"{text}\n" for text, _ in FRAMES)
    path = out / "memscope_dump_1.csv"
    path.write_text(rows.HEADER + "\n" + "".join(
        f'{i},MALLOC,HAL,N/A,{1000 + i},7,7,0,0x{4096 * (i + 1):016x},'
        f'"{{allocation_id:{i + 1},addr:0x{4096 * (i + 1):016x},size:64,used:64}}","{column}",\n'
        for i, column in enumerate([stack, stack, "NA", "", "one line", "\n\n", "x\n" * 3000])), encoding="utf-8")
    [process] = json.loads(msmemscope("info", "--json", "--all", path, output=False).check().stdout)["processes"]
    frames = [frame for holder in process["peaks"][0]["places"] if holder["blocks"] == 2 for frame in holder["frames"]]
    assert [{key: value for key, value in frame.items() if key != "user"} for frame in frames] == [frame for _, frame in FRAMES]
    assert process["pools"][0]["allocations"] == 7


def test_a_report_of_many_call_sites_is_short_and_says_so(msmemscope, out):
    """1,200 leaks: without stacks, sizes are call sites. Each has 60 blocks with a line of their own."""
    lines, used = [], 0
    for step in range(60):
        for size in range(512, 512 * 1201, 512):
            used += size
            address = len(lines) + 1 << 24
            lines.append(f'{len(lines)},MALLOC,HAL,N/A,{1000 + len(lines)},7,7,0,0x{address:016x},'
                         f'"{{allocation_id:{len(lines) + 1},addr:0x{address:016x},size:{size},used:{used}}}",,\n')
        lines.append(f'{len(lines)},SYSTEM,STEP,{step + 1},{1000 + len(lines)},7,7,N/A,N/A,,,\n')
    path = out / "memscope_dump_1.csv"
    path.write_text(rows.HEADER + "\n" + "".join(lines), encoding="utf-8")
    run = msmemscope("export", "-o", out / "again", path, output=False).check()
    text = (Path(run.stdout.strip()) / "report.txt").read_text(encoding="utf-8")
    assert 1 << 16 < len(text) <= 4 << 20, len(text)
    assert text.count("\nleak: ") > 500 and "more" in text, text[:2000]
    assert text.endswith("msmemscope info --all shows all.\n"), text[-500:]
    assert len(msmemscope("info", "--all", path, output=False).check().stdout) > 4 << 20


def test_beyond_ten_thousand_call_sites_the_rest_is_one_with_their_sums(msmemscope, out):
    """12,000 call sites with a block each, of which 60 more keep a block in every step; a document names 10,000 of each list."""
    lines, used = [], 0

    def take(site, size):
        nonlocal used
        used += size
        address = len(lines) + 1 << 24
        lines.append(f'{len(lines)},MALLOC,HAL,N/A,{1000 + len(lines)},7,7,0,0x{address:016x},'
                     f'"{{allocation_id:{len(lines) + 1},addr:0x{address:016x},size:{size},used:{used}}}","train.py({site}): step\n",\n')

    for step in range(20):
        for site in range(1, 12001 if step == 0 else 61):
            take(site if step == 0 else 20000 + site, 512 * site)
        lines.append(f'{len(lines)},SYSTEM,STEP,{step + 1},{1000 + len(lines)},7,7,N/A,N/A,,,\n')
    path = out / "memscope_dump_1.csv"
    path.write_text(rows.HEADER + "\n" + "".join(lines), encoding="utf-8")
    [process] = json.loads(msmemscope("info", "--json", "--all", path, output=False).check().stdout)["processes"]
    kept = [place for place in process["places"] if place["verdict"] == "kept"]
    leaks = [place for place in process["places"] if place["verdict"] == "leak"]
    [peak] = process["peaks"]
    assert process["judgement"]["kept"] == 12000 and process["judgement"]["leaks"] == 60
    assert len(leaks) == 60 and len(kept) == 10001
    assert kept[-1]["name"] == "2,000 other call sites" and kept[-1]["call_sites"] == 2000
    assert sum(place["bytes"] for place in kept) == 512 * 12000 * 12001 // 2
    assert len(peak["places"]) == 10001 and peak["places"][-1]["place"] == "2,060 other call sites"
    assert sum(place["bytes"] for place in peak["places"]) == peak["bytes"] == used
    text = msmemscope("info", path, output=False).check().stdout
    assert "kept: 11997 more call sites" in text and "... 12058 more call sites with " in text, text


def test_every_verb_says_that_a_trace_is_damaged(run, msmemscope, program, out):
    """Cut in the middle: what is left is read, and nobody takes it for the whole."""
    whole = msmemscope("--call-stack=c", "--", *program("threads", 4, 2000), output=out / "recorded").check().project().path / "trace.msc"
    cut = out / "cut.msc"
    cut.write_bytes(whole.read_bytes()[:whole.stat().st_size // 2])
    store = f"sqlite:{out / 'store.db'}"
    for words in (["info", cut], ["analyze", "leaks", cut], ["export", cut, "-o", out / "csv"], ["export", cut, "--format=perfetto", "-o", out / "view"],
                  ["report", cut, "-o", out / "report.html"], ["report", cut, "--text"], ["whatif", cut], ["advise", cut],
                  ["store", "add", cut, "--to", store], ["--compare", "-i", f"{cut},{whole}", "-o", out / "compared"]):
        done = msmemscope(*words, output=False)
        said = [line for line in (done.stdout + done.stderr).splitlines() if "amaged" in line or line.startswith("Cut: ")]
        assert done.returncode == 3 and said != [], str(done)


@pytest.mark.parametrize("content", [b"x", b"SQLite format 4 of another program"])
def test_a_store_is_not_made_of_another_file(msmemscope, program, out, content):
    project = msmemscope("--", *program("leaky_steps"), output=out / "recorded").check().project().path
    other = out / "other"
    other.write_bytes(content)
    done = msmemscope("store", "add", project, "--to", f"sqlite:{other}", output=False)
    assert done.returncode == 1 and f"{other} is another file, no store" in done.stderr
    assert other.read_bytes() == content


def test_a_file_is_no_output_directory(msmemscope, out):
    other = out / "other"
    other.write_text("x")
    done = msmemscope("--", "true", output=other)
    assert done.returncode == 1 and f"the output directory {other} is a file" in done.stderr and other.read_text() == "x"
