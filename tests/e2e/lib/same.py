# SPDX-License-Identifier: Apache-2.0
"""One run, one answer: the screen, report.txt, `info`, findings.json, the page, the csv alone, the db alone, and what `recover` makes of
the trace must agree on the verdict, the call sites, their bytes and rates, each pool's peak and end, and who held the peak.

    same.differences(command, project, screen)     what disagrees, as sentences; [] if nothing does
    same.check(run, command)                       all projects of a finished launch; fails with all that disagrees

With all forms, and in a part of the sample, pyarrow finds in Parquet the rows of the db, and DuckDB their number and bytes.

The reference is `info --json` of the trace. Forms that the launch did not write are made from its trace: the other dump by `export`,
the page by `recover`, which finishes a copy of the trace in a session of its own. No program runs again.

Texts are read leniently: a line counts if it starts with a word of VERDICTS, has "peak SIZE" or "end SIZE" beside a pool, or is in a list
of holders; all other words may change.
"""
import functools
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import engines
import harness
import rows
from viewed import answers

# What a form cannot know, by what `info --json` of the trace says. All that is not here must be the same in every form.
CANNOT = {
    "screen": "All lines. It has room for some call sites, pools and holders: those that it shows are the first of all.",
    "info": "All call sites: it has the first suspects and kept ones, and says how many more there are.",
    "page": "The end of a pool. Call sites beyond the first 200: it says how many more there are. What happens while recording is off: pools of which no row shows anything, and who held a peak that memory "
            "of that time was part of.",
    "dump": "Which analyses were asked for: `info` of it has to be told. The end of main() and of the interpreter: its end is its last row or "
            "the last stop(). Parts of time, since it starts with its first row, so that nothing is judged the same where the program marks "
            "no step; steps of an optimizer have no rows. Call stacks of C; those of Python are in it if --call-stack asks for them. "
            "Without stacks call sites are told apart by size. Memory by handles. Out of memory, unless that analysis was asked for. "
            "What has no rows, by --steps, --events, --device or outside of windows, and "
            "where there is none the device that the rows of START_TRACE and STOP_TRACE are listed with. That a framework has a pool which is not recorded, "
            "and what is a piece of a library's own pool, which the library's name says.",
    "recover": "The signal that killed the process.",
}
VERDICTS = ("leak", "suspect", "kept")
# How texts for people call pools; files have the names on the right.
POOLS = {"PyTorch pool (PTA)": "PTA", "PyTorch pool": "PTA", "PyTorch workspace pool": "PTA_WORKSPACE", "CUDA driver": "HAL", "driver (HAL)": "HAL",
         "CPU tensors": "HOST", "pinned host memory": "HOST_PINNED", "ATB pool": "ATB", "MindSpore pool": "MINDSPORE"}
CLASSES = tuple(f"  ({words})" for words in ("weights", "gradients", "optimizer state", "activations", "inputs", "temporary tensors", "buffers",
                                             "attributes", "state dict", "KV cache"))
SIZE = r"(\d[\d,.]* (?:B|[KMGT]iB))"
PAGE_SITES = 200
LARGE = 20 << 20  # bytes of a trace that only `make soak PART=same` takes
SAMPLE = 2        # projects of one test, likewise
# Files of tests about dumps, of which the sample always takes Parquet too, of a trace of at most PARQUET bytes; of others it takes one test
# in PARQUETS.
DUMPS = {"test_db", "test_export", "test_files", "test_filters", "test_hostile_names", "test_row_shapes", "test_rows", "test_snapshot",
         "test_stop_completes"}
PARQUETS = 15
PARQUET = 30 << 10


def shown(count, decimals=0):
    """Bytes as people see them."""
    value, unit = count / 1024, 0
    if count < 1024:
        return f"{count:.{decimals if count < 100 else 0}f} B"
    while value >= 1023.5 and unit < 3:
        value, unit = value / 1024, unit + 1
    return f"{value:.{0 if value >= 100 else 1}f} {('KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def shown_rates(rate):
    """A rate as people may see it: documents round it to a tenth, before a screen rounds it further."""
    return {"+" + shown(rate + rounded, 1) for rounded in (-0.05, 0, 0.05)}


