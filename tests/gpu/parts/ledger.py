# SPDX-License-Identifier: Apache-2.0
"""the whole device: every part of what the driver says is used, over time, at the peak and in words"""
import json
import subprocess
import sys

from checks import COMMAND, PROGRAMS, build, call, check

MIB = 1 << 20
PARTS = ("pools", "outside", "kept", "context", "code", "graphs", "other_processes", "unknown")


class Ledger:
    """A program under the command with its holds, and what the summary says about the first GPU."""

    def __init__(self, place, argv, env=None, options=()):
        place.mkdir(parents=True)
        self.done = call([COMMAND, "-o", place / "out", f"--summary-json={place / 'summary'}", *options, "--", *argv], env)
        self.holds = [json.loads(line) for line in self.done.stdout.splitlines() if line.startswith('{"hold"')]
        with open(place / "summary", encoding="utf-8") as file:
            processes = json.load(file)["processes"]
        found = [device for process in processes for device in process.get("devices", ())
                 if device["device"] == "0" and process["pid"] == self.holds[0].get("pid", process["pid"])]
        if len(found) != 1:
            raise AssertionError(f"{len(found)} ledgers of {len(processes)} processes; {self.done.stderr[-600:]}")
        [self.device] = found
        self.peak = self.device["peak"]
        self.named = {entry["library"]: entry["bytes"] for entry in self.peak["outside"]}

    def at(self, time_ns):
        """What it says of a moment: it has one where something changed."""
        return [moment for moment in self.device["over_time"] if moment["time_ns"] <= time_ns][-1]


def in_words(moment):
    shown = [f"{part} {moment[part + '_bytes'] / MIB:.1f}" for part in PARTS if moment[part + "_bytes"]]
    return f"{moment['used_bytes'] / MIB:.1f} = " + " + ".join(shown)


def unknown(moment):
    return 100 * moment["unknown_bytes"] / max(1, moment["used_bytes"])


def judge(ledger, bar=1.0, unsteady=()):
    """All that is wrong, and the holds in words. Holds named by `unsteady` are not compared with what the driver says."""
    wrong, told = [], []
    moments = [ledger.peak, ledger.device["last"], *ledger.device["over_time"]]
    if any(moment["used_bytes"] != sum(moment[part + "_bytes"] for part in PARTS) for moment in moments):
        wrong.append("parts do not add up")
    if any(moment["used_bytes"] > ledger.peak["used_bytes"] for moment in moments):
        wrong.append("more than at the peak")
    if sum(ledger.named.values()) != ledger.peak["outside_bytes"]:
        wrong.append(f"libraries {sum(ledger.named.values())} of {ledger.peak['outside_bytes']}")
    if unknown(ledger.peak) > bar:
        wrong.append(f"unknown {unknown(ledger.peak):.2f} % at the peak")
    for hold in ledger.holds:
        moment = ledger.at(hold["to_ns"])
        told.append(f"{hold['hold']}: {in_words(moment)} (unknown {unknown(moment):.2f} %; driver {hold['used'] / MIB:.1f}"
                    + (f", reserved {hold['reserved'] / MIB:.1f})" if "reserved" in hold else f", asked {hold['asked'] / MIB:.1f})"))
        if unknown(moment) > bar:
            wrong.append(f"unknown {unknown(moment):.2f} % in {hold['hold']}")
        taken = moment["context_bytes"] + moment["other_processes_bytes"]
        if "began" in hold and "two" not in hold["hold"] and "second" not in hold["hold"] and abs(taken - hold["began"]) > hold["used"] / 100:
            wrong.append(f"context {moment['context_bytes'] / MIB:.1f} of {hold['began'] / MIB:.1f} MiB in {hold['hold']}")
        pools = moment["pools_bytes"] or moment["outside_bytes"] + moment["kept_bytes"]  # cudaMallocAsync: the driver has the pool
        if "reserved" in hold and (abs(pools - hold["reserved"]) > 34 * MIB if not moment["pools_bytes"] else pools != hold["reserved"]):
            wrong.append(f"pools {moment['pools_bytes']} of {hold['reserved']} in {hold['hold']}")
        if hold["before"] == hold["used"] and hold["hold"] not in unsteady and abs(moment["used_bytes"] - hold["used"]) > hold["used"] // 1000:
            wrong.append(f"used {moment['used_bytes']} of {hold['used']} in {hold['hold']}")
    late = [moment for moment in ledger.device["over_time"] if unknown(moment) > bar]
    told.append(f"peak: {in_words(ledger.peak)}; outside: {', '.join(f'{name or chr(63)} {size / MIB:.1f}' for name, size in ledger.named.items())}")
    told.append(f"over time: {len(ledger.device['over_time'])} moments, {len(late)} with more than {bar:g} % unknown"
                + (f", the worst {max(map(unknown, late)):.1f} %" if late else ""))
    words = " ".join(ledger.done.stderr.split())
    told.append("GPU 0 then:" + words.partition("GPU 0 then:")[2].partition(" Files: ")[0])
    print("\n".join("         " + line for line in told), flush=True)
    if wrong:
        raise AssertionError("; ".join(wrong))
    return f"unknown {unknown(ledger.peak):.2f} % at the peak, {max(unknown(ledger.at(hold['to_ns'])) for hold in ledger.holds):.2f} % in holds"


