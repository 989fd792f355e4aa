# SPDX-License-Identifier: Apache-2.0
"""Layers of a pool and what decompose says of its classes are two sums over the same blocks."""


def class_of(owner):
    """The class of an owner as layers name it: "PTA@model@weight" is "weight", "PTA@ops@aten" is "aten"."""
    words = owner.split("@")
    if len(words) < 2:
        return "other"
    return {"model": words[2] if len(words) > 2 else "other", "ops": "aten"}.get(words[1], "other")


def check_sums(document, event_type):
    """Fails unless both are the same to the byte. Returns the bytes of each class at the peak of the pool."""
    pool = next(one for one in document["decompose"] if one["event_type"] == event_type)
    owners, layers = {}, {}
    for owner in pool["owners"]:
        name = class_of(owner["owner"])
        owners[name] = owners.get(name, 0) + owner["peak_bytes"]
    for layer in document["layers"]:
        for name in {*owners, "other"}:
            layers[name] = layers.get(name, 0) + layer.get(name, 0)
    assert {name: size for name, size in owners.items() if size} == {name: size for name, size in layers.items() if size}
    assert sum(layer["bytes"] for layer in document["layers"]) == pool["peak_bytes"]
    assert sum(layer["end_bytes"] for layer in document["layers"]) == pool["end_bytes"]
    return owners
