# SPDX-License-Identifier: Apache-2.0
"""tests/features.md has every feature once, and each test that it names exists and is run."""
import re

import lint

FEATURES = [f"F{number:03}" for number in range(1, 157)]
TABLE = "tests/features.md"


def rows(text):
    """(id, what, proven by, break) of each table row.

    >>> rows("| id | what | proven by | break |\\n|---|---|---|---|\\n| F001 | runs a \\\\| b | not yet | none |\\n")
    [('F001', 'runs a \\\\| b', 'not yet', 'none')]
    """
    found = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and re.fullmatch(r"F\d+", cells[0]):
            found.append(tuple(cells))
    return found


def has_test(source, name, function):
    """Whether `function` is a test that the runner of this kind of file runs.

    >>> has_test("def test_a(dist):", "e2e/test_x.py", "test_a")
    True
    >>> has_test("def helper(dist):", "e2e/test_x.py", "helper")
    False
    >>> has_test("static void a_holds(void **state) {} ... cmocka_unit_test(a_holds),", "unit/test_x.c", "a_holds")
    True
    >>> has_test("static void a_holds(void **state) {} no registration", "unit/test_x.c", "a_holds")
    False
    """
    if name.endswith(".py"):
        runs = function.startswith("test_") and re.match(r"test_.*\.py", name.split("/")[-1])
        return bool(runs and re.search(rf"^ *def {re.escape(function)}\(", source, re.M))
    return bool(re.search(rf"cmocka_unit_test\w*\(\s*{re.escape(function)}\b", source))


def problems(text, sources):
    """Failures of the table `text`, given {path below tests/: text} of the test files.

    >>> good = "\\n".join(f"| {feature} | something | not yet | it fails |" for feature in FEATURES)
    >>> problems(good, {})
    []
    >>> problems(good.replace("| F002 |", "| F003 |"), {})
    ['F002: no row', 'F003: 2 rows']
    >>> problems(good + "\\n| F157 | something | not yet | it fails |", {})
    ['F157: no such feature']
    >>> proven = good.replace("not yet", "`e2e/test_x.py::test_a`; db not yet", 1)
    >>> problems(proven, {"e2e/test_x.py": "def test_a():"})
    []
    >>> problems(proven, {"e2e/test_x.py": "def test_b():"})
    ['F001: no test e2e/test_x.py::test_a']
    >>> problems(proven, {})
    ['F001: no test e2e/test_x.py::test_a']
    >>> problems(good.replace("not yet", "surely works", 1), {})
    ['F001: proven by neither a test (`file::function`) nor "not yet"']
    >>> problems(good.replace("something", "", 1), {})
    ['F001: says nothing about what it is']
    >>> problems(good.replace("it fails", "", 1), {})
    ['F001: names no break that its tests catch']
    """
    table = rows(text)
    ids = [row[0] for row in table]
    failures = [f"{feature}: no row" for feature in FEATURES if feature not in ids]
    failures += [f"{feature}: {ids.count(feature)} rows" for feature in dict.fromkeys(ids) if ids.count(feature) > 1]
    failures += [f"{feature}: no such feature" for feature in ids if feature not in FEATURES]
    for row in table:
        if len(row) != 4:
            failures.append(f"{row[0]}: {len(row)} columns instead of 4")
            continue
        feature, what, proof, wrong = row
        if not what:
            failures.append(f"{feature}: says nothing about what it is")
        if not wrong:
            failures.append(f"{feature}: names no break that its tests catch")
        tests = re.findall(r"`([^`]+)::([^`]+)`", proof)
        if not tests and proof != "not yet":
            failures.append(f'{feature}: proven by neither a test (`file::function`) nor "not yet"')
        for name, function in tests:
            if not has_test(sources.get(name, ""), name, function):
                failures.append(f"{feature}: no test {name}::{function}")
    return failures


def check(_dists):
    names = [name for name in lint.tree_files() if re.match(r"tests/.*/test_.*\.(c|py)$", name)]
    sources = {name[len("tests/"):]: lint.read(name) for name in names}
    found = problems(lint.read(TABLE), sources)
    return len(FEATURES), [f"{TABLE}: {line}" for line in found]


if __name__ == "__main__":
    lint.main(check)
