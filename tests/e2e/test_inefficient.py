# SPDX-License-Identifier: Apache-2.0
"""Inefficient memory: every block of a run is judged as the manual's table says (lib/waste.py), each place is worth what the peak
falls by when the program is mended, and limits are obeyed wherever they are set."""
import itertools
import json
import os
import random
import re
from pathlib import Path

import pytest

from atb import libraries
from waste import EARLY, IDLE, KINDS, LATE, Waste

TARGETS = Path(__file__).resolve().parents[1] / "targets"
INEFFICIENT = ["--device=cpu", "--analysis=inefficient"]
HOST = ("HOST", "cpu")
IDLE_LINES = 4  # threshold of random programs


@pytest.fixture
def fresh(out):
    """A directory of its own for each run of a test."""
    count = itertools.count()
    return lambda: out / f"run{next(count)}"


def found(rows):
    return {row.attr["allocation_id"]: row.attr["inefficient_type"] for row in rows if row.event == "MALLOC" and
            "inefficient_type" in row.attr}


def check(msmemscope, run, **limits):
    """Rows of all blocks, and the prices of all places, as the model has them."""
    rows, project = run.rows(), run.project()
    model = Waste(rows, **limits)
    assert found(rows) == model.found
    pools = {(pool["event_type"], pool["device"]): pool for pool in msmemscope.info(project)["inefficient"]}
    assert pools.keys() == {model.pool[ident] for ident in model.found}
    for pool, told in pools.items():
        mine = [ident for ident in model.found if model.pool[ident] == pool]
        assert told["peak_bytes"] == model.peak(pool)
        assert told["saved_bytes"] == model.saved(pool, mine)
        assert sum(place["blocks"] for place in told["places"]) == len(mine)
        prices = [place["saved_bytes"] for place in told["places"]]
        assert prices == sorted(prices, reverse=True) and all(price <= told["saved_bytes"] for price in prices)
    return model


@pytest.mark.parametrize("words", [["torch_inefficient.py"], ["torch_train.py", "3"], ["torch_owners.py"]], ids=lambda words: words[0])
def test_every_block_of_a_script_is_judged_by_the_table(msmemscope, together, python, words):
    run = together.once(INEFFICIENT, [*python, TARGETS / words[0], *words[1:]]).check()
    model = check(msmemscope, run)
    # In a network most blocks are used by the operator that makes them.
    blocks = sum(1 for row in run.rows() if row.event == "MALLOC")
    assert 0 < blocks and sum(1 for kinds in model.found.values() if EARLY in kinds) <= 0.1 * blocks + 1


def test_planted_blocks_are_found_and_no_others(together, python):
    """The three that the script says, and `other`, which it keeps over the next allocation."""
    run = together.once(INEFFICIENT, [*python, TARGETS / "torch_inefficient.py"]).check()
    planted = {size: kind for kind, size in run.value("blocks").items()}
    assert [planted.get(row.attr["size"], row.attr["size"]) for row in run.rows() if "inefficient_type" in row.attr] == [
        32 * 4, EARLY, LATE, IDLE]
    assert [row.attr["inefficient_type"] for row in run.rows() if "inefficient_type" in row.attr] == [LATE, EARLY, LATE, IDLE]
    assert "Inefficient memory: HOST on cpu peaks at " in run.stderr


NAMES = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64))
kept = []
for step in range(4):
    result = net(torch.randn(512, 64))
    kept += [torch.ones(size) for size in (1000, 3000)]
    for _ in range(6):
        result.add_(1)
