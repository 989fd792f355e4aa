# SPDX-License-Identifier: Apache-2.0
"""What a replay of PyTorch's pool needs besides blocks is in our traces: release, settings, memory fraction, calls of empty_cache().

A stand-in for PyTorch in Python (targets/torch_pool/python) runs on the stand-in pool. Requests of 10 MiB and more get segments there
as they do from PyTorch, so that the twin replays them.
"""
import json
import pickle
import subprocess
import tarfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[1] / "targets" / "torch_pool"
MIB = 1 << 20

START = """
import os
import torch
M = 1 << 20
request, free = torch._C.request, torch._C.free
"""
# A part of a segment is in use, so that the first empty_cache() frees nothing under default settings.
SPLIT = """
torch.cuda.init()
whole = request(40 * M)
free(whole)
part = request(12 * M)
torch.cuda.empty_cache()
other = request(40 * M, 7)
free(other)
free(part)
"""


@pytest.fixture(scope="session")
def pool_calls(targets, tmp_path_factory):
    """Directory of the libraries of the stand-in."""
    place = tmp_path_factory.mktemp("calls")
    flags = ["c++", "-std=c++17", "-O0", "-w", "-pthread", "-fPIC", "-shared", f"-L{place}", f"-L{targets}", f"-Wl,-rpath-link,{targets}"]
    for name, libraries in (("libc10_cuda", ["-lc10"]), ("libtorch_cuda", ["-lc10_cuda"]), ("libpool_calls", ["-ltorch_cuda", "-lc10_cuda", "-lc10"])):
        source = SOURCES / f"{name.replace('libpool', 'pool')}.cpp"
        subprocess.run([*flags, source, "-o", place / f"{name}.so", *libraries, "-ldl"], check=True)
    return place


@pytest.fixture
def launch(msmemscope, pool_calls, targets, out):
    """launch(script, env): the run of a script that uses the stand-in."""
    def run(script, env=None, options=(), at="results"):
        path = out / "script.py"
        path.write_text(START + script)
        return msmemscope(*options, "--", "/usr/bin/python3", path, output=out / at,
                          env={"LD_LIBRARY_PATH": f"{pool_calls}:{targets}", "PYTHONPATH": str(SOURCES / "python"), "CUPTI_LIBRARY": "/nonexistent",
                               "TRUTH": "/dev/null", **(env or {})}).check()

    return run


@pytest.fixture
def record(launch):
    """record(script, env): its project."""
    return lambda script, env=None: launch(script, env).project()


@pytest.fixture
def whatif(msmemscope):
    """whatif(path, options...): the one pool of the JSON document."""
    def ask(path, *options, code=0):
        run = msmemscope("whatif", *options, "--json", str(path), output=False)
        assert run.returncode == code, str(run)
        [pool] = json.loads(run.stdout)["pools"]
        return pool

    return ask


def peaks(pool):
    return {setting["set"]: setting["reserved_peak"] for setting in pool["settings"]}


def test_an_empty_cache_that_frees_nothing_is_played_under_other_settings(record, whatif):
    pool = whatif(record(SPLIT).path, "--set=", "--set=expandable_segments:True")
    assert pool["torch"] == "2.11.0" and pool["agrees"] and pool["set"] == ""
    # Without the call, the arena would keep its 40 MiB when the other stream needs as much.
    assert peaks(pool) == {"": 80 * MIB, "expandable_segments:True": 60 * MIB}


