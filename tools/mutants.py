#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many wrong lines the tests find: changes one line of src at a time, builds that in a copy of the tree, and runs the tests that
execute the line, fastest first, until one fails.

    tools/mutants.py run SEED [COUNT]   COUNT (40) mutants that the seed chooses, added to build/mutants/results
    tools/mutants.py table              what is in there: by folder, and each survivor
    tools/mutants.py again              only the survivors, with the tests of today; what they say replaces what was said

Unit tests are run here with the preset `coverage` for what they execute; of the end-to-end tests it is what `tools/covered.py run` left in
build/covered. A mutant that compiles to the same code as before is none. A test that ends later than it could is a failure: an endless
loop. One that fails without the change, too, is not counted. What does not fail in 60 s of CPU time survives.

Mutants run with process ids of their own (unshare), so that a wrong one ends no process of anybody else.
"""
import hashlib
import json
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
TREE = PLACE / "tree"
RESULTS = PLACE / "results"
ENOUGH, WANTED = 200, 0.85  # so many mutants judge the tests, of which they have to find this share
# Those that say what is true; not those that start, stop and kill processes.
FOLDERS = ("advise", "analysis", "base", "dump", "findings", "import", "options", "parquet", "replay", "sink", "store", "trace", "viewer", "views")
LIMIT_S = 60
NEAR = 12  # lines from the first one of a block
TOGETHER = 12  # end-to-end tests of one pytest

SWAPS = (
    ("a comparison", r"(?<= )(<=|>=|<|>)(?= )", {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    ("equality", r"==|!=", {"==": "!=", "!=": "=="}),
    ("and, or", r"&&|\|\|", {"&&": "||", "||": "&&"}),
    ("arithmetic", r"(?<= )(\+|-|\+=|-=)(?= )", {"+": "-", "-": "+", "+=": "-=", "-=": "+="}),
)
CONSTANT = re.compile(r"(?<![\w.\"'])\d+(?![\w.\"'])")
CONDITION = re.compile(r"^(\s*(?:\} else )?(?:if|while) \()(.*)(\)(?: \{)?)$")
STATEMENT = re.compile(r"^\t+(?:\(void\))?\*?[a-z_]\w*(?:(?:->|\.)\w+|\[[^\]]*\])*(?:\(.*\)| [-+*/|&^]?= .*|\+\+|--);$")


def masked(line):
    """The line with blanks for texts and comments."""
    return re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?(?:\*/|$)|^\s*\*.*|^\s*#.*', lambda match: " " * len(match[0]), line)


def changes(line):
    """[(what is changed, the line then)] of one line.

    >>> changes("\\tif (a < b && c)")[0]
    ('a comparison', '\\tif (a <= b && c)')
    >>> [what for what, _ in changes("\\tcount = 3; /* a < b */")]
    ['a constant']
    >>> changes("\\tlist_add(&one, two);")
    [('a statement', '\\t;')]
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


def unit_lines():
    """[(name, CPU seconds, lines)] of the unit tests, as covered.tests() has those of the end-to-end tests."""
    found = []
    for name, words in unit_tests(covered.BUILD).items():
        place = PLACE / "units" / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = spent()
        done = subprocess.run(words, check=False, env={**os.environ, "MSCOPE_COVERAGE": str(place / "ran"), "MSCOPE_COVERAGE_PCS": str(place)},
                              cwd=covered.BUILD, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=600)
        count = covered.section_bytes(words[0], "__sancov_guards") // 4 + 1
        if done.returncode == 0 and (place / f"ran.{count}").exists():
            where = covered.lines_of(words[0], place / str(count), count)
            ran = {where[i] for i, byte in enumerate((place / f"ran.{count}").read_bytes()) if byte} - {None}
            found.append((name, round(spent() - began, 2), sorted(ran)))
    return found


