# SPDX-License-Identifier: Apache-2.0
"""Who keeps it: from the blocks of a call site that leaks to the variable that holds them. --keepers=400 is the whole proof."""
import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

import harness
import rows

TARGETS = Path(__file__).resolve().parents[1] / "targets"
HEAP = 5_000_000

MODEL = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(step):
    loss = model(torch.randn(8, 16)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""

SCRIPTS = {
    "local": MODEL + """
def main():
    samples = []
    for step in range(40):
        samples.append(torch.randn(1000))
        train(step)
main()
""",
    "losses": MODEL + """
def run():
    history = []
    for step in range(40):
        history.append(model(torch.randn(8, 16)).mean())
        train(step)
run()
""",
    "named": MODEL + """
def run():
    history = []
    for step in range(40):
        error = model(torch.randn(8, 16)).mean()
        history.append(error)
        train(step)
run()
""",
    "two networks": """
import torch
def network(first, last):
    return torch.nn.Sequential(torch.nn.Linear(first, 32), torch.nn.ReLU(), torch.nn.Linear(32, last))
maker, judge = network(8, 64), network(64, 1)
making, judging = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
noise = torch.randn(8, 8)
for step in range(60):
    made = maker(torch.randn(8, 8))
    judging.zero_grad()
    (judge(torch.rand(8, 64)).mean() - judge(made.detach()).mean()).backward()
    judging.step()
    making.zero_grad()
    judge(made).mean().backward()
    making.step()
    if step % 10 == 0:
        with torch.no_grad():
            grid = maker(noise)
""",
    "outputs": MODEL + """
def run():
    outputs = []
    for step in range(40):
        outputs.append(model(torch.randn(8, 16)))
        train(step)
run()
""",
    "healthy": MODEL + """
def main():
    latest = None
    for step in range(40):
        latest = train(step)
main()
""",
    "none": MODEL + """
import torch.futures
class Kept:
    pass
def main():
    futures = []
    for step in range(24):
        future = torch.futures.Future()
        future.set_result(torch.randn(1000))
        futures.append(future)
        train(step)
main()
""",
}


MORE = {
    "defined": MODEL + """
import functools
def attach(module):
    kept = []
    def save_output(module, given, made):
        kept.append(made)  # kept.append
    module.register_forward_hook(save_output)
@functools.lru_cache(maxsize=None)
def embed(step):
    return torch.randn(900)
def remember(value, seen=[]):
    seen.append(value)  # seen.append
def show(value):
    pass
class Keeps:
    def __init__(self):
        self.outputs = []
    def __call__(self, module, given, made):
        self.outputs.append(made)
def main():
    hooked = torch.nn.Linear(16, 300)
    attach(hooked)
    called = torch.nn.Linear(16, 200)
    called.register_forward_hook(Keeps())
    later = []
    total = 0
    for step in range(40):
        with torch.no_grad():
            called(torch.randn(1, 16))
            hooked(torch.randn(1, 16))
        embed(step)
        remember(torch.randn(800))
        later.append(functools.partial(show, torch.randn(700)))
        error = model(torch.randn(12, 16)).mean()
        total = total + error  # total
        train(step)
main()
""",
    "optimizer": MODEL + """
def main():
    grown = torch.optim.Adam(model.parameters())
    for step in range(40):
        head = torch.nn.Linear(4, 500)
        grown.add_param_group({"params": list(head.parameters())})
        grown.zero_grad()
        head(model(torch.randn(2, 16))).mean().backward()
        grown.step()
main()
""",
    "holders": MODEL + """
import collections
def main():
    optimizers, window = [], collections.deque(maxlen=8)
    for step in range(60):
        if step % 4 == 0:
            optimizers.append(torch.optim.Adam(model.parameters()))
        window.append(torch.randn(3000 + 3000 * step))  # window
        model(torch.randn(8, 16)).pow(2).mean().backward()
        optimizers[-1].step()
        optimizers[-1].zero_grad()
main()
""",
}

# A library whose objects wrap their own methods, so that they are reference cycles, as those of torchmetrics are.
LIBRARY = MODEL + """
import types
meters = types.ModuleType("meters")
exec(compile('''
import functools
class Meter:
    def __init__(self):
        self.values = []
        self.update = self.wrap(self.update)
    def update(self, value):
        self.values.append(value)
    def wrap(self, update):
        @functools.wraps(update)
        def wrapped(*given):
            self.latest = None
            update(*given)
        return wrapped
def keeping():
    kept = []
    return lambda value: kept.append(value)
''', "/opt/lib/site-packages/meters.py", "exec"), meters.__dict__)
"""
MORE["wrapped"] = LIBRARY + """
def main():
    scores, ranks, others = meters.Meter(), meters.Meter(), meters.Meter()
    for step in range(30):
        train(step)
        made = torch.randn(1000)
        scores.update(made)
        ranks.update(made)
        others.update(torch.randn(2000))
main()
"""
# C++ alone holds the library's function.
MORE["library"] = LIBRARY + """
import torch.futures, weakref
def main():
    future = torch.futures.Future()
    def start():
        keep = meters.keeping()
        future.add_done_callback(keep)
        return weakref.ref(keep)
    keep, held = start(), meters.keeping()
    for step in range(30):
        keep()(torch.randn(1000))
        held(torch.randn(2000))
        train(step)
main()
"""
# What is dropped lives on in cycles, as nothing collects them.
MORE["dropped"] = MODEL + """
import gc
gc.disable()
weight = torch.ones(2000, requires_grad=True)
class Fit:
    def __init__(self):
        self.me = {"fit": self}
        self.given = torch.randn(3000)
        saved = weight.exp()  # by the graph of the loss
        self.loss = saved.sum()
def main():
    for step in range(30):
        Fit()
        train(step)
main()
"""
MORE["models"] = MODEL + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 300)
    def forward(self, given):
        self.latest = self.layer(given).exp().sum(1)
        return self.latest