@dataclass
class Site:
    """A call site as one form has it; None is what the form does not say."""
    verdict: str
    name: str = None
    sentence: str = None
    where: tuple = None  # device, pool
    blocks: int = None
    bytes: int = None
    rate: float = None
    figures: tuple = ()  # sizes as a screen may show them
    small: bool = False  # a leak that is listed apart
    device: str = None   # on a screen: the line is of this device, with the rate of all its leaks and the name of the worst

    def __str__(self):
        return " ".join(str(one) for one in (self.verdict, self.name, self.where, self.blocks, self.bytes, self.rate) if one is not None)


@dataclass
class Facts:
    """What one form says."""
    form: str
    verdict: str = None
    sites: list = field(default_factory=list)
    pools: dict = field(default_factory=dict)  # (device, pool): {"peak": ..., "end": ..., "blocks": ...}, bytes or as shown
    held: dict = field(default_factory=dict)   # (device, pool): [(name or None, bytes or as shown, blocks or None)]
    unseen: set = field(default_factory=set)   # (device, pool) whose peak has memory of a time when recording was off
    said: list = field(default_factory=list)   # (device, pool, word, as shown): every "peak SIZE" and "end SIZE" of a text


# ---- documents ----

def of_document(form, process):
    """A process of `info --json`, of findings.json or of --summary-json."""
    facts = Facts(form, process["verdict"])
    for one in process["places"]:
        facts.sites.append(Site(one["verdict"], one.get("name"), " ".join(one.get("sentence", "").split()), (one["device"], one["pool"]),
                                one["blocks"], one["bytes"], one["bytes_per_step"],
                                (*shown_rates(one["bytes_per_step"]), shown(one["overdue_bytes"] + one["young_bytes"]), shown(one["bytes"])), one["small"]))
    for one in process["pools"]:
        facts.pools[one["device"], one["pool"]] = {"peak": one["peak_bytes"], "end": one["end_bytes"], "blocks": one["end_blocks"]}
    if "peaks" not in process:  # --analysis=none
        facts.unseen = set(facts.pools)
    for one in process.get("peaks", []):
        where = one["device"], one["event_type"]
        facts.held[where] = [(place["place"], place["bytes"], place["blocks"]) for place in one["places"]]
        if not all(place["recorded"] for place in one["places"]):
            facts.unseen.add(where)
    return facts


def of_page(found, number):
    """A process of a report's own data."""
    summary = found[f"summary/{number}///"]
    pools = {one["index"]: (one["device"], one["pool"]) for one in summary["pools"]}
    facts = Facts("page", summary.get("verdict"))
    facts.pools = {pools[one["index"]]: {"peak": one["peak_bytes"]} for one in summary["pools"]}
    facts.sites = [Site(one["verdict"], one["place"], " ".join(one["sentence"].split()), pools.get(one["pool"]), one["blocks"], one["bytes"],
                        one["bytes_per_step"]) for one in summary["leaks"]]
    for index, place in pools.items():
        moment = found.get(f"moment/{number}/{index}/place/peak")
        if moment is not None:
            facts.held[place] = [(one["name"], one["bytes"], one["blocks"]) for one in moment["groups"]]
    return facts


# ---- texts ----

def unwrapped(text):
    """Lines as they were before they were broken."""
    lines = []
    for line in text.splitlines():
        if re.match(r" {6}\S", line) and not HOLDER.match(line) and lines and lines[-1][:1].strip():
            lines[-1] += " " + line.strip()
        elif re.match(r"  \.\.\. \d+ more lines?\b", line) and lines:
            lines[-1] += "..."  # it may have gone on
        else:
            lines.append(line)
    return lines


DEVICE = re.compile(r"\b(?:device|GPU|NPU) (\d+)\b|\b(cpu|the host)\b|^\s+(N/A)\b", re.I)
HELD = re.compile(rf"^(?:Held at the peak of|Peak of) (\w+) on (\S+(?: \d+)?)[^\d]*.*{SIZE}")
PEAK = re.compile(rf"^PEAK of (?:the )?({'|'.join(map(re.escape, POOLS))})(?: on (\S+ \d+|the CPU))?: {SIZE}")
HOLDER = re.compile(rf"^\s+{SIZE}\s+\d+ %\s+(?:([\d,]+) blocks?\s+)?(\S.*)$")
LISTED = re.compile(rf"^  +(?:(\S+ \d+|the CPU)  )?(\+?{SIZE})(/step|/s)?  (\S.*?)(?: on (?:(?:GPU|NPU|device) \d+|the CPU))?(?: {{3,}}\S.*)?$")


