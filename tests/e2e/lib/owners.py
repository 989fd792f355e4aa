# SPDX-License-Identifier: Apache-2.0
"""Classes of a model's memory (targets/torch_networks.py), and what a decomposition says of each."""
from collections import Counter

CLASSES = ("weight", "kv_cache", "buffer", "attribute", "optimizer_state", "gradient", "input", "activation")


def classes(host, moment):
    """{class: bytes}, and {class@name: bytes}, at a moment: a key, or the number of a step, at its end."""
    found = Counter()
    for owner in host["owners"]:
        parts = owner["owner"].split("@")[1:]
        name = parts[1:] if parts[:1] == ["model"] else ["other"]
        if isinstance(moment, str):
            value = owner[moment]
        else:
            [value] = [step["end_bytes"] for step in owner["steps"] if step["step"] == moment]
        for key in {name[0], "@".join(name)}:
            found[key] += value
    return found
