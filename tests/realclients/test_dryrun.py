# SPDX-License-Identifier: Apache-2.0
"""msmemscope dryrun with the real torch_npu: the memory of a script, without its results."""
import json

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
