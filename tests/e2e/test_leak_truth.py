# SPDX-License-Identifier: Apache-2.0
"""The verdicts on leaks against programs that know the truth: random programs on the simulated NPU, and real PyTorch on the CPU.
tests/judge tries many more of them in one process."""
import json
import re
from collections import namedtuple

import pytest

from fixtures import ROOT
from leak_programs import mistakes
from scripts import python_path

MIB = 1024 * 1024
DIRECT = re.compile(r"^Direct .* leak of \S+ Mb\(s\) at 0x([0-9a-f]+) in kernel_\d+ at step (\d+)\.$")

Place = namedtuple("Place", "verdict name sentence")


def report_of(run):
    return (run.project().path / "report.txt").read_text()


def verdicts_by_address(report):
    """The gravest word on each block that the report lists as leaked or suspected."""
    found, verdict = {}, None
    for line in report.splitlines():
        header = re.match(r"====== (ERROR: Detected|WARNING: Suspected) memory leaks", line)
        if header:
            verdict = "leak" if "ERROR" in header[1] else "suspect"
        block = DIRECT.match(line)
        if block and found.get(int(block[1], 16)) != "leak":
            found[int(block[1], 16)] = verdict
    return found


def places(report):
    return [Place(*match) for match in re.findall(r"^(leak|suspect|kept): (.*?)  (.*)$", report, re.M)]


def judge(msmemscope, program, *arguments, options=(), **keywords):
    run = msmemscope(*options, "--", *program("random_places", *arguments), **keywords).check()
    report = report_of(run)
    by_address = verdicts_by_address(report)
    judged = []
    for place in map(json.loads, run.stdout.splitlines()):
        said = [by_address.get(address, "kept") for address in place["addresses"]]
        place["verdict"] = next((word for word in ("leak", "suspect") if word in said), "kept")
        judged.append(place)
    return judged, report


# Seeds that have leaks in the pool, beside it, in the driver and in pinned memory, and healthy places among them.
@pytest.mark.parametrize("stacks", [True, False], ids=["stacks", "no-stacks"])
@pytest.mark.parametrize("seed, steps", [(1, 100), (2, 60), (3, 24), (4, 100), (9, 12), (6, 40)])
def test_random_programs_are_judged_right(msmemscope, program, seed, steps, stacks):
    judged, report = judge(msmemscope, program, f"--seed={seed}", f"--steps={steps}", *(["--clean"] if seed % 2 else []),
                           options=["--call-stack=c"] if stacks else [])
    assert {place["truth"] for place in judged} >= {"healthy", "leaking"}
    for place in judged:
        if place["truth"] == "healthy" and not place["still_fills"]:
            assert place["verdict"] != "leak", (place["shape"], report)
        if place["truth"] == "leaking" and place["leaked_steps"] >= 6:
            assert place["verdict"] != "kept", (place["shape"], report)
    if any(place["truth"] == "leaking" and place["leaked_steps"] >= 6 for place in judged):
        assert "No leak was found" not in report


def test_leaks_are_found_wherever_the_memory_comes_from(msmemscope, program, out):
    """In a framework's pool, in the driver beside it, in the driver alone, and in pinned host memory."""
    found = {}
    for seed in range(20, 44):
        judged, _ = judge(msmemscope, program, f"--seed={seed}", "--steps=40", options=["--call-stack=c"], output=out / str(seed))
        for place in judged:
            if place["truth"] == "leaking" and place["leaked_steps"] >= 20:
                found.setdefault(place["where"], []).append(place["verdict"])
        if set(found) == {"pool", "beside", "driver", "pinned"} and min(map(len, found.values())) >= 2:
            break
    assert {where: set(said) for where, said in found.items()} == dict.fromkeys(("pool", "beside", "driver", "pinned"), {"leak"})


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_healthy_programs_have_no_leak(msmemscope, program, seed):
    judged, report = judge(msmemscope, program, f"--seed={seed}", "--steps=50", "--healthy", options=["--call-stack=c"])
    assert not [place["shape"] for place in judged if place["verdict"] == "leak"] and "ERROR: Detected" not in report