def test_the_pickle_carries_release_fraction_and_calls(record, whatif, msmemscope, out):
    project = record(SPLIT.replace("whole =", "torch.cuda.set_per_process_memory_fraction(0.5)\nwhole ="), {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:200"})
    msmemscope("export", "--format=torch", str(project.path)).check()
    [path] = out.glob("**/*.pickle")
    kept = pickle.loads(path.read_bytes())["allocator_settings"]
    assert kept["torch_version"] == "2.11.0" and kept["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:200"
    assert kept["memory_fractions"] == [{"device": 0, "device_bytes": 64 << 30, "fraction": "0.5", "late": False}]
    assert len(kept["empty_cache"]) == 1
    own, exported = (whatif(each, "--set=", "--set=expandable_segments:True") for each in (project.path, path))
    assert exported["torch"] == own["torch"] == "2.11.0" and exported["set"] == own["set"] == "max_split_size_mb:200"
    assert own["settings"][0]["fits"] is True and own["reserved_peak"] == exported["reserved_peak"]


def test_python_takes_a_project_a_trace_and_a_pickle(record, dist, whatif, msmemscope, out):
    project = record(SPLIT)
    msmemscope("export", "--format=torch", str(project.path)).check()
    [pickled], [trace] = out.glob("**/*.pickle"), project.path.glob("**/*.msc")
    script = ("import json, pathlib, sys, msmemscope\n"
              "for path in sys.argv[1:]:\n    print(json.dumps(msmemscope.whatif(pathlib.Path(path), ['', 'expandable_segments:True'], card=70 << 20)))\n"
              "print(len(msmemscope.whatif(sys.argv[1:3], batch=3, batch_of=[1, 2])[0]['batches']))\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, project.path, trace, pickled], env={"PYTHONPATH": str(dist / "python")}, capture_output=True,
                          text=True, check=True)
    *pools, batches = map(json.loads, done.stdout.splitlines())
    for (pool,), path in zip(pools, (project.path, trace, pickled), strict=True):
        assert pool == whatif(path, "--set=", "--set=expandable_segments:True", f"--card={70 * MIB}")
        assert [(one["set"], one["fits"]) for one in pool["settings"]] == [("expandable_segments:True", True), ("", False)]
    assert batches == 1


def test_a_memory_fraction_limits_every_setting(record, whatif, msmemscope):
    project = record("torch.cuda.init()\ntorch.cuda.set_per_process_memory_fraction(100 / (64 << 10), 0)\n"
                     "first = request(40 * M)\nsecond = request(40 * M)\nfree(first)\nfree(second)\n")
    pool = whatif(project.path, "--set=", "--set=large_segment_size_mb:64,expandable_segments:True")
    assert {setting["set"]: setting["fits"] for setting in pool["settings"]} == {"": True, "large_segment_size_mb:64,expandable_segments:True": False}
    text = msmemscope("whatif", "--set=", str(project.path), output=False).stdout
    assert "With at most 100 MiB for the pool, the program's memory fraction: it fits with (default)." in " ".join(text.split())


def test_settings_of_a_call_before_the_first_block_are_those_of_the_run(record, whatif):
    script = ("os.environ['PYTORCH_ALLOC_CONF'] = 'garbage_collection_threshold:0.9'\n"
              "torch.cuda.memory._set_allocator_settings('max_split_size_mb:200')\ntorch.cuda.init()\nfree(request(12 * M))\n")
    assert whatif(record(script).path)["set"] == "garbage_collection_threshold:0.9,max_split_size_mb:200"


def test_settings_that_change_while_there_is_memory_are_refused(record, whatif):
    script = "torch.cuda.init()\nkept = request(12 * M)\ntorch.cuda.memory._set_allocator_settings('expandable_segments:True')\nfree(kept)\n"
    pool = whatif(record(script).path, code=1)
    assert "changed the allocator's settings while it ran" in pool["refusal"]
    assert pool["left_at"] is None and pool["reserved_peak"] > 0


def test_an_anonymized_trace_keeps_them(record, whatif, msmemscope, out):
    project = record(SPLIT, {"PYTORCH_CUDA_ALLOC_CONF": "roundup_power2_divisions:[64:8,>:4]"})
    bundle = msmemscope("bundle", "--anonymize", project.path, "-o", out / "to", output=False).check().stdout.strip()
    with tarfile.open(bundle) as archive:
        archive.extractall(out / "there")
    [path] = (out / "there").glob("**/*.msc")
    assert (whatif(path)["set"], whatif(path)["torch"]) == ("roundup_power2_divisions:[64:8,>:4]", "2.11.0")


def test_a_call_that_fails_tells_nothing(record, whatif):
    script = "torch.cuda.init()\ntry:\n    torch.cuda.set_per_process_memory_fraction(7)\nexcept ValueError:\n    free(request(12 * M))\n"
    assert "fits" not in whatif(record(script).path)["settings"][0]


LATE = """
import msmemscope
torch.cuda.init()
old = [request(size * M) for size in (12, 14, 40)]
msmemscope.config(output=os.environ["OUT"])
msmemscope.start()
free(old[2])
new = [request(16 * M), request(20 * M)]
free(old[0])
free(new[0])
last = request(30 * M)
msmemscope.stop()
"""


@pytest.fixture
def late(pool_calls, targets, dist, msmemscope, out):
    """late(script, env): the project of a program that is recorded from start() on."""
    def run(script, env=None):
        path = out / "late.py"
        path.write_text(START + script)
        env = {"LD_LIBRARY_PATH": f"{pool_calls}:{targets}", "PYTHONPATH": f"{SOURCES / 'python'}:{dist / 'python'}", "OUT": str(out / "late"),
               "LD_PRELOAD": str(dist / "lib64/libascend_kernel_hook.so"), "CUPTI_LIBRARY": "/nonexistent", "TRUTH": "/dev/null", **(env or {})}
        msmemscope.bare("/usr/bin/python3", path, env=env, cwd=out).check()
        [project] = (out / "late").glob("msmemscope_*")
        return project

    return run


def test_a_run_that_starts_in_the_middle_is_replayed_from_its_segments(late, whatif):
    pool = whatif(late(LATE), "--set=", "--set=expandable_segments:True")
    assert pool["agrees"] and pool["torch"] == "2.11.0"
    # 12, 14 and 40 MiB are there, 16 and 20 come out of the 40, and 30 fit nowhere.
    assert pool["reserved_peak"] == (12 + 14 + 40 + 30) * MIB
    assert {"", "expandable_segments:True"} == set(peaks(pool))


# What is freed is used again at its own place; 60 MiB are mapped at the end. Units are of 20 MiB, as PyTorch maps them.
LATE_EXPANDABLE = """
torch.cuda.init()
free(request(M))
torch.cuda.empty_cache()
torch.cuda.memory._set_allocator_settings("expandable_segments:True")
import msmemscope
old = [request(size * M) for size in (20, 40, 60)]
msmemscope.config(output=os.environ["OUT"])
msmemscope.start()
free(old[1])
new = [request(15 * M), request(25 * M), request(60 * M)]
free(old[0])
last = request(20 * M)
msmemscope.stop()
"""


@pytest.mark.parametrize("told", [True, False])
def test_a_run_that_starts_amid_expandable_segments(late, whatif, told):
    """The settings are those of the environment, or seen in what is mapped."""
    pool = whatif(late(LATE_EXPANDABLE, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if told else None), "--set=expandable_segments:True")
    assert pool["agrees"] and pool["set"] == "expandable_segments:True"
    assert pool["reserved_peak"] == (20 + 40 + 60 + 60) * MIB


# 42 of 80 MiB are in use, and the largest free piece has 28 MiB.
FRAGMENTED = """
torch.cuda.init()
first, second = request(40 * M), request(40 * M)
free(first)
free(second)
kept = request(12 * M), request(30 * M)
torch._C.refuse(SIZE * M, 42 * M, 80 * M)
"""


def findings(project):
    [process] = json.loads((project.path / "findings.json").read_text())["processes"]
    return process


def forms(msmemscope, run, helps, sentence):
    """Texts that say it: screens, report.txt, info. The documents must, too."""
    project = run.project().path
    info = json.loads(msmemscope("info", "--json", project, output=False).check().stdout)["processes"][0]
    for process in (findings(run.project()), info):
        [one] = process["what_if"]
        assert one["sentence"] == sentence and one["helps"] is helps and one["set"] == ("expandable_segments:True" if helps else "")
    return (run.stderr, msmemscope("report", "--text", project, output=False).check().stdout, (project / "report.txt").read_text(),
            msmemscope("info", project, output=False).check().stdout)


@pytest.mark.parametrize("size, line, fits", [
    (35, "With expandable_segments:True the pool would hold 80.0 MiB here, and this request fits.", True),
    (60, "No allocator setting that was tried on the record serves this request.", False)])
def test_an_out_of_memory_says_which_setting_serves_the_request(msmemscope, launch, whatif, size, line, fits):
    run = launch(FRAGMENTED.replace("SIZE", str(size)))
    project = run.project().path
    settings = {setting["set"]: setting["fits"] for setting in whatif(project)["settings"]}
    assert settings["expandable_segments:True"] is fits and settings[""] is False
    text = msmemscope("whatif", project, output=False).stdout
    assert "do not set this" not in text and f"The record ends with a request of {size}.0 MiB that was refused." in text
    for screen in forms(msmemscope, run, fits, line):
        assert line in screen.splitlines()
        assert ("  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in screen.splitlines()) is fits


def test_a_run_that_reserves_far_more_than_it_uses_says_what_would_save(msmemscope, launch):
    run = launch("torch.cuda.init()\nfree(request(2048 * M))\nkept = request(512 * M), request(1844 * M)\nfree(kept[0])\nfree(kept[1])\n")
    said = ("\nWith expandable_segments:True the pool would hold at most 2.3 GiB instead of 3.8 GiB.\n"
            "  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n")
    for screen in forms(msmemscope, run, True, said.splitlines()[1]):
        assert said in screen


def test_whatif_off_and_always(msmemscope, launch):
    wasteful = "torch.cuda.init()\nfree(request(2048 * M))\nkept = request(512 * M), request(1844 * M)\nfree(kept[0])\nfree(kept[1])\n"
    run = launch(wasteful, options=["--whatif=off"])
    assert "instead of" not in run.stderr and findings(run.project())["what_if"] == []
    # Nothing is wasted here, so that only `always` says something.
    snug = "torch.cuda.init()\nkept = request(40 * M)\nfree(kept)\n"
    assert findings(launch(snug, at="snug").project())["what_if"] == []
    [said] = findings(launch(snug, options=["--whatif=always"], at="always").project())["what_if"]
    assert said["sentence"] == "No allocator setting that was tried on the record saves 5 % of what the pool reserves."
    assert said["helps"] is False and said["refused"] is False and said["recorded_bytes"] == 40 * MIB


def test_a_window_of_the_api_says_it_too(msmemscope, pool_calls, targets, dist, out):
    """config(whatif=) of a program that only has the collector preloaded."""
    script = out / "window.py"
    script.write_text(START + """
import msmemscope
msmemscope.config(output=os.environ["OUT"], whatif=os.environ["WHEN"])
msmemscope.start()
torch.cuda.init()
free(request(2048 * M))
kept = request(512 * M), request(1844 * M)
free(kept[0])
free(kept[1])
msmemscope.stop()
""")
    for when, said in (("auto", ["expandable_segments:True"]), ("off", [])):
        env = {"LD_LIBRARY_PATH": f"{pool_calls}:{targets}", "PYTHONPATH": f"{SOURCES / 'python'}:{dist / 'python'}", "OUT": str(out / when), "WHEN": when,
               "LD_PRELOAD": str(dist / "lib64/libascend_kernel_hook.so"), "CUPTI_LIBRARY": "/nonexistent", "TRUTH": "/dev/null"}
        msmemscope.bare("/usr/bin/python3", script, env=env, cwd=out).check()
        [path] = (out / when).glob("msmemscope_*")
        [process] = json.loads((path / "findings.json").read_text())["processes"]
        assert [one["set"] for one in process["what_if"]] == said


# 41 MB are asked for at once. What the pool had cached decides how large the blocks and segments are.
CACHED = """
torch.cuda.init()
if CACHE:
    free(request(36 * M))
kept = [request(size) for size in (20_000_001, 11_000_000, 10_000_003)]
for block in kept:
    free(block)
"""


@pytest.mark.parametrize("cache", [False, True])
def test_what_was_requested_at_once_does_not_depend_on_the_cache(launch, msmemscope, cache):
    project = launch(CACHED.replace("CACHE", str(cache))).project().path
    info = json.loads(msmemscope("info", "--json", project, output=False).check().stdout)
    [pool] = [pool for pool in info["processes"][0]["pools"] if pool["pool"] == "PTA"]
    assert pool["requested_peak_bytes"] == 41_000_004 < pool["peak_bytes"]
    assert msmemscope("info", "--fail-on=requested:41000004", project, output=False).returncode == 0
    failed = msmemscope("info", "--fail-on=requested:41000003", project, output=False)
    assert failed.returncode == 4 and "39.1 MiB of PTA on device 0 were requested at once" in failed.stderr


def test_the_page_has_a_curve_of_each_setting_beside_the_recorded_one(launch, whatif, view, browser):
    """Each curve reaches the peak that whatif says, the run's own is the recorded line, and the chosen one is drawn."""
    project = launch("torch.cuda.init()\nfree(request(200 * M))\nkept = request(50 * M), request(180 * M)\nfree(kept[0])\nfree(kept[1])\n").project().path
    pool, opened = whatif(project), view(project)
    assert pool["agrees"] and peaks(pool)["expandable_segments:True"] < pool["reserved_peak"]
    summary = opened.ask("summary", process=0)
    [index] = [one["index"] for one in summary["pools"] if one["pool"] == "PTA"]
    span = {"process": 0, "pool": index, "from": 0, "to": summary["to_ns"], "width": 400}
    answer = opened.ask("whatif", **span)
    assert [one["set"] for one in answer["settings"]] == [one["set"] for one in pool["settings"]] and answer["set"] == pool["set"] == ""
    for setting in answer["settings"]:
        assert len(setting["reserved"]) == 400 and max(setting["reserved"]) == setting["reserved_peak"] == peaks(pool)[setting["set"]]
    [own] = [one["reserved"] for one in answer["settings"] if one["set"] == ""]
    recorded = opened.ask("series", by="place", **span)["reserved"]
    assert [was for was, now in zip(recorded, own) if was not in (None, now)] == [], (recorded, own)
    assert all("settings" not in opened.ask("whatif", **{**span, "pool": one["index"]}) for one in summary["pools"] if one["pool"] != "PTA")
    page = browser()
    page.open(f"{opened.address}#tab=timeline&pool={index}")
    page.press("#tools button", "one => one.textContent === 'what if'")
    page.wait("document.getElementById('main').dataset.whatif === 'expandable_segments:True'")
    assert "expandable_segments:True: 240.0 MiB (−140.0 MiB)" in page.run("document.querySelector('#whatif option:checked').textContent")
    page.run("(() => { const choice = document.getElementById('whatif'); choice.value = ''; choice.dispatchEvent(new Event('change')); })()")
    page.wait("document.getElementById('main').dataset.whatif === ''")
    assert page.errors == []
