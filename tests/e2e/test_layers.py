# SPDX-License-Identifier: Apache-2.0
"""From a byte to the layer: memory of a model by the modules that hold it. The programs say themselves what each module has."""
import json
from pathlib import Path

TARGETS = Path(__file__).resolve().parents[1] / "targets"
CLASSES = ("weight", "gradient", "optimizer_state", "activation", "buffer")
OWNERS = {"HOST": "other", "HOST@ops@aten": "aten", "HOST@model@temporary@forward": "temporary", "HOST@model@temporary@backward": "temporary",
          "HOST@model@temporary@optimizer": "temporary"}


def classes(entry):
    return {name: entry[name] for name in CLASSES if name in entry}


def of_class(owner):
    return OWNERS.get(owner) or owner.split("@")[2]


def layers_by_model(document):
    found = {}
    for layer in document["layers"]:
        if classes(layer):
            found.setdefault(layer["model"], {})[layer["layer"]] = classes(layer)
    return found


def tensors_by_model(document):
    found = {}
    for layer in document["layers"]:
        for tensor in layer["tensors"]:
            name = f"{layer['layer']}.{tensor['name']}" if layer["layer"] else tensor["name"]
            found.setdefault(layer["model"], {})[name] = classes(tensor)
    return found


def check_sums(document):
    """Layers of a pool add up to what decompose says of each class."""
    pool = next(one for one in document["decompose"] if one["event_type"] == "HOST")
    owners, layers = {}, {}
    for owner in pool["owners"]:
        name = of_class(owner["owner"])
        owners[name] = owners.get(name, 0) + owner["peak_bytes"]
    for layer in document["layers"]:
        for name in {*owners, "other"}:
            layers[name] = layers.get(name, 0) + layer.get(name, 0)
    assert {name: size for name, size in owners.items() if size} == {name: size for name, size in layers.items() if size}
    assert sum(layer["bytes"] for layer in document["layers"]) == pool["peak_bytes"]
    assert sum(layer["end_bytes"] for layer in document["layers"]) == pool["end_bytes"]


def test_random_networks_hold_in_each_layer_what_they_say(msmemscope, python, networks):
    run = msmemscope("--device=cpu", "--analysis=decompose", "--format=none", "--", *python, TARGETS / "torch_layers.py", 1, max(20, networks // 5)).check()
    said, document = [json.loads(line) for line in run.stdout.splitlines()], msmemscope.info(run.project())
    assert layers_by_model(document) == {one["model"]: one["layers"] for one in said}
    assert tensors_by_model(document) == {one["model"]: one["tensors"] for one in said if one["tensors"]}
    check_sums(document)
    tied = {one["model"]: one["tied"] for one in said if one["tied"]}
    also = {layer["model"]: [f"{layer['layer']}.{tensor['name']}", *tensor["also"].split(", ")]
            for layer in document["layers"] for tensor in layer["tensors"] if tensor["also"] and layer["layer"] == "embed"}
    assert tied and also == tied
    report = (run.project().path / "report.txt").read_text()
    assert "Layers in CPU tensors, at its peak\n" in report and ": embed (weight is head.weight too)\n" in report
