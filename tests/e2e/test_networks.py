# SPDX-License-Identifier: Apache-2.0
"""Decomposition: the bytes of every class are those that the script finds in its model, at the moment that it says so. --networks=100 is
the long form of the random ones."""
import json
import signal
from pathlib import Path

import pytest

from owners import CLASSES, classes

TARGETS = Path(__file__).resolve().parents[1] / "targets"
AT_ONCE = 25  # networks in one process


@pytest.fixture
def decompose(msmemscope, python):
    """decompose("torch_shapes.py", "train"): runs a target. The run, and what it says in JSON."""
    def run(name, *arguments, status=0):
        done = msmemscope("--device=cpu", "--analysis=decompose", "--", *python, TARGETS / name, *map(str, arguments))
        assert done.returncode == status, str(done)
        return done, [json.loads(line) for line in done.stdout.splitlines()]

    return run


def host_of(msmemscope, project, steps=()):
    found = msmemscope.info(project, "--analysis=decompose", *([f"--steps={','.join(map(str, steps))}"] if steps else []))
    assert found["notes"] == [], "none of our own code failed"
    [host] = [node for node in found["decompose"] if node["event_type"] == "HOST"]
    check_tree(host, host["tree"])
    return host


def check_tree(node, children):
    """Sums are exact at every node."""
    for key in ("peak_bytes", "end_bytes"):
        assert node[key] == sum(child[key] for child in children)
    for at, step in enumerate(node.get("steps", ())):
        assert step["end_bytes"] == sum(child["steps"][at]["end_bytes"] for child in children)
    for child in children:
        if child["children"]:
            check_tree(child, child["children"])


def test_classes_of_random_networks_are_what_the_models_say(decompose, msmemscope, networks):
    right = 0
    for seed in range(-(-networks // AT_ONCE)):
        count = min(networks - seed * AT_ONCE, AT_ONCE)
        run, said = decompose("torch_networks.py", seed, count)
        assert len(said) == count
        host = host_of(msmemscope, run.projects()[-1], [one["step"] for one in said])
        for one in said:
            got = classes(host, one["step"])
            assert {name: got[name] for name in CLASSES} == one["classes"], one
            right += 1
        refused = [one["classes"] for one in said if one["kind"] == "refused"]
        if refused:
            got = classes(host, "oom_bytes")
            assert {name: got[name] for name in CLASSES} == refused[-1], "when memory ran out last"
    print(f"{right} of {networks} networks have their classes")


@pytest.mark.parametrize("kind", ["train", "accumulate", "infer", "compile", "fsdp"])
def test_nearly_all_of_the_peak_has_a_class(decompose, msmemscope, networks, kind):
    """And two ranks with shards have their own of everything."""
    if kind == "compile" and networks >= 100:
        kind = "inductor"  # whose compiler takes a minute
    run, said = decompose("torch_shapes.py", kind)
    projects = [project for project in run.projects() if project.path.glob("**/*.csv")]
    looked_at = 0
    for project in projects:
        if not msmemscope.info(project)["decompose"]:
            continue  # the process that started the ranks
        host = host_of(msmemscope, project, [1] if said else [])
        peak = classes(host, "peak_bytes")
        assert sum(peak[name] for name in (*CLASSES, "temporary")) >= 0.99 * host["peak_bytes"], peak
        assert host["peak_bytes"] > 5 << 20 and peak["temporary"] < 0.25 * host["peak_bytes"]
        if said:
            assert {name: classes(host, 1)[name] for name in said[0]} == said[0]
        looked_at += 1
    assert looked_at == max(1, len(said))


@pytest.mark.parametrize("kind, status, moments", [
    ("raises", 1, ["peak_bytes", 1]), ("killed", -signal.SIGKILL, ["peak_bytes", "end_bytes", 1]), ("runs_out", 1, ["oom_bytes", 1]),
    ("backward_dies", -signal.SIGKILL, ["end_bytes", 1]), ("first_step_dies", 0, ["oom_bytes", 1]), ("decode", 0, [1])])
def test_a_model_has_its_classes_when_it_dies(decompose, msmemscope, kind, status, moments):
    """In a forward pass, a backward pass or a step, by an exception, a signal or a refused request; caches by their names."""
    run, [said] = decompose("torch_shapes.py", kind, status=status)
    host = host_of(msmemscope, run.project(), [1])
    for moment in moments:
        got = classes(host, moment)
        assert {name: got[name] for name in said} == said, moment
    assert sum(step["peak_bytes"] for step in host["steps"]) >= said.get("activation", 0)


def test_tensors_live_as_long_as_without_the_tool(decompose, msmemscope, python):
    bare = msmemscope.bare(*python, TARGETS / "torch_lifetimes.py")
    run, said = decompose("torch_lifetimes.py")
    assert run.stdout == bare.stdout and bare.returncode == 0
    assert said[1:] == [{"rss_grows": False}, {"swapped": True}] and said[0]["model"]
    assert said[0]["alive"][0] == ["grown", "loss", "out", "x"] and "grown" not in said[0]["alive"][-1]
