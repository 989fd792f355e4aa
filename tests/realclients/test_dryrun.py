# SPDX-License-Identifier: Apache-2.0
"""msmemscope dryrun with the real torch_npu: the memory of a script, without its results."""
import json

import habit_truth
from clients import HERE

BARE = {"ASCEND_HOME_PATH": None, "ASCEND_OPP_PATH": None, "LD_LIBRARY_PATH": None, "PYTHONPATH": str(HERE / "programs")}


def dryrun(client, program, *arguments, tool=()):
    """The command finds the simulated NPU by itself; nothing points to it."""
    out = client.directory()
    return client.start([client.dist / "bin" / "msmemscope", "dryrun", "-o", out, *tool, "--", *client.command(program, *arguments)], BARE, out, 240)


def test_the_figures_are_those_of_a_computing_device(client):
    """Those that torch_npu counts after three steps. The script would take a hundred; it ends inside the third."""
    real = client.run("dry_train.py", "3", env={"SIMNPU_WORKSPACE": "none"})
    dry = dryrun(client, "dry_train.py", "100", tool=["--device=npu:130M,npu:64G", "--json"])
    assert dry.code == 4
    [answer] = [line for line in dry.lines if line.get("dry")]
    assert (answer["needs_bytes"], answer["reserves_bytes"]) == (real.value("allocated"), real.value("reserved"))
    assert answer["figures"] == "exact" and answer["steps"] == 3 and not answer["failed"]
    small, large = answer["devices"]
    assert not small["fits"] and small["dies_in_step"] == 1 and small["dies_at"].startswith("dry_train.py:37 ")
    assert large["fits"] and large["refused_requests"] == 0
    found = {}
    for place in answer["places"]:
        found[place["class"]] = found.get(place["class"], 0) + place["bytes"]
    weights = (1024 * 4096 * 2 + 4096 + 1024) * 4
    assert weights <= found["weights"] < weights * 1.01 and 2 * weights <= found["optimizer state"] < 2 * weights * 1.01
    assert [place["place"] for place in answer["places"] if place["class"] == "optimizer state"] == ["dry_train.py:37 main"]


def test_steps_of_mstx_count_instead_of_those_of_optimizers(client):
    """What the program wrote before it was ended is there; its exit handlers and `finally` did not run."""
    dry = dryrun(client, "dry_train.py", "100", "mstx", "saves", tool=["--steps=2"])
    assert dry.code == 0, dry.stderr
    assert "; no device was used: 2 steps in " in dry.stdout
    assert [json.loads(line) for line in dry.stderr.splitlines() if line.startswith('{"step"')] == [{"step": 1}, {"step": 2}]
    assert not (dry.out / "saved").exists() and not (dry.out / "finally").exists()


def test_values_that_were_not_computed_have_their_lines(client):
    """Small tensors are computed. What follows from large ones is as large as it can be, or reads as 0; none of it without a word."""
    dry = dryrun(client, "dry_values.py", tool=["--json"])
    assert dry.code == 0, dry.stderr
    [answer] = dry.lines
    assert answer["figures"] == "at most" and answer["steps"] == 3
    assert answer["values_not_computed"] == [
        "dry_values.py:18 assert torch.isfinite(out).all() read without its value",
        "dry_values.py:19 torch.isnan(out).any().item() read as False",
        "dry_values.py:21 mask.nonzero() taken as full (upper bound)",
        "dry_values.py:22 out[mask] taken as full (upper bound)",
        "dry_values.py:24 sums[sums > 0] taken as full (upper bound)",
        "dry_values.py:31 loss.backward() taken as full (upper bound)"]


def test_a_branch_that_such_a_value_decides_makes_the_figures_unsure(client):
    dry = dryrun(client, "dry_values.py", "branch", tool=["--json"])
    [answer] = dry.lines
    assert dry.code == 1 and answer["figures"] == "unsure"
    assert answer["needs_with_other_values_bytes"] > answer["needs_bytes"] + (8 << 20)


def test_a_number_that_has_no_logarithm_is_another_one(client):
    """0 of a loss fails where it divides; then the program runs once more, with a number that does not."""
    plain, dry = (json.loads(dryrun(client, "dry_values.py", *words, tool=["--json"]).check().stdout) for words in ((), ("log",)))
    assert dry["needs_bytes"] == plain["needs_bytes"] and dry["figures"] == "at most" and not dry["failed"]
    assert "dry_values.py:30 loss.item() read as 0.5" in dry["values_not_computed"]


def test_a_loop_that_waits_for_such_a_value_ends_with_a_sentence(client):
    dry = dryrun(client, "dry_values.py", "loop")
    assert dry.code == 1
    assert ("The dry run ended at dry_values.py:26 loss.item(): it read a value that was not computed 10,000 times, without a step and without "
            "more memory.\n") in dry.stdout
    assert "Needs at least " in dry.stdout and ": fits so far, " in dry.stdout


def test_habits_of_scripts_are_exact_or_say_what_they_are(client):
    """A sample; `make soak PART=dryrun` has all of them."""
    counts = habit_truth.compare(client, "grad_scaler", "streams", "pinned_loader", "checks_that_all_is_finite", "saves_and_loads",
                                 "checkpoint_reentrant", "catches_out_of_memory", "recurs", "keeps_only_some")
    assert counts == {"exact": 7, "at most": 1, "refused by name": 1}
