# SPDX-License-Identifier: Apache-2.0
"""The Python trace by sys.monitoring, in each Python from 3.12 on that this machine has: the same calls that sys.setprofile() tells
of. What imports of libraries do is left out, in every version."""
import json
import sys
from pathlib import Path

import pytest

import interpreters
import slices

SCRIPTS = "python"
ALL = {"MSMEMSCOPE_TRACE_IMPORTS": "1"}


INTERPRETERS = {version.rpartition(".")[0]: path for version, path in reversed(interpreters.interpreters((3, 12)).items())}


@pytest.fixture(params=INTERPRETERS)
def python(request):
    return INTERPRETERS[request.param]


@pytest.fixture
def script(targets, tmp_path):
    def make(name, text=None):
        if text is None:
            return targets / SCRIPTS / name
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path
    return make


@pytest.fixture
def truth(msmemscope, script, tmp_path):
    def run(python, path):
        file = tmp_path / "truth"
        msmemscope.bare(python, script("profiled.py"), file, path).check()
        return json.loads(file.read_text(encoding="utf-8"))
    return run


def traced(msmemscope, *command, output=None, **more):
    run = msmemscope("--events=traceback", "--", *command, **({"output": output} if output else {}), **more).check()
    return run, slices.threads(run.project())


def notes(run):
    return [line for line in (run.project().path / "report.txt").read_text(encoding="utf-8").splitlines() if line.startswith("Note: ")]


def test_every_call_is_the_profilers(msmemscope, python, script, truth):
    path = script("calls.py")
    wanted = slices.of_module(truth(python, path)[0], path)
    run, found = traced(msmemscope, python, path, env=ALL)
    [rows] = found.values()
    assert slices.of_module([(one.text, one.start, one.end) for one in rows], path) == wanted
    assert len(wanted) > 500 and not notes(run)
    slices.nested(rows)


def test_threads_are_traced_and_end_with_the_trace(msmemscope, python, script, truth, out):
    path = script("workers.py")
    wanted = sorted(slices.within(path, [slices.Slice(text, 0, 0, 0, 0) for text, *_ in rows]) for rows in truth(python, path))
    _, found = traced(msmemscope, python, path)
    assert sorted(slices.within(path, rows) for rows in found.values()) == wanted
    path = script("open.py", """
import threading, msmemscope
from msmemscope import tracer
inside, over = threading.Event(), threading.Event()
def work():
    inside.set()
    over.wait()
    after()
def after():
    pass
thread = threading.Thread(target=work)
tracer.start()
thread.start()
inside.wait()
tracer.stop()
over.set()
thread.join()
after()
""")
    run = msmemscope("--collect-mode=deferred", "--", python, path, output=out / "open").check()
    texts = [one.text for rows in slices.threads(run.project()).values() for one in rows]
    assert f"stop: {path}(5): work" in texts and f"{path}(9): after" not in texts, texts


def test_other_profilers_go_on_and_a_taken_id_is_told(msmemscope, python, script, out):
    """One id that is taken makes it use the next; without any it is the profile function. The calls are the same."""
    text = """
import sys
from msmemscope import tracer
def work(n):
    return sorted(range(n))
seen = []
def other(code, offset):
    seen.append(code.co_name)
for tool in range(2, int(sys.argv[1])):
    sys.monitoring.use_tool_id(tool, f"tool{tool}")
    sys.monitoring.register_callback(tool, sys.monitoring.events.PY_START, other)
    sys.monitoring.set_events(tool, sys.monitoring.events.PY_START)
tracer.start()
work(3)
tracer.stop()
work(4)
print(seen.count("work"))
assert sys.monitoring.get_tool(2) == (None if sys.argv[1] == "2" else "tool2")
"""
    path, found = script("taken.py", text), {}
    for taken in (2, 3, 5):
        run = msmemscope("--collect-mode=deferred", "--", python, path, str(taken), output=out / str(taken)).check()
        assert run.stdout.split() == [str(2 * (taken - 2))]
        found[taken] = [one.text for rows in slices.threads(run.project()).values() for one in rows
                        if "work" in one.text or "sorted" in one.text]
        assert ("uses the profile function" in run.stderr) == (taken == 5), run
        assert ("tool2 has tool id 2 of sys.monitoring" in run.stderr) == (taken > 2), run
    assert found[2] == found[3] == found[5] == ["<built-in function sorted>", f"{path}(5): work", f"{path}(4): work"], found


@pytest.mark.parametrize("interpreter", [sys.executable, *INTERPRETERS.values()])
def test_imports_of_libraries_are_left_out_and_a_note_says_so(msmemscope, script, interpreter, out):
    """Those of the program's own modules are not, nor what the program calls of a library later."""
    script("mine.py", "import decimal\ndef at_import():\n    return 1\nat_import()\n")
    path = script("importer.py", "import fractions\nimport mine\ndef work():\n    return fractions.Fraction(3, 6)\nwork()\n")
    run, found = traced(msmemscope, interpreter, path)
    texts = [one.text for rows in found.values() for one in rows]
    assert any(text.endswith("mine.py(1): <module>") for text in texts) and any(text.endswith("(2): at_import") for text in texts)
    assert any("fractions.py(" in text and text.endswith("Fraction.__new__") for text in texts), texts[:50]
    assert not any("importlib._bootstrap" in text for text in texts)
    assert not any(text.endswith(": <module>") for text in texts if "fractions.py" in text or "decimal.py" in text)
    assert len(notes(run)) == 1 and "MSMEMSCOPE_TRACE_IMPORTS=1" in notes(run)[0]
    run, found = traced(msmemscope, interpreter, path, env=ALL, output=out / "everything")
    everything = [one.text for rows in found.values() for one in rows]
    assert any(text.endswith(": <module>") and "fractions.py" in text for text in everything)
    assert len(everything) > 5 * len(texts) and not notes(run)


def test_a_library_that_is_the_program_is_no_import(msmemscope, script):
    run, found = traced(msmemscope, sys.executable, "-m", "tabnanny", script("calls.py"))
    texts = [one.text for rows in found.values() for one in rows]
    assert any(text.endswith("tabnanny.py(1): <module>") for text in texts), run
