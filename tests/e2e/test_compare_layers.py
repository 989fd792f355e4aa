# SPDX-License-Identifier: Apache-2.0
"""Comparisons by layer and by call site: random networks, of which one layer is larger in the second run. Each says itself what it has."""
import json
from pathlib import Path

import pytest

TARGETS = Path(__file__).resolve().parents[1] / "targets"
CLASSES = ("weight", "gradient", "optimizer_state", "activation", "buffer", "kv_cache", "attribute", "input", "state_dict", "temporary", "aten", "other")


def tensors_of(document):
    """(model, layer, tensor) -> bytes by class, at the peak; what a module made has no tensor."""
    found = {}
    for layer in document["layers"]:
        made = {name: layer.get(name, 0) for name in CLASSES}
        for tensor in layer["tensors"]:
            own = {name: tensor.get(name, 0) for name in CLASSES}
            found[layer["model"], layer["layer"], tensor["name"]] = own
            made = {name: made[name] - own[name] for name in CLASSES}
        found[layer["model"], layer["layer"], ""] = made
    # What is of no layer is of no model.
    return {key: {name: size for name, size in classes.items() if size} for key, classes in found.items() if key[0]}


def wrong_in(answer, truths, documents):
    """What is wrong with the comparison of one rank, or None."""
    [pool] = answer["pools"]
    layers = {(one["model"], one["layer"], one["tensor"]): (one["base"], one["compare"]) for one in answer["layers"]}
    planted = truths[1]["planted"]
    first = answer["layers"][0] if answer["layers"] else {"layer": "nothing"}
    if not f"{first['layer']}.".startswith(f"{planted}."):
        return f"{first['layer']} is first, not {planted}"
    for side, (word, truth, document) in enumerate(zip(("base", "compare"), truths, documents)):
        for (_, layer, tensor), sizes in layers.items():
            name = f"{layer}.{tensor}" if layer else tensor
            if tensor and name in truth["tensors"]:
                weight, gradient, states = truth["tensors"][name]
                said = sizes[side]
                # A peak may be before the first states, or where there are no gradients. A counter has four bytes.
                if said.get("weight", 0) != weight or said.get("gradient", 0) not in (0, gradient) or \
                        said.get("optimizer_state", 0) not in (0, states, states + 4):
                    return f"{word}: {name} has {said}, not {truth['tensors'][name]}"
        if pool[f"{word}_bytes_at_the_moment"] != pool[f"{word}_peak_bytes"]:
            continue
        known = tensors_of(document)
        for key, sizes in layers.items():
            if sizes[side] != known.get(key, {}):
                return f"{word}: {key} has {sizes[side]}, decompose says {known.get(key)}"
        names = {holder["place"] for peak in document["peaks"] for holder in peak["places"]}
        unknown = {place["place"] for place in answer["places"] if place["base_peak_bytes"] and place["compare_peak_bytes"]} - names
        if side == 1 and unknown:
            return f"findings have other names: {unknown}"
    if all(pool[f"{word}_bytes_at_the_moment"] == pool[f"{word}_peak_bytes"] for word in ("base", "compare")):
        both = [tensors_of(document) for document in documents]
        differ = {key for key in {*both[0], *both[1]} if both[0].get(key, {}) != both[1].get(key, {})}
        if differ != set(layers):
            return f"layers that differ: {differ ^ set(layers)}"
    return None


WORDS = {"weight": "weights", "gradient": "gradients", "optimizer_state": "optimizer state", "activation": "activations", "buffer": "buffers",
         "kv_cache": "KV cache", "attribute": "attributes", "input": "inputs", "state_dict": "state dict", "temporary": "temporary tensors"}