class Result:
    def __init__(self, value):
        self.value = value
def main():
    models, results = [], []
    for step in range(30):
        net = Net()
        net(torch.randn(4, 16))
        models.append(net)  # models.append
        results.append(Result(model(torch.randn(40, 16)).exp().sum(1)))
        train(step)
main()
"""


def planted(dist, python, msmemscope, *words):
    run = msmemscope.bare(*python, TARGETS / "keepers.py", *map(str, words), env={"PYTHONPATH": str(dist / "python")}).check()
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_planted_keepers_are_named_and_nothing_of_the_program_runs(dist, python, msmemscope, keepers):
    said = []
    for seed in range(-(-keepers // 40)):
        said += planted(dist, python, msmemscope, seed, min(40, keepers - 40 * seed))
    wrong = [entry for entry in said if not entry["right"]]
    print(f"{len(said) - len(wrong)} of {len(said)} planted keepers are named; wrong: {dict(Counter(e['kind'] for e in wrong))}")
    assert len(said) == keepers and len(wrong) <= keepers / 20, wrong
    assert not [entry for entry in said if entry["calls"]], "methods of the program's objects were called"
    assert not [entry for entry in said if entry["living"]], "tensors outlive their keeper because of the scan"


def test_a_heap_of_millions_costs_no_more_than_a_second(dist, python, msmemscope, keepers):
    count = 19 if keepers > 19 else 3
    said = planted(dist, python, msmemscope, 7, count, HEAP if keepers > 19 else HEAP // 5)
    print(f"slowest of {count}: {max(entry['seconds'] for entry in said)} s")
    assert all(entry["right"] for entry in said), said
    # One walk over all objects may be in progress when the second is over.
    assert max(entry["seconds"] for entry in said) < 2


def places(msmemscope, part):
    document = msmemscope.info(part.project())
    return document, [place for place in document["places"] if place["verdict"] != "kept"]


@pytest.fixture(scope="module")
def parts(together):
    return together(["--device=cpu"], SCRIPTS)


@pytest.fixture(scope="module")
def more(together):
    return together(["--device=cpu"], MORE)


def test_a_local_of_a_function_that_has_returned_is_named(parts, msmemscope):
    _document, found = places(msmemscope, parts["local"])
    keeper = found[0]["keepers"][0]
    assert (keeper["kind"], keeper["type"], keeper["name"], keeper["root"]) == ("local", "list", "samples", "local of main() in script.py")
    assert 16 <= keeper["items"] <= 40 and keeper["held"] == keeper["looked"]
    assert keeper["newest_step"] <= keeper["step"] <= 40
    assert keeper["sentence"].startswith("list `samples` (local of main() in script.py), ")
    report = (parts["local"].project().path / "report.txt").read_text()
    assert f"  kept by: {keeper['sentence']}\n  cure: {keeper['cure']}\n" in report


def test_memory_that_only_a_graph_holds_is_followed_to_the_list_of_losses(parts, msmemscope):
    _document, found = places(msmemscope, parts["losses"])
    keepers = [place["keepers"][0] for place in found if place["keepers"]]
    assert {keeper["name"] for keeper in keepers} == {"history"}
    assert "graph" in {keeper["kind"] for keeper in keepers}
    assert any("MeanBackward0" in keeper["holds"] for keeper in keepers)
    assert "append .item() or .detach() of each, or clear the list" in {keeper["cure"].split("; filled at ")[0] for keeper in keepers}
    _document, found = places(msmemscope, parts["named"])
    assert any(keeper["cure"].startswith("append error.item() or error.detach(), or clear the list; filled at script.py:")
               for place in found for keeper in place["keepers"]), found


def test_the_cure_of_a_list_without_losses_does_not_name_one(parts, msmemscope):
    """What the list holds itself goes with its items; what their graph holds goes with detach()."""
    _document, found = places(msmemscope, parts["outputs"])
    cures = {(keeper["kind"], keeper["cure"].split("; filled at ")[0]) for place in found for keeper in place["keepers"]
             if keeper["name"] == "outputs"}
    assert ("local", "remove items from the list when no longer needed; .detach() frees the graph alone, not the tensor") in cures
    assert ("graph", "append .detach() of each, or clear the list") in cures
    assert not any("loss" in cure for _kind, cure in cures), cures


def line_of(text):
    return MORE["defined"][:MORE["defined"].index(text)].count("\n") + 1


def test_functions_that_keep_memory_are_named_with_the_line_that_defines_them(more, msmemscope):
    _document, found = places(msmemscope, more["defined"])
    said = {keeper["root"]: (keeper["kind"], keeper["name"], keeper["cure"]) for place in found for keeper in place["keepers"]}
    hook = f"closure of forward hook save_output() defined at script.py:{line_of('def save_output')}"
    assert hook in said and said[hook][:2] == ("hook", "kept") and said[hook][2].endswith(f"; filled at script.py:{line_of('kept.append')}"), said
    cache = f"functools.lru_cache of embed() defined at script.py:{line_of('@functools')}"
    assert said[cache][0] == "lru_cache", said
    default = f"default argument of remember() defined at script.py:{line_of('def remember')}"
    assert said[default][2].endswith(f"; filled at script.py:{line_of('seen.append')}"), said
    called = f"local `called` of main() in script.py, hook Keeps.__call__() defined at script.py:{line_of('def __call__')}"
    assert said[called][0] == "hook" and re.fullmatch(r"called\._forward_hooks\[\d+\]\.outputs", said[called][1]), said
    partials = [keeper["holds"] for place in found for keeper in place["keepers"] if keeper["name"] == "later"]
    assert partials == [f"partial of show() defined at script.py:{line_of('def show')} -> tuple -> tensor"], said
    report = (more["defined"].project().path / "report.txt").read_text()
    assert f"  kept by: list `kept` ({hook})" in report


def test_a_sum_of_losses_is_named_with_the_line_that_adds_to_it(more, msmemscope):
    _document, found = places(msmemscope, more["defined"])
    graphs = [keeper for place in found for keeper in place["keepers"] if keeper["name"] == "total"]
    assert graphs and {keeper["cure"] for keeper in graphs} == {f"add error.item() or error.detach(); added at script.py:{line_of('total = total + error')}"}
    assert all(re.search(r"; it holds [\d,]+ operations so far, more with each step$", keeper["sentence"]) for keeper in graphs), graphs


def test_the_cure_of_an_optimizer_names_both_that_hold_its_parameters(more, msmemscope):
    _document, found = places(msmemscope, more["optimizer"])
    keepers = [keeper for place in found for keeper in place["keepers"] if keeper["kind"] == "optimizer"]
    assert {(keeper["name"], keeper["root"]) for keeper in keepers} == {("grown.state", "local `grown` of main() in script.py")}, keepers
    cures = {keeper["cure"] for keeper in keepers}
    assert cures == {"make a new optimizer for the new parameters, or remove the old ones from its param_groups and its state: both hold them"}


def test_of_many_optimizers_what_holds_them_is_to_be_changed(more, msmemscope):
    _document, found = places(msmemscope, more["holders"])
    cures = {keeper["name"]: keeper["cure"] for place in found for keeper in place["keepers"]}
    assert cures["optimizers"].startswith("remove items from the list when they are no longer needed"), cures
    assert cures["window"] == "it is full (maxlen 8) and drops its oldest items: only larger ones make it grow", cures


def test_what_a_library_wraps_is_named_by_the_variable_of_the_program(more, msmemscope):
    """Also when the function has returned, and only the library's wrappers lead to the lists."""
    _document, found = places(msmemscope, more["wrapped"])
    said = {keeper["name"]: (keeper["type"], keeper["root"]) for place in found for keeper in place["keepers"]}
    both = said.get("scores.values") or said.get("ranks.values")
    name, other = ("scores", "ranks") if "scores.values" in said else ("ranks", "scores")
    assert both == ("list", f"local `{name}` of main() in script.py; also in list `{other}.values`"), said
    assert said["others.values"] == ("list", "local `others` of main() in script.py") and len(said) == 2, said
    [cure] = {keeper["cure"] for place in found for keeper in place["keepers"] if keeper["name"] == f"{name}.values"}
    assert cure == f"remove items from the list when they are no longer needed; list `{other}.values` holds them too"


