# SPDX-License-Identifier: Apache-2.0
"""What keeps a leak is a variable itself, a container with a limit, a linked list, a gradient; and what that
says about the verdict."""
import re
import subprocess
from collections import namedtuple

import pytest

TRAINED = """
import collections, contextvars, functools, queue
import torch
from torch import nn
net = nn.Linear(32, 32)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
def train(x):
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

SCRIPTS = {
    "batch": TRAINED + """
def batches():
    for step in range(48):
        yield torch.randn(16 + 4 * step, 32), torch.randn(16 + 4 * step, 32)
def main():
    for x, y in batches():
        x = x.to("cpu")
        train(x)
main()
""",
    "global": TRAINED + """
for step in range(48):
    x = torch.randn(16 + 4 * step, 32)
    train(x)
""",
    "attribute": TRAINED + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.last = None
    def forward(self, x):
        h = self.inner(x)
        self.last = h.detach()
        return h
outer = Net()
for step in range(48):
    outer(torch.randn(16 + 4 * step, 32))
    train(torch.randn(8, 32))
""",
    "collected": TRAINED + """
def main():
    history = torch.zeros(0, 32)
    for step in range(48):
        new = torch.randn(16, 32)
        history = torch.cat([history, new])  # history = torch.cat
        train(new)
main()
""",
    "handed on": TRAINED + """
def longer(old, new):
    return torch.cat([old, new])
def main():
    history = torch.zeros(0, 32)
    for step in range(48):
        both = longer(history, torch.randn(16, 32))
        history = both
        train(torch.randn(8, 32))
main()
""",
    "bank": TRAINED + """
class Bank:
    def __init__(self):
        self.kept = torch.zeros(0, 32)
    def add(self, x):
        self.kept = torch.cat([self.kept, x])  # self.kept = torch.cat
class Trainer:
    def __init__(self):
        self.bank = Bank()
trainer = Trainer()
for step in range(48):
    trainer.bank.add(torch.randn(16, 32))
    train(torch.randn(8, 32))
""",
    "buffer": TRAINED + """
class Bank(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(0, 32))
    def forward(self, x):
        self.kept = torch.cat([self.kept, x])
        return x
model = nn.Sequential(nn.Linear(32, 32), Bank())
for step in range(48):
    with torch.no_grad():
        model(torch.randn(16, 32))
    train(torch.randn(8, 32))
""",
    "deque": TRAINED + """
replay = collections.deque(maxlen=1000)
for step in range(48):
    replay.append(torch.randn(256))
    train(torch.randn(8, 32))
""",
    "cache": TRAINED + """
@functools.lru_cache(maxsize=128)
def table(step):
    return torch.randn(256)
for step in range(48):
    table(step)
    train(torch.randn(8, 32))
""",
    "queue": TRAINED + """
waiting = queue.Queue(maxsize=500)
for step in range(48):
    waiting.put(torch.randn(256))
    train(torch.randn(8, 32))
""",
    "function": TRAINED + """
def seen(step):
    seen.all.append(torch.full((64, 64), float(step)))  # seen.all.append
seen.all = []
for step in range(48):
    seen(step)
    train(torch.randn(8, 32))
""",
    "nodes": TRAINED + """
class Node:
    def __init__(self, value, older):
        self.value, self.older = value, older
class Chain:
    head = None
chain = Chain()
for step in range(48):
    chain.head = Node(torch.randn(256), chain.head)
    train(torch.randn(8, 32))
""",
    "pairs": TRAINED + """
trail = contextvars.ContextVar("trail", default=())
for step in range(48):
    trail.set((torch.randn(256), trail.get()))
    train(torch.randn(8, 32))
""",
    "gradients": TRAINED + """
adapters = {}
for step in range(48):
    adapter = nn.Linear(64, 64, bias=False)
    adapters[step] = adapter
    adapter(torch.randn(8, 64)).mean().backward()
    train(torch.randn(8, 32))
""",
    "heads": TRAINED + """
heads = nn.ModuleList([nn.Linear(64, 64) for _ in range(48)])
both = torch.optim.SGD(heads.parameters(), lr=0.01)
for step in range(48):
    sum(head(torch.randn(8, 64)).mean() for head in heads[:step + 1]).backward()
    train(torch.randn(8, 32))
""",
    "cycle": TRAINED + """
import gc
gc.disable()
for step in range(48):
    probe = nn.Linear(64, 64)
    probe(torch.randn(8, 64)).pow(2).mean().backward(create_graph=True)
    train(torch.randn(8, 32))
""",
}