# ---- PyTorch ----

HEAD = """
import sys, time
import torch, msmemscope
torch.manual_seed(0)
"""

GROWING_CAT = HEAD + """
hist = torch.zeros(0)
for step in range(30):
    hist = torch.cat([hist, torch.ones(1 << 18)])   # grows
    msmemscope.step()
"""

APPENDED_LOSS = HEAD + """
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(30):
    out = model(torch.randn(64, 512))
    loss = (out * out).mean()
    losses.append(out)                              # forgotten
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    msmemscope.step()
"""

ACCUMULATION = HEAD + """
model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 512))
optimizer = torch.optim.AdamW(model.parameters())
ema = None
for step in range(48):
    loss = model(torch.randn(32, 512)).square().mean()
    loss.backward()
    if step % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
    if step == 20:
        ema = [parameter.detach().clone() for parameter in model.parameters()]
    msmemscope.step()
"""

SESSIONS = HEAD + """
import random
random.seed(1)
cache = {}
for step in range(120):
    for name in list(cache):
        if random.random() < 0.2:
            del cache[name]                         # a session ends
        else:
            cache[name].append(torch.ones(4096))    # its next block
    cache[step] = [torch.ones(4096)]
    msmemscope.step()
"""

WITHOUT_STEPS = HEAD + """
kept = []
model = torch.nn.Linear(256, 256)
for request in range(120):
    with torch.no_grad():
        model(torch.randn(64, 256))
    kept.append(torch.ones(1 << 14))                # forgotten
    time.sleep(0.02)
"""


RETAINED = HEAD + """
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for step in range(30):
    out = model(torch.randn(64, 512))
    loss = out.square().mean()                      # its graph stays
    total = total + loss
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
"""


@pytest.fixture
def report(together, dist):
    """The report on one of the scripts."""
    def read(name):
        return report_of(together(["--device=cpu"], SCRIPTS, {"PYTHONPATH": python_path(dist)})[name])

    return read


SCRIPTS = {"cat": GROWING_CAT, "list": APPENDED_LOSS, "accumulation": ACCUMULATION, "sessions": SESSIONS, "no steps": WITHOUT_STEPS,
           "graph": RETAINED}


def line_of(script, text):
    [number] = [number for number, line in enumerate(script.splitlines(), 1) if text in line]
    return number


def leaking_lines(report):
    """Lines of the script that are called leaks: of the first frame of ours below each block."""
    found = set()
    for name in [place.name for place in places(report) if place.verdict == "leak"]:
        found |= {int(number) for number in re.findall(r"script\.py[:(](\d+)", name)[:1]}
    return found


def test_a_tensor_that_grows_by_cat_is_a_leak(report):
    report = report("cat")
    assert leaking_lines(report) == {line_of(GROWING_CAT, "# grows")}, report
    [place] = [place for place in places(report) if place.verdict == "leak"]
    rate = re.match(r"grows by reallocation: (\S+) MiB per step .*in (\d+) of (\d+) steps; each block replaces a smaller one\.",
                    place.sentence)
    assert rate and float(rate[1]) == 1.0 and int(rate[2]) == int(rate[3]) >= 28, report


def test_what_a_list_collects_is_a_leak_and_the_rest_of_a_training_is_not(report):
    report = report("list")
    out = line_of(APPENDED_LOSS, "out = model(")
    assert leaking_lines(report) == {out}, report
    rates = [re.match(r"(\S+) (KiB|MiB) per step", place.sentence) for place in places(report) if place.verdict == "leak"]
    # Each output is 64 x 512 floats; its graph holds the input beside it.
    assert all(rate and float(rate[1]) >= 64 for rate in rates), report


def test_state_that_comes_late_and_copies_are_kept(report):
    report = report("accumulation")
    assert not [place for place in places(report) if place.verdict == "leak"], report


