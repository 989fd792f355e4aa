# SPDX-License-Identifier: Apache-2.0
"""programs of other people's shapes (programs/strangers): leaks, healthy ones, out of memory, dryrun, advise, whatif, forecasts, comparisons

Each program says by itself what is true: lines are marked in its source by "# @leak", "# @filled" and the like, figures are PyTorch's own
counters or constants. Beside the table, strangers.txt in the directory of the part has each failed check in full, and screens/ all screens.
ONLY=word,word runs the checks with one of these in their names. For a try on the simulated CUDA: STRANGERS_PYTHON and STRANGERS_SIMULATED=1.
"""
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from checks import COMMAND, PROGRAMS, check, left

SOURCES = PROGRAMS / "strangers"
PYTHON = os.environ.get("STRANGERS_PYTHON", sys.executable)
SIMULATED = bool(os.environ.get("STRANGERS_SIMULATED"))
CARD = os.environ.get("DRY_CARD", "h200")
LANES = int(os.environ.get("LANES", "8"))
ONE_S = 200  # no program may take longer
LEAKS = ("serving", "kv_cache", "average_graph", "hook", "ema", "graph_pool", "evaluation", "side_stream", "raw", "pinned", "loader", "thread",
         "two", "slow")
FINE = ("warmup", "late_state", "gan", "replay", "lru", "lengths", "accumulated", "saved", "profiled", "compiled")
# What the advice has to speak of, so that the change that is then tried is the one that it names.
TRIES = {"batch": r"batch|split|smaller|chunk|checkpoint|accumulat", "pieces": r"expandable_segments|max_split_size_mb|garbage_collection",
         "growth": r"detach|free|bound", "fraction": r"fraction|limit", "eval": r"detach|free|bound|host|cpu",
         "others": r"process|nvidia-smi"}
CAUSES = {"batch": ("spike",), "pieces": ("fragmentation",), "growth": ("growth",), "fraction": ("full", "spike"), "eval": ("growth", "spike"),
          "others": ("other processes",)}
FIXES = {"pieces": {}, "others": {}}
failed = []
lock = threading.Lock()