def line_of(name, text):
    return SCRIPTS[name][:SCRIPTS[name].index(f"# {text}")].count("\n") + 1


Found = namedtuple("Found", "verdict, reason, keeper, sentence")


@pytest.fixture(scope="module")
def parts(together):
    return together(["--device=cpu"], SCRIPTS)


@pytest.fixture
def found(parts, msmemscope):
    def of(name):
        """The call sites of a script that leak or may leak and have a keeper."""
        places = msmemscope.info(parts[name].project())["places"]
        return [Found(place["verdict"], place["reason"], place["keepers"][0], place["sentence"]) for place in places
                if place["verdict"] != "kept" and place["keepers"]]
    return of


@pytest.mark.parametrize("name, variable", [("batch", "x"), ("global", "x"), ("attribute", "outer.last")])
def test_a_variable_that_is_given_larger_values_is_no_leak(found, name, variable):
    said = found(name)
    assert said and {(one.verdict, one.reason) for one in said} == {("suspect", "renewed")}, said
    [one] = [one for one in said if one.keeper["name"] == variable]
    assert one.keeper["type"] == "tensor" and one.keeper["cure"] == "", one
    assert re.match(r"(one block|two blocks): the current value of a variable, whose values grow; none is made from the one before\.$", one.sentence), one


@pytest.mark.parametrize("name, variables", [("collected", {"history"}), ("handed on", {"history", "both"}), ("bank", {"trainer.bank.kept"}),
                                             ("buffer", {"model[1].kept"})])
def test_a_tensor_that_is_made_from_its_old_value_leaks(found, name, variables):
    """The innermost name is said, not the model that has it."""
    leaks = [one for one in found(name) if one.verdict == "leak"]
    assert leaks and {(one.reason, one.keeper["type"]) for one in leaks} == {("climbs", "tensor")}, leaks
    assert {one.keeper["name"] for one in leaks} <= variables, leaks


@pytest.mark.parametrize("name, text", [("collected", "history = torch.cat"), ("bank", "self.kept = torch.cat")])
def test_the_line_that_makes_a_tensor_longer_is_said(found, name, text):
    cures = {one.keeper["cure"] for one in found(name) if one.verdict == "leak"}
    assert cures == {f"bound it or reset it; filled at script.py:{line_of(name, text)}"}


@pytest.mark.parametrize("name, most, limit", [("deque", 1000, "maxlen"), ("cache", 128, "maxsize"), ("queue", 500, "maxsize")])
def test_a_container_that_has_room_is_a_suspect(found, name, most, limit):
    [one] = found(name)
    assert (one.verdict, one.reason, one.keeper["most"]) == ("suspect", "fills", most), one
    assert f"{one.keeper['items']} of at most {most:,} items" in one.keeper["sentence"], one
    assert f"about {most} KiB when full." in one.sentence, one
    assert one.keeper["cure"] == f"it stops growing when it is full ({limit} {most:,}): make that smaller if it is too much"


def test_attributes_of_functions_are_named_as_they_are_written(found):
    [one] = found("function")
    assert (one.keeper["name"], one.keeper["type"]) == ("seen.all", "list"), one
    assert one.keeper["cure"].endswith(f"; filled at script.py:{line_of('function', 'seen.all.append')}"), one


@pytest.mark.parametrize("name, variable, cure", [("nodes", "chain.head", "set .older of an older node to None"), ("pairs", "trail", "keep as many as are needed")])
def test_a_linked_list_is_named_by_its_start(found, name, variable, cure):
    [one] = found(name)
    assert (one.keeper["type"], one.keeper["name"]) == ("linked list", variable), one
    assert 40 <= one.keeper["items"] <= 48 and f", {one.keeper['items']} nodes" in one.keeper["sentence"], one
    assert one.keeper["cure"].startswith(cure), one


def test_gradients_are_kept_by_what_keeps_their_tensors(found):
    gradients = [one.keeper for one in found("gradients") if one.keeper["kind"] == "gradient"]
    assert [(keeper["name"], keeper["items"]) for keeper in gradients] == [("adapters", 48)], gradients
    assert gradients[0]["sentence"].startswith("gradients of tensors in dict `adapters` (global of script.py), 48 items"), gradients
    # The optimizer has these parameters, too.
    heads = [one.keeper for one in found("heads") if one.keeper["kind"] == "gradient"]
    assert [(keeper["type"], keeper["name"]) for keeper in heads] == [("ModuleList", "heads")], heads