def train(place, *words, env=None):
    return Ledger(place, [sys.executable, PROGRAMS / "train.py", *words, "hold"], env)


def program(place, *words, env=None):
    return Ledger(place, [sys.executable, PROGRAMS / "ledger.py", *words], env)


def named(ledger, library):
    """The library has what its use took of the device, as the driver counts it."""
    first, last = ledger.holds[0], ledger.holds[-1]
    taken = (last["used"] - last["reserved"]) - (first["used"] - first["reserved"])
    if taken >= 4 * MIB and library not in ledger.named:
        raise AssertionError(f"{library} is not among {ledger.named}, {taken / MIB:.1f} MiB were taken")
    return f"; {library} {ledger.named.get(library, 0) / MIB:.1f} MiB, taken {taken / MIB:.1f}"


def beside_a_hog(place):
    words = [sys.executable, str(PROGRAMS / "ledger.py"), "hog"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
        try:
            if hog.stdout.readline() != "ready\n":
                raise RuntimeError("the other process has no memory")
            ledger = program(place, "cache")
            listed = call(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], check_status=False)
        finally:
            hog.stdin.close()
    others = [int(line.split(",")[1]) for line in listed.stdout.splitlines() if line.split(",")[0].strip() == str(hog.pid)]
    detail = judge(ledger)
    said = ledger.at(ledger.holds[0]["to_ns"])["other_processes_bytes"] / MIB
    if not 4096 <= said <= 4096 + 1500 or ledger.peak["other_processes"] < 1 or (others and abs(others[0] - said) > 16):
        raise AssertionError(f"other processes {said:.1f} MiB, nvidia-smi {others}, {ledger.peak['other_processes']} of them")
    return f"{detail}; other processes {said:.1f} MiB, nvidia-smi {others}"


def run(place):
    binary = {}

    @check("the program builds")
    def _():
        binary["path"] = build(place, "cuda_ledger")

    @check("what blocks of the driver take")
    def _():
        lines = [json.loads(line) for line in call([binary["path"], "sizes", "0"]).stdout.splitlines()]
        return ", ".join(f"{line['size']}: {line['sixteen'] / 16 / MIB:g}" for line in lines)

    for seed, what in enumerate(("pages", "odd", "small", "async", "managed", "physical", "contexts", "code")):
        @check(f"driver program: {what}")
        def _(what=what, seed=seed):
            return judge(Ledger(place / what, [binary["path"], what, seed]))

    for words, env in ((("transformer", "plain"), None), (("cnn", "fused"), None), (("transformer", "foreach", "graphs"), None),
                       (("transformer", "foreach", "compiled"), None),
                       (("transformer", "foreach"), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})):
        @check(", ".join(words) + (", expandable segments" if env else ""))
        def _(words=words, env=env):
            return judge(train(place / ("-".join(words) + ("-expandable" if env else "")), *words, env=env))

    @check("inference")
    def _():
        return judge(program(place / "inference", "inference"))

    @check("cuBLAS is named")
    def _():
        ledger = program(place / "libraries", "libraries")
        return judge(ledger) + named(ledger, "cuBLAS")

    @check("NCCL is named")
    def _():
        ledger = program(place / "nccl", "nccl")
        return judge(ledger) + named(ledger, "NCCL")

    @check("a pool that is emptied")
    def _():
        return judge(program(place / "cache", "cache"))

    @check("another process holds 4 GiB")
    def _():
        return beside_a_hog(place / "hog")

    @check("the driver's own pool (cudaMallocAsync)")
    def _():
        return judge(program(place / "async-torch", "async", env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}))