def _device(text):
    match = DEVICE.search(text)
    if match is None:
        return None
    return match[1] or ("cpu" if match[2] else match[3])


def _pool(line, names):
    """The pool that a line is about."""
    for words, pool in POOLS.items():
        if words in line and pool in names:
            return pool
    return next((name for name in names if re.search(rf"\b{name}\b", line)), None)


def _peak(line, pools):
    """The device and pool of a screen's peak; a device that goes without saying is the one that has such a pool."""
    found = PEAK.match(line)
    if found is None:
        return None
    having = [place for place in pools if place[1] == POOLS[found[1]] and found[2] in (None, f"GPU {place[0]}", f"NPU {place[0]}", f"device {place[0]}")]
    return having[0] if len(having) == 1 else (None, POOLS[found[1]])


def of_text(form, text, pools):
    """A screen, report.txt or `info`; `pools` are those that there are."""
    facts = Facts(form)
    names = sorted({pool for _, pool in pools}, key=len, reverse=True)
    holders = listing = None
    for line in unwrapped(text):
        found = re.match(rf"({'|'.join(VERDICTS)}): (.*)", line)
        if found and not re.match(r"\d+ more ", found[2]):
            facts.sites.append(Site(found[1], sentence=" ".join(found[2].split())))
        head = re.match(r"(?:SMALL )?(LEAK|SUSPECT) on ", line)
        listed = LISTED.match(line)
        if head:
            listing, small = head[1].lower(), line.startswith("SMALL")
        elif listing and listed:
            facts.sites.append(Site(listing, name=listed[5].strip(), figures=(listed[2],) if listed[4] != "/s" else (), small=small,
                                    device=listed[1] and _device(listed[1])))
        elif not line.startswith("  "):
            listing = None
        held = HELD.match(line)
        peak = _peak(line, pools)
        holder = HOLDER.match(line)
        if held or peak:
            holders = facts.held.setdefault(peak or (_device(held[2]), held[1]), [])
        elif holder and holders is not None:
            holders.append((holder[3].removesuffix("  (no call stack)"), holder[1], int(holder[2].replace(",", "")) if holder[2] else None))
        elif not line.startswith(" "):
            holders = None
        pool = _pool(line, names)
        if pool and not held and (_device(line), pool) in pools and not found:
            facts.said += [(_device(line), pool, word, size) for word, size in re.findall(rf"\b(peak|end):? {SIZE}", line)]
    if re.search(r"^Out of memory|^OUT OF MEMORY|^OUT OF HOST MEMORY: Killed|^Killed: ", text, re.M):
        facts.verdict = "oom"
    elif facts.sites and facts.sites[0].verdict in ("leak", "suspect"):
        facts.verdict = "leak" if any(site.verdict == "leak" for site in facts.sites) else "suspect"
    elif re.search(r"^HOST MEMORY GROWS: |^RSS of .* grows: ", text, re.M):
        facts.verdict = "suspect"
    elif re.search(r"^No leak (?:was )?found(?: in|:|, but [^.]* grew by )", text, re.M):
        facts.verdict = "ok"
    return facts


HEADLINE = r"^(?!msmemscope: )[^\n]*\(pid \d+(?:, rank \d+)?\): (?:[\d,]+ steps? in )?[\d.]+ (?:ms|s|min|h|days)\b"


def screens(text):
    """All screens of one process each, in their order."""
    return [match[0] for match in re.finditer(rf"{HEADLINE}.*?(?=^msmemscope: (?!/|--fail-on)|{HEADLINE}|\Z)", text, re.M | re.S)]


def screen_of(found, project):
    """The last screen that names the directory: a process that records again after unload() has several. None: there is none."""
    named = [one for one in found if re.search(rf"{re.escape(project.name)}(?!\w)", one)]
    return named[-1] if named else None


# ---- comparing ----