def test_a_function_of_a_library_is_named_where_no_variable_leads_to_it(more, msmemscope):
    _document, found = places(msmemscope, more["library"])
    held, keeper = [keeper for place in found for keeper in place["keepers"]]
    assert (held["type"], held["name"], held["root"]) == ("list", "held.kept", "local `held` of main() in script.py"), held
    assert re.fullmatch(r"list `kept` \(closure of <lambda> defined at meters\.py:\d+\), \d+ items, .*", keeper["sentence"]), keeper
    assert keeper["path"] == ""


def test_memory_of_a_graph_that_a_cycle_keeps_is_not_called_cpp(more, msmemscope):
    _document, found = places(msmemscope, more["dropped"])
    sentences = [keeper["sentence"] for place in found for keeper in place["keepers"]]
    assert sentences.count("a reference cycle of Fit objects; gc.collect() would free it") >= 3, sentences
    assert not any(sentence.startswith("C++ only") for sentence in sentences), sentences


def test_the_cure_of_kept_models_fits_models(more, msmemscope):
    _document, found = places(msmemscope, more["models"])
    cures = {(keeper["name"], keeper["kind"]): keeper["cure"] for place in found for keeper in place["keepers"]}
    line = MORE["models"][:MORE["models"].index("models.append")].count("\n") + 1
    kept = f"remove the models from the list, or keep only their state_dict(); filled at script.py:{line}"
    assert {cure for (name, _kind), cure in cures.items() if name == "models"} == {kept}, cures
    assert cures["results", "graph"].startswith("remove items from the list, or let each Result keep .detach() of its tensors"), cures


