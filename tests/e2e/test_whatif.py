# SPDX-License-Identifier: Apache-2.0
"""`msmemscope whatif`: what PyTorch's pool would reserve under other settings, predicted from the default run alone.

tests/twin/snapshots has memory snapshots of six programs on an H200 (torch 2.11), recorded with default settings and without stacks,
and in truth.json what the same programs reserved there under eleven settings, and under limits.
"""
import json
import lzma
import pickle
import re
import subprocess
from pathlib import Path

import pytest

SNAPSHOTS = Path(__file__).resolve().parents[1] / "twin/snapshots"
TRUTH = json.loads((SNAPSHOTS / "truth.json").read_text())
MIB = 1 << 20
TIMED = {"streams"}  # frees wait for other streams there: figures are ranges


def ended(run, code):
    """The run, if that is its exit status."""
    assert run.returncode == code, str(run)
    return run


@pytest.fixture
def snapshot(out):
    """snapshot(name, change=None): a file with the snapshot of a program, after `change` was made to it."""
    def make(name, change=None):
        data = lzma.decompress((SNAPSHOTS / f"{name}.pickle.xz").read_bytes())
        if change:
            value = pickle.loads(data)
            change(value)
            data = pickle.dumps(value, protocol=4)
        path = out / f"{name}.pickle"
        path.write_bytes(data)
        return path

    return make


@pytest.fixture
def whatif(msmemscope):
    """whatif(path, options...): the pools of the JSON document."""
    def ask(path, *options, code=0):
        document = json.loads(ended(msmemscope("whatif", *options, "--json", str(path), output=False), code).stdout)
        assert document["schema"] == 1
        return document["pools"]

    return ask


def by_setting(pool):
    return {setting["set"]: setting for setting in pool["settings"]}


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_what_the_h200_reserved_is_predicted_from_the_default_run(whatif, snapshot, name):
    (pool,) = whatif(snapshot(name))
    truth = TRUTH[name]
    assert pool["agrees"] and pool["left_at"] is None and pool["torch"] is None
    assert pool["in_use_peak"] == truth["in_use_peak"] and pool["requested_peak"] == pytest.approx(truth["requested_peak"], rel=0.02)
    settings = by_setting(pool)
    assert set(settings) == set(truth["settings"])
    peaks = [setting["high"] for setting in pool["settings"]]
    assert peaks == sorted(peaks)
    for text, reserved in truth["settings"].items():
        assert settings[text]["low"] <= reserved <= settings[text]["high"], text
        if name not in TIMED:
            assert settings[text]["reserved_peak"] == pytest.approx(reserved, rel=0.005), text


@pytest.mark.parametrize("name", sorted(name for name in TRUTH if TRUTH[name]["limits"]))
def test_whether_a_limit_fits_is_what_the_h200_did(whatif, snapshot, name):
    path = snapshot(name)
    for text, limit, step in TRUTH[name]["limits"]:
        (pool,) = whatif(path, f"--limit={limit}", f"--set={text}")
        (setting,) = pool["settings"]
        assert setting["fits"] == (step is None), (text, limit)
        assert (setting["oom_at"] is None) == setting["fits"]


