# SPDX-License-Identifier: Apache-2.0
"""Programs that run out of a GPU's memory under the command, and whether the verdict is the truth."""
import json

from checks import COMMAND, call

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
