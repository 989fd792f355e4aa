# SPDX-License-Identifier: Apache-2.0
"""programs that run out of memory for a reason that they know: the verdict names it, and the line"""
import contextlib
import json
import subprocess
import sys

from checks import COMMAND, PROGRAMS, ROOT, build, call, check

WORDS = {"growth": "growth", "outside": "growth", "spike": "spike", "fragmentation": "fragmentation", "others": "other processes",
         "full": "full"}
GIB = 1 << 30


def lines_of(frames, name):
    return [frame["line"] for frame in frames if frame.get("file", "").endswith(name) and "line" in frame]


def names_line(text, line):
    return f"oom.py({line})" in text or f"oom.py:{line}" in text


def trace(place, argv, env=None):
    """What a program said last, its verdicts and the words on the screen."""
    place.mkdir(parents=True)
    done = call([COMMAND, "-o", place / "out", f"--summary-json={place / 'summary'}", "--", *argv], env, check_status=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not said:
        raise AssertionError(f"the program said nothing: {done.stderr[-500:]}")
    with open(place / "summary", encoding="utf-8") as file:
        verdicts = [verdict for process in json.load(file)["processes"] for verdict in process["oom"]]
    text = " ".join(done.stderr.split())
    if not verdicts:
        raise AssertionError(f"no verdict; the program said {said[-1]}; {text[-700:]}")
    return said[-1], verdicts, text


def told(verdict):
    shown = {key: verdict.get(key) for key in ("cause", "why", "try", "pool", "function", "requested_bytes", "free_bytes", "process_bytes",
                                               "other_processes_bytes", "outside_pool_bytes", "reserved_unused_bytes",
                                               "largest_hole_bytes", "given_back_bytes", "step")}
    return f"{shown}, frames {verdict['frames'][:4]}, growing {verdict.get('growing', {}).get('frames', [])[:4]}"


def judge(cause, said, verdicts, text):
    wrong, verdict = [], verdicts[0]
    if verdict["cause"] != WORDS[cause]:
        wrong.append(f"cause {verdict['cause']}: {verdict['why']}")
    if f"Cause: {WORDS[cause]}." not in text:
        wrong.append("the screen does not name the cause")
    if said.get("requested") and not 0 <= verdict["requested_bytes"] - said["requested"] < 2 << 20:
        wrong.append(f"asked for {verdict['requested_bytes']} of {said['requested']}")
    if said.get("line") and said["line"] not in lines_of(verdict["frames"], "oom.py"):
        wrong.append(f"refused at {lines_of(verdict['frames'], 'oom.py')} of {said['line']}")
    if said.get("line") and not names_line(text, said["line"]):
        wrong.append("the screen does not name the line that asks")
    if said.get("grown") and cause in ("growth", "outside"):
        grown = lines_of(verdict.get("growing", {}).get("frames", []), "oom.py")
        if said["grown"] not in grown:
            wrong.append(f"grown at {grown} of {said['grown']}")
        if not names_line(text, said["grown"]):
            wrong.append("the screen does not name the line that grows")
    if wrong:
        print(f"         said {said}\n         verdict {told(verdict)}\n         screen {text[-1500:]}", flush=True)
        raise AssertionError("; ".join(wrong))
    return f"{said.get('form', '')}: {verdict['why']}"


@contextlib.contextmanager
def hog(left):
    """Another process has all of the device but some GiB."""
    words = [sys.executable, str(PROGRAMS / "ledger.py"), "hog", str(left)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            if other.stdout.readline() != "ready\n":
                raise RuntimeError("the other process has no memory")
            yield
        finally:
            other.stdin.close()


def run(place):
    programs = {}

    @check("the program builds")
    def _():
        programs["steps"] = build(place, "cuda_steps")

    @check("driver program: requests larger than what is left")
    def _():
        said, verdicts, text = trace(place / "refused", [programs["steps"], "refused"], {"TRUTH": str(place / "truth")})
        found = [(verdict["requested_bytes"], verdict["cause"]) for verdict in verdicts]
        if found != [(size, "spike") for size in said["refused"]] or "refused (" not in text:
            raise AssertionError(f"{found} of {said}: {text[-500:]}")
        return verdicts[0]["why"]

    @check("driver program: growth until the device is full")
    def _():
        said, [verdict, *_], text = trace(place / "grows", [programs["steps"], "grows"], {"TRUTH": str(place / "truth2")})
        lines = (ROOT / "tests/targets/cuda_steps.c").read_text().splitlines()
        [line] = [number for number, line in enumerate(lines, 1) if "/* kept */" in line]
        frames = verdict.get("growing", {}).get("frames", [])
        if verdict["cause"] != "growth" or verdict["requested_bytes"] != said["refused"][0] or line not in lines_of(frames, "cuda_steps.c"):
            raise AssertionError(f"{told(verdict)} of {said}, line {line}: {text[-600:]}")
        return verdict["why"]

    for cause, seed, *more in (("growth", 1), ("growth", 2, "uncaught"), ("growth", 5), ("spike", 1, "uncaught"), ("spike", 2), ("spike", 4),
                               ("fragmentation", 1), ("fragmentation", 2, "uncaught"), ("fragmentation", 5), ("full", 1), ("outside", 1)):
        @check(f"{cause}, seed {seed}{', not caught' if more else ''}")
        def _(cause=cause, seed=seed, more=more):
            return judge(cause, *trace(place / f"{cause}-{seed}", [sys.executable, PROGRAMS / "oom.py", cause, seed, *more]))

    @check("fragmentation, max_split_size_mb:64")
    def _():
        # Large segments are not cut up then: if memory runs out at all, the request is larger than all that there is.
        said, verdicts, text = trace(place / "split", [sys.executable, PROGRAMS / "oom.py", "fragmentation", 1],
                                     {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
        return judge("fragmentation" if said["unused"] * 10 > said["limit"] else "spike", said, verdicts, text)

    @check("another process has the device")
    def _():
        with hog(6):
            return judge("others", *trace(place / "others", [sys.executable, PROGRAMS / "oom.py", "others", 1]))
