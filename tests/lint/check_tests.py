# SPDX-License-Identifier: Apache-2.0
"""Tests share through tests/e2e/lib: no test module imports a test module, none copies a function of another file, and every
helper of tests/e2e lives in lib. Unit tests share through tests/unit/unit.h, which brings cmocka."""
import ast
import re

import lint

E2E = "tests/e2e/"
# Shorter functions say the same by accident.
COPIED_LINES = 2


def imported(tree):
    """(line, name of the module) of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""


def functions(tree):
    """(line, name, arguments and statements as text) of each function that is long enough; a docstring does not count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            if body and body[-1].end_lineno - body[0].lineno + 1 >= COPIED_LINES:
                yield node.lineno, node.name, ast.dump(node.args) + "".join(map(ast.dump, body))


def problems(sources):
    r"""Failures in a {path: text} of test modules and their helpers.

    >>> problems({"tests/e2e/test_a.py": "import json, rows\n", "tests/e2e/lib/rows.py": "", "tests/crash/crash.py": ""})
    []
    >>> problems({"tests/e2e/test_a.py": "import json\nfrom test_b import client\n"})
    ['tests/e2e/test_a.py:2: imports the test module test_b; what both need belongs into tests/e2e/lib']
    >>> problems({"tests/e2e/lib/rows.py": "import test_b as b\n"})
    ['tests/e2e/lib/rows.py:1: imports the test module test_b; what both need belongs into tests/e2e/lib']
    >>> problems({"tests/e2e/rows.py": "", "tests/e2e/conftest.py": ""})
    ['tests/e2e/rows.py: is no test module; helpers belong into tests/e2e/lib']

    >>> text = "def {}(said):\n    '''{}'''\n    first = said.rows()\n    return first[0]\n"
    >>> problems({"tests/e2e/test_a.py": text.format("one", "x"), "tests/e2e/test_b.py": text.format("two", "y")})
    ['tests/e2e/test_b.py:1: two() is one() of tests/e2e/test_a.py once more; share it in tests/e2e/lib']
    >>> problems({"tests/e2e/test_a.py": text.format("one", "x"), "tests/e2e/test_b.py": text.replace("0", "1").format("two", "y")})
    []
    """
    failures, seen = [], {}
    for path, text in sorted(sources.items()):
        tree = ast.parse(text, path)
        name = path.rsplit("/", 1)[1]
        if path.startswith(E2E) and "/" not in path[len(E2E):] and not re.match(r"test_|soak_|conftest\.py$", name):
            failures.append(f"{path}: is no test module; helpers belong into tests/e2e/lib")
        failures += [f"{path}:{line}: imports the test module {module}; what both need belongs into tests/e2e/lib"
                     for line, module in imported(tree) if module.startswith("test_")]
        for line, function, content in functions(tree):
            first_path, first = seen.setdefault(content, (path, function))
            if (first_path, first) != (path, function):
                failures.append(f"{path}:{line}: {function}() is {first}() of {first_path} once more; share it in tests/e2e/lib")
    return failures


def unit_problems(sources):
    r"""Failures in a {path: text} of unit tests.

    >>> unit_problems({"tests/unit/test_a.c": '#include "unit.h"\n'})
    []
    >>> unit_problems({"tests/unit/test_a.c": "#include <stdint.h>\n#include <cmocka.h>\n"})
    ['tests/unit/test_a.c: includes cmocka.h; unit.h brings it']
    """
    return [f"{path}: includes cmocka.h; unit.h brings it" for path, text in sorted(sources.items())
            if re.search(r"^#include <cmocka\.h>", text, re.M) and not path.endswith("/unit.h")]


def check(_dists):
    names = [name for name in lint.tree_files() if re.match(r"tests/(e2e|crash)/.*\.py$|tests/unit/.*\.[ch]$", name)]
    sources = {name: lint.read(name) for name in names}
    return len(names), problems({name: text for name, text in sources.items() if name.endswith(".py")}) + \
        unit_problems({name: text for name, text in sources.items() if not name.endswith(".py")})


if __name__ == "__main__":
    lint.main(check)
