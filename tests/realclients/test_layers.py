# SPDX-License-Identifier: Apache-2.0
"""Who keeps it and by layer, with the real torch_npu."""
import json
import re
import subprocess

from layer_sums import check_sums

KEEPERS = {
    "in_global": "list `history` (global of keepers.py)",
    "in_attribute": "list `trainer.outputs` (global `trainer` of keepers.py)",
    "in_cache": "functools.lru_cache of in_cache() defined at keepers.py:33",
    "in_cycle": "a reference cycle of Node objects",
    "in_cpp": "C++ only: no Python object and no autograd graph holds it",
    "in_array": "dict `arrays` (global of keepers.py)",
    "in_storage": "list `views` (global of keepers.py)",
}


def report(result):
    [path] = result.out.glob("*/report.txt")
    return path.read_text(encoding="utf-8")


def test_what_keeps_tensors_of_the_npu_is_named(client):
    """The program needs the package of the tool, which it finds where the tool is installed."""
    paths = [str(path) for path in (client.dist / "python", client.simnpu / "python", client.python.parents[1] / "lib")]
    result = client.trace("keepers.py", tool=["--device=npu,cpu", "--format=none"], env={"PYTHONPATH": ":".join(paths)}).check()
    kept = dict(re.findall(r"^leak: keepers\.py:.*?(in_\w+) .*\n  kept by: (.*)$", report(result), re.M))
    assert kept.keys() == KEEPERS.keys(), kept
    assert not {kind: kept[kind] for kind, text in KEEPERS.items() if not kept[kind].startswith(text)}


def test_layers_of_random_networks_add_up_to_the_classes(client):
    result = client.trace("layers.py", 3, 8, tool=["--analysis=decompose", "--format=none"]).check()
    document = json.loads(subprocess.run([client.dist / "bin" / "msmemscope", "info", "--json", result.out], capture_output=True, text=True,
                                         check=True).stdout)["processes"][0]
    classes = check_sums(document, "PTA")
    assert classes["weight"] and classes["gradient"] and classes["optimizer_state"] and classes["activation"]
    models = {layer["model"] for layer in document["layers"] if layer["layer"] == "embed"}
    assert models == {f"Net{number}" for number in range(8)}