def test_what_no_python_object_holds_is_not_given_to_one(parts, msmemscope):
    _document, found = places(msmemscope, parts["none"])
    keeper = max(found, key=lambda place: place["bytes"])["keepers"][0]
    assert keeper["kind"] == "cpp" and keeper["name"] == "" and keeper["sentence"].startswith("C++ only")


def test_what_all_grows_in_the_second_step_is_no_growth_of_the_pool(parts, msmemscope):
    document, found = places(msmemscope, parts["two networks"])
    assert document["judgement"]["clean"] and not found, document["judgement"]
    assert [trend["trend"] for trend in document["trends"]] == ["steady"]


def test_a_program_that_does_not_leak_is_not_looked_at(parts, msmemscope):
    document, found = places(msmemscope, parts["healthy"])
    assert document["events_by_type"].get("keeper", 0) == 0 and not [place for place in found if place["keepers"]]


def test_a_global_is_named_on_the_screen_at_the_end(python, msmemscope, out):
    out.mkdir(exist_ok=True)
    script = out / "train.py"
    script.write_text(MODEL + """
history = []
for step in range(40):
    history.append(torch.randn(2000))
    train(step)
""")
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert "  kept by: list `history` (global of train.py), 40 items, newest from step 40\n" in run.stderr, run.stderr
    line = script.read_text().split("history.append")[0].count("\n") + 1
    assert f"  cure: remove items from the list when they are no longer needed; filled at train.py:{line}\n" in run.stderr


