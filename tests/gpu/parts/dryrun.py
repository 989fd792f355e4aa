# SPDX-License-Identifier: Apache-2.0
"""dryrun: what a dry run says of each script of programs/dry.py, against PyTorch's own counters on this card"""
import ast
import contextlib
import json
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, PROGRAMS, call, check

CARD = os.environ.get("DRY_CARD", "h200")
SCRIPT = PROGRAMS / "dry.py"
NEEDS, RESERVES = 0.001, 0.01
CONVOLUTIONS = 0.35  # a range is at most this wide
ADDRESSES = 0.05  # the same where it is one of addresses only
OF_LIBRARIES = ("convolutions", "unet", "channels_last", "recurrent")
LANES = 4  # scripts at a time
alone = threading.Lock()  # only one large model is on the card at a time
REFUSED = ("factorised", "transformed", "compiled", "other_streams", "repeated", "counted", "searched")


def names():
    for node in ast.parse(SCRIPT.read_text()).body:
        if isinstance(node, ast.FunctionDef) and any(isinstance(mark, ast.Name) and mark.id == "script" for mark in node.decorator_list):
            yield node.name


def dry(name, *options, env=None):
    """The answer for one script, and the exit code."""
    done = call([COMMAND, "dryrun", "--json", "--steps=1000", *(options or (f"--device={CARD}",)), "--", sys.executable, SCRIPT, name], env,
                check_status=False)
    return json.loads(done.stdout) if done.stdout else None, done


def real(name, env=None):
    with alone if name.startswith("llama") else contextlib.nullcontext():
        done = call([sys.executable, SCRIPT, name], env)
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def agrees(name, env=None):
    answer, done = dry(name, env=env)
    if name in REFUSED:
        assert done.returncode == 1 and (answer is None or answer["figures"] != "exact"), answer
        return "refused"
    truth = real(name, env)
    assert done.returncode == 0, f"{answer} {done.stderr[-500:]}"
    low, high = answer.get("needs_from_bytes", answer["needs_bytes"]), answer["needs_bytes"]
    least, most = answer.get("reserves_from_bytes", answer["reserves_bytes"]), answer["reserves_bytes"]
    libraries = name in OF_LIBRARIES  # these choose workspaces
    if answer["figures"] == "at most":
        low = least = 0
    elif not libraries:
        # Which addresses the driver hands out is not the program's; what it asks for is.
        assert answer["requested_bytes"] == truth["requested"], f"requests {answer['requested_bytes']}, not {truth['requested']}"
    assert low * (1 - NEEDS) <= truth["allocated"] <= high * (1 + NEEDS), f"needs {low} to {high}, not {truth['allocated']}"
    assert least * (1 - RESERVES) <= truth["reserved"] <= most * (1 + RESERVES), f"reserves {least} to {most}, not {truth['reserved']}"
    assert high - low <= (CONVOLUTIONS if libraries else ADDRESSES) * high or low == 0, f"{low} to {high}"
    return f"{answer['figures']}, needs {low - truth['allocated']:+} to {high - truth['allocated']:+}, " \
        f"reserves {least - truth['reserved']:+} to {most - truth['reserved']:+}"


def run(place):
    place.mkdir(parents=True, exist_ok=True)
    os.chdir(place)
    settings = ("expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:8")
    wanted = {name: (name,) for name in names()} | {f"transformer, {text}": ("transformer", {"PYTORCH_CUDA_ALLOC_CONF": text}) for text in settings}
    with ThreadPoolExecutor(LANES) as pool:
        said = {title: pool.submit(agrees, *words) for title, words in wanted.items()}
        for title, answer in said.items():
            check(title)(answer.result)
        pool.shutdown(cancel_futures=True)  # those for which no time was left