def test_the_graph_of_a_gradient_is_named_with_what_frees_it(found):
    said = [one for one in found("cycle") if one.verdict == "leak"]
    words = "autograd's graph of the gradient of a Parameter: each keeps the other, and no variable leads to them"
    assert said and {one.keeper["sentence"].partition(", newest from step ")[0] for one in said} == {words}, said
    assert {one.keeper["cure"] for one in said} == {"use torch.autograd.grad(), or set .grad to None after backward(create_graph=True)"}


FLOWS = """
import ast, sys
from msmemscope._renewed import _Flows
for text in sys.stdin.read().split("----"):
    name, _line, code = text.strip().partition("\\n")
    flows = _Flows([("a.py", ast.parse(code))])
    found = name if name.startswith(".") else flows.modules[0].whole(name)
    if "@" in name:
        variable, function = name.split("@")
        [found] = [scope.whole(variable) for (_path, _first, called), scope in flows.scopes.items() if called == function]
    print(int(flows.is_renewed(found, False)), int(flows.is_renewed(found, True)), *sorted(flows.grown(found)))
"""
# name, code, whether no value is made from an old one, the same of a container that it is, lines that make it from the old one
CASES = [
    ("x", "for x in loader:\n  x = x.to(d)\n  t = x + 1\n  x = t.relu()", "1 1"),
    ("x", "for e in epochs:\n  for x, y in loader:\n    train(x)", "1 1"),
    ("h", "h = z()\nfor x in loader:\n  new = cat([h, x])\n  h = new", "0 0 a.py:4"),
    ("h", "h = z()\nfor x in loader:\n  if x > 3:\n    h = cat([h, x])\n  else:\n    h = z()", "0 0 a.py:4"),
    ("h", "for i in r:\n  h += i", "0 0 a.py:2"),
    ("h", "while True:\n  try:\n    h = cat([h, n()])\n  except E:\n    pass", "0 0 a.py:3"),
    ("h@main", "def f(a, b):\n  return cat([a, b])\ndef main():\n  h = z()\n  while True:\n    h = f(h, g())", "0 0 a.py:6"),
    ("h@main", "def main():\n  h = z()\n  def add(x):\n    nonlocal h\n    h = cat([h, x])\n  for x in r: add(x)", "0 0 a.py:5"),
    ("h", "def f(a):\n  global h\n  h = cat([h, a])\nh = z()", "0 0 a.py:3"),
    (".b", "class A:\n  def add(self, x):\n    self.b = self.merge(x)\n  def merge(self, x):\n    return cat([self.b, x])", "0 0 a.py:3"),
    (".b", "class A:\n  def add(self, old, x):\n    self.b = cat([old, x])\na.add(a.b, 1)", "0 0 a.py:3"),
    (".m", "class A:\n  def forward(self, x):\n    return cat([self.m, x])\na = A()\ny = a(1)\na.m = y", "0 0 a.py:6"),
    (".b", "setattr(a, name, cat([getattr(a, name), x]))\na.b = z()", "0 0"),
    (".b", "m.register_buffer('b', cat([m.b, x]))", "0 0 a.py:1"),
    ("x", "while True:\n  h = s['h']\n  x = cat([h, i])\n  s['h'] = x", "0 0 a.py:3"),
    ("x", "x = z()\nx.data = cat([x.data, i])", "0 0 a.py:2"),
    ("rows", "rows = []\nfor x in r:\n  rows.append(x)", "1 0"),
    ("x", "print(x)", "0 0"),
    # Another variable is made from its old value; this one has the same.
    ("x", "def stream():\n  acc = z()\n  while True:\n    acc = cat([acc, n()])\n    yield acc\nfor i, x in zip(r, stream()):\n  pass", "0 0"),
    ("x@main", "def main():\n  n = 4\n  while True:\n    n += 4\n    x = torch.randn(n)", "1 1"),
]


def test_whether_a_value_is_made_from_the_old_one_is_read_from_the_text(python, dist):
    said = subprocess.run([*python, "-c", FLOWS], input="----".join(f"{name}\n{code}" for name, code, _says in CASES), env={"PYTHONPATH": str(dist / "python")},
                          capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [says for _name, _code, says in CASES]
