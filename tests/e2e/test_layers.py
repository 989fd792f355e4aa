# SPDX-License-Identifier: Apache-2.0
"""From a byte to the layer: memory of a model by the modules that hold it. The programs say themselves what each module has."""
import json
from pathlib import Path

import pytest

from layer_sums import check_sums

TARGETS = Path(__file__).resolve().parents[1] / "targets"
CLASSES = ("weight", "gradient", "optimizer_state", "activation", "buffer")


def classes(entry):
    return {name: entry[name] for name in CLASSES if name in entry}


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


def test_random_networks_hold_in_each_layer_what_they_say(msmemscope, python, networks):
    run = msmemscope("--device=cpu", "--analysis=decompose", "--format=none", "--", *python, TARGETS / "torch_layers.py", 1, max(20, networks // 5)).check()
    said, document = [json.loads(line) for line in run.stdout.splitlines()], msmemscope.info(run.project())
    assert layers_by_model(document) == {one["model"]: one["layers"] for one in said}
    assert tensors_by_model(document) == {one["model"]: one["tensors"] for one in said if one["tensors"]}
    check_sums(document, "HOST")
    tied = {one["model"]: one["tied"] for one in said if one["tied"]}
    also = {layer["model"]: [f"{layer['layer']}.{tensor['name']}", *tensor["also"].split(", ")]
            for layer in document["layers"] for tensor in layer["tensors"] if tensor["also"] and layer["layer"] == "embed"}
    assert tied and also == tied
    report = (run.project().path / "report.txt").read_text()
    assert "Layers in CPU tensors, at its peak\n" in report and ": embed (weight is head.weight too)\n" in report


WRAPPED = """
import os, sys, torch
from torch import nn
kind = sys.argv[1]
os.environ.update(RANK="0", WORLD_SIZE="1")
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down, self.head = nn.Embedding(500, 64), nn.Linear(64, 256), nn.Linear(256, 64), nn.Linear(64, 500, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, x):
        return self.head(self.down(torch.relu(self.up(self.embed(x)))))
net = Net()
if kind == "ddp":
    net = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
elif kind == "fsdp":
    from torch.distributed.fsdp import FullyShardedDataParallel
    net = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)
else:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    fully_shard(net, mesh=init_device_mesh("cpu", (1,)))
optimizer = torch.optim.Adam(net.parameters())
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randint(0, 500, (8, 16))).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("kind", ["ddp", "fsdp", "fully_shard"])
def test_wrappers_of_distributed_training_are_not_in_names(msmemscope, python, out, kind):
    """What a wrapper keeps of several parameters in one block is of the module that has them all, not of the first."""
    script = out / "wrapped.py"
    script.write_text(WRAPPED, encoding="utf-8")
    run = msmemscope("--device=cpu", "--analysis=decompose", "--format=none", "--", *python, script, kind, out / "store").check()
    document = msmemscope.info(run.project())
    check_sums(document, "HOST")
    models, tensors = layers_by_model(document), tensors_by_model(document)["Net"]
    assert {*models} - {""} == {"Net"} and {name for name in models["Net"] if name} <= {"embed", "up", "down", "head"}
    sizes = {"embed.weight": 128_000, "up.weight": 65_536, "up.bias": 1_024, "down.weight": 65_536, "down.bias": 256}
    assert set(tensors) <= set(sizes)
    for name, classes_of in tensors.items():
        assert classes_of.get("weight", 0) in (0, sizes[name]) and classes_of.get("gradient", 0) in (0, sizes[name]), (name, classes_of)
        assert classes_of.get("optimizer_state", 0) in (0, 2 * sizes[name], 2 * sizes[name] + 4), (name, classes_of)
    [embed] = [tensor for layer in document["layers"] for tensor in layer["tensors"] if (layer["layer"], tensor["name"]) == ("embed", "weight")]
    assert embed["also"] == "head.weight"


SMALL = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 256))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    net(torch.randn(8, 512)).sum().backward()
    optimizer.step()
"""


def test_the_screen_names_the_largest_layers_and_the_machines_memory(msmemscope, python, out):
    script = out / "small.py"
    script.write_text(SMALL, encoding="utf-8")
    run = msmemscope("--device=cpu", "--analysis=decompose", "--format=none", "--", *python, script).check()
    text = run.stderr
    assert "Largest of 2 layers: Sequential.0 2.0 MiB, Sequential.1 1.0 MiB\n" in text, text
    kib = int(Path("/proc/meminfo").read_text().split()[1])
    assert f" on the CPU ({kib / 2**20:.1f} GiB)" in text, text