def _spelled(text):
    """What would change how a text is read is spelled out where people read it, not in JSON."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" if ord(one) < 0x80 else f"\\u{ord(one):04x}" for one in text)


def _fits(cut, full):
    """Whether a text is another one, but for what three dots stand for."""
    parts = [re.escape(part.strip()) for part in re.split(r"\.{3,}", " ".join(_spelled(cut).split()))]
    return re.fullmatch(".*".join(parts), " ".join(_spelled(full).split())) is not None


def _shortens(cut, full):
    """Whether a screen may show a name like this: its words are those of the name, in their order; frames, the qualifiers of functions and
    functions beside their line may be left out. A word is whole but where it has three dots."""
    full, at = " ".join(_spelled(full).split()), 0
    for word in (one for one in _spelled(cut).split() if one not in ("->", "...")):
        parts = re.split(r"\.{3,}", word)
        for i, part in enumerate(parts):
            found = re.compile((r"(?<!\w)" if i == 0 and not part.startswith(":") else "") + re.escape(part) + (r"(?!\w)" if i + 1 == len(parts) else "")).search(full, at)
            if found is None:
                return False
            at = found.end()
    return at > 0


def _is(line, site, judged):
    """Whether a line that may be cut is this call site. One without a stack also says on which device it is, and has other words on a screen,
    where a call site has a name and a figure."""
    device = site.where[0]
    if line.device is not None:
        rates = sum(one.rate for one in judged if (one.verdict, one.small, one.where[0]) == ("leak", line.small, line.device))
        return device == line.device and set(line.figures) <= shown_rates(rates) and \
            (_shortens(line.name, site.name) or line.name.startswith("blocks of "))
    if line.sentence is None:
        return (_shortens(line.name, site.name) or line.name.startswith("blocks of ")) and set(line.figures) <= set(site.figures)
    return any(_fits(line.sentence, f"{site.name}{where} {site.sentence}") for where in
               ("", " on the host", f" on {device}", *(f" on {word} {device}" for word in ("device", "NPU", "GPU"))))


def _compare_text_sites(reference, text, whole):
    problems = []
    judged = [site for site in reference.sites if site.verdict in ("leak", "suspect")]
    at = -1
    for line in (site for site in text.sites if site.verdict != "kept"):
        found = [i for i, site in enumerate(judged) if site.verdict == line.verdict and _is(line, site, judged)]
        if not found:
            problems.append(f"{text.form} has a {line.verdict} that the document has not: {line.sentence or line}")
        elif not whole and max(found) <= at and not any(site.where[0] != judged[0].where[0] for site in judged):
            problems.append(f"{text.form} has call sites in another order, or twice: {line.sentence or line}")
        else:
            at = min(i for i in found if i > at) if max(found) > at else at
    for verdict in ("leak", "suspect"):
        has = sum(site.verdict == verdict for site in text.sites)
        wanted = sum(site.verdict == verdict for site in judged)
        if has != wanted if whole else has > wanted or (wanted and not has and verdict == reference.verdict):
            problems.append(f"{text.form} has {has} lines of a {verdict}, the document {wanted}: " +
                            "; ".join(str(site) for site in judged if site.verdict == verdict)[:500])
    return problems


def _compare_held(reference, other, exact=False):
    problems = []
    for place, holders in other.held.items():
        wanted = reference.held.get(place)
        if wanted is None or other.form == "page" and place in reference.unseen:
            continue
        for i, (name, size, blocks) in enumerate(holders):
            if i >= len(wanted):
                problems.append(f"{other.form} has more holders of the peak of {place} than the document: {holders[i:]}")
                break
            if isinstance(size, str) and size != shown(wanted[i][1]) or isinstance(size, int) and size != wanted[i][1] or \
                    blocks not in (None, wanted[i][2]) or not _same_name(name, wanted[i][0]):
                problems.append(f"{other.form}: holder {i + 1} of the peak of {place} is {holders[i]}, the document has {wanted[i]}")
                break
        if exact and len(holders) != len(wanted):
            problems.append(f"{other.form} has {len(holders)} holders of the peak of {place}, the document {len(wanted)}")
    return problems


def _same_name(one, other):
    """Whether two names of a holder or a call site are the same: one may be cut, also in the middle, or be shorter where columns are few."""
    if one is None or other is None or _fits(one, other) or _shortens(one, other):
        return True
    # A screen says the class of a model's memory, the document the whole owner.
    return one.endswith(CLASSES) and _shortens(re.sub(r"  \([^()]*\)$", "", one), re.sub(r"  \([^()]*\)$", "", other))


def compare_text(reference, text, whole):
    """A text with the document; `whole`: it has all call sites."""
    problems = _compare_text_sites(reference, text, whole) + _compare_held(reference, text)
    for device, pool, word, size in text.said:
        wanted = shown(reference.pools[device, pool][word])
        if size != wanted:
            problems.append(f"{text.form} says '{word} {size}' of {pool} on {device}, the document {wanted}")
    if text.verdict not in (None, reference.verdict):
        problems.append(f"{text.form} says {text.verdict}, the document {reference.verdict}")
    return problems


def compare_data(reference, other, what=("verdict", "sites", "pools", "held")):
    """Two documents, or the page with one."""
    problems = []
    if "verdict" in what and other.verdict not in (None, reference.verdict):
        problems.append(f"{other.form} says {other.verdict}, the document {reference.verdict}")
    if "sites" in what:
        def key(site):
            return site.verdict, site.where, site.blocks, site.bytes, site.rate
        kinds = VERDICTS if any(site.verdict == "kept" for site in other.sites) else VERDICTS[:2]
        has = [key(site) for site in other.sites if site.verdict in kinds]
        wanted = [key(site) for site in reference.sites if site.verdict in kinds]
        if other.form == "page":
            wanted = wanted[:PAGE_SITES]
        if has != wanted:
            problems.append(f"{other.form} has call sites {_first_difference(has, wanted)}")
        else:
            problems += [f"{other.form} has the name {site.name!r} for a call site of the document: {wanted.name!r}" for site, wanted in
                         zip((site for site in other.sites if site.verdict in kinds), (site for site in reference.sites if site.verdict in kinds))
                         if not _same_name(site.name, wanted.name)]
    if "pools" in what:
        for place in sorted(set(reference.pools) | set(other.pools)):
            has, wanted = other.pools.get(place), reference.pools.get(place)
            if not any(one and one["peak"] for one in (has, wanted)):
                continue  # a pool that never held anything
            if has is None and other.form == "page" and place in reference.unseen:
                continue
            if has is None or wanted is None:
                problems.append(f"{other.form} has {'no' if has is None else 'a'} pool {place}, unlike the document")
                continue
            for word in has:
                if has[word] != wanted[word]:
                    problems.append(f"{other.form}: {word} of {place} is {has[word]}, in the document {wanted[word]}")
    if "held" in what:
        problems += _compare_held(reference, other)
    return problems


def _first_difference(has, wanted):
    for i in range(max(len(has), len(wanted))):
        if has[i:i + 1] != wanted[i:i + 1]:
            return f"({len(has)} and {len(wanted)}) that differ: {has[i:i + 1]}, the document {wanted[i:i + 1]}"
    return ""


def within(reference):
    """What one document must not contradict in itself."""
    problems = []
    seen = {}
    for site in reference.sites:
        key = site.verdict, site.name, site.where
        if site.name and seen.setdefault(key, site) is not site:
            problems.append(f"two lines with the same words: {site.verdict}: {site.name} ({site.where})")
    for place, holders in reference.held.items():
        names = [name for name, _, _ in holders if name]
        if len(names) != len(set(names)):
            problems.append(f"two holders of the peak of {place} with the same words: {sorted(names)}")
        if [size for _, size, _ in holders] != sorted((size for _, size, _ in holders), reverse=True):
            problems.append(f"holders of the peak of {place} are not the largest first")
    return problems


def _in_use(reserved, unused):
    """The least and the most that may be in use, by two figures as shown."""
    low = high = 0
    for size, sign in ((reserved, 1), (unused, -1)):
        number, unit = size.replace(",", "").split()
        scale = 1024 ** ("B", "KiB", "MiB", "GiB", "TiB").index(unit)
        rounding = scale * (0.05 if "." in number else 0.5)
        low, high = low + sign * float(number) * scale - rounding, high + sign * float(number) * scale + rounding
    return low, high


def moments(form, text, process):
    """What a device holds, and the peak of the pool beside it, are of one moment; at an out-of-memory both are of that moment."""
    problems = []
    peaks = {(one["device"], one["pool"]): one["peak_bytes"] for one in process["pools"]}
    for line in unwrapped(text):
        start = re.match(r"(?:GPU|NPU|Device) (\d+)\b", line)
        for pool, reserved, unused in re.findall(rf"\b([A-Z_]+) {SIZE} \({SIZE} unused\)", line) if start else ():
            if (start[1], pool) not in peaks:
                continue
            low, high = _in_use(reserved, unused)
            unused_then = [shown(one["reserved_unused_bytes"]) for one in process["oom"] if (one["device"], one["pool"]) == (start[1], pool)]
            if unused_then and unused not in unused_then:
                problems.append(f"{form} has {pool} with {unused} unused on device {start[1]}, where memory ran out with {unused_then}")
            elif not unused_then and not low <= peaks[start[1], pool] <= high:
                problems.append(f"{form} has {pool} with {reserved}, {unused} of it unused, on device {start[1]} beside a peak of "
                                f"{shown(peaks[start[1], pool])} in use: another moment")
    return problems


# ---- forms that a launch did not write ----

@functools.lru_cache(maxsize=64)
def _template(command_path, words):
    """The session file of a launch with these options, whose processes were all killed."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([command_path, "-o", f"{place}/out", *words, "--", "/bin/sh", "-c", "kill -9 0"], start_new_session=True, check=False,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        [session] = Path(place).glob("out/.msmemscope_*/session")
        return session.read_bytes()