"""


def test_call_sites_have_the_names_of_all_other_findings(msmemscope, together, python, out):
    """Where one layer's memory and another's would read the same, the frame that tells them apart is shown; each line is there once."""
    (out / "script.py").write_text(NAMES, encoding="utf-8")
    run = together.once([*INEFFICIENT, "--analysis=inefficient,leaks"], [*python, out / "script.py"]).check()
    process = msmemscope.info(run.project())
    [waste], [peak] = process["inefficient"], process["peaks"]
    names = [place["text"] for place in waste["places"]]
    held = {json.dumps(place["frames"]): place["place"] for place in peak["places"]}
    known = {place["text"]: held[json.dumps(place["frames"])] for place in waste["places"] if json.dumps(place["frames"]) in held}
    assert len(names) == len(set(names)) and len(known) >= 3 and all(name == other for name, other in known.items())
    assert "script.py:7 -> Sequential.forward -> GELU.forward" in names
    report = (run.project().path / "report.txt").read_text(encoding="utf-8")
    listed = re.findall(r"^  (?:(?:at least )?[\d.]+ \w+|no) less: (.*)$", report, re.M)
    assert listed == names, report


@pytest.fixture
def atb(msmemscope, fresh, program, dist, targets):
    """atb(words, form): a run of a program that does what the words say (targets/atb/atb_waste.cpp)."""
    def run(words, form="atb_abi1"):
        return msmemscope("--analysis=inefficient", f"--inefficient=idle_threshold:{IDLE_LINES}", "--",
                          *program(f"{form}/atb_waste", *words), env=libraries(dist, targets, form), output=fresh()).check()

    return run


@pytest.mark.parametrize("form", ["atb_abi0_old", "atb_abi1"])
def test_memory_of_atb_is_judged_by_the_table(msmemscope, atb, form):
    told = set()
    for seed in range(100, 104):
        run = atb(Program(seed, 40).words(), form)
        told |= {kind for kinds in check(msmemscope, run, idle=IDLE_LINES).found.values() for kind in kinds.split(",")}
    assert told == set(KINDS)


# ---- limits ----

@pytest.mark.parametrize("text, limits", [
    ("early_allocation", {"kinds": [EARLY]}),
    ("late_deallocation，temporary_idleness,idle_threshold:2", {"kinds": [LATE, IDLE], "idle": 2}),
    ("mem_size:16384,idle_threshold:20", {"mem_size": 16384, "idle": 20}),
])
def test_kinds_size_and_threshold_are_obeyed(msmemscope, python, text, limits):
    """When the program runs, and when its trace is read again."""
    run = msmemscope(*INEFFICIENT, f"--inefficient={text}", "--", *python, TARGETS / "torch_train.py", "3").check()
    model = check(msmemscope, run, **limits)
    assert model.found
    again = msmemscope("info", run.project().path, "--json", "--all", "--inefficient=", output=False).check()
    [process] = json.loads(again.stdout)["processes"]
    whole = Waste(run.rows())
    assert [pool["saved_bytes"] for pool in process["inefficient"]] == [whole.saved(HOST, list(whole.found))]


def test_a_program_chooses_limits_for_a_window(msmemscope, python, out):
    """config() says what the option says; a window that follows may say something else."""
    (out / "script.py").write_text("""
import msmemscope, torch
def work():
    for size in (1000, 3000):
        other = torch.zeros(10)
        early = torch.empty(size, dtype=torch.uint8)
        del other
        early.fill_(1)
        del early
for limit in ("mem_size:2000", "early_allocation", "late_deallocation"):
    msmemscope.config(analysis="inefficient", device="cpu", inefficient=limit)
    msmemscope.start()
    work()
    msmemscope.stop()
