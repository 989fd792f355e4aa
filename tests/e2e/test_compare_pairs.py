# SPDX-License-Identifier: Apache-2.0
"""Random pairs of runs with one planted difference: it comes first in what a comparison says; a run and its repetition do not
differ. Programs are tests/targets/planted.c, which says itself what was planted, and csv files with operators made here. A sample
is tried here, 200 of each by `tools/soak.sh pairs`."""
import csv
import json
import random

import pytest

import rows as rows_module

PLANTS = ("kept", "forgotten", "larger", "added", "removed", "order")


@pytest.fixture
def differences(msmemscope, out):
    """differences(base, other, options...): the JSON of a comparison."""
    def run(base, other, *options):
        result = msmemscope("--compare", f"--input={base},{other}", "--json", *options, output=out / "results").check()
        return json.loads(result.stdout)

    return run


def names_of(answer):
    """Places and calls that differ, in their order."""
    return [place["place"] for place in answer["places"]], answer["differences"]


# ---- programs ----

def wrong_in(answer, truth, stacks, calls):
    """What is wrong with the first entries, or None."""
    places, differ = names_of(answer)
    plant = truth["plant"]
    if plant == "none":
        return None if not places and not differ else f"nothing was planted: {places[:3]} {differ[:3]}"
    if stacks and truth["place"] and plant != "order":
        first = places[0] if places else differ[0].get("place", "") if differ else ""
        if truth["place"] not in first:
            return f"{truth['place']} is not first: {places[:3]} {differ[:3]}"
    if not stacks and not calls and truth["place"] and plant != "order":
        sizes = (truth["bytes"], truth["bytes"] * 3)
        if not places or not any(f"blocks of {size} bytes" == places[0] for size in sizes):
            return f"blocks of {truth['bytes']} bytes are not first: {places[:3]}"
    if calls:
        expected = {"kept": {truth["freed_before"]}, "forgotten": {truth["freed_before"]}, "order":
                    {truth["kernel"], truth["other"]}}.get(plant, {truth["kernel"]})
        if not differ or differ[0].get("name", "") not in expected:
            return f"{expected} is not first: {differ[:3]}"
        kind = {"added": "only_in_compare", "removed": "only_in_base", "order": "moved"}.get(plant, "both")
        if differ[0].get("name") is not None and differ[0]["kind"] != kind:
            return f"{kind} is not said: {differ[0]}"
    return None


def test_what_was_planted_into_a_program_is_first(msmemscope, program, differences, out, pairs):
    wrong = []
    for seed in range(pairs):
        plant = ("none", *PLANTS)[seed % 7]
        stacks, calls = seed // 7 % 2 == 0, seed // 14 % 2 == 0
        options = (["--call-stack=c:10"] if stacks else []) + (["--level=kernel"] if calls else [])
        projects, said = [], {}
        for kind in ("none", plant):
            msmemscope.out = out / f"{seed}-{len(projects)}"
            done = msmemscope(*options, "--", *program("planted", f"--seed={seed}", f"--plant={kind}")).check()
            said = json.loads(done.stdout.splitlines()[0])
            projects.append(done.project().path)
        inputs = projects if seed % 3 or stacks else \
            [next(project.glob("device_0/dump/memscope_dump_*.csv")) for project in projects]
        answer = differences(*inputs, "--level=kernel")
        fault = wrong_in(answer, said, stacks, calls)
        if fault is not None:
            wrong.append(f"seed {seed}, stacks {stacks}, calls {calls}: {said}: {fault}")
    print(f"{pairs - len(wrong)} of {pairs} pairs of programs")
    assert not wrong, "\n".join(wrong)


# ---- operators ----

class Script:
    """A run of operators as a dump has it: blocks by name of the operator that allocates them, kept by later ones."""

    def __init__(self):
        self.rows, self.time, self.ident = [], 1_700_000_000_000_000_000, 0
        self.address = {}

    def row(self, event, kind, name, ptr="N/A", attr=""):
        self.time += 1000
        self.rows.append([len(self.rows), event, kind, name, self.time, 42, 42, 0, ptr, attr, "", ""])

    def alloc(self, key, size):
        self.ident += 1
        address = 0x10000000 + self.ident * 0x1000000
        self.address[key] = (address, size, self.ident)
        self.row("MALLOC", "PTA", "N/A", f"0x{address:x}", f"{{allocation_id:{self.ident},addr:0x{address:x},size:{size}}}")

    def free(self, key):
        address, size, ident = self.address.pop(key)
        self.row("FREE", "PTA", "N/A", f"0x{address:x}", f"{{allocation_id:{ident},addr:0x{address:x},size:{size}}}")

    def write(self, path):
        with path.open("w", newline="", encoding="utf-8") as file:
            file.write(rows_module.HEADER + "\n")
            csv.writer(file, lineterminator="\n").writerows(self.rows)
        return path


