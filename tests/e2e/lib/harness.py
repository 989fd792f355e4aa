# SPDX-License-Identifier: Apache-2.0
"""Runs the real command, or a program without it, in an environment that holds nothing of the developer's own.

    run = msmemscope("--call-stack=c:20", "--", *program("threads", 4))
    run.returncode, run.stdout, run.stderr, run.out, run.rows()

Every process gets its own session and a time limit; at the limit its whole group is killed and the test fails with what it
had printed. `start()` hands out the running process instead, for tests that kill or signal it.
"""
import json
import os
import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import rows

TIMEOUT_S = 120

# The first line of a screen.
HEADLINE = re.compile(r"^(?!msmemscope: )\S.*\(pid \d+(?:, rank \d+)?\): (?:[\d,]+ steps? in )?[\d.]+ (?:ms|s|min|h|days)\b", re.M)
# What a screen says to type next: at the end of the line of files, or on one of its own.
MORE = re.compile(r"(?:; more: |^More:  )msmemscope info ", re.M)
# The files of a launch, its page, and the command for more, wherever that stands.
FILES = re.compile(r"^Files: (?P<files>.*?)(?: \((?P<page>report\S*\.html))?(?:; more: |\)?\nMore:  )msmemscope (?P<more>info .*?)\)?$", re.M)
# Settings of the tool or of an Ascend installation must not leak in from the shell that runs the tests.
FOREIGN = ("MSMEMSCOPE_", "MSLEAKS_", "ASCEND_", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_DEBUG")


def environment(dist, changes=None):
    """The tests' environment with the simulated NPU to be found; `changes` set variables, None removes one."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    env["PATH"] = f"/usr/bin:{env.get('PATH', '/bin')}"  # python3 is Debian's, not a wrapper that looks for one
    env["OMP_WAIT_POLICY"] = "passive"  # threads of PyTorch that wait for work sleep; they would spin, for half of a test's CPU time
    env["LD_LIBRARY_PATH"] = str(dist / "simnpu" / "lib64")
    env["ASCEND_HOME_PATH"] = str(dist / "simnpu")
    for key, value in (changes or {}).items():
        if value is None:
            env.pop(key, None)
        else:
            env[key] = str(value)
    return env


@dataclass(frozen=True)
class Run:
    """A finished run. `out` is the output directory it was given, or None."""
    argv: list
    returncode: int
    stdout: str
    stderr: str
    out: Path

    def projects(self):
        return rows.projects(self.out)

    def project(self):
        """The only project directory; any other number is a failure."""
        found = self.projects()
        assert len(found) == 1, f"{len(found)} project directories in {self.out}\n{self}"
        return found[0]

    def rows(self):
        """The rows of all processes, each process's by ID."""
        return [row for project in self.projects() for row in project.rows()]

    def value(self, key):
        """What the program printed under this key, as one of its lines of JSON."""
        [value] = [line[key] for line in map(json.loads, self.stdout.splitlines()) if key in line]
        return value

    def check(self):
        """Self, if the exit status is 0."""
        assert self.returncode == 0, str(self)
        return self

    def __str__(self):
        return (f"$ {' '.join(self.argv)}\nexit status {self.returncode}\n"
                f"--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}")


class Started:
    """A running command; `pid` is what the user sees."""

    def __init__(self, argv, out, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("start_new_session", True)
        self.argv = [str(word) for word in argv]
        self.out = out
        self.process = subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.pid = self.process.pid
        self.stderr = ""  # once it is finished

    def kill(self):
        """Ends the process and everything in its group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def finish(self, timeout=TIMEOUT_S):
        """Waits for the end and gives the Run. The limit covers descendants that keep stdout or stderr open, too."""
        late = False
        try:
            stdout, stderr = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            late = True
            self.kill()
            try:
                stdout, stderr = self.process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                # Something outside the group holds the pipes; what was read so far must do.
                stdout, stderr = error.stdout or b"", error.stderr or b""
        run = Run(self.argv, self.process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"),
                  self.out)
        self.stderr = run.stderr
        assert not late, f"still running after {timeout} s, killed\n{run}"
        return run


def engine_of(supervisor):
    """The engine of a launch: its supervisor's child that runs the same file."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    file = os.readlink(f"/proc/{supervisor}/exe")
    [engine] = [int(pid) for pid in children if os.readlink(f"/proc/{pid}/exe") == file]
    return engine


class Command:
    """Callable: runs the tool with arguments. Unless output=False (for verbs), `-o OUT` with a fresh directory comes first."""

    def __init__(self, dist, out, runner):
        self.path = dist / "bin" / "msmemscope"
        self.dist = dist
        self.out = out
        self.runner = runner
        self.started = []

    def start(self, *arguments, output=True, env=None, **options):
        out = self.out if output is True else output or None
        argv = [*self.runner, self.path, *(["-o", out] if out else []), *arguments]
        started = Started(argv, out, env=environment(self.dist, env), **options)
        self.started.append(started)
        return started

    def __call__(self, *arguments, timeout=TIMEOUT_S, **options):
        return self.start(*arguments, **options).finish(timeout)

    def info(self, project, *options):
        """What `info --json` says about the process of a project, every held block included."""
        document = json.loads(self("info", project.path, "--json", "--all", *options, output=False).check().stdout)
        [process] = document["processes"]
        return process

    def bare(self, *argv, env=None, timeout=TIMEOUT_S, **options):
        """Runs a program without the tool, in the same environment, to see what it does by itself."""
        started = Started(argv, None, env=environment(self.dist, env), **options)
        self.started.append(started)
        return started.finish(timeout)

    def close(self):
        """Kills what a failed test left behind."""
        for started in self.started:
            if started.process.poll() is None:
                started.kill()
                started.process.wait()