def test_a_newline_in_the_name_of_the_script_starts_no_line(python, msmemscope, out):
    out.mkdir(exist_ok=True)
    script = out / "tr\nain.py"
    script.write_text(MODEL + """
history = []
for step in range(40):
    history.append(torch.randn(2000))
    train(step)
""")
    run = msmemscope("--device=cpu", "--", *python, script).check()
    told = run.stderr + msmemscope("info", run.project().path, output=False).check().stdout + (run.project().path / "report.txt").read_text()
    assert told.count("  kept by: list `history` (global of tr\\x0aain.py), 40 items") == 3, told
    assert "; filled at tr\\x0aain.py:" in told and not re.search("^ain.py", told, re.M)


def test_of_many_processes_the_worst_has_its_keeper_on_the_screen(parts):
    screen = " ".join(parts["local"].stderr.split())
    assert re.search(r"\b[5-9] processes, \d with a finding; worst first", screen), screen
    assert re.search(r"kept by: list `samples` \(local of main\(\) in script\.py\), \d+ items in step \d+ cure: remove items from the list", screen), screen


TWO = MODEL + """
def cached(value, seen={}):
    seen[len(seen)] = value
def main():
    history = []
    for step in range(40):
        history.append(torch.randn(3000))
        cached(torch.randn(1000))
        train(step)
main()
"""


def test_what_keeps_a_call_site_is_said_below_its_own_row(python, msmemscope, out):
    out.mkdir(exist_ok=True)
    script = out / "two.py"
    script.write_text(TWO)
    run = msmemscope("--device=cpu", "--", *python, script).check()
    lines = [TWO[:TWO.index(text)].count("\n") + 1 for text in ("history.append", "cached(torch")]
    assert re.search(rf"two\.py:{lines[0]} main .*\n  kept by: list `history` .*\n  cure: .*\n.* two\.py:{lines[1]} main .*\n  kept by: dict `seen` ", run.stderr), run.stderr


SMALL_TOO = """
import torch
def main():
    rows, losses = [], []
    net = torch.nn.Linear(256, 512)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        features = net(torch.randn(64, 256))
        loss = features.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.append({"loss": loss.detach(), "features": features.detach()})
        if APART:
            losses.append(torch.zeros(3))
main()
"""


@pytest.mark.parametrize("apart", [False, True])
def test_a_small_leak_with_the_keeper_of_a_larger_one_is_not_listed(python, msmemscope, out, apart):
    """One line of the program fills the list, and one cure serves both. What another list keeps is listed, with that list."""
    out.mkdir(exist_ok=True)
    script = out / "both.py"
    script.write_text(SMALL_TOO.replace("APART", str(apart)))
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert run.stderr.count("kept by: list `rows`") == 1 and " (+4.0 B per step) are kept there too. " in " ".join(run.stderr.split()), run
    assert ("SMALL LEAK on the CPU: +12.0 B per step" in run.stderr) == ("kept by: list `losses`" in run.stderr) == apart, run


WORKSPACE = """
import time, torch
from torch.utils.dlpack import to_dlpack
held = []
def forward(n):
    first = not held
    out = [torch.zeros(k) for k in ((2 << 20, n) if first else (n,))]
    if first:
        held.append(to_dlpack(out.pop(0)))  # a capsule: only C++ has the tensor now
    return out[-1]
def repeat(seconds, do):
    end = time.time() + seconds
    while time.time() < end:
        do()
        time.sleep(0.02)
repeat(2.5, lambda: torch.ones(8))
repeat(2, lambda: forward(4096))
"""