class Run:
    """A program under a command: status, lines of JSON that it printed, the screen, the summary."""

    def __init__(self, place, title, argv, env=None, summary=None, plain=False):
        self.title, self.summary = title, None
        clean = {key: value for key, value in os.environ.items() if not (plain and key == "LD_PRELOAD")}
        began = time.monotonic()
        job = subprocess.Popen([str(word) for word in argv], env={**clean, **(env or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=place, start_new_session=True)
        try:
            self.stdout, self.screen = job.communicate(timeout=min(ONE_S, left()))
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            self.stdout, self.screen = job.communicate()
            self.screen += f"\n(killed by the harness after {time.monotonic() - began:.0f} s)"
        self.status, self.seconds = job.returncode, time.monotonic() - began
        self.said = {}
        for line in self.stdout.splitlines():
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    self.said.update(json.loads(line))
        if summary is not None and summary.exists():
            self.summary = json.loads(summary.read_text())
        screens = place / "screens"
        screens.mkdir(exist_ok=True)
        (screens / f"{re.sub(r'[^a-z0-9]+', '-', title)}.txt").write_text(f"$ {' '.join(map(str, argv))}\n{self.stdout[-4000:]}\n{self.screen}")

    def process(self):
        processes = (self.summary or {}).get("processes") or [None]
        return max(processes, key=lambda process: (process["steps"], process["events"]) if process else (0, 0))

    def flat(self):
        return "".join(self.screen.split())


def traced(place, title, program, *words, options=(), env=None):
    out = place / "runs" / re.sub(r"[^a-z0-9]+", "-", title)
    out.mkdir(parents=True)
    summary = out / "summary.json"
    run = Run(place, title, [COMMAND, "-o", out / "out", f"--summary-json={summary}", *options, "--", PYTHON, SOURCES / program, *words], env, summary)
    run.out = out / "out"
    return run


def real(place, title, program, *words, env=None):
    return Run(place, title, [PYTHON, SOURCES / program, *words], env)


def marks(program):
    """{"leak": lines, ...} of the marks in a source."""
    found = {}
    for number, line in enumerate((SOURCES / program).read_text().splitlines(), 1):
        for mark in re.findall(r"@(\w+)", line.partition("  # ")[2]):
            found.setdefault(mark, []).append(number)
    return found


def lines_of(frames, program):
    return [frame["line"] for frame in frames or [] if frame.get("file", "").endswith(program) and "line" in frame]


def named(run, program, lines):
    return [line for line in lines if re.search(rf"{re.escape(program)}:{line}(?!\d)", run.screen)]


def conclude(wrong, program, run, note=""):
    """What a check returns; where something is wrong, it is kept for the end of the part."""
    if not wrong:
        return note
    with lock:
        failed.append((run.title, SOURCES / program, wrong, run))
    raise AssertionError("; ".join(wrong))


def near(found, truth, share):
    return abs(found - truth) <= share * abs(truth)


# ---- leaks ----

def rates(process, said, program, truth):
    wrong, leaks = [], [place for place in process["places"] if place["verdict"] == "leak"]
    pool = said.get("pool", "PTA")
    ours = [place for place in leaks if place["pool"] == pool]
    if "per_step" in said:
        rate = sum(place["bytes_per_step"] for place in ours)
        if not near(rate, said["per_step"], 0.1):
            wrong.append(f"expected {said['per_step']:.0f} bytes per step in {pool}, the leaks have {rate:.0f}")
    else:
        bytes_ = sum(place["leaked_bytes"] for place in ours)
        if not near(bytes_, said["grown"], 0.15):
            wrong.append(f"expected about {said['grown']} bytes leaked in {pool}, the leaks have {bytes_}")
    for name, rate in said.get("rates", {}).items():
        found = sum(place["bytes_per_step"] for place in ours if set(lines_of(place["frames"], program)) & set(truth[name]))
        if not near(found, rate, 0.1):
            wrong.append(f"expected {rate:.0f} bytes per step at line {truth[name]}, found {found:.0f}")
    return wrong


def keeper(run, program, truth):
    wrong, said = [], run.said
    text = " ".join(run.screen.split())
    found = " ".join(re.findall(r"kept by:.{0,300}", text))
    names = {part for kept in re.findall(r"`([^`]+)`", found) for part in re.split(r"\W+", kept)}
    if "keeper" in said and said["keeper"] not in names:
        wrong.append(f"expected \"kept by\" to name `{said['keeper']}`, the screen has {sorted(names) or 'no keeper'}")
    known = {keeper["name"] for place in run.process()["places"] for keeper in place.get("keepers", [])}
    if not set(said.get("keepers", ())) <= known:
        wrong.append(f"expected the keepers {said['keepers']} in the summary, found {sorted(known)}")
    if "filled" in truth and not any(f"filledat{program}:{line}" in run.flat() for line in truth["filled"]):
        wrong.append(f"expected \"filled at {program}:{truth['filled'][0]}\", the screen has {re.findall(r'filled at [^ ]+', text) or 'none'}")
    return wrong


def judge_leak(run, program):
    process, truth = run.process(), marks(program)
    if run.status or not process or not run.said:
        return conclude([f"expected exit status 0, a summary and the program's truth; status {run.status}"], program, run)
    leaks = [place for place in process["places"] if place["verdict"] == "leak"]
    wrong = [] if process["verdict"] == "leak" else [f"expected the verdict leak, found {process['verdict']}"]
    if not any(set(lines_of(place["frames"], program)) & set(truth["leak"]) for place in leaks):
        wrong.append(f"expected a leak at line {truth['leak']}, found {[lines_of(place['frames'], program) for place in leaks]}")
    false = [place for place in leaks if not set(lines_of(place["frames"], program)) & set(truth["leak"])]
    if false:
        wrong.append(f"only line {truth['leak']} leaks, but so is called {[(place['pool'], place['name'][:60]) for place in false]}")
    if not named(run, program, truth["leak"]) or "LEAK on" not in run.screen:
        wrong.append(f"expected LEAK and {program}:{truth['leak']} on the screen")
    wrong += rates(process, run.said, program, truth) + keeper(run, program, truth)
    return conclude(wrong, program, run, f"{len(leaks)} call sites, {sum(place['bytes_per_step'] for place in leaks) / 1024:.1f} KiB per step")


# ---- healthy ----

def judge_fine(run, program):
    process, wrong = run.process(), []
    if run.status != 0:
        wrong.append(f"expected exit status 0 with --fail-on=leak, found {run.status}")
    if "LEAK on" in run.screen or "Detected memory leaks" in run.screen:
        wrong.append("expected no leak on the screen")
    if not process:
        wrong.append("expected a summary")
    elif process["verdict"] not in ("ok", "suspect") and not SIMULATED:
        wrong.append(f"expected that the program is judged, found the verdict {process['verdict']}")
    if wrong:
        return conclude(wrong, program, run)
    suspects = [place["name"][:60] for place in process["places"] if place["verdict"] == "suspect"]
    return f"verdict {process['verdict']}, {process['steps']} steps{f', suspects {suspects}' if suspects else ''}"


# ---- out of memory ----

def judge_oom(run, program, name):
    process, truth = run.process(), marks(program)
    verdicts = (process or {}).get("oom") or []
    if not verdicts:
        return conclude([f"expected a verdict on a refused request; status {run.status}"], program, run)
    verdict, wrong = verdicts[0], []
    if verdict["cause"] not in CAUSES[name]:
        wrong.append(f"expected the cause {' or '.join(CAUSES[name])}, found {verdict['cause']}: {verdict['why']}")
    if f"Cause:{''.join(verdict['cause'].split())}" not in run.flat() or "OUT OF MEMORY" not in run.screen:
        wrong.append("expected OUT OF MEMORY and its cause on the screen")
    lines = truth.get("refused", []) or truth["grown"]
    if not set(lines_of(verdict["frames"], program)) & set(lines):
        if name != "growth":
            wrong.append(f"expected the request at line {lines}, found {lines_of(verdict['frames'], program)}")
    elif not named(run, program, lines):
        wrong.append(f"expected {program}:{lines} on the screen")
    if "grown" in truth and verdict["cause"] == "growth":
        grown = lines_of(verdict.get("growing", {}).get("frames"), program)
        if not set(grown) & set(truth["grown"]):
            wrong.append(f"expected growth at line {truth['grown']}, found {grown}")
        if not named(run, program, truth["grown"]):
            wrong.append(f"expected the growing line {program}:{truth['grown']} on the screen")
    return conclude(wrong, program, run, verdict["why"])


def judge_try(place, run, program, name):
    """The advice is there, it is on the screen, and the same program passes when it is followed."""
    process = run.process()
    verdicts = (process or {}).get("oom") or []
    if not verdicts:
        return conclude(["expected a verdict with advice"], program, run)
    advice = verdicts[0].get("try", "")
    what_if = process.get("what_if") or []
    what_if = what_if if isinstance(what_if, list) else [what_if]
    shown, wrong = " ".join(one.get("sentence", "") for one in what_if), []
    if "Try:" not in run.screen:
        wrong.append("expected a line \"Try:\" on the screen")
    if not re.search(TRIES[name], f"{advice} {shown}".replace(program, ""), re.IGNORECASE):
        wrong.append(f"expected advice about {TRIES[name]}, found: {advice}")
    env = dict(FIXES.get(name, {"FIXED": "1"}))
    if name == "pieces":
        settings = re.findall(r"(?:expandable_segments:True|max_split_size_mb:\d+|garbage_collection_threshold:[\d.]+)", f"{advice} {shown}")
        if not settings:
            return conclude([*wrong, "expected settings that can be exported"], program, run)
        env["PYTORCH_CUDA_ALLOC_CONF"] = settings[0]
    again = real(place, f"{run.title}, advice followed", program, env=env)
    if not again.said.get("passed"):
        wrong.append(f"expected that the program passes with {env or 'the other process gone'}; it ends with {again.status}: {again.screen.strip()[-200:]}")
    return conclude(wrong, program, run, f"passes with {env or 'the other process gone'}: {advice[:80]}")


# ---- dryrun, advise, whatif ----

def judge_dry(place, name):
    program = "nets.py"
    dry = Run(place, f"dryrun {name}", [COMMAND, "dryrun", "--json", "--steps=1000", f"--device={CARD}", "--", PYTHON, SOURCES / program, name], plain=True)
    truth = real(place, f"{name} on the card", program, name)
    if not truth.said:
        return conclude(["the program failed on the card"], program, truth)
    start = dry.stdout.find("{")
    try:
        answer = json.loads(dry.stdout[start:])
    except ValueError:
        return conclude([f"expected an answer in JSON, status {dry.status}: {dry.stdout[-300:]}"], program, dry)
    said, wrong = truth.said, []
    dry.said, convolves = said, name in ("convnext", "unet")
    if answer["figures"] not in ("exact", "from to"):
        wrong.append(f"expected figures that are exact or a range, found {answer['figures']}")
    needs = [answer.get("needs_from_bytes", answer["needs_bytes"]), answer["needs_bytes"]]
    reserves = [answer.get("reserves_from_bytes", answer["reserves_bytes"]), answer["reserves_bytes"]]
    requested = answer.get("requested_bytes", 0)
    if not convolves and not near(requested, said["requested"], 0.001):
        wrong.append(f"expected {said['requested']} requested within 0.1 %, found {requested}")
    if needs[0] < needs[1] * (0.65 if convolves else 0.95) or reserves[0] < reserves[1] * (0.6 if convolves else 0.9):
        wrong.append(f"expected a narrower range than {needs}, {reserves}")
    if not needs[0] * 0.999 <= said["allocated"] <= needs[1] * 1.001:
        wrong.append(f"expected needs {said['allocated']} within 0.1 %, found {needs}")
    if not reserves[0] * 0.99 <= said["reserved"] <= reserves[1] * 1.01:
        wrong.append(f"expected {said['reserved']} reserved within 1 %, found {reserves}")
    return conclude(wrong, program, dry, f"requested {requested - said['requested'] if requested else 'unknown'}, needs {needs[0] - said['allocated']:+} to "
                    f"{needs[1] - said['allocated']:+}, reserves {reserves[0] - said['reserved']:+} to {reserves[1] - said['reserved']:+}, {answer['figures']}")


def judge_advice(place, name):
    program = "nets.py"
    options = ("--device=gpu", "--call-stack=python", "--analysis=decompose", "--format=none")
    record = traced(place, f"advise {name}, recorded", program, name, options=options)
    if record.status or not record.said:
        return conclude([f"expected exit status 0, found {record.status}"], program, record)
    asked = Run(place, f"advise {name}", [COMMAND, "advise", record.out, "--json"])
    try:
        [pool] = [pool for pool in json.loads(asked.stdout)["pools"] if pool["peak_bytes"] > 1 << 20]
    except ValueError:
        return conclude([f"expected one pool with advice, status {asked.status}"], program, asked)
    asked.said, asked.screen = {}, "\n".join([asked.screen, *(f"{one['what']}: {one['peak_bytes']}" for one in pool["advice"]), *map(str, pool["refused"])])
    plain = real(place, f"{name} unchanged", program, name).said["requested"]
    tried, wrong = [], []
    if not near(pool["peak_bytes"], plain, 0.02):
        wrong.append(f"expected a recorded peak of {plain} within 2 %, found {pool['peak_bytes']}")
    offers = [one for one in pool["advice"] if one["rule"] == "checkpoint" and one.get("class") not in ("Sequential", "Linear", "LayerNorm")]
    halves = [one for one in offers if one["which"] != "all"]
    offers = [one for one in offers if one["which"] == "all"][:2] + halves[:1]
    for one in [*offers, *[one for one in pool["advice"] if one["rule"] == "accumulate"][:1]]:
        words = ["--parts=2"] if one["rule"] == "accumulate" else [f"--checkpoint={one['class']}", f"--which={one['which']}"]
        truth = real(place, f"{name} {' '.join(words)}", program, name, *words).said
        if "requested" not in truth:
            wrong.append(f"the program failed with {words}")
            continue
        off = one["peak_bytes"] / truth["requested"] - 1
        asked.said[" ".join(words)] = truth["requested"]
        tried.append(f"{' '.join(words)} {100 * off:+.2f} %")
        if abs(off) > 0.02:
            wrong.append(f"expected {truth['requested']} with {words} within 2 %, found {one['peak_bytes']} ({100 * off:+.2f} %)")
    if not tried:
        wrong.append(f"expected advice that can be tried; refused: {pool['refused']}")
    return conclude(wrong, program, asked, f"{'; '.join(tried)}; peak {plain >> 20} MiB")


def judge_settings(place, name):
    program, settings = "nets.py", ("expandable_segments:True", "max_split_size_mb:128")
    record = traced(place, f"whatif {name}, recorded", program, name, "--vary", options=("--format=none",))
    asked = Run(place, f"whatif {name}", [COMMAND, "whatif", "--json", *(f"--set={text}" for text in settings), record.out])
    try:
        [pool] = json.loads(asked.stdout)["pools"]
    except ValueError:
        return conclude([f"expected one pool, status {asked.status}"], program, asked)
    asked.said, asked.screen = record.said, asked.screen + "\n" + json.dumps(pool, indent=1)[:3000]
    wrong = [] if pool["agrees"] else ["expected that the replay agrees"]
    if not near(pool["reserved_peak"], record.said["reserved"], 0.0001):
        wrong.append(f"expected {record.said['reserved']} recorded, found {pool['reserved_peak']}")
    notes = []
    for one in pool["settings"]:
        truth = real(place, f"{name} {one['set']}", program, name, "--vary", env={"PYTORCH_CUDA_ALLOC_CONF": one["set"]}).said["reserved"]
        notes.append(f"{one['set']} {100 * (one['reserved_peak'] / truth - 1):+.2f} %")
        if not near(one["reserved_peak"], truth, 0.01) and not one["low"] <= truth <= one["high"]:
            wrong.append(f"expected {truth} with {one['set']} within 1 %, found {one['reserved_peak']} ({one['low']} to {one['high']})")
    return conclude(wrong, program, asked, "; ".join(notes))


def judge_batch(place, name):
    program = "nets.py"
    records = [traced(place, f"whatif {name} batch {batch}", program, name, f"--batch={batch}", options=("--format=none",)) for batch in (16, 24)]
    asked = Run(place, f"whatif {name} batches", [COMMAND, "whatif", "--json", "--batch=32", "--batch-of=16,24", *(run.out for run in records)])
    try:
        [pool] = json.loads(asked.stdout)["pools"]
        [row] = [row for row in pool["batches"] if row["batch"] == 32]
    except ValueError:
        return conclude([f"expected one pool and batch 32, status {asked.status}"], program, asked)
    asked.said, asked.screen = {}, asked.screen + "\n" + json.dumps(pool, indent=1)[:3000]
    truth = real(place, f"{name} batch 32", program, name, "--batch=32").said["reserved"]
    wrong = []
    if not near(row["reserved_peak"], truth, 0.01) and not row.get("low", row["reserved_peak"]) <= truth <= row.get("high", row["reserved_peak"]):
        wrong.append(f"expected {truth} with batch 32 within 1 %, found {row}")
    return conclude(wrong, program, asked, f"{100 * (row['reserved_peak'] / truth - 1):+.2f} %")


# ---- comparisons ----

def judge_compare(place, program, options, first):
    """first(lines of the answer): what is wrong with them, or None."""
    runs = [traced(place, f"compare {program} {number}", program, options=options, env={"WIDER": "1"} if number else {}) for number in (0, 1)]
    asked = Run(place, f"compare {program}", [COMMAND, "--compare", f"--input={runs[0].out},{runs[1].out}", "-o", place / "runs" / f"compare-{program}"])
    asked.screen = asked.stdout + asked.screen
    if any(run.status or "peak" not in run.said for run in runs) or asked.status:
        return conclude([f"expected exit status 0, found {[run.status for run in runs]} and {asked.status}"], program, asked)
    wrong = first(asked.screen.splitlines(), program)
    return conclude([wrong] if wrong else [], program, asked, f"peaks {runs[0].said['peak'] >> 20} and {runs[1].said['peak'] >> 20} MiB")


def first_layer(lines, program):
    at = next((number for number, line in enumerate(lines) if line.startswith("Layers that hold")), None)
    if at is None:
        return "expected \"Layers that hold more or less\""
    return None if lines[at + 1].strip().startswith("codes.") else f"expected codes.project (or what follows from it) first, found: {lines[at + 1].strip()}"


def first_line(lines, program):
    changed = marks(program)["changed"]
    first = next((line for line in lines if f"{program}:" in line), "")
    found = [int(number) for number in re.findall(rf"{re.escape(program)}:(\d+)", first)]
    return None if set(found) & set(changed) else f"expected {program}:{changed} in the first line with a call site, found: {first.strip()}"


# ---- what has the card for itself ----

def judge_forecast(run, program):
    process, said = run.process(), run.said
    forecasts = (process or {}).get("forecasts") or []
    if not forecasts or not said:
        return conclude([f"expected a forecast; status {run.status}, {said}"], program, run)
    one, truth, wrong = forecasts[0], said["step"] + said["free"] / said["per_step"], []
    if not one["full_step_low"] * 0.95 <= truth <= one["full_step_high"] * 1.05 or not near(one["full_step"], truth, 0.1):
        wrong.append(f"expected step {truth:.0f} (PyTorch's and the driver's figures), found {one['full_step']} ({one['full_step_low']} to {one['full_step_high']})")
    shown = re.search(r"full in about ([\d,]+) steps", " ".join(run.screen.split()))
    rest = truth - said["step"]
    if not shown or not near(int(shown[1].replace(",", "")), rest, 0.1):
        wrong.append(f"expected \"full in about {rest:.0f} steps\", found {shown and shown[0]}")
    return conclude(wrong, program, run, f"truth {truth:.0f}, said {one['full_step']}")


def judge_full(run, program):
    full, wrong = run.said.get("full"), []
    if not full:
        return conclude([f"expected that the card runs full: {run.said}"], program, run)
    text = " ".join(run.screen.split())
    found = re.search(r"will be full at step ([\d,]+)(?: to ([\d,]+))?", text)
    numbers = [int(number.replace(",", "")) for number in found.groups() if number] if found else []
    if not numbers or not numbers[0] * 0.9 <= full <= numbers[-1] * 1.1:
        wrong.append(f"expected \"will be full at step {full}\" while it ran, found {found and found[0]}")
    verdicts = run.process()["oom"] if run.process() else []
    if not verdicts or verdicts[0]["cause"] != "growth":
        wrong.append(f"expected OUT OF MEMORY by growth, found {[verdict['cause'] for verdict in verdicts]}")
    return conclude(wrong, program, run, f"full in step {full}, said {numbers}")


@contextlib.contextmanager
def card_taken():
    holder = subprocess.Popen([PYTHON, SOURCES / "oom_others.py", "hold"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holder.stdout.readline()
        yield
    finally:
        holder.stdin.close()
        holder.wait()


def wanted(title):
    words = os.environ.get("ONLY")
    return not words or any(word in title for word in words.split(","))


def together(place):
    """(title, function) of all that can share the card; the longest first."""
    for name in ("moe", "vit_plain", "lora", "unet"):
        yield f"advise {name}", lambda name=name: judge_advice(place, name)
    for name in ("convnext", "unet", "moe", "vit", "lora"):
        yield f"dryrun {name}", lambda name=name: judge_dry(place, name)
    yield "whatif moe, two settings", lambda: judge_settings(place, "moe")
    yield "whatif lora, batch 32", lambda: judge_batch(place, "lora")
    yield "compare, a wider layer", lambda: judge_compare(place, "changed.py", ("--analysis=decompose",), first_layer)
    yield "compare, targets one-hot", lambda: judge_compare(place, "changed_input.py", (), first_line)
    for name in reversed(FINE):
        program = f"fine_{name}.py"
        yield f"healthy {name}", lambda name=name, program=program: judge_fine(
            traced(place, f"healthy {name}", program, options=("--fail-on=leak",)), program)
    for name in LEAKS:
        program = f"leak_{name}.py"
        yield f"leak {name}", lambda name=name, program=program: judge_leak(traced(place, f"leak {name}", program), program)


def refusals(place, pool):
    """Two checks of one run each."""
    for name in CAUSES:
        if name == "others" or not wanted(f"oom {name}"):
            continue
        program = f"oom_{name}.py"
        run = pool.submit(traced, place, f"oom {name}", program)
        yield f"oom {name}", lambda run=run, program=program, name=name: judge_oom(run.result(), program, name)
        yield f"oom {name}, its advice", lambda run=run, program=program, name=name: judge_try(place, run.result(), program, name)


def alone(place):
    if wanted("forecast, some of the card"):
        check("forecast, some of the card")(lambda: judge_forecast(traced(place, "forecast some", "forecast.py", "256", "60"), "forecast.py"))
    if wanted("forecast, until it is full"):
        check("forecast, until it is full")(lambda: judge_full(traced(place, "forecast full", "forecast.py", "1024", "400"), "forecast.py"))
    if wanted("oom others") and not SIMULATED:
        with card_taken():
            run = traced(place, "oom others", "oom_others.py")
        check("oom others")(lambda: judge_oom(run, "oom_others.py", "others"))
        check("oom others, its advice")(lambda: judge_try(place, run, "oom_others.py", "others"))


def told(title, program, wrong, run, again):
    lines = [f"---- FAILED {title}: {program}", *(f"  {one}" for one in wrong), f"  truth: {run.said}, exit status {run.status}, {run.seconds:.1f} s"]
    if again:
        return "\n".join([*lines, "  screen: as above"])
    screen = [line for line in run.screen.splitlines() if line.strip() and "running as root" not in line]
    # A traceback of the program itself says nothing of the tool.
    own = next((number for number, line in enumerate(screen) if re.match(r"\S+ \(pid \d+\): |\d+ processes, ", line)), 0)
    return "\n".join([*lines, "  screen:", *(f"  | {line[:150]}" for line in screen[own:own + 30])])


def run(place):
    place = place.resolve()
    with ThreadPoolExecutor(LANES) as pool, ThreadPoolExecutor(4) as others:
        jobs = {title: pool.submit(function) for title, function in together(place) if wanted(title)}
        ooms = {title: others.submit(function) for title, function in list(refusals(place, pool))}
        for title, job in [*jobs.items(), *ooms.items()]:
            check(title)(job.result)
        pool.shutdown(cancel_futures=True)
    alone(place)
    failed.sort(key=lambda one: one[0])
    report = "\n\n".join(told(*one, one[3] in [other[3] for other in failed[:number]]) for number, one in enumerate(failed))
    (place / "strangers.txt").write_text(report + "\n")
    print(f"\n{report}", flush=True)
