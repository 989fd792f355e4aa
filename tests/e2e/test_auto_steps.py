# SPDX-License-Identifier: Apache-2.0
"""Steps without being asked: an optimizer's step() is one where the program marks none. The script counts its iterations, and
prints in which one each tensor was made that it keeps."""
import json

import pytest

HEAD = """
import json, sys
import torch
from torch import nn

torch.set_num_threads(1)
net = nn.Linear(64, 64)
kept = []                      # (address, iteration from 1)

def keep(iteration):
    tensor = torch.zeros(4096)
    kept.append((tensor, iteration))

def train(optimizer, iteration, scaler=None):
    loss = net(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    if scaler is None:
        loss.backward()
        optimizer.step()
    else:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

def tell(steps):
    print(json.dumps({"steps": steps, "kept": [(tensor.data_ptr(), at) for tensor, at in kept]}), flush=True)

"""

SGD = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for iteration in range(1, 13):
    keep(iteration)
    train(optimizer, iteration)
tell(12)
"""

GAN = """
other = nn.Linear(64, 64)
optimizers = torch.optim.Adam(net.parameters()), torch.optim.Adam(other.parameters())
for iteration in range(1, 8):
    keep(iteration)
    for optimizer in optimizers:
        train(optimizer, iteration)
tell(7)
"""

ACCUMULATION = """
optimizer = torch.optim.AdamW(net.parameters())
for iteration in range(1, 25):
    if iteration % 4 == 1:
        keep((iteration + 3) // 4)
    net(torch.randn(8, 64)).square().mean().backward()
    if iteration % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
tell(6)
"""

# The third iteration overflows: the scaler skips its step, which is one with the fourth.
SCALER = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
steps = 0
for iteration in range(1, 9):
    keep(steps + 1)
    loss = net(torch.randn(8, 64)).square().mean()
    if iteration == 3:
        loss = loss * float("inf")
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    steps += iteration != 3
tell(7)
"""

# Two stages: the first optimizer is gone when the second takes its first step.
STAGES = """
for stage in range(2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for iteration in range(1, 6):
        keep(stage * 5 + iteration)
        train(optimizer, iteration)
    del optimizer
tell(10)
"""

# The first optimizer is still there, but only the second is used: it marks when it has stepped a hundred times.
IDLE = """
first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for _ in range(2))
keep(1)
train(first, 1)
for iteration in range(1, 106):
    train(second, iteration)
keep(7)
tell(6)
"""

# Optimizers that are kept, each for the same parameters: a new one marks from its first step on.
EPOCHS = """
optimizers = []
for epoch in range(3):
    optimizers.append(torch.optim.Adam(net.parameters()))
    for iteration in range(1, 5):
        keep(epoch * 4 + iteration)
        train(optimizers[-1], iteration)
tell(12)
"""

# A second one for the same parameters comes in now and then: it marks once, and the first goes on.
NOW_AND_THEN = """
first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for _ in range(2))
steps = 0
for iteration in range(1, 10):
    keep(steps + 1)
    train(first, iteration)
    steps += 1
    if iteration % 3 == 0:
        train(second, iteration)
        steps += iteration == 3
tell(10)
"""


# A model and an optimizer for each fold, all of them kept: the newest marks from its first step on, though it has other parameters.
FOLDS = """
models = []
for fold in range(5):
    model = nn.Linear(64, 64)
    models.append((model, torch.optim.Adam(model.parameters())))
    for iteration in range(1, fold + 2):
        keep(fold * (fold + 1) // 2 + iteration)
        train(models[-1][1], iteration)
tell(15)
"""

# Two stages whose optimizers are both made at the start: the second marks when it took more steps than the first ever let pass, four here.
STAGES_AT_ONCE = """
first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (net, nn.Linear(64, 64)))
for iteration in range(1, 7):
    keep(iteration)
    train(first, iteration)
for iteration in range(1, 11):
    train(second, iteration)
keep(13)
tell(12)
"""

# The first pauses for five steps of the second in each round, after it was alone: once it has come back it marks, and goes on to.
CRITIC = """
first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (net, nn.Linear(64, 64)))
for iteration in range(1, 5):
    train(first, iteration)
steps = 4
for round in range(6):
    for iteration in range(1, 6):
        train(second, iteration)
    steps += round == 0
    keep(steps + 1)
    train(first, 1)
    steps += 1
tell(11)
"""


@pytest.fixture
def torch(msmemscope, python, out):
    """Runs a script; gives the run and what info says."""
    def run(text, *options, at="run", **more):
        path = out / "script.py"
        path.write_text(HEAD + text, encoding="utf-8")
        done = msmemscope("--device=cpu", "--level=kernel", *options, "--", *python, path, output=out / at,
                          env={"PYTHONPATH": msmemscope.dist / "python"}, **more).check()
        return done, msmemscope.info(done.project())

    return run


def steps_of(run, info):
    """{address: step} of the tensors that the script kept, as recorded and as it says."""
    found = {int(block["address"], 16): block["step"] for block in info["live_blocks"]}
    kept = run.value("kept")
    assert len(kept) > 0
    return {at: found[at] for at, _ in kept}, dict(kept)


SCRIPTS = {"sgd": SGD, "gan": GAN, "accumulation": ACCUMULATION, "scaler": SCALER, "stages": STAGES, "idle": IDLE, "epochs": EPOCHS, "now and then": NOW_AND_THEN,
           "folds": FOLDS, "stages at once": STAGES_AT_ONCE, "critic": CRITIC}


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_optimizer_counts_the_steps(together, msmemscope, script):
    run = together(["--device=cpu", "--level=kernel"], {name: HEAD + text for name, text in SCRIPTS.items()},
                   {"PYTHONPATH": msmemscope.dist / "python"})[script]
    info = msmemscope.info(run.project())
    assert info["automatic_steps"] and info["steps"] == run.value("steps"), run
    found, said = steps_of(run, info)
    # The first step began with the run, before anything was said about steps.
    assert {at: max(step, 1) for at, step in found.items()} == said
    assert info["losses"] == {cause: 0 for cause in info["losses"]}


def shape(run):
    """The rows without what differs from run to run."""
    return [(row.event, row.type, row.name, row.device, {key: value for key, value in row.attr.items() if key != "addr"})
            for row in run.rows()]


@pytest.mark.parametrize("options", [[], ["--steps=2"], ["--format=db"]], ids=" ".join)
def test_dump_files_know_nothing_of_it(torch, options):
    counted, with_steps = torch(SGD, *options, at="on")
    plain, without = torch(SGD, *options, "--auto-steps=off", at="off")
    assert (with_steps["steps"], without["steps"]) == (12, 0)
    # With more to say above, a screen has no room for notes, and says so.
    assert "): 12 steps in " in counted.stderr and ("Steps are those of the optimizer; the program marks none." in counted.stderr or
                                                    "Also in the report: notes" in counted.stderr)
    never = "msmemscope: --steps: 2 not reached; the program marks no steps, and those of its optimizer cannot be chosen\n"
    assert (never in counted.stderr) == ("--steps=2" in options)
    assert without["events_by_type"]["optimizer_step"] == 0 and not without["automatic_steps"]
    assert with_steps["rows"] == without["rows"]
    if "--format=db" not in options:
        assert shape(counted) == shape(plain)
        assert (shape(plain) == []) == (options == ["--steps=2"])


def test_marks_of_the_program_win(torch):
    run, info = torch(SGD.replace("    train(optimizer, iteration)\n",
                                  "    train(optimizer, iteration)\n    if iteration > 3: msmemscope.step()\n")
                      .replace("optimizer =", "import msmemscope\noptimizer =", 1))
    assert not info["automatic_steps"] and info["steps"] == 9, run
    assert "those of the optimizer" not in run.stderr
    found, said = steps_of(run, info)
    # Three iterations and the fourth are the first step; what was counted before does not count.
    assert {at: max(step, 1) for at, step in found.items()} == {at: max(1, step - 3) for at, step in said.items()}
    assert [row.name for row in run.rows() if row.type == "STEP"] == [str(number) for number in range(1, 10)]


def test_one_late_mark_does_not_undo_what_the_run_has_shown(torch):
    """As of `msmemscope ctl PID step`. Rows have the mark."""
    run, info = torch(SGD.replace("    train(optimizer, iteration)\n",
                                  "    train(optimizer, iteration)\n    if iteration == 10: msmemscope.step()\n")
                      .replace("optimizer =", "import msmemscope\noptimizer =", 1))
    assert info["automatic_steps"] and info["steps"] == 12, run
    assert info["verdict"] != "unknown" and any(place["verdict"] == "leak" for place in info["places"]), info["places"]
    assert [row.name for row in run.rows() if row.type == "STEP"] == ["1"]
    report = (run.project().path / "report.txt").read_text(encoding="utf-8")
    assert "12 steps counted by the optimizer's step(): the program marked 1, too late and too few to count.\n" in report


@pytest.mark.parametrize("choice, steps", [("", 12), (', auto_steps="off"', 0)], ids=["on", "off"])
def test_windows_of_the_api_count_too(torch, choice, steps):
    script = SGD.replace("for iteration", f'import msmemscope\nmsmemscope.config(device="cpu"{choice})\nmsmemscope.start()\nfor iteration',
                         1).replace("tell(", "msmemscope.stop()\ntell(")
    _, info = torch(script, "--collect-mode=deferred")
    assert info["steps"] == steps


def test_a_script_without_pytorch_or_device_memory_is_not_touched(msmemscope):
    code = "import sys; print([name for name in sys.modules if name.startswith('msmemscope')])"
    run = msmemscope("--events=alloc,free", "--analysis=", "--", "/usr/bin/python3", "-I", "-S", "-c", code).check()
    assert run.stdout == "[]\n"
    assert run.projects() == []


def test_optimizer_steps_alone_leave_no_trace(msmemscope, python, out):
    """Tensors of the host are not asked for, so nothing is recorded."""
    path = out / "script.py"
    path.write_text(HEAD + SGD, encoding="utf-8")
    run = msmemscope("--", *python, path).check()
    assert json.loads(run.stdout.splitlines()[-1])["steps"] == 12
    assert run.projects() == []