def make_script(seed, plant):
    """The rows, the operator of the planted difference, and those that it may be told by."""
    chance = random.Random(seed)
    script = Script()
    step_ops = [(f"aten.op{chance.randrange(12)}_{i}.default", chance.randrange(1, 200) * 512, chance.randrange(0, 100) * 512,
                 chance.choice(["inside", "gap", "later", "step", "next"])) for i in range(chance.randrange(5, 15))]
    steps, where = chance.randrange(3, 8), chance.randrange(len(step_ops) - 1)
    when = chance.randrange(1, steps - 1)
    named, told = step_ops[where][0], set()
    waiting = False

    def op_row(name, kind):
        nonlocal waiting
        if waiting and kind == "START":
            told.add(name)
            waiting = False
        script.row("OP_LAUNCH", f"ATEN_{kind}", name)

    def free(key, planted):
        nonlocal waiting
        if key not in script.address:
            return
        waiting = waiting or planted
        if not (planted and plant in ("kept", "forgotten")):
            script.free(key)

    planted_key = None
    for step in range(steps):
        order = list(range(len(step_ops)))
        if plant == "order" and step == when:
            order[where], order[where + 1] = order[where + 1], order[where]
            told.add(step_ops[where + 1][0])
        at_end, last = [], None
        for index in order:
            name, size, temporary, life = step_ops[index]
            here = step == when and index == where
            if here and plant == "removed":
                free(("next", index), False)
                continue
            if here and plant == "added":
                op_row("aten.added.default", "START")
                script.alloc("added", 4096)
                script.free("added")
                op_row("aten.added.default", "END")
            key = (step, index)
            if here and plant in ("kept", "forgotten"):
                planted_key = key
            op_row(name, "START")
            if temporary or (here and plant == "larger"):
                script.alloc("temporary", temporary + (8192 if here and plant == "larger" else 0))
                script.free("temporary")
            script.alloc(key, size)
            if life == "inside":
                told.update({name} if key == planted_key else ())
                free(key, key == planted_key)
                waiting = False
            op_row(name, "END")
            if last is not None:
                free(last, last == planted_key)
                last = None
            if life == "gap":
                free(key, key == planted_key)
            elif life == "later":
                last = key
            elif life == "step":
                at_end.append(key)
            elif life == "next":
                before = (step - 1, index)
                free(before, before == planted_key)
        if last is not None:
            at_end.append(last)
        for key in at_end:
            free(key, key == planted_key)
    op_row("aten.last.default", "START")
    if plant == "kept" and planted_key in script.address:
        script.free(planted_key)
    op_row("aten.last.default", "END")
    return script, "aten.added.default" if plant == "added" else named, told


def test_what_was_planted_into_operators_is_first(differences, out, pairs):
    wrong = []
    for seed in range(pairs):
        plant = ("none", *PLANTS)[seed % 7]
        base = make_script(seed, "none")[0].write(out / "base.csv")
        script, named, told = make_script(seed, plant)
        places, differ = names_of(differences(base, script.write(out / "other.csv")))
        if plant == "none":
            if places or differ:
                wrong.append(f"seed {seed}: {places[:3]} {differ[:3]}")
            continue
        if plant in ("larger", "added", "removed"):
            told = {named}
        if plant == "order":
            told.add(named)
        if not differ or differ[0].get("name") not in (told or {named}):
            wrong.append(f"seed {seed}, {plant}: {told} is not the first call: {differ[:3]}")
        if plant in ("forgotten", "larger") and places[:1] != [named]:
            wrong.append(f"seed {seed}, {plant}: {named} is not the first place: {places[:3]}")
    print(f"{pairs - len(wrong)} of {pairs} pairs of operators")
    assert not wrong, "\n".join(wrong)