def check_page(page, document, rank):
    """By layer the page has at the peak what findings have, and from run to run what the comparison says."""
    pool = page.ask("summary", process=1)["pools"][0]
    groups = page.ask("moment", process=1, pool=0, by="layer", at=pool["peak_ns"])["groups"]
    wanted = {}
    for (model, layer, tensor), classes in tensors_of(document).items():
        also = next((one["also"] for entry in document["layers"] if (entry["model"], entry["layer"]) == (model, layer)
                     for one in entry["tensors"] if one["name"] == tensor), "")
        for name, size in classes.items():
            path = [model, *filter(None, layer.split(".")), *([f"{tensor} (also {also})" if also else tensor] if tensor else [])]
            key = "@".join(["HOST", *path, WORDS.get(name, "other")])
            wanted[key] = wanted.get(key, 0) + size
    named = {}
    for group in groups:
        if not group["name"].startswith("HOST@of no layer@"):
            named[group["name"]] = named.get(group["name"], 0) + group["bytes"]
    assert named == wanted and sum(group["bytes"] for group in groups) == pool["peak_bytes"]
    first = page.ask("summary", process=0)["pools"][0]
    answer = page.ask("difference", process=0, pool=0, by="layer", at=first["peak_ns"], **{"and": pool["peak_ns"], "with": 1, "with_pool": 0})
    assert sum(after - before for _, before, _, after, _ in answer["groups"]) == pool["peak_bytes"] - first["peak_bytes"]
    if all(rank["pools"][0][f"{word}_bytes_at_the_moment"] == rank["pools"][0][f"{word}_peak_bytes"] for word in ("base", "compare")):
        changed = {name.rsplit("@", 1)[0] for name, before, _, after, _ in answer["groups"] if before != after and "@of no layer@" not in name}
        assert len(changed) == len(rank["layers"])


@pytest.fixture
def two_runs(msmemscope, python, out):
    def run(count):
        projects, truths, documents = [], [], []
        for plant in (0, 1):
            msmemscope.out = out / f"run{plant}"
            truth = out / f"truth{plant}.json"
            done = msmemscope("--device=cpu", "--analysis=decompose", "--format=none", "--", *python, TARGETS / "torch_compare.py", 0, count, plant,
                              env={"TRUTH": str(truth)}, timeout=60 + 20 * count)
            done.check()
            truths.append({one["rank"]: one for one in map(json.loads, truth.read_text().splitlines())})
            projects.append(out / f"run{plant}")
        return projects, truths

    return run


def test_the_layer_that_changed_is_first_and_its_bytes_are_those_of_decompose(msmemscope, two_runs, networks, view, out):
    count = max(4, networks // 5)
    projects, truths = two_runs(count)
    answer = json.loads(msmemscope("--compare", f"--input={projects[0]},{projects[1]}", "--json", output=out / "results").check().stdout)
    assert [rank["rank"] for rank in answer["ranks"]] == list(range(count))
    wrong = []
    for rank in answer["ranks"]:
        number = rank["rank"]
        documents = [json.loads(msmemscope("info", rank[word], "--json", "--all", output=False).check().stdout)["processes"][0] for word in ("base", "compare")]
        fault = wrong_in(rank, [truth[number] for truth in truths], documents)
        if fault is not None:
            wrong.append(f"rank {number}: {fault}")
    check_page(view(rank["base"], rank["compare"]), documents[1], rank)
    print(f"{count - len(wrong)} of {count} networks")
    assert not wrong, "\n".join(wrong)


WIDER = """
import sys
import torch
from torch import nn

torch.set_num_threads(1)
class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.up = nn.Linear(128, inner)
        self.down = nn.Linear(inner, 128)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

net = nn.Sequential(Block(256), Block(int(sys.argv[1])), Block(256))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(6):
    loss = net(torch.randn(16, 128)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_line_that_makes_the_larger_layer_comes_before_its_gradients_and_states(msmemscope, python, out):
    """Also without owners: Adam's states are twice the weights. Sizes before and after, and names that are whole."""
    script = out / "wider.py"
    script.write_text(WIDER, encoding="utf-8")
    projects = []
    for inner in (256, 1024):
        msmemscope.out = out / f"inner{inner}"
        msmemscope("--device=cpu", "--format=none", "--", *python, script, inner, timeout=120).check()
        projects.append(msmemscope.out)
    said = msmemscope("--compare", f"--input={projects[0]},{projects[1]}", output=out / "results").check().stdout
    lines = said.splitlines()
    at = next(i for i, line in enumerate(lines) if "call sites that hold more or less" in line)
    rows = [line.split("  ")[-1].strip() for line in lines[at + 1:at + 5]]
    assert {rows[0], rows[1]} == {f"wider.py:16 -> wider.py:{line} __init__ -> Linear.__init__" for line in (10, 11)}, said
    assert rows[2:] == ["wider.py:22 -> Adam.step -> Adam._init_group", "wider.py:21 -> Tensor.backward"], said
    assert all("->" in row and not row.endswith("...") for row in rows), said
    assert all(len(line) <= 100 for line in lines[2:]), said
    # Nothing is said of calls where there is none and call sites have said it all.
    assert "No calls" not in said and "every call" not in said, said
