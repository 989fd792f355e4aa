#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many wrong lines the tests find: changes one line of src at a time, builds that in a copy of the tree, and runs the tests that
execute the line, until one fails: unit tests first, and of each kind those first that run most of the file in a second. $LANES mutants are
tried at a time, as many as there are cores.

    tools/mutants.py run SEED [COUNT]   COUNT (40) mutants that the seed chooses, added to tests/mutants.list
    tools/mutants.py table              what is in there: by folder, and each survivor
    tools/mutants.py again              only the survivors, with the tests of today; what they say replaces what was said

Unit tests are run here with the preset `coverage` for what they execute; of the end-to-end tests it is what `tools/covered.py run` left in
build/covered. A mutant that compiles to the same code as before is not counted. A test that ends later than it could is a failure: an endless
loop. One that fails without the change, too, or not again with it, is not counted. What does not fail in 60 s of CPU time ($LIMIT_S) survives. A
survivor that no test can find, since nothing differs, gets a line in tests/equivalent.list: file, function, line, line then, and why, with tabs
between. It is not counted, nor tried again. The lines of tests/mutants.list: seed, file, function, line, line then, what found it at first, and
what finds it now, with tabs between; "missed 12/40" says that 12 of the 40 tests that execute the line ran and passed.

Mutants run with process ids of their own (unshare), so that a wrong one ends no process of anybody else.
"""
import concurrent.futures
import hashlib
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import covered

ROOT = covered.ROOT
PLACE = ROOT / "build" / "mutants"
RESULTS = ROOT / "tests" / "mutants.list"
EQUIVALENT = ROOT / "tests" / "equivalent.list"
LANES = int(os.environ.get("LANES", os.cpu_count() or 1))  # mutants at a time
ENOUGH, WANTED = 200, 0.85  # so many mutants judge the tests, of which they have to find this share
# Those that say what is true; not those that start, stop and kill processes.
FOLDERS = ("advise", "analysis", "base", "dump", "findings", "import", "options", "parquet", "replay", "sink", "store", "symbols", "trace",
           "viewer", "views")
LIMIT_S = int(os.environ.get("LIMIT_S", "60"))
LIMIT_BYTES = 4 << 30  # of memory of a test: a mutant that takes more and more must not take the machine's
NEAR = 12  # lines from the first one of a block
LINKED = 6  # unit tests at a time
FIELDS = ("seed", "file", "function", "was", "is", "first", "now")
MISSED = "missed "
TOGETHER = 12  # end-to-end tests of the first pytest; each has twice as many as the one before, since starting it costs as much as ten of them

SWAPS = (
    ("a comparison", r"(?<= )(<=|>=|<|>)(?= )", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    ("equality", r"==|!=", {"==": "!=", "!=": "=="}),
    ("and, or", r"&&|\|\|", {"&&": "||", "||": "&&"}),
    ("arithmetic", r"(?<= )(\+|-|\+=|-=|\*|/|%)(?= )", {"+": "-", "-": "+", "+=": "-=", "-=": "+=", "*": "/", "/": "*", "%": "/"}),
    ("bits", r"(?<= )(&|\||<<|>>|&=|\|=)(?= )", {"&": "|", "|": "&", "<<": ">>", ">>": "<<", "&=": "|=", "|=": "&="}),
    ("a truth", r"\b(true|false)\b", {"true": "false", "false": "true"}),
    ("a not", r"!(?=[a-z_(])", {"!": ""}),
    ("a choice", r" \? ", {" ? ": " == 0 ? "}),
    ("a jump", r"(?<=\t)(continue|break)(?=;)", {"continue": "", "break": ""}),
)
CONSTANT = re.compile(r"(?<![\w.\"'])\d+(?![\w.\"'])")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.*)(\)(?: \{)?)$")
# Memory that is not freed is found by another build of the tests, with sanitizers: free() and xx_fini() are left alone.
STATEMENT = re.compile(r"^\t+(?!free\(|\w+_fini\()(?:\(void\))?\*?[a-z_]\w*(?:(?:->|\.)\w+|\[[^\]]*\])*(?:\(.*\)| [-+*/|&^]?= .*|\+\+|--);$")


def masked(line):
    """The line with blanks for texts and comments."""
    return re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?(?:\*/|$)|^\s*\*.*|^\s*#.*', lambda match: " " * len(match[0]), line)


def function_of(text, number):
    """The name of the function that line `number` of these lines is in.

    >>> function_of(["int f(void)", "{", "\treturn g(3);", "}"], 3)
    'f'
    """
    names = (re.match(r"[a-z_].*?(\w+)\(", line) for line in reversed(text[:number]))
    return next((name[1] for name in names if name), "")


def spaced(line):
    """The words of a line as a list has them: no tabs."""
    return " ".join(line.split())


def changes(line):
    """[(what is changed, the line then)] of one line.

    >>> changes("\\tif (a < b && c)")[0]
    ('a comparison', '\\tif (a <= b && c)')
    >>> [what for what, _ in changes("\\tcount = 3; /* a < b */")]
    ['a constant']
    >>> changes("\\tlist_add(&one, two);")
    [('a statement', '\\t;')]
    >>> changes("\\tfree(one);")
    []
    >>> changes("\\t\\tcontinue;")
    [('a jump', '\\t\\t;')]
    """
    found, plain = [], masked(line)
    for what, pattern, swap in SWAPS:
        found += [(what, line[:match.start()] + swap[match[0]] + line[match.end():]) for match in re.finditer(pattern, plain)]
    if not re.match(r"\s*case\b", plain):
        found += [("a constant", line[:match.start()] + str(int(match[0]) + 1) + line[match.end():]) for match in CONSTANT.finditer(plain)]
    condition = CONDITION.match(plain)
    if condition and condition[2].count("(") == condition[2].count(")"):
        start, end = condition.span(2)
        found.append(("a condition", f"{line[:start]}!({line[start:end]}){line[end:]}"))
    if STATEMENT.match(plain):
        found.append(("a statement", line[:len(line) - len(line.lstrip())] + ";"))
    return found


# ---- which tests execute a line ----

def unit_tests(build):
    """{name: its words} of a build."""
    said = json.loads(subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout)
    return {test["name"]: test["command"] for test in said["tests"] if "command" in test}


def spent():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def unit_lines(name, words):
    """(CPU seconds, lines) of a unit test, as covered.tests() has those of the end-to-end tests; None if it fails."""
    place = PLACE / "units" / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    began = spent()
    done = subprocess.run(words, check=False, env={**os.environ, "MSCOPE_COVERAGE": str(place / "ran"), "MSCOPE_COVERAGE_PCS": str(place)},
                          cwd=covered.BUILD, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
    count = covered.section_bytes(words[0], "__sancov_guards") // 4 + 1
    if done.returncode != 0 or not (place / f"ran.{count}").exists():
        return None
    where = covered.lines_of(words[0], place / str(count), count)
    ran = {where[i] for i, byte in enumerate((place / f"ran.{count}").read_bytes()) if byte} - {None}
    return round(spent() - began, 2), sorted(ran)


def all_unit_lines():
    """{name: what unit_lines() says}; a test that is the same program as before is not run again."""
    subprocess.run(["cmake", "--preset", "coverage"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", covered.BUILD, "--target", *covered.TARGETS, "tests/unit/all", "tests/judge/all", "tests/twin/all",
                    "--", "--quiet"], check=True)
    kept = PLACE / "units.json"
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    found = {}
    for name, words in unit_tests(covered.BUILD).items():
        program = hashlib.sha256(Path(words[0]).read_bytes()).hexdigest()
        found[name] = known[name] if known.get(name, [None])[0] == program else [program, unit_lines(name, words)]
    kept.write_text(json.dumps(found), encoding="utf-8")
    return {name: said for name, (_, said) in found.items() if said is not None}


def executed():
    """{"FILE:LINE" of a block's beginning: [(CPU seconds, test)], those first that run most lines of the file in a second}. A line that
    n tests run counts as an nth: what is in every launch says little of who looks at it."""
    tests = [(name, seconds, {tuple(where) for where in ran}) for name, (seconds, ran) in all_unit_lines().items()]
    if (covered.COVERED / "tests").exists():
        # Some pass only with gcc's code; whether they can judge a mutant is asked when they fail.
        tests += [one for one in covered.tests(failed=True) if covered.NAME.fullmatch(one[0])]
    often = Counter(itertools.chain.from_iterable(ran for _, _, ran in tests))
    ours = {where for where in often if is_ours(where[0])}
    found = defaultdict(list)
    for name, seconds, ran in tests:
        ran &= ours
        files = Counter()
        for where in ran:
            files[where[0]] += 1 / often[where]
        for where in ran:
            found[where].append(((seconds + covered.LEAST_S) / files[where[0]], seconds, name))
    return {f"{file}:{line}": [one[1:] for one in sorted(them)] for (file, line), them in found.items()}


def is_ours(file):
    return file.split("/")[1] in FOLDERS and file.endswith(".c")


def candidates(where):
    """[(file, line, what, the line then, the beginning of its block)] of all that may be changed."""
    begins = defaultdict(list)
    for one in where:
        file, _, line = one.rpartition(":")
        begins[file].append(int(line))
    found = []
    for file in sorted(begins):
        block = None
        for number, line in enumerate((ROOT / file).read_text(encoding="utf-8").splitlines(), 1):
            if number in begins[file]:
                block = number
            if line.startswith("}"):
                block = None
            if block is not None and number - block <= NEAR:
                found += [(file, number, what, then, f"{file}:{block}") for what, then in changes(line)]
    return found


# ---- one mutant ----

def limited(limit_s):
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT_BYTES, LIMIT_BYTES))


def alone(words, limit_s, env):
    """Runs words with process ids of their own, at most limit_s seconds of CPU time each process; gives the exit status."""
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--mount-proc", "--kill-child"]
    with subprocess.Popen([*apart, *map(str, words)], cwd=ROOT, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True,
                          preexec_fn=lambda: limited(limit_s)) as process:
        try:
            return process.wait(20 * limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -signal.SIGKILL


class Lane:
    """A tree of its own in which one mutant after the other is built. Its text is restored after each; what is built is not: the next build
    makes both. Only what a mutant needs is built: its objects, then the unit tests that execute the line, then, if these pass, what users get."""

    def __init__(self, number):
        self.place = PLACE / f"lane-{number}"
        self.tree = self.place / "tree"
        self.release = self.tree / "build" / "release"
        self._copy()
        subprocess.run(["cmake", "--preset", "release"], cwd=self.tree, check=True, stdout=subprocess.DEVNULL)
        assert self.build("dist", "tests/unit/all", "tests/judge/all", "tests/twin/all") and self.stage(), "the tree itself is not built"
        self.units = unit_tests(self.release)
        self.objects = defaultdict(list)
        for path in sorted(self.release.rglob("*.c.o")):
            self.objects[path.name[:-2]].append(path)
        self.codes = {}  # of files that have been changed, before
        self.broken = set()

    def _copy(self):
        """Only what differs is copied, so that ninja builds only that."""
        names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                               check=True, capture_output=True, text=True).stdout.split("\0")
        for name in filter(None, names):
            source, copy = ROOT / name, self.tree / name
            if source.is_file() and not source.is_symlink() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
                os.utime(copy)

    def build(self, *targets):
        """Whether that succeeded."""
        return subprocess.run(["ninja", "-C", self.release, "--quiet", *targets], check=False, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def stage(self):
        return subprocess.run(["cmake", "--install", self.release, "--prefix", self.tree / "build" / "dist"], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def compile(self, file):
        """A hash of what a file is compiled to, in each target that has it, without what a debugger reads; None if it does not compile."""
        objects = self.objects[Path(file).name]
        if not self.build(*(path.relative_to(self.release) for path in objects)):
            return None
        found = hashlib.sha256()
        for path in objects:
            plain = self.place / "plain.o"
            subprocess.run(["objcopy", "--strip-debug", path, plain], check=True)
            found.update(plain.read_bytes())
        return found.hexdigest()

    def fails_of(self, tests, tree):
        """The first one that fails of some end-to-end tests, as a list; of several the first one if pytest itself did not end."""
        names = [name for _, name in tests]
        failed = self.place / "failed"
        failed.unlink(missing_ok=True)
        env = {"MSMEMSCOPE_DIST": str(tree / "build" / "dist"), "MSMEMSCOPE_TARGETS": str(ROOT / "build" / "release" / "tests" / "targets"),
               "MSMEMSCOPE_FAILED": str(failed)}
        status = alone(["/usr/bin/python3", "tools/again.py", "-q", "-x", "-p", "no:cacheprovider", *names],
                       max(15, 4 * sum(seconds for seconds, _ in tests)), env)
        if failed.exists():
            return failed.read_text(encoding="utf-8").splitlines()[:1]
        return [] if status in (0, 5) else names[:1]

    def killer(self, tests):
        """(the first test that fails, or None; how many ran; CPU seconds). Unit tests go first."""
        began, ran = spent(), 0
        units = [(seconds, name) for seconds, name in tests if name in self.units]
        for number, (seconds, name) in enumerate(units):
            if number % LINKED == 0:
                programs = [Path(self.units[one][0]).relative_to(self.release) for _, one in units[number:number + LINKED]]
                assert self.build(*programs), "unit tests are not linked"
            ran += 1
            if alone(self.units[name], max(10, 20 * seconds), {}) not in (0, 77):
                return name, ran, spent() - began
        e2e = [(seconds, name) for seconds, name in tests if name not in self.units and name not in self.broken]
        assert not e2e or self.build("dist") and self.stage(), "it is not linked"
        together = TOGETHER
        while e2e:
            left, batch = LIMIT_S - (spent() - began), []
            while e2e and len(batch) < together and e2e[0][0] < left:
                left -= e2e[0][0]
                batch.append(e2e.pop(0))
            if not batch:
                break
            ran += len(batch)
            together *= 2
            names = [name for _, name in batch]
            for name in self.fails_of(batch, self.tree):
                # It passes without the change, and it fails each time with it: load alone makes nothing fail twice.
                one = [batch[names.index(name)]]
                control = self.fails_of(one, ROOT)
                if not control and self.fails_of(one, self.tree):
                    return name, ran, spent() - began
                if control:
                    self.broken.add(name)
                e2e[:0] = batch[names.index(name) + 1:]  # which pytest left out
                ran -= len(batch) - names.index(name) - 1
        return None, ran, spent() - began

    def try_one(self, mutant, tests):
        """What is to be kept of a mutant."""
        file, number, _, then, _ = mutant
        path = self.tree / file
        text = path.read_text(encoding="utf-8").splitlines(keepends=True)
        said = {"file": file, "line": number, "function": function_of(text, number), "was": spaced(text[number - 1]), "is": spaced(then)}
        if file not in self.codes:
            self.codes[file] = self.compile(file)
        try:
            path.write_text("".join([*text[:number - 1], then + "\n", *text[number:]]), encoding="utf-8")
            code = self.compile(file)
            if code in (None, self.codes[file]):
                return {**said, "now": None, "why": "the same code" if code else "not compiled"}
            by, ran, seconds = self.killer(tests)
            return {**said, "now": by or f"{MISSED}{ran}/{len(tests)}", "why": f"{seconds:.1f} s"}
        finally:
            path.write_text("".join(text), encoding="utf-8")


_lane = None  # of this process


def start_lane(numbers):
    global _lane  # pylint: disable=global-statement
    _lane = Lane(numbers.get())


def try_one(mutant, tests):
    return _lane.try_one(mutant, tests)


def attempt(mutants, where, seed, count=None):
    """Tries mutants in LANES lanes until `count` of them have been killed or have survived; yields what is to be kept of these."""
    todo, running, counted = iter(mutants), set(), 0
    numbers = multiprocessing.Queue()
    for number in range(LANES):
        numbers.put(number)
    with concurrent.futures.ProcessPoolExecutor(LANES, initializer=start_lane, initargs=(numbers,)) as lanes:
        while True:
            wanted = LANES if count is None else min(LANES, count - counted)
            for mutant in itertools.islice(todo, max(0, wanted - len(running))):
                running.add(lanes.submit(try_one, mutant, where[mutant[4]]))
            if not running:
                return
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for said in (one.result() for one in done):
                print(f"{said['now'] or '-'}: {said['file']}:{said['line']}: {said['was']}  ->  {said['is']}  ({said['why']})", flush=True)
                if said["now"]:
                    counted += 1
                    yield {"seed": seed, "first": said["now"], **said}


# ---- what is kept ----

def lines_in(path):
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def results():
    """[what is kept of each mutant that was counted], by the names of FIELDS."""
    return [dict(zip(FIELDS, line.split("\t"))) for line in lines_in(RESULTS) if line and not line.startswith("#")]


def keep(found):
    about = [line for line in lines_in(RESULTS) if line.startswith("#")]
    RESULTS.write_text("".join(line + "\n" for line in [*about, *("\t".join(one[field] for field in FIELDS) for one in found)]), encoding="utf-8")


def equivalent():
    """{(file, function, the line, the line then): why there is no difference}."""
    return {tuple(words[:4]): words[4] for words in (line.split("\t") for line in lines_in(EQUIVALENT) if line and not line.startswith("#"))}


def key_of(one):
    return one["file"], one["function"], one["was"], one["is"]


def named(mutants):
    """{what key_of() says of it: a mutant}."""
    texts, found = {}, {}
    for mutant in mutants:
        file, number, _, then, _ = mutant
        if file not in texts:
            texts[file] = (ROOT / file).read_text(encoding="utf-8").splitlines()
        found[file, function_of(texts[file], number), spaced(texts[file][number - 1]), spaced(then)] = mutant
    return found


def missed(said):
    return said.startswith(MISSED)


def run(seed, count):
    where, kept = executed(), results()
    seen = {(one["file"], one["function"], one["was"]) for one in kept}
    same = equivalent()
    chosen = list(named(candidates(where)).items())
    random.Random(seed).shuffle(chosen)
    chosen = {mutant[:2]: mutant for key, mutant in chosen if key[:3] not in seen and key not in same}
    for said in attempt(chosen.values(), where, str(seed), count):
        kept.append(said)
        keep(kept)
    table()


def again():
    """Lines are found by what they say; a survivor whose line is no longer there is dropped."""
    where, same = executed(), equivalent()
    mutants = named(candidates(where))
    kept = {key_of(one): one for one in results() if key_of(one) in mutants or not missed(one["now"])}
    for said in attempt([mutants[key] for key, one in kept.items() if missed(one["now"]) and key not in same], where, ""):
        kept[key_of(said)]["now"] = said["now"]
        keep(kept.values())
    table()


def table():
    """A mutant whose equivalence was found later is not counted."""
    same, folders = equivalent(), defaultdict(Counter)
    found = [one for one in results() if key_of(one) not in same]
    for one in found:
        for folder in (one["file"].split("/")[1], "all"):
            folders[folder]["mutants"] += 1
            folders[folder]["first"] += not missed(one["first"])
            folders[folder]["now"] += not missed(one["now"])
    print(f"\n{'folder':12}{'mutants':>8}{'at first':>10}{'now':>8}{'%':>6}")
    for folder in sorted(folders, key=lambda name: (name == "all", name)):
        counted, first, now = (folders[folder][what] for what in ("mutants", "first", "now"))
        print(f"{folder:12}{counted:8}{first:10}{now:8}{100 * now / counted:6.0f}")
    for one in found:
        if missed(one["now"]):
            print(f"{one['now']}: {one['file']}, {one['function']}(): {one['was']}  ->  {one['is']}")
    counted, now = folders["all"]["mutants"], folders["all"]["now"]
    if counted >= ENOUGH and now < WANTED * counted:
        sys.exit(f"fewer than {WANTED:.0%} of {counted} mutants are found")


def main():
    # A shell lets what it runs in the background ignore these, and nohup the last; our programs would, too.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    verb, *words = sys.argv[1:] or ["help"]
    PLACE.mkdir(parents=True, exist_ok=True)
    if verb == "run" and words:
        run(int(words[0]), int(words[1]) if words[1:] else 40)
    elif verb == "table":
        table()
    elif verb == "again":
        again()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
