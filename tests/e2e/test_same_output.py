# SPDX-License-Identifier: Apache-2.0
"""tools/same-output.py, which proves that two builds write the same, must be able to fail: one of the two is changed here."""
import subprocess
import sys

import pytest

from fixtures import ROOT

# What a build that writes something else does after the real command; $out is the directory that it was given.
CHANGES = {
    "a byte of a csv": "sed -i '0,/MALLOC/s//MALLOX/' \"$out\"/*/device_0/dump/*.csv",
    "a row of a database": f"{sys.executable} -c \"import glob, sqlite3, sys\n"
                           "for path in glob.glob(sys.argv[1] + '/*/device_0/dump/*.db'):\n"
                           "    with sqlite3.connect(path) as database:\n"
                           "        database.execute('UPDATE memscope_dump SET ID = ID + 1 WHERE ID = 0')\n"
                           "\" \"$out\"",
    "a file less": 'rm "$out"/*/report.txt',
    "a file more": 'touch "$out"/another',
    "a word on stdout": "echo more",
    "another exit status": "status=7",
}
WRAPPER = """#!/bin/bash
out=/nowhere
for word; do [ "$before" = -o ] && out=$word; before=$word; done
{real} "$@"
status=$?
case "$*" in *{only}*) {change} 2> /dev/null;; esac
exit $status
"""


@pytest.fixture
def trace(client):
    return client("leaky_steps", "--steps=3").run.project().path / "trace.msc"


@pytest.fixture
def same_output(dist, trace, out):
    def run(change="", *options, only=""):
        changed = out / "changed" / "bin"
        changed.mkdir(parents=True)
        (changed / "msmemscope").write_text(WRAPPER.format(real=dist / "bin" / "msmemscope", change=change or ":", only=only))
        (changed / "msmemscope").chmod(0o755)
        words = [sys.executable, ROOT / "tools" / "same-output.py", *options, dist, changed.parent, trace]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    return run


def test_one_build_is_the_same_as_itself(same_output):
    done = same_output()
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("1 traces, ") and ": 0 differ; " in done.stdout


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_differs_is_found(same_output, name):
    only = {"a byte of a csv": "export", "a row of a database": "format=db", "a word on stdout": "info"}.get(name, "")
    done = same_output(CHANGES[name], only=only)
    assert done.returncode == 1 and ": 0 differ" not in done.stdout, done
    assert {"a byte of a csv": ",MALLOX,", "a row of a database": "+ memscope_dump (1, ", "a file less": "+ (no such file)",
            "a file more": "out/another", "a word on stdout": "+ more", "another exit status": "- 0\n    + 7"}[name] in done.stdout


def test_a_sentence_may_be_reworded(same_output):
    change = "sed -i s/collectMode/modeOfCollection/ \"$out\"/*/config.json"
    done = same_output(change, "--reworded", "collectM[a-z]+", "modeOfCollection")
    assert done.returncode == 0, done


def test_a_trace_that_cannot_be_read_proves_nothing(same_output, trace):
    trace.unlink()
    done = same_output()
    assert done.returncode == 1 and "the old build cannot read it" in done.stdout, done