def test_without_steps_what_only_cxx_keeps_of_a_first_call_is_a_workspace(python, msmemscope, out):
    """As that of cuBLAS, which the first call of a layer takes; there is no first step that would be its warm-up."""
    out.mkdir(exist_ok=True)
    script = out / "serve.py"
    script.write_text(WORKSPACE)
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert "No leak found: " in run.stderr and "SUSPECT" not in run.stderr, run
    [place] = [one for one in msmemscope.info(run.project())["places"] if one["bytes"] >= 8 << 20]
    assert place["verdict"] == "kept" and place["freed"] > 8, place


ASKED = """
import gc, weakref
gc.disable()
import torch
from msmemscope import _keeper
class Tensor: pass
def interrupted():
    mine = Tensor()
    seen = weakref.ref(mine)
    assert _keeper._frames_are_known()
    return seen
print("kept" if interrupted()() is not None else "freed")
"""


def test_what_asks_keeps_nothing_of_the_function_that_it_interrupts(python, msmemscope, out):
    """A frame with a variable that is itself keeps all that called it, until garbage is collected."""
    out.mkdir(exist_ok=True)
    script = out / "asked.py"
    script.write_text(ASKED)
    assert msmemscope("--device=cpu", "--", *python, script, env={"PYTHONPATH": msmemscope.dist / "python"}).check().stdout == "freed\n"


SERVING = """
import time, torch
def serve():
    sessions = {}
    for request in range(150):
        sessions[request] = torch.randn(1000)
        time.sleep(0.01)
serve()
"""


def test_without_steps_the_screen_says_how_to_see_what_a_function_keeps(python, msmemscope, out):
    """The function has returned when the program is asked, at its end."""
    out.mkdir(exist_ok=True)
    (out / "serve.py").write_text(SERVING)
    run = msmemscope("--device=cpu", "--", *python, out / "serve.py").check()
    assert " on the CPU: " in run.stderr, run.stderr
    assert "  kept by: unknown; mark steps with msmemscope.step() or run `msmemscope ctl PID who` meanwhile\n" in run.stderr, run.stderr


FILLED = """'history.append(1) fills it'; text = "# made[:] = [text]"
from other import Meter
history, both, seen, made = [], [], {}, []
history.append(1)  # history.append
for n in range(2):
    both.append(n)
    if n:
        both += [n]
    seen.setdefault("a", []).append(n)
    made[:] = [n]
meter = Meter()
meter.add(1)
from msmemscope._filled import added, filled, function_lines
print([filled(name) for name in ("history", "both", "seen['a']", "meter.values", "self.unknown", "made", "")])
def one():
    kept, total = [], 0
    kept.append(total)
    total += made
    return lambda: held.append(1)
def two(items):
    items.append(2)
def where(function):
    return __file__, function_lines(function.__code__)
print([filled("kept", where(one)), filled("kept", where(two)), filled("held", where(one)), filled("kept", ("other.py", None)), filled("kept", ("main.py", None)),
       added("total", where(one)), filled("meter.held"), filled("items", where(one))])
"""
OTHER = """
class Meter:
    '''Filled by
    self.values.append(1), "self.values.append(2)"'''
    def __init__(self):
        self.values = []
    def add(self, value):
        self.values.append(value)
"""


def test_the_line_that_fills_a_container_is_said_if_there_is_one(python, dist, out):
    out.mkdir(exist_ok=True)
    (out / "main.py").write_text(FILLED)
    (out / "other.py").write_text(OTHER)
    said = subprocess.run([*python, "main.py"], cwd=out, env={**os.environ, "PYTHONPATH": str(dist / "python")}, capture_output=True, text=True,
                          check=True).stdout
    first, second = said.splitlines()
    assert first == "[('main.py:4', ''), ('', ''), ('main.py:9', ''), ('other.py:8', 'value'), ('', ''), ('main.py:10', ''), ('', '')]"
    # Other variables of the same name are left out.
    assert second == ("[('main.py:17', 'total'), ('', ''), ('main.py:19', ''), ('', ''), ('main.py:17', 'total'), ('main.py:18', 'made'), ('', ''), "
                      "('', '')]")


