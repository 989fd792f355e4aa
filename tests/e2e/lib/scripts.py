# SPDX-License-Identifier: Apache-2.0
"""Runs scripts that import npu.py, and compares the rows with what the script noted (windows.py).

    run = scripts.command(text, "--steps=2"); scripts.preloaded(text); scripts.alone(text)
    scripts.exact(run)       every process has the rows that its own notes ask for
"""
import shutil
from pathlib import Path

import pytest

import harness
import windows

PYTHON = "/usr/bin/python3"
# The names under which the original's users preload the collector.
NAMES = ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", "libascend_kernel_hook.so", "libatb_abi_0_hook.so",
         "libatb_abi_1_hook.so"]


def python_path(dist):
    """$PYTHONPATH of scripts that import the package, npu.py and mstx."""
    return ":".join(map(str, (dist / "python", Path(__file__).resolve().parent, dist / "simnpu" / "python")))


class Scripts:
    """Runs a script by itself, preloaded, or under the command, and reads what it did."""

    def __init__(self, msmemscope, dist, out):
        self.msmemscope, self.dist, self.out = msmemscope, dist, out
        self.truth = out / "truth"
        self.results = out / "results"

    def environment(self, changes):
        return {"TRUTH": self.truth, "PYTHONPATH": python_path(self.dist), "OUT": self.results, **(changes or {})}

    def write(self, text):
        path = self.out / "script.py"
        path.write_text(text, encoding="utf-8")
        return path

    def command(self, text, *options, env=None, **more):
        return self.msmemscope(*options, "--", PYTHON, self.write(text), output=self.results, env=self.environment(env),
                               cwd=self.out, **more)

    def alone(self, text, env=None, interpreter=(PYTHON,), **more):
        run = self.msmemscope.bare(*interpreter, self.write(text), env=self.environment(env), cwd=self.out, **more)
        return harness.Run(run.argv, run.returncode, run.stdout, run.stderr, self.results)

    def without_library(self, text):
        """With a package that has no collector beside it."""
        place = self.out / "alone"
        shutil.copytree(self.dist / "python", place)
        return self.alone(text, {"PYTHONPATH": f"{place}:{python_path(self.dist).split(':', 1)[1]}"})

    def preloaded(self, text, env=None, names=("libascend_kernel_hook.so",), **more):
        preload = ":".join(str(self.dist / "lib64" / name) for name in names)
        return self.alone(text, {"LD_PRELOAD": preload, **(env or {})}, **more)

    def events(self):
        return windows.read(self.truth)

    def exact(self, run, traced=True, on=True, processes=1):
        """Every process has the rows that its own notes ask for."""
        run.check()
        events = self.events()
        projects = run.projects()
        assert len(projects) == processes, run
        for project in projects:
            found = [windows.seen(row) for row in project.rows()]
            assert found == windows.wanted(events[project.pid], traced, on), run
        assert not list(run.out.glob(".msmemscope_*")), "the session is still there"
        return [row for project in projects for row in project.rows()]


@pytest.fixture
def scripts(msmemscope, dist, out):
    return Scripts(msmemscope, dist, out)