def executed():
    """{"FILE:LINE" of a block's beginning: [(CPU seconds, test)], fastest first}."""
    kept = PLACE / "units.json"
    if not kept.exists():
        subprocess.run(["cmake", "--preset", "coverage"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", covered.BUILD, "--target", *covered.TARGETS, "tests/unit/all", "tests/judge/all", "tests/twin/all",
                        "--", "--quiet"], check=True)
        kept.write_text(json.dumps(unit_lines()), encoding="utf-8")
    tests = [(name, seconds, map(tuple, ran)) for name, seconds, ran in json.loads(kept.read_text(encoding="utf-8"))]
    if (covered.COVERED / "tests").exists():
        tests += [one for one in covered.tests() if covered.NAME.fullmatch(one[0])]
    found = defaultdict(list)
    for name, seconds, ran in tests:
        for file, line in ran:
            found[f"{file}:{line}"].append((seconds, name))
    return {where: sorted(them) for where, them in found.items()}


def candidates(where):
    """[(file, line, what, the line then, the beginning of its block)] of all that may be changed."""
    begins = defaultdict(list)
    for one in where:
        file, _, line = one.rpartition(":")
        if file.split("/")[1] in FOLDERS and file.endswith(".c"):
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

def copy_tree():
    """A tree of its own, which is built once: only what differs is copied, so that ninja builds only that."""
    names = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                           capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, TREE / name
        if source.is_file() and not source.is_symlink() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
            os.utime(copy)
    subprocess.run(["cmake", "--preset", "release"], cwd=TREE, check=True, stdout=subprocess.DEVNULL)
    assert build(), "the tree itself is not built"