# 4, 8 and 16 steps are when the program is asked by itself; 12 of them make an answer of `ctl PID who`. It allocates until it is told to end.
RUNNING = MODEL + """
import sys, threading
def main():
    held = []
    for step in range(12):
        held.append(torch.randn(1000))
        train(step)
    print(len(held), flush=True)
    told = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), told.set())).start()
    while not told.wait(0.001):
        torch.empty(16)
main()
"""


@contextlib.contextmanager
def launched(dist, out, *words):
    """(launch, pid of its program); the program ends with its standard input, or is killed."""
    with subprocess.Popen([dist / "bin" / "msmemscope", f"--output={out / 'results'}", *map(str, words)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=harness.environment(dist)) as launch:
        first = words[words.index("--") + 1]
        pid = None
        while pid is None:
            assert launch.poll() is None, launch.stderr.read()
            for one in Path(f"/proc/{launch.pid}/task/{launch.pid}/children").read_text().split():
                if Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[0] == str(first).encode():
                    pid = int(one)
        yield launch, pid


def who(dist, pid, *words):
    return subprocess.run([dist / "bin" / "msmemscope", "ctl", str(pid), "who", *words], capture_output=True, text=True, timeout=120, check=False)


def test_a_running_process_is_asked_who_keeps_its_memory(python, out, dist):
    out.mkdir(exist_ok=True)
    script = out / "script.py"
    script.write_text(RUNNING)
    with launched(dist, out, "--device=cpu", "--", *python, script) as (launch, pid):
        items = int(launch.stdout.readline())
        said, document = who(dist, pid), who(dist, pid, "--json")
        launch.communicate("", timeout=120)
    assert said.returncode == 0 and said.stderr == "", said
    assert f"  kept by: list `held` (local of main() in script.py), {items} items, " in said.stdout, said.stdout
    assert document.returncode == 0, document
    document = json.loads(document.stdout)
    keepers = [keeper for place in document["places"] for keeper in place["keepers"]]
    assert document["pid"] == pid and [(one["name"], one["items"]) for one in keepers] == [("held", items)]


def test_a_process_without_python_says_that_it_cannot_look(out, targets, dist):
    out.mkdir(exist_ok=True)
    # It makes an event every 20 ms for ten minutes, and is killed long before.
    with launched(dist, out, "--", targets / "crash_target", out / "truth", 1, 30000, 600000) as (_launch, pid):
        said = who(dist, pid)
        os.kill(pid, signal.SIGKILL)
    assert said.returncode == 1 and said.stdout == "" and "has no Python interpreter that can answer" in said.stderr, said


# ---- programs without steps, which the engine asks by itself ----

# Each allocates until its standard input ends, and says so when `told` is to be set; END is what it does then.
STEPLESS = """
import os, signal, sys, threading, time, torch
told = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), told.set()), daemon=True).start()
"""
SERVERS = {
    "main": STEPLESS + """
def main():
    sessions = {}
    while not told.wait(0.005):
        sessions[len(sessions)] = torch.randn(2000)
        torch.empty(16)
main()
""",
    "worker": STEPLESS + """
def worker():
    history = []
    while not told.wait(0.005):
        history.append(torch.randn(2000))
        torch.empty(16)
thread = threading.Thread(target=worker)
thread.start()
thread.join()
""",
    "healthy": STEPLESS + """
def main():
    weights = [torch.randn(3000) for _ in range(20)]
    while not told.wait(0.005):
        torch.randn(2000)
main()
""",
}
NAMES = {"main": ("dict", "sessions", "local of main() in script.py"), "worker": ("list", "history", "local of worker() in script.py")}


def log_of(out):
    return "".join(path.read_text(errors="replace") for path in sorted(out.rglob("msmemscope_logs/*.log")))


def serve(dist, python, out, script, until, number=None):
    """Runs it until the log says so; then ends it by the signal, or by its input."""
    out.mkdir(exist_ok=True)
    (out / "script.py").write_text(script)
    with launched(dist, out, "--device=cpu", "--log-level=debug", "--", *python, out / "script.py") as (launch, pid):
        while until not in log_of(out):
            assert launch.poll() is None, launch.stderr.read()
            time.sleep(0.05)
        if number is not None:
            os.kill(pid, number)
        said = launch.communicate("", timeout=120)[1]
    return said


@pytest.mark.parametrize("name, number", [("main", signal.SIGKILL), ("main", signal.SIGTERM), ("main", None), ("worker", signal.SIGKILL), ("worker", None)])
def test_a_program_without_steps_is_asked_while_it_runs(python, msmemscope, out, dist, name, number):
    """Whatever ends it, and although the functions that hold the tensors have then returned."""
    said = serve(dist, python, out / "run", SERVERS[name], "what keeps blocks is known of", number)
    kind, variable, root = NAMES[name]
    assert re.search(rf"\n  kept by: {kind} `{variable}` \({re.escape(root)}\), \d+ items( at \d+\.\d s)?\n", said), said
    [project] = rows.projects(out / "run" / "results")
    [place] = [place for place in msmemscope.info(project)["places"] if place["verdict"] != "kept"]
    keeper = place["keepers"][0]
    assert (keeper["name"], keeper["held"]) == (variable, keeper["looked"]) and keeper["seconds"] > 0


def test_a_healthy_program_without_steps_is_asked_nothing(python, msmemscope, out, dist):
    serve(dist, python, out / "run", SERVERS["healthy"], "without steps: 0 call sites", signal.SIGKILL)
    assert "what keeps blocks is asked" not in log_of(out / "run")
    [project] = rows.projects(out / "run" / "results")
    assert msmemscope.info(project)["events_by_type"].get("keeper", 0) == 0


# A node as C++ code lays it out, for each thing that can be the word before it: the counts that it shares its memory with, as AccumulateGrad has
# them before 2.13, what some other allocator has there, the size of a chunk of its own.
NODE = """
import ctypes, struct
from msmemscope._keeper import _Arrays, collector
storage, tensor = (ctypes.c_uint64 * 8)(), (ctypes.c_uint64 * 32)()
memory = 0x7f0000001000
storage[3] = memory
tensor[2] = ctypes.addressof(storage)
for count, word in enumerate((0x300000001, 0x300000003, 0x300000004, 0xffffffffffffffff, 0x7f0000000010, 0, 0x1e1, 0x401)):
    node = (ctypes.c_uint64 * 1024)()
    node[1] = word
    node[2 + 40] = ctypes.addressof(tensor)
    node[2 + 70] = ctypes.addressof(tensor)
    object = struct.unpack("<d", struct.pack("<Q", ctypes.addressof(node) + 16))[0]  # its word behind the head is the address
    out = (ctypes.c_uint32 * 64)()
    found = collector.mscope_saved(object, 0, ctypes.addressof(tensor), ctypes.addressof(storage), memory,
                                   _Arrays.numbers([memory]), 1, out, 64)
    print(hex(word), found, flush=True)
"""


def test_a_node_is_read_whatever_stands_before_it(msmemscope, out, dist):
    ended = msmemscope("--events=alloc,free", f"--output={out}", "--", "/usr/bin/python3", "-c", NODE,
                       env={"PYTHONPATH": str(dist / "python")})
    # Where the size is not known, 512 bytes are read: the first of both tensors.
    assert ended.stdout.splitlines() == ["0x300000001 1", "0x300000003 1", "0x300000004 1", "0xffffffffffffffff 1", "0x7f0000000010 1", "0x0 1",
                                         "0x1e1 1", "0x401 2"]


FORKED = """
import multiprocessing, time, torch
def work():
    kept.items = {}
    for n in range(400):
        kept.items[n] = torch.randn(1000)
        torch.randn(2000)
        time.sleep(0.002)
class kept:
    pass
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    print(child.exitcode)
"""


def test_a_forked_child_is_asked_before_it_leaves(python, msmemscope, out):
    """It leaves by os._exit(): no exit handler of the interpreter runs in it."""
    out.mkdir(exist_ok=True)
    script = out / "script.py"
    script.write_text(FORKED)
    run = msmemscope("--device=cpu", "--", *python, script).check()
    assert run.stdout == "0\n"
    assert re.search(r"kept by: dict `kept\.items` \(class attribute of kept in script\.py\), 400 items\n", run.stderr), run.stderr