ANALYSES = ("leaks", "decompose", "inefficient", "oom")
DEFAULT = ("--analysis=leaks",)


def _analysis(bits):
    found = [word for bit, word in enumerate(ANALYSES) if bits >> bit & 1]
    return f"--analysis={','.join(found) or 'none'}"


def _devices(launch):
    """The option --device of a launch, by what its trace says of it."""
    npus = 0xffffffff if launch["all_devices"] else launch["devices"]
    found = ["cpu"] if launch["host"] else []
    for word, bits in (("npu", npus), ("gpu", npus ^ launch["gpus_otherwise"])):
        found += [word] if bits == 0xffffffff else [f"{word}:{i}" for i in range(32) if bits >> i & 1]
    return f"--device={','.join(found)}"


def _options(config, process):
    """Options of a launch that decide what its report says. A program that chooses by itself has its choice in config.json."""
    words = (pair.split(":") for pair in process["identity"].get("launch", "").split())
    launch = {name: int(value) for name, value in words if name != "steps"}
    return (_analysis(config["analysisType"]), *([_devices(launch)] if launch and _devices(launch) != "--device=" else []))


def recovered(command, project, process, place, page):
    """A project that `recover` made of the trace, and its screen."""
    config = json.loads((project / "config.json").read_text(encoding="utf-8"))
    session = place / "recovered" / ".msmemscope_1_20200101000000"
    session.mkdir(parents=True, mode=0o700)
    (session / "session").write_bytes(_template(str(command.path), _options(config, process)))
    (session / "session").chmod(0o600)
    shutil.copy(project / "trace.msc", session / f"{process['pid']}-{process['run']}.part")
    run = _run(command, "recover", place / "recovered", *([] if page else ["--no-report"]))
    found = rows.projects(place / "recovered")
    return (found[0].path if found else None), run