def build():
    """Builds and stages; whether that succeeded."""
    release = TREE / "build" / "release"
    for words in (["cmake", "--build", release, "--target", "dist", "tests/unit/all", "tests/judge/all", "tests/twin/all", "--", "--quiet"],
                  ["cmake", "--install", release, "--prefix", TREE / "build" / "dist"]):
        if subprocess.run(words, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return False
    return True


def code_of(file):
    """A hash of what a file was compiled to, in each target that has it, without what a debugger reads."""
    found = hashlib.sha256()
    for path in sorted((TREE / "build" / "release").rglob(f"{Path(file).name}.o")):
        plain = PLACE / "plain.o"
        subprocess.run(["objcopy", "--strip-debug", path, plain], check=True)
        found.update(plain.read_bytes())
    return found.hexdigest()


def alone(words, limit_s, env):
    """Runs words with process ids of their own, at most limit_s seconds of CPU time each process; gives the exit status."""
    apart = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--pid", "--fork", "--mount-proc", "--kill-child"]
    with subprocess.Popen([*apart, *map(str, words)], cwd=ROOT, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, start_new_session=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))) as process:
        try:
            return process.wait(20 * limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return -signal.SIGKILL


def fails_of(names, tree, limit_s):
    """The end-to-end tests of `names` that fail, the first one only, or all if pytest itself did not end."""
    failed = PLACE / "failed"
    failed.unlink(missing_ok=True)
    env = {"MSMEMSCOPE_DIST": str(tree / "build" / "dist"), "MSMEMSCOPE_TARGETS": str(ROOT / "build" / "release" / "tests" / "targets"),
           "MSMEMSCOPE_FAILED": str(failed)}
    status = alone(["/usr/bin/python3", "tools/again.py", "-q", "-x", "-p", "no:cacheprovider", *names], limit_s, env)
    if failed.exists():
        return failed.read_text(encoding="utf-8").splitlines()[:1]
    return [] if status in (0, 5) else list(names)[:1]


def killer(tests, units, broken):
    """(the first test that fails, or None; how many ran; CPU seconds)."""
    began, ran, e2e = spent(), 0, []
    for seconds, name in tests:
        if name in units:
            ran += 1
            if spent() - began > LIMIT_S:
                return None, ran, spent() - began
            if alone(units[name], max(10, 20 * seconds), {}) not in (0, 77):
                return name, ran, spent() - began
        elif name not in broken:
            e2e.append((seconds, name))
    while e2e:
        left, names = LIMIT_S - (spent() - began), []
        while e2e and len(names) < TOGETHER and e2e[0][0] < left:
            left -= e2e[0][0]
            names.append(e2e.pop(0)[1])
        if not names:
            break
        ran += len(names)
        for name in fails_of(names, TREE, LIMIT_S):
            if not fails_of([name], ROOT, LIMIT_S):
                return name, ran, spent() - began
            broken.add(name)
    return None, ran, spent() - began


def try_one(mutant, tests, units, broken):
    file, number, _, then, _ = mutant
    text = (TREE / file).read_text(encoding="utf-8").splitlines(keepends=True)
    before = code_of(file)
    try:
        changed = [*text[:number - 1], then + "\n", *text[number:]]
        (TREE / file).write_text("".join(changed), encoding="utf-8")
        if not build():
            return {"outcome": "not compiled"}
        if code_of(file) == before:
            return {"outcome": "the same code"}
        by, ran, seconds = killer(tests, units, broken)
        return {"outcome": "killed" if by else "survived", "by": by, "tests": len(tests), "ran": ran, "cpu_s": round(seconds, 1)}
    finally:
        (TREE / file).write_text("".join(text), encoding="utf-8")
        build()


def results():
    return [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()] if RESULTS.exists() else []


def attempt(mutants, where, seed):
    """Tries mutants until enough have been killed or have survived; yields what is to be kept of each."""
    copy_tree()
    units, broken = unit_tests(TREE / "build" / "release"), set()
    for mutant in mutants:
        file, number, what, then, block = mutant
        was = (TREE / file).read_text(encoding="utf-8").splitlines()[number - 1]
        said = {"seed": seed, "file": file, "line": number, "what": what, "was": was.strip(), "is": then.strip(), "block": block,
                **try_one(mutant, where[block], units, broken)}
        print(f"{said['outcome']:14}{file}:{number}: {said['was']}  ->  {said['is']}" + (f"  by {said['by']}" if said.get("by") else ""), flush=True)
        yield said


def keep(found):
    RESULTS.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")


def run(seed, count):
    where = executed()
    seen = {(one["file"], one["line"]) for one in results()}
    chosen = candidates(where)
    random.Random(seed).shuffle(chosen)
    chosen = [mutant for mutant in dict(((mutant[:2], mutant) for mutant in chosen)).values() if mutant[:2] not in seen]
    counted = 0
    for said in attempt(chosen, where, seed):
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
        counted += said["outcome"] in ("killed", "survived")
        if counted == count:
            break
    table()


def again():
    """Lines are found by what they say; a survivor whose line is no longer there is dropped."""
    where, kept, old = executed(), [], []
    mutants = {(file, what, then.strip()): (file, number, what, then, block) for file, number, what, then, block in candidates(where)}
    for one in results():
        key = one["file"], one["what"], one["is"]
        (old if one["outcome"] == "survived" and key in mutants else kept).append(one)
    kept = [one for one in kept if one["outcome"] != "survived"]
    kept += attempt([mutants[one["file"], one["what"], one["is"]] for one in old], where, "again")
    keep(kept)
    table()


def table():
    found = results()
    folders = defaultdict(Counter)
    for one in found:
        for folder in (one["file"].split("/")[1], "all"):
            folders[folder][one["outcome"]] += 1
    print(f"\n{'folder':12}{'mutants':>8}{'killed':>8}{'%':>6}")
    for folder in sorted(folders, key=lambda name: (name == "all", name)):
        killed, survived = folders[folder]["killed"], folders[folder]["survived"]
        if killed + survived:
            print(f"{folder:12}{killed + survived:8}{killed:8}{100 * killed / (killed + survived):6.0f}")
    print(f"not counted: {folders['all']['the same code']} that are the same code, {folders['all']['not compiled']} that do not compile")
    for one in found:
        if one["outcome"] == "survived":
            print(f"survived: {one['file']}:{one['line']}: {one['was']}  ->  {one['is']}  ({one['ran']} of {one['tests']} tests)")
    killed, counted = folders["all"]["killed"], folders["all"]["killed"] + folders["all"]["survived"]
    if counted >= ENOUGH and killed < WANTED * counted:
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