def test_a_cache_of_sessions_that_end_is_no_leak(report):
    report = report("sessions")
    assert not [place for place in places(report) if place.verdict == "leak"], report


def test_without_steps_growth_is_judged_over_time_and_the_report_says_so(report):
    report = report("no steps")
    assert re.search(r"^No step was marked: growth is judged over \d+ equal parts of the run, \S+ s each\.$", report, re.M), report
    assert leaking_lines(report) == {line_of(WITHOUT_STEPS, "# forgotten")}, report
    assert "No leak was found" not in report


LOADER = HEAD + """
data = torch.utils.data.TensorDataset(torch.randn(2048, 64))
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=64, shuffle=True, num_workers=2):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
"""

RANKS = HEAD + """
import os
import torch.distributed
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(os.environ["RANK"]), world_size=4)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(32, 256)).square().mean().backward()
    optimizer.step()
    if torch.distributed.get_rank() == 2:
        kept.append(torch.ones(1 << 14))            # forgotten
torch.distributed.destroy_process_group()
"""


def test_a_graph_that_is_kept_is_a_leak(report):
    report = report("graph")
    lines = {line_of(RETAINED, "out = model("), line_of(RETAINED, "# its graph stays"), line_of(RETAINED, "total = total")}
    assert leaking_lines(report) and leaking_lines(report) <= lines, report
    assert re.search(r"CPU tensors: \+\S+ KiB per step .*, rose in 29 of 29 steps", report), report


def test_workers_of_a_loader_leak_nothing(msmemscope, python, tmp_path):
    (tmp_path / "script.py").write_text(LOADER.replace(", msmemscope", ""))
    run = msmemscope("--device=cpu", f"--summary-json={tmp_path / 'found'}", "--", *python, tmp_path / "script.py").check()
    processes = json.loads((tmp_path / "found").read_text())["processes"]
    assert not [place for process in processes for place in process["places"] if place["verdict"] == "leak"], str(run)
    assert {process["steps"] for process in processes if process["steps"]} == {96}, str(run)


def test_of_four_ranks_the_one_that_leaks_is_named(msmemscope, python, tmp_path):
    script, start = tmp_path / "script.py", tmp_path / "start.sh"
    script.write_text(RANKS.replace(", msmemscope", ""))
    start.write_text('for rank in 0 1 2 3; do RANK=$rank "$@" & done; wait\n')
    run = msmemscope("--device=cpu", f"--summary-json={tmp_path / 'found'}", "--", "sh", start, *python, script,
                     tmp_path / "meeting").check()
    processes = json.loads((tmp_path / "found").read_text())["processes"]
    leaking = {process["rank"]: [place["frames"] for place in process["places"] if place["verdict"] == "leak"]
               for process in processes}
    assert set(leaking) == {0, 1, 2, 3} and [rank for rank, found in leaking.items() if found] == [2], str(run)
    assert [frame["line"] for frame in leaking[2][0] if frame["file"].endswith("script.py")][0] == line_of(
        RANKS, "# forgotten"), leaking[2]


SEEDS = [1, 3, 11, 2]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_things_beside_a_training_are_judged_right(together, dist, tmp_path_factory, seed):
    """The same programs as on a GPU (tests/gpu/run leaks); the last has no leak."""
    found = tmp_path_factory.getbasetemp() / "random_things"
    run = together(["--device=cpu", f"--summary-json={found}"], {str(one): [ROOT / "tests/gpu/programs/leaks.py", one, "cpu"] for one in SEEDS},
                   {"PYTHONPATH": python_path(dist)})[str(seed)]
    said = json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])
    [process] = [process for process in json.loads(found.read_text())["processes"] if process["pid"] == run.pid]
    assert mistakes(said, process) == ([], []), str(run)
    assert (process["verdict"] == "leak") == any(thing["leaks"] for thing in said["things"]), str(run)
