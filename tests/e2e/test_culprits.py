# SPDX-License-Identifier: Apache-2.0
"""Watched memory that is written as operators declare, and once by something else: that one is told first, and where nobody else
writes nothing is. Programs are random and say themselves what they did (targets/torch_culprits.py) or were told (watch_ops.c,
atb_watch.cpp). `--culprits 200` for the full number (make soak PART=culprits)."""
import dataclasses
import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from atb import libraries
from watch_model import SIZES, matches

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12  # of a program with PyTorch


def lines(out):
    (report,) = out.glob("*/report.txt")
    return [line for line in report.read_text(encoding="utf-8").splitlines() if line.startswith("Watched: ")]


def accused(out):
    return [line for line in lines(out) if "changed during" in line or "changed between" in line]


@pytest.fixture
def one(msmemscope):
    """one(options, words): runs a program with results of its own."""
    def run(*words, env=None):
        run.count += 1
        out = msmemscope.out / str(run.count)
        return dataclasses.replace(msmemscope("-o", out, *words, env=env, output=False).check(), out=out)

    run.count = 0
    return run


# ---- PyTorch ----

@pytest.mark.parametrize("seed", [1, 2])
def test_what_overwrote_a_tensor_is_told_first(msmemscope, one, python, culprits, seed):
    planted = 0
    for number in range(1000 * seed, 1000 * seed + max(1, culprits // (2 * ROUNDS))):
        run = one("--", *python, ROOT / "tests" / "targets" / "torch_culprits.py", str(number), str(ROUNDS))
        truths = [json.loads(line) for line in run.stdout.splitlines()]
        watched = {item["name"]: item for item in msmemscope.info(run.project())["watched"]}
        guilty = [truth for truth in truths if truth["kind"] is not None]
        for truth in truths:
            changes = watched[truth["name"]]["unexpected_changes"]
            assert len(changes) == (truth in guilty), (number, truth, changes)
            assert truth not in guilty or matches(changes[0], truth), (number, truth, changes)
            assert watched[truth["name"]]["unexpected"] == len(changes)
        assert sum(item["changes"] - item["unexpected"] for item in watched.values()) > 3 * ROUNDS, "those that may write do"
        found = accused(run.out)
        assert found == lines(run.out)[:len(guilty)], run.stderr
        for line, truth in zip(found, guilty):
            assert line.startswith(f"Watched: {truth['name']} output 0 on cpu, ") and truth.get("op", truth.get("from")) in line, line
            assert f"step {truth['step']}, thread" in line and f"torch_culprits.py:{truth['line']} " in line, line
        planted += len(guilty)
    assert planted > 5


# ---- the simulated NPU ----

def operators(rng, kind):
    """(words, truth): random operators on the blocks, of which one block is watched; kind is how it is overwritten, or None."""
    target, names = rng.choice("01"), Counter()
    words, truth, latest = [], None, None
    count = rng.randrange(6, 14)
    when = rng.randrange(2, count)
    for index in range(count):
        name = f"op{rng.randrange(5)}"
        outputs = "".join(sorted(rng.sample("013", rng.randrange(3))))
        written = "".join(block for block in outputs if rng.random() < 0.7)
        if index == when and kind == "operator":
            outputs = outputs.replace(target, "")
            written = "".join(sorted({*written.replace(target, ""), target}))
        if index == when and kind == "kernel":
            words.append(f"!{target}")
        names[name] += 1
        if index == when and kind is not None:
            truth = {"block": target, "op": name, "call": names[name], "from": latest}
        latest = name, names[name]
        words.append(f"{name}={written}:{outputs}")
    return target, words, truth


def check(out, truth, kind, level, name):
    """The first line names the culprit, and no line names another."""
    found = accused(out)
    if truth is None:
        assert found == [], found
        return
    size = SIZES[int(truth["block"])]
    where = "offset 0" if size == 1 else f"offsets 0 to {size - 1}"
    if kind == "kernel" and level == "op":
        before, call = truth["from"]
        who = f"changed between the end of call {call} of {before} and the start of call {truth['call']} of {truth['op']}"
    elif kind == "kernel":
        who = "changed during call 1 of stray, a kernel that was handed it"
    elif level == "op":
        who = f"changed during call {truth['call']} of {truth['op']}, which did not declare to write it"
    else:
        kernel = rf"(0_)?k_?{truth['op']}_{truth['block']}"
        who = rf"changed during call \d+ of {kernel}, which did not declare to write it, inside of (0_k)?{truth['op']}(_\d)?"
    assert len(found) == 1 and found[0] == lines(out)[0], found
    assert re.match(rf"Watched: {name} output \d on device 0, {size} bytes, \d+ dumps: {who}: {size} bytes? \({where}\), thread \d+",
                    found[0]), (found[0], who)


@pytest.mark.parametrize("kind", [None, "operator", "kernel"])
@pytest.mark.parametrize("level", ["op", "kernel"])
def test_what_overwrote_a_block_of_the_device_is_told_first(one, program, culprits, kind, level):
    for seed in range(max(2, culprits // 20)):
        target, words, truth = operators(random.Random(seed), kind)
        out = one(f"--level={level}", "--", *program("watch_ops", f"watch:{target}:mine:-1", *words)).out
        check(out, truth, kind, level, "mine")


@pytest.mark.parametrize("kind", [None, "operator", "kernel"])
@pytest.mark.parametrize("level", ["op", "kernel"])
def test_what_overwrote_an_output_of_atb_is_told_first(one, program, dist, targets, culprits, kind, level):
    for seed in range(max(2, culprits // 20)):
        _, words, truth = operators(random.Random(seed), kind)
        words = ["m/first=01:01", *(word if word[0] == "!" else f"m/{word}" for word in words), "m/last=:"]
        out = one("--watch=first,last", f"--level={level}", "--", *program("atb_abi1/atb_watch", *words),
                  env=libraries(dist, targets, "atb_abi1")).out
        check(out, truth, kind, level, "first")


def test_a_kernel_that_was_not_handed_a_block_is_told_where_no_operators_are_seen(one, program, culprits):
    for seed in range(max(2, culprits // 20)):
        rng = random.Random(seed)
        words = [f"!{rng.choice('013')}" for _ in range(rng.randrange(3, 9))]
        guilty = [*words]
        guilty.insert(rng.randrange(1, len(words)), "?1")
        for tried, count in ((words, 0), (guilty, 1)):
            out = one("--level=kernel", "--", *program("watch_ops", "watch:1:mine:-1", *tried)).out
            found = accused(out)
            assert len(found) == count, found
            assert not found or (found[0] == lines(out)[0] and re.search(
                r"1000 bytes, \d+ dumps: changed during call 1 of hidden, which did not declare to write it: 1000 bytes", found[0]))


@pytest.mark.parametrize("options", [[], ["--device=cpu"]], ids=["watch alone", "with memory"])
def test_the_page_shows_what_overwrote_a_tensor(one, python, view, browser, options):
    run = one(*options, "--", *python, ROOT / "tests" / "targets" / "torch_culprits.py", "1000", "4")
    truths = [truth for truth in map(json.loads, run.stdout.splitlines()) if truth["kind"] is not None]
    opened, page = view(run.project().path), browser()
    found = opened.ask("summary")["overwritten"]
    assert [(change["name"], change["step"]) for change in found] == [(truth["name"], truth["step"]) for truth in truths] and truths
    assert [f"{change['text']}." for change in found] == accused(run.out)
    page.open(opened.address)
    page.wait(f"[...document.querySelectorAll('#findings .entry')].some(one => one.textContent.includes('Overwritten: {truths[0]['name']}'))")
    if options:
        page.press("#chips .chip", "one => one.textContent.startsWith('OVERWRITTEN')")
        page.wait("location.hash.includes('at=')")
    assert page.errors == []