def _run(command, *words):
    done = subprocess.run([*command.runner, command.path, *words], env=harness.environment(command.dist), capture_output=True, check=False,
                          stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace", timeout=harness.TIMEOUT_S)
    return done


def _documents(command, *paths, options=()):
    """{path: the process of `info --json`} of those that can be read, and are one process."""
    done = _run(command, "info", "--json", *options, *paths)
    found = {}
    for process in json.loads(done.stdout)["processes"] if done.stdout.startswith("{") else []:
        found.setdefault(process["trace"], []).append(process)
    return {path: found[str(path)][0] for path in paths if len(found.get(str(path), [])) == 1}


def _dumps(command, project, place, forms):
    """{form: path} of dumps alone: those with stacks, and as "dump of the launch" its own."""
    found = {}
    if not list(project.glob("device_*")):
        return found
    for form in forms:
        _run(command, "export", f"--format={form}", "--call-stack=python", "-o", place / form, project)
        found.update({form: path for path in (place / form).glob("*")})
    own = found["dump of the launch"] = place / "alone"
    own.mkdir()
    for device in project.glob("device_*"):
        shutil.copytree(device, own / device.name)
    return found


def _as_live(facts, process):
    """What the end of the process freed has rows if it was recorded: a dump's end is before that, or after it."""
    for pool in process["pools"]:
        has = facts.pools.get((pool["device"], pool["pool"]))
        if has and (has["end"], has["blocks"]) == (pool.get("live_bytes"), pool.get("live_blocks")):
            has.update(end=pool["end_bytes"], blocks=pool["end_blocks"])
    return facts


def _has_all(dump, process):
    """Whether all allocations and frees have rows. Which rows there must be is not asked here: test_rows.py and others do."""
    counts = [{(pool["device"], pool["pool"]): (pool["allocations"], pool["frees"]) for pool in one["pools"] if pool["allocations"]}
              for one in (dump, process)]
    return counts[0] == counts[1]


def _compare_dumps(reference, process, dumps):
    """`dumps`: {form: its document}."""
    facts = {form: of_document(form, one) for form, one in dumps.items()}
    problems = []
    if {"csv", "db"} <= facts.keys():
        problems += [f"of csv and db: {one}" for one in compare_data(facts["csv"], facts["db"])]
    frames = [frame for one in process["places"] for frame in one["frames"]]
    chosen = " steps:" in process["identity"].get("launch", "")  # steps without rows: a dump does not show which call sites rose in them
    # Nor that memory ran out: it counts the step that was left because of that.
    left = process["judgement"] is not None and any(one["step"] > process["judgement"]["last_step"] for one in process["oom"])
    judged = process["judgement"] is not None and not process["judgement"]["by_time"] and not process["automatic_steps"] and not chosen and not left and \
        not any("module" in frame for frame in frames)
    what = ("sites", "pools") if judged else ("pools",)
    reasons = {one["reason"] for one in process["judgement"]["unjudged"]} if process["judgement"] is not None else set()
    if "pool_foreign" in reasons:
        what = ("pools",)
    unseen = "pool_unseen" in reasons or "pool_foreign" in reasons
    if judged and not process["oom"] and not unseen and not process["host_growth"] and not process["host_kills"]:
        what = ("verdict", *what)
    for form, one in facts.items():
        if _has_all(dumps[form], process):
            problems += compare_data(reference, _as_live(one, process), what if form in ("csv", "db") else ("pools",))
    return problems


# ---- Parquet, by readers of others ----

def _compare_parquet(command, project, place):
    """Rows of Parquet and of a db as `export` makes them of one trace."""
    if not list(project.glob("device_*")):
        return []
    made = {}
    for form in ("db", "parquet"):
        _run(command, "export", f"--format={form}", "-o", place / "of" / form, project)
        [made[form]] = (place / "of" / form).glob("msmemscope_*")
    wanted, has = engines.database_rows(made["db"]), engines.installed().dumps(made["parquet"])
    if len(wanted) == len(has) == 1 and all(row[1] == "SYSTEM" for rows_of in (wanted, has) for device in rows_of.values() for row in device):
        wanted = dict(zip(has, wanted.values()))
    # Beside Parquet, Python calls are files of their own, so a device that has nothing else has no file.
    for device in engines.with_calls(made["db"]) - set(has):
        if all(row[1] == "SYSTEM" for row in wanted.get(device, [])):
            wanted.pop(device, None)
    problems = [f"Parquet of {device}, by pyarrow, has rows {_first_difference(has.get(device, []), wanted.get(device, []))}"
                for device in sorted(set(has) | set(wanted)) if has.get(device, []) != wanted.get(device, [])]
    for path in engines.parts(made["parquet"]):
        sums = [[len(device), sum(int(row[9].get("size", 0)) for row in device)] for device in [wanted.get(path.parents[1].name, [])]]
        found = [[int(number) for number in row] for row in engines.installed().sql(f"SELECT count(*), coalesce(sum(size), 0) FROM '{path}'")[0]]
        if found != sums:
            problems.append(f"Parquet of {path.parents[1].name}, by DuckDB, has {found} rows and bytes, the db {sums}")
    return problems


# ---- all together ----

def differences(command, project, screen=None, forms=("csv", "db")):
    """What disagrees in one project directory. `screen`: what its launch printed; `forms`: dumps that are made of its trace."""
    with tempfile.TemporaryDirectory(prefix="same-") as scratch:
        return _differences(command, Path(project), screen, Path(scratch), forms)


def _differences(command, project, screen, place, forms):
    process = _documents(command, project).get(project)
    if process is None or not (project / "trace.msc").exists() or not (project / "report.txt").exists():
        return []
    reference = of_document("document", process)

    def text(form, said, whole):
        return compare_text(reference, of_text(form, said, reference.pools), whole)

    report = (project / "report.txt").read_text(encoding="utf-8", errors="replace")
    problems = within(reference) + text("report.txt", report, True) + text("info", _run(command, "info", project).stdout, False)
    if (project / "findings.json").exists():
        [kept] = json.loads((project / "findings.json").read_text(encoding="utf-8"))["processes"]
        problems += compare_data(reference, of_document("findings.json", kept))
    if screen is not None:
        problems += text("screen", screen, False) + moments("screen", screen, process)
    page = project / "report.html"
    again, run = recovered(command, project, process, place, not page.exists())
    if again is None:
        return problems + [f"recover makes nothing of it: {run.stderr}"]
    problems += text("report.txt of recover", (again / "report.txt").read_text(encoding="utf-8", errors="replace"), True)
    problems += [one for said in screens(run.stderr) for one in text("screen of recover", said, False)]
    page = page if page.exists() else again / "report.html"
    if page.exists():
        problems += compare_data(reference, of_page(answers(page, ("summary/0/", "moment/0/")), 0))
    dumps = _dumps(command, project, place, [form for form in forms if form != "parquet"])
    options = _options(json.loads((project / "config.json").read_text(encoding="utf-8")), process)[:1]
    if options == DEFAULT:
        documents = _documents(command, again, *dumps.values())
    else:
        documents = {**_documents(command, again), **_documents(command, *dumps.values(), options=options)}
    if again not in documents:
        problems.append("info cannot read what recover made")
    else:
        problems += compare_data(reference, of_document("recover", documents[again]))
    if "parquet" in forms:
        problems += _compare_parquet(command, project, place)
    return problems + _compare_dumps(reference, process, {form: documents[path] for form, path in dumps.items() if path in documents})


def check(run, command):
    """Fails with all that disagrees about the processes of a finished launch."""
    seen = screens(run.stderr)
    problems = [f"{project.path.name}: {one}" for project in run.projects()
                for one in differences(command, project.path, screen_of(seen, project.path))]
    assert not problems, "\n".join(problems) + f"\n{run}"


def _below(paths):
    """What lies in these directories; an engine that outlives its test may remove one meanwhile."""
    found = []
    for path in paths:
        try:
            found += sorted(path.iterdir()) if path.is_dir() else []
        except FileNotFoundError:
            pass
    return found


def _left(out):
    """Projects that a test left, each once; those of a launch that was not finished are not complete."""
    found, first = {}, _below([out])
    second = _below(first)
    for path in first + second + _below(second):
        if re.fullmatch(r"msmemscope_\d+_\d{14}_\w+", path.name) and path.is_dir() and not list(path.parent.glob(".msmemscope_*")):
            found.setdefault(path.name, path)
    return list(found.values())


def _takes_parquet(node):
    """Whether the sample has Parquet of a test. `make check` installs nothing, and goes without where the readers are not there."""
    return engines.PYTHON.exists() and (node.path.stem in DUMPS or random.Random(f"parquet of {node.name}").randrange(PARQUETS) == 0)


def _is_short(project):
    return (project / "trace.msc").exists() and (project / "trace.msc").stat().st_size <= PARQUET


def after(node, command, out):
    """Fails a test that has passed, if what its launches wrote disagrees. $MSMEMSCOPE_SAME is "none", "all" or "sample": of traces that
    are not large and a few projects, each with one more dump. Without it, a sample."""
    much, forms = os.environ.get("MSMEMSCOPE_SAME"), ("csv", "db", "parquet")
    if much is None:
        much = "none" if node.path.parent.name != "e2e" else "sample"
    if much == "none" or not getattr(node, "passed", False) or node.get_closest_marker("not_same") or command.runner:
        return
    seen = screens("\n".join(started.stderr for started in command.started))
    projects = _left(out)
    if much != "all":
        chance = random.Random(node.name)
        forms = chance.sample(forms[:2], 1)
        projects = [path for path in projects if not (path / "trace.msc").exists() or (path / "trace.msc").stat().st_size <= LARGE]
        projects = chance.sample(projects, min(len(projects), SAMPLE))
    more = ["parquet"] if much != "all" and _takes_parquet(node) else []
    problems = [f"{path.name}: {one}" for path in projects
                for one in differences(command, path, screen_of(seen, path), [*forms, *more * _is_short(path)])]
    node.passed = not problems  # files of a failed test are kept
    assert not problems, "\n".join(problems)
