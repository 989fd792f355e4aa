# SPDX-License-Identifier: Apache-2.0
"""The command msmemscope, run from Python: what it answers about recorded runs, as Python objects."""
import json
import os
import shutil
import subprocess

from ._place import HOME


class Failed(Exception):
    """The command could not answer; the text says why."""


def find():
    """Path of the command: $MSMEMSCOPE_ENGINE, that of the installation this package belongs to, or the one on PATH."""
    named = os.environ.get("MSMEMSCOPE_ENGINE")
    own = os.path.join(HOME, "bin", "msmemscope")
    for path in (named, own, shutil.which("msmemscope"), shutil.which("msleaks")):
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.normpath(path)
    raise FileNotFoundError("the command msmemscope is neither next to the package nor on PATH; set MSMEMSCOPE_ENGINE to its path")


def text(*words):
    """What `msmemscope WORDS` prints for people."""
    done = subprocess.run([find(), *map(os.fspath, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=False)
    return done.stdout.decode("utf-8", "replace")


def document(*words):
    """(document, said): the JSON document that `msmemscope WORDS --json` prints, and its messages."""
    done = subprocess.run([find(), *map(os.fspath, words), "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    said = [line.split(": ", 1)[-1] for line in done.stderr.decode("utf-8", "replace").splitlines()]
    if not done.stdout:
        raise Failed("; ".join(said) or f"msmemscope ended with status {done.returncode}")
    return json.loads(done.stdout.decode("utf-8", "replace")), said


def ask(*words):
    """(processes, said): the processes of such a document, and its messages."""
    answer, said = document(*words)
    return answer["processes"], said