""", encoding="utf-8")
    run = msmemscope("--collect-mode=deferred", "--device=cpu", "--", *python, out / "script.py").check()
    assert [(row.attr["size"], row.attr["inefficient_type"]) for row in run.rows() if "inefficient_type" in row.attr] == [
        (3000, EARLY), (1000, EARLY), (3000, EARLY), (40, LATE), (40, LATE)]


# ---- what the peak falls by ----

class Program:
    """A random program: blocks that are made, used and dropped. Each line is an operator, or counts as one."""

    def __init__(self, seed, blocks=7):
        rng = random.Random(seed)
        # Of different size classes, which tell places apart where there are no stacks.
        self.sizes = [(1 << 12 + block % 12) + rng.randrange(4000) for block in range(blocks)]
        moments = []
        for block in range(blocks):
            at = sorted(rng.random() for _ in range(rng.randrange(3, 6)))
            moments += [(moment, "make" if moment == at[0] else "drop" if moment == at[-1] else "use", block) for moment in at]
        self.lines = [(what, block) for _, what, block in sorted(moments)]

    def mended(self, faults):
        """The lines with blocks of {block: kinds} there only when they are used. What is no fault of theirs stays as it is."""
        where = {}
        for index, line in enumerate(self.lines):
            where.setdefault(line, []).append(index)
        without, before, behind = set(), {}, {}
        for block, kinds in faults.items():
            uses = where["use", block]
            if EARLY in kinds:
                without.add(where["make", block][0])
                before.setdefault(uses[0], []).append(("make", block))
            if LATE in kinds:
                without.add(where["drop", block][0])
                behind.setdefault(uses[-1], []).append(("drop", block))
            for use, following in zip(uses, uses[1:]):
                if IDLE in kinds and following - use > IDLE_LINES:
                    behind.setdefault(use, []).append(("drop", block))
                    before.setdefault(following, []).append(("make", block))
        lines = []
        for index, line in enumerate(self.lines):
            lines += [*before.get(index, []), *([] if index in without else [line]), *behind.get(index, [])]
        return lines

    def words(self, lines=None):
        return [f"{what}:{block}" + (f":{self.sizes[block]}" if what == "make" else "") for what, block in lines or self.lines]

    def script(self, lines):
        forms = {"make": "t{0} = torch.empty({1}, dtype=torch.uint8)", "use": "t{0}.fill_(1)", "drop": "del t{0}"}
        return "import torch\n" + "".join(forms[what].format(block, self.sizes[block]) + "\n" for what, block in lines)

    def made(self):
        """Blocks in the order of their allocation."""
        return [block for what, block in self.lines if what == "make"]


def prices(msmemscope, run, pool):
    """The peak, and what is told of the pool."""
    info = msmemscope.info(run.project())
    [peak] = [found["peak_bytes"] for found in info["pools"] if found["pool"] == pool]
    told = [found for found in info["inefficient"] if found["event_type"] == pool]
    return peak, told[0] if told else {"saved_bytes": 0, "places": []}


def check_mended(msmemscope, program, run, pool, alone):
    """`run(lines)` runs the program. All places mended at once, and some alone: bytes are exact, for nothing else is in the pool."""
    first = run(program.lines)
    peak, told = prices(msmemscope, first, pool)
    made = dict(zip((row.attr["allocation_id"] for row in first.rows() if row.event == "MALLOC" and row.type == pool), program.made()))
    faults = {made[place["first_allocation_id"]]: place for place in told["places"]}
    assert faults and all(place["blocks"] == 1 for place in told["places"])
    every = program.mended({block: place["inefficient_type"] for block, place in faults.items()})
    assert peak - prices(msmemscope, run(every), pool)[0] == told["saved_bytes"] > 0
    for block, place in [*faults.items()][:alone]:
        mended = program.mended({block: place["inefficient_type"]})
        assert peak - prices(msmemscope, run(mended), pool)[0] == place["saved_bytes"], place


PROGRAMS = int(os.environ.get("MSCOPE_TEST_PROGRAMS", "0"))


@pytest.mark.parametrize("seed", range(PROGRAMS or 2))
def test_the_peak_of_a_mended_script_is_the_predicted_one(msmemscope, python, out, fresh, seed):
    def run(lines):
        (out / "script.py").write_text(program.script(lines), encoding="utf-8")
        return msmemscope(*INEFFICIENT, f"--inefficient=idle_threshold:{IDLE_LINES}", "--", *python, out / "script.py",
                          output=fresh()).check()

    program = Program(seed)
    check_mended(msmemscope, program, run, "HOST", 1)


@pytest.mark.parametrize("seed", range(10, 10 + (PROGRAMS or 6)))
def test_the_peak_of_a_mended_program_on_the_npu_is_the_predicted_one(msmemscope, atb, seed):
    program = Program(seed)
    check_mended(msmemscope, program, lambda lines: atb(program.words(lines)), "ATB", 3)