def test_the_text_recommends_and_warns(msmemscope, snapshot):
    text = msmemscope("whatif", "--limit=3G", str(snapshot("cnn")), output=False).check().stdout
    lines = text.splitlines()
    assert lines[0] == "PyTorch pool on GPU 0 (torch 2.15, the newest that agrees, default settings): 4.6 GiB reserved at the peak, 1.6 GiB in use."
    assert lines[1] == "The replay agrees with the record: 933 of 933 addresses."
    assert lines[2].split() == ["expandable_segments:True", "1.7", "GiB", "-2.9", "GiB", "recommended:", "export",
                                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"]
    assert any(line.startswith("  max_split_size_mb:64 ") and line.endswith("do not set this") for line in lines)
    assert "No allocator can need less than 1.6 GiB." in lines
    assert "With at most 3.0 GiB for the pool: it fits with (default)." in lines


def test_a_ring_that_lost_its_start_is_replayed_from_its_segments(whatif, snapshot):
    def forget(value):
        entries = value["device_traces"][0]
        del entries[:len(entries) // 2]

    (pool,) = whatif(snapshot("gpt", forget))
    assert pool["agrees"]
    assert pool["reserved_peak"] == TRUTH["gpt"]["settings"][""]


def test_a_record_that_cannot_be_is_refused_with_its_event(whatif, msmemscope, snapshot):
    def move(value):
        entries = [entry for entry in value["device_traces"][0] if entry["action"] == "alloc"]
        entries[500]["addr"] += 512

    path = snapshot("gpt", move)
    (pool,) = whatif(path, code=1)
    assert not pool["agrees"] and "settings" not in pool
    entries = pickle.loads(path.read_bytes())["device_traces"][0]
    assert entries[pool["left_at"] - 1]["action"] == "alloc"
    result = ended(msmemscope("whatif", str(path), output=False), 1)
    assert f"The replay leaves the record at event {pool['left_at']} of {len(entries)}: the replay hands out another address" in result.stdout


def test_frees_that_wait_for_other_streams_get_a_range_or_a_refusal(whatif, msmemscope, snapshot):
    def wait(value):
        """The frees of the middle third complete only at its end."""
        entries = value["device_traces"][0]
        third = len(entries) // 3
        late = [entry for entry in entries[third:2 * third] if entry["action"] == "free_completed"]
        value["device_traces"][0] = [entry for entry in entries[:third]] + \
            [entry for entry in entries[third:2 * third] if entry["action"] != "free_completed"] + late + entries[2 * third:]

    (pool,) = whatif(snapshot("streams"))
    assert all(setting["low"] < setting["high"] for setting in pool["settings"])
    (pool,) = whatif(snapshot("graphs", wait), code=1)
    assert "settings" not in pool


def test_memory_that_waits_is_a_share_of_what_was_requested(whatif, out):
    """Eight blocks are freed at once, and the frees complete at the end: 140 of 160 MiB wait when the last is requested."""
    trace = []
    for number in range(8):
        block = {"addr": (number + 1) << 30, "size": 20 * MIB, "stream": 0}
        trace += [{"action": action, **block} for action in ("segment_alloc", "alloc", "free_requested")]
    trace += [{**entry, "action": "free_completed"} for entry in trace if entry["action"] == "alloc"]
    path = out / "waiting.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, protocol=4))
    (pool,) = whatif(path, code=1)
    assert pool["agrees"] and pool["refusal"].startswith("Of what the program had requested, up to 88 % was freed and waited for other streams (record_stream);")


def test_settings_of_another_release_are_refused_in_a_sentence(msmemscope, snapshot):
    path = snapshot("cnn")
    for options, words in ((["--torch=2.9", "--set=large_segment_size_mb:64"], "--set: PyTorch 2.9 does not know the setting large_segment_size_mb"),
                           (["--set=max_split_size:64"], "--set: PyTorch 2.15 does not know the setting max_split_size"),
                           (["--torch=1.13"], "--torch: the allocator of PyTorch 1.13 is not known; 2.1 to 2.15 are"),
                           (["--set=backend:cudaMallocAsync"], "--set: backend:cudaMallocAsync is another allocator, which cannot be replayed"),
                           (["--limit=10%"], "--limit and --card are sizes, such as 8G")):
        result = ended(msmemscope("whatif", *options, str(path), output=False), 2)
        assert words in result.stderr and result.stdout == ""


def test_workspaces_of_cudnn_bring_a_word_of_caution(msmemscope, whatif, snapshot):
    """cuDNN takes smaller ones when memory is short: on an H200 a network of convolutions ran under a limit that its record exceeds."""
    for name, said in (("cnn", True), ("gpt", False)):
        path = snapshot(name)
        text = msmemscope("whatif", "--set=", "--limit=1G", str(path), output=False).stdout
        assert ("look like workspaces of cuDNN" in " ".join(text.split())) == said
        assert ("workspaces" in whatif(path, "--set=")[0]) == said


def test_a_card_is_a_limit_of_the_driver(whatif, snapshot):
    path = snapshot("cnn")
    (pool,) = whatif(path, "--card=1600M", "--set=", "--set=expandable_segments:True")
    assert [setting["fits"] for setting in pool["settings"]] == [False, False]
    (pool,) = whatif(path, "--card=1800M", "--set=", "--set=expandable_segments:True")
    assert by_setting(pool)["expandable_segments:True"]["fits"] and not by_setting(pool)[""]["fits"]


def test_a_snapshot_without_a_history_says_so(msmemscope, snapshot):
    def forget(value):
        value["device_traces"] = [[]]

    result = ended(msmemscope("whatif", str(snapshot("cnn", forget)), output=False), 1)
    assert "has no history of allocations" in result.stderr


def test_python_gets_the_pools_of_the_json_document(dist, whatif, snapshot):
    path = snapshot("cnn")
    script = ("import json, sys, msmemscope\n"
              "print(json.dumps(msmemscope.whatif(sys.argv[1], ['', 'expandable_segments:True'], limit=2 << 30, torch='2.11')))\n"
              "try:\n    msmemscope.whatif(sys.argv[1], 'no_such_setting:1')\nexcept ValueError as error:\n    print(error)\n")
    done = subprocess.run(["/usr/bin/python3", "-c", script, path], env={"PYTHONPATH": str(dist / "python")}, capture_output=True, text=True, check=True)
    pools, error = done.stdout.splitlines()
    assert json.loads(pools) == whatif(path, "--set=", "--set=expandable_segments:True", f"--limit={2 << 30}", "--torch=2.11")
    assert "does not know the setting no_such_setting" in error


def test_a_trace_and_its_pickle_carry_the_settings_of_the_allocator(msmemscope, program, out):
    settings = "expandable_segments:True,max_split_size_mb:64"
    project = msmemscope("--", *program("acl_train", "--steps=1"), env={"PYTORCH_NPU_ALLOC_CONF": settings, "TRUTH": "/dev/null"}).check().project()
    assert msmemscope.info(project)["identity"]["PYTORCH_NPU_ALLOC_CONF"] == settings
    msmemscope("export", "--format=torch", str(project.path)).check()
    [path] = out.glob("**/*.pickle")
    kept = pickle.loads(path.read_bytes())["allocator_settings"]
    assert kept["PYTORCH_NPU_ALLOC_CONF"] == settings and kept["expandable_segments"] is True


@pytest.mark.parametrize("name", ["gpt", "graphs"])
def test_the_page_of_a_snapshot_has_the_curves_too(snapshot, msmemscope, view, browser, name):
    """Each reaches the peak that the verb says; the curve of the run's own settings is what the page has as reserved."""
    path = snapshot(name)
    [pool] = json.loads(msmemscope("whatif", "--json", str(path), output=False).check().stdout)["pools"]
    opened = view(path)
    summary = opened.ask("summary", process=0)
    [index] = [one["index"] for one in summary["pools"] if one["pool"] == "PTA"]
    span = {"process": 0, "pool": index, "from": 0, "to": summary["to_ns"], "width": 500}
    answer = opened.ask("whatif", **span)
    peaks = {one["set"]: one["reserved_peak"] for one in pool["settings"]}
    assert {one["set"]: max(one["reserved"]) for one in answer["settings"]} == peaks
    [own] = [one["reserved"] for one in answer["settings"] if one["set"] == answer["set"]]
    # The recorded line changes with blocks, the replay's also with segments: where they differ, it has a level of the record.
    reserved, levels = 0, {0}
    for entry in pickle.loads(path.read_bytes())["device_traces"][0]:
        reserved += {"segment_alloc": 1, "segment_free": -1}.get(entry["action"], 0) * entry["size"]
        levels.add(reserved)
    recorded = opened.ask("series", by="place", **span)["reserved"]
    assert recorded[-1] == own[-1] == reserved and set(own) <= levels
    assert sum(was == now for was, now in zip(recorded, own) if was is not None) > 490
    page = browser()
    page.open(f"{opened.address}#tab=timeline&pool={index}")
    page.press("#tools button", "one => one.textContent === 'what if'")
    page.wait("document.getElementById('main').dataset.whatif !== undefined")
    assert page.errors == []


# ---- shapes that no recorded program has ----

BASE = 1 << 40


def entry(action, address, size, stream=0):
    return {"action": action, "addr": address, "size": size, "stream": stream}


@pytest.fixture
def made(out):
    """made(entries, settings=None, name="made", **facts): a snapshot with such a history; `facts` as our own exports have them."""
    def make(entries, settings=None, name="made", **facts):
        known = {} if settings is None and not facts else {"allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": settings or "", **facts}}
        path = out / f"{name}.pickle"
        path.write_bytes(pickle.dumps({"segments": [], "device_traces": [entries], **known}, protocol=4))
        return path

    return make


# 5 MiB are freed, and 64 MiB are requested: 84 MiB, and 80 with expandable segments.
GROWS = [entry("segment_alloc", BASE, 20 * MIB), entry("alloc", BASE, 5 * MIB), entry("free_requested", BASE, 5 * MIB), entry("free_completed", BASE, 5 * MIB),
         entry("segment_alloc", 2 * BASE, 64 * MIB), entry("alloc", 2 * BASE, 64 * MIB)]


def rows(text):
    return [line.split("  ") for line in text.splitlines() if line.startswith("  ")]


def test_the_run_s_own_settings_are_among_those_that_are_tried(whatif, made):
    own = "max_split_size_mb:96,garbage_collection_threshold:0.7"
    assert by_setting(*whatif(made(GROWS, own)))[own]["reserved_peak"] == 84 * MIB
    assert len(whatif(made(GROWS, "expandable_segments:False"))[0]["settings"]) == 11  # they mean the default


def test_a_setting_under_which_a_request_is_refused_comes_last(whatif, msmemscope, made):
    path = made(GROWS, memory_fractions=[{"device": 0, "device_bytes": 1 << 30}])
    texts = ("per_process_memory_fraction:0.06", "", "expandable_segments:True")
    (pool,) = whatif(path, *(f"--set={text}" for text in texts))
    assert [(one["set"], one.get("fits"), one.get("oom_at")) for one in pool["settings"]] == [
        ("expandable_segments:True", None, None), ("", None, None), ("per_process_memory_fraction:0.06", False, 6)]
    text = msmemscope("whatif", *(f"--set={text}" for text in texts), str(path), output=False).check().stdout
    assert [line.split()[-1] for line in text.splitlines() if "per_process" in line] == ["memory"]
    assert "recommended: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in text


def test_what_fits_is_before_what_does_not_and_is_recommended(msmemscope, made):
    """On a card of 81 MiB only expandable segments serve the large request together with a small one that stays."""
    path = made([*GROWS[:2], entry("alloc", BASE + 5 * MIB, 2 * MIB), *GROWS[2:]])
    text = msmemscope("whatif", "--card=81M", str(path), output=False).check().stdout
    first, *others = rows(text)
    assert first[1] == "expandable_segments:True" and first[-1].endswith("ALLOC_CONF=expandable_segments:True")
    assert sum(row[-1] == "out of memory" for row in others) == 9
    assert "On a card of 81.0 MiB (81.0 MiB for the pool, if nothing else is there): out of memory at event 7; with expandable_segments:True it fits." in text


def test_figures_of_a_refused_request_mean_the_same_for_all_settings(whatif, msmemscope, made):
    """They are what the pool had when it refused: the one that came furthest is first, and the run's own settings need no less than others."""
    entries = [entry(action, (1 + number) * BASE, 200 * MIB) for number in range(10) for action in ("segment_alloc", "alloc")]
    path = made([*entries, {"action": "oom", "size": 1024 * MIB, "device_free": 300 * MIB, "stream": 0}])
    (pool,) = whatif(path)
    figures = {one["set"]: one["reserved_peak"] for one in pool["settings"]}
    assert not any(one["fits"] for one in pool["settings"])
    assert figures[""] == figures["max_split_size_mb:64"] == figures["expandable_segments:True"] == 2000 * MIB
    assert figures["roundup_power2_divisions:4"] < 2000 * MIB and pool["settings"][-1]["oom_at"] < pool["settings"][0]["oom_at"]
    text = msmemscope("whatif", str(path), output=False).check().stdout
    assert not [row for row in rows(text) if any(cell.startswith("+") for cell in row)]


def test_json_has_the_release_whose_rules_are_played(whatif, made):
    path = made(GROWS)
    (found,), (chosen,) = whatif(path), whatif(path, "--torch=2.7")
    assert found["torch"] is None and re.fullmatch(r"2\.\d+", found["torch_played"])
    assert chosen["torch"] is None and chosen["torch_played"] == "2.7"


def test_settings_that_a_shell_would_change_are_quoted(msmemscope, made):
    entries = [entry("segment_alloc", BASE, 64 * MIB), entry("alloc", BASE, 40 * MIB), entry("free_completed", BASE, 40 * MIB),
               entry("segment_alloc", 2 * BASE, 70 * MIB), entry("alloc", 2 * BASE, 70 * MIB)]
    entries[0]["size"] = 40 * MIB
    said = msmemscope("whatif", "--set=expandable_segments:True,roundup_power2_divisions:[64:2,>:1]", str(made(entries)), output=False).check().stdout
    assert "recommended: export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True,roundup_power2_divisions:[64:2,>:1]'" in said


def test_default_settings_are_recommended_by_unset(msmemscope, made):
    path = made([entry("segment_alloc", BASE, 48 * MIB), entry("alloc", BASE, 33 * MIB)], "roundup_power2_divisions:2")
    text = msmemscope("whatif", "--set=", str(path), output=False).check().stdout
    assert text.splitlines()[2].split(maxsplit=5) == ["(default)", "34.0", "MiB", "-14.0", "MiB", "recommended: unset PYTORCH_CUDA_ALLOC_CONF"]


@pytest.mark.parametrize("own, why", [("brand_new:1", "PyTorch 2.15 does not know the setting brand_new"),
                                      ("backend:cudaMallocAsync", "backend:cudaMallocAsync is another allocator, which cannot be replayed")])
def test_settings_of_the_run_that_no_release_knows(whatif, made, own, why):
    (pool,) = whatif(made(GROWS, own), code=1)
    assert pool["refusal"] == f"The settings that the run had cannot be replayed: {why}."
    assert pool["set"] == own and not pool["agrees"] and pool["left_at"] is None and "settings" not in pool


def test_several_snapshots_are_named(msmemscope, made):
    one, two = made(GROWS, name="one"), made(GROWS, name="two")
    text = msmemscope("whatif", "--set=", str(one), str(two), output=False).check().stdout
    assert [line for line in text.splitlines() if line.endswith(".pickle:")] == [f"{one}:", f"{two}:"]
    document = json.loads(msmemscope("whatif", "--set=", "--json", str(one), str(two), output=False).check().stdout)
    assert [pool["run"] for pool in document["pools"]] == [str(one), str(two)]


def test_settings_that_the_release_of_the_run_refuses(whatif, msmemscope, made):
    """A release of torch_npu knows the first one, so that only the run shows what it is of; nothing that was asked is left then."""
    path = made(GROWS)
    (pool,) = whatif(path, "--torch=2.9", "--set=segment_size_mb:64", code=1)
    assert pool["settings"] == [{"set": "segment_size_mb:64", "refused": "PyTorch 2.9 does not know the setting segment_size_mb"}]
    assert len(whatif(path, "--torch=2.9", "--set=segment_size_mb:64", "--set=")[0]["settings"]) == 2
    said = ended(msmemscope("whatif", "--torch=2.3", "--set=large_segment_size_mb:64", str(path), output=False), 2).stderr
    assert said.strip().endswith("--set: PyTorch 2.3 does not know the setting large_segment_size_mb")


def test_nothing_is_recommended_that_the_run_s_own_settings_do_as_well(whatif, msmemscope, out):
    """A ring lost its start: played with the older blocks first, the own settings reserve 40 MiB less than was recorded. So may the others."""
    path = out / "ring.pickle"
    path.write_bytes(lzma.decompress((SNAPSHOTS.parents[1] / "fixtures/snapshots/leak-ring.pickle.xz").read_bytes()))
    (pool,) = whatif(path)
    settings = by_setting(pool)
    assert {settings[""][name] for name in ("low", "high", "reserved_peak")} == {pool["reserved_peak"]}
    alike = settings["max_split_size_mb:512"]  # it does what the default does
    assert alike["high"] - alike["low"] >= 80 * MIB and alike["low"] < pool["reserved_peak"] < alike["high"]
    text = msmemscope("whatif", str(path), output=False).check().stdout
    assert "recommended" not in text and "143 blocks are older than the recording" in text


def test_a_limit_that_a_ring_stays_below_fits(whatif, out):
    """Played with the older blocks first, the run's own settings would reserve 84 MiB more than the 1,802 MiB of the record."""
    path = out / "ring.pickle"
    path.write_bytes(lzma.decompress((SNAPSHOTS.parents[1] / "fixtures/snapshots/gpt-ring.pickle.xz").read_bytes()))
    for limit, fits in ((1830, True), (1400, False)):
        (pool,) = whatif(path, "--set=", f"--limit={limit}M")
        assert pool["settings"][0]["fits"] is fits and pool["reserved_peak"] == 1802 * MIB


def test_a_ring_foretells_what_its_whole_program_reserves(whatif, snapshot):
    """The last half of the program on the H200, of which all settings are known."""
    def forget(value):
        entries = value["device_traces"][0]
        del entries[:len(entries) // 2]

    (pool,) = whatif(snapshot("gpt", forget))
    settings, truth = by_setting(pool), TRUTH["gpt"]["settings"]
    for text, one in settings.items():
        assert one["reserved_peak"] == pytest.approx(truth[text], rel=0.1), text
    best = pool["settings"][0]
    assert best["set"].startswith("expandable_segments:True") and truth[best["set"]] < truth[""]


def test_the_curve_of_a_ring_s_own_settings_is_the_recorded_one(snapshot, whatif, view):
    """It begins with the segments that were there, which other settings would not have had."""
    def forget(value):
        entries = value["device_traces"][0]
        del entries[:len(entries) // 2]

    path = snapshot("gpt", forget)
    opened, (pool,) = view(path), whatif(path)
    summary = opened.ask("summary", process=0)
    [index] = [one["index"] for one in summary["pools"] if one["pool"] == "PTA"]
    answer = opened.ask("whatif", process=0, pool=index, width=300, **{"from": 0, "to": summary["to_ns"]})
    [own] = [one for one in answer["settings"] if one["set"] == ""]
    assert max(own["reserved"]) == own["reserved_peak"] == pool["reserved_peak"]
