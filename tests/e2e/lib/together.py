# SPDX-License-Identifier: Apache-2.0
"""Several scripts in one launch, for tests whose scripts only need PyTorch and the same options: importing it takes more CPU time than
most scripts. A process imports PyTorch and forks; each child runs a script to the interpreter's end and has results of its own.

    parts = together(["--device=cpu"], {"sgd": text, "seed": [path, "3"]})
    parts["sgd"]       a harness.Run with that child's standard output and project

    together.once(["--device=cpu"], [*python, path])     a launch of its own, for tests that only read what it left

The same words again in a module give the same runs. A script that must see its own import, its own screen or an interpreter of its own
is run by itself, and each feature has at least one test that does so.
"""
import json
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import harness
import rows

SCRATCH = Path(__file__).resolve().parents[3] / "build" / "tmp-e2e"
PARENT = """
import json, os, runpy, sys
import torch, torch._dynamo  # the first optimizer brings it, and it takes as long as the rest
pids = {}
for name, words in json.load(open(sys.argv[1])).items():
    pids[name] = os.fork()
    if pids[name] == 0:
        os.dup2(os.open(f"{sys.argv[1]}.{name}", os.O_WRONLY | os.O_CREAT, 0o600), 1)
        sys.argv[:] = words
        sys.path[0] = os.path.dirname(words[0])
        runpy.run_path(words[0], run_name="__main__")
        break
    status = os.waitpid(pids[name], 0)[1]
    if status != 0:
        sys.exit(f"{name} ended with status {status}")
else:
    print(json.dumps(pids))
"""


@dataclass(frozen=True)
class Part(harness.Run):
    """What one of the scripts left."""
    pid: int = 0

    def projects(self):
        return [project for project in rows.projects(self.out) if project.pid == self.pid]


class Together:
    """Callable, see above."""

    def __init__(self, dist, runner, python, place):
        self.dist, self.runner, self.python, self.place = dist, runner, python, place
        self.done = {}

    def __call__(self, options, scripts, env=None):
        key = json.dumps([options, scripts, env], default=str)
        if key not in self.done:
            self.done[key] = self._run(self.place / str(len(self.done)), options, scripts, env)
        return self.done[key]

    def once(self, options, words, env=None):
        key = json.dumps([options, words, env], default=str)
        if key not in self.done:
            self.done[key] = self._launch(self.place / str(len(self.done)), options, words, env)
        return self.done[key]

    def _launch(self, place, options, words, env):
        place.mkdir(exist_ok=True)
        command = harness.Command(self.dist, place / "out", self.runner)
        try:
            return command(*options, "--", *words, env=env)
        finally:
            command.close()

    def _run(self, place, options, scripts, env):
        words = {}
        for name, script in scripts.items():
            words[name] = [str(word) for word in ([place / name / "script.py"] if isinstance(script, str) else script)]
            if isinstance(script, str):
                Path(words[name][0]).parent.mkdir(parents=True)
                Path(words[name][0]).write_text(script, encoding="utf-8")
        place.mkdir(exist_ok=True)
        (place / "parent.py").write_text(PARENT, encoding="utf-8")
        (place / "words").write_text(json.dumps(words), encoding="utf-8")
        run = self._launch(place, options, [*self.python, place / "parent.py", place / "words"], env).check()
        pids = json.loads(run.stdout)
        return {name: replace(Part(**vars(run)), pid=pids[name], stdout=Path(f"{place / 'words'}.{name}").read_text(encoding="utf-8"))
                for name in words}


@pytest.fixture(scope="module")
def together(request, dist, runner, python):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    failed = request.session.testsfailed
    place = Path(tempfile.mkdtemp(prefix=f"{re.sub('.*[.]', '', request.module.__name__)}-", dir=SCRATCH))
    yield Together(dist, runner, python, place)
    if request.session.testsfailed == failed:
        shutil.rmtree(place, ignore_errors=True)
