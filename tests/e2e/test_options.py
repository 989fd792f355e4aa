# SPDX-License-Identifier: Apache-2.0
"""Whatever an option cannot mean ends the command before anything starts: exit status 2, one line that names the option, the
value and what is allowed, no output directory, no program. The options come from --help, so one without cases fails here."""
import os
import re
import subprocess

import pytest

import harness

LONG = "a" * 5000
ENDLESS = "9" * 30
BAD_UTF8 = os.fsdecode(b"a\xff\xfe")
# Allowed to be empty: it switches off. Everything else that takes a value must have one.
MAY_BE_EMPTY = {"call-stack", "events", "level", "analysis"}

# What is wrong with the value: how the message names it. Too long, not UTF-8 and empty are tried with every option.
WRONG = {
    "output-path": ["@x", "=x", "-x", "+x", "a\x1bb", "/" + "n" * 256, "/n" * 33, "n" * 4097],
    "trace-dir": ["@x", "/n" * 33],
    "format": ["xml", "CSV", "csv,db", "0"],
    "max-disk": ["x", "0", "1023K", "0%", "101%", "1.5G", "-1G", ENDLESS],
    "device": ["gpu", "npu:32", "npu:-1", "npu:01", "npu:x", "cpu:0", "2", "npu 2", "npu:1,gpu", f"npu:{ENDLESS}"],
    "steps": ["0", "-1", "+1", "01", "1.5", "one", "1,x", "1;2", "1 2", "4294967296", "0x10", ENDLESS],
    "call-stack": ["rust", "c:1001", "c:-1", "c:00", "c:", "c:x", "python:1001", "c:20:20", f"python:{ENDLESS}"],
    "events": ["malloc", "alloc:1", "alloc,what", "all"],
    "level": ["2", "ops", "0,2", "op:1"],
    "collect-mode": ["now", "immediate,deferred", "0"],
    "analysis": ["leak", "oomfoo", "oom:0", "oom:1001", "oom:", "leaks:1", "leaks,peaks", f"oom:{ENDLESS}"],
    "watch": ["full-content", ",", "op0,", "op0:,op1", "op0:outid,op1", "op0:out,op1", ":0,op1", "op0:01,op1", "op1:0",
              "op0,op1,full", "a,b,c,full-content", "op0:4294967296,op1", "o" * 255, "s" * 255 + ",e"],
    "input-path": ["a", ",", "a,b,c", "a,@x", "=x,b", "a,b\x1bc", "a,/" + "n" * 256, "/n" * 33 + ",b", "a," + "n" * 4097],
    "log-level": ["loud", "2", "warn,error"],
}
OLD_NAMES = {"output": "output-path", "input": "input-path", "data-format": "format"}


def value_options(dist):
    text = subprocess.run([dist / "bin" / "msmemscope", "--help"], capture_output=True, text=True, check=True).stdout
    return {name: value for name, value in re.findall(r"--([a-z-]+)=([A-Z]+)", text)}


def test_every_option_has_wrong_values(dist):
    assert value_options(dist).keys() == WRONG.keys()


@pytest.fixture
def refused(msmemscope, out):
    """Runs a line that must be refused; gives the message."""
    def run(*words):
        line = harness.Started([msmemscope.path, *words, "sh", "-c", "touch started"], out, cwd=out,
                               env=harness.environment(msmemscope.dist))
        run = line.finish()
        assert (run.returncode, run.stdout) == (2, ""), str(run)
        assert list(out.iterdir()) == [], "something was started or made"
        first, second = run.stderr.splitlines()
        assert second == "msmemscope: try 'msmemscope --help'"
        return first
    return run


def shown(value):
    """A value as messages quote it: control characters and bad bytes escaped, cut after 64 bytes."""
    raw = os.fsencode(value)
    text = re.sub(rb"[\x00-\x1f\x7f-\xff]", lambda match: b"\\x%02x" % match[0][0], raw)
    return f"'{text.decode()}'" if len(raw) <= 64 else f"...' ({len(raw)} bytes)"


@pytest.mark.parametrize("name", sorted([*WRONG, *OLD_NAMES]))
def test_a_value_that_cannot_be_is_named_and_nothing_starts(refused, name):
    canonical = OLD_NAMES.get(name, name)
    for value in [*WRONG[canonical], LONG]:
        for words in ([f"--{name}={value}"], [f"--{name}", value]):
            message = refused(*words)
            assert message.startswith(f"msmemscope: --{name}: ") and "; allowed: " in message, message
            # A list names the item that is wrong, the rest the whole value; both end the same way.
            wrong = [value, *re.split(r",|\s", value)]
            assert any(shown(item)[-20:] in message for item in wrong if item), message
    assert "'a\\xff\\xfe'" in refused(f"--{name}={BAD_UTF8}")
    assert "\\x1b" in refused(f"--{name}=a\x1b[31m")
    if canonical not in MAY_BE_EMPTY:
        assert "the value is empty; allowed: " in refused(f"--{name}=")


def test_flags_take_no_value_and_unknown_options_are_named(refused, dist):
    text = subprocess.run([dist / "bin" / "msmemscope", "--help"], capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"--([a-z-]+)(?= )", text)) - WRONG.keys()
    assert {"help", "version", "quiet", "verbose", "best-effort", "insight-close-live", "no-keep-trace"} <= flags
    for name in flags:
        assert f"--{name} takes no value" in refused(f"--{name}=1")
    for word in ("--nosuch", "--nosuch=1", "-x", "--ver", "--c=c"):
        assert word.split("=")[0] in refused(word)


@pytest.mark.parametrize("words, need", [
    (["--output-path"], "--output-path needs a value"), (["--steps"], "--steps needs a value"), (["-o"], "-o needs a value"),
    ([], "no program"), (["--steps=1"], "no program"), (["--"], "no program"),
])
def test_an_unfinished_line_is_refused(msmemscope, words, need):
    run = msmemscope(*words, output=False)
    assert run.returncode == 2 and run.stdout == "" and need in run.stderr


def test_the_same_value_after_the_program_is_the_programs(msmemscope):
    """`train.py --device=cuda` is none of ours; where we could take it, we do and say so (test_command.py)."""
    words = ["--device=cuda", "--steps=many", "--format=png", "--level=3", "--events=", "--watch=", "--log-level=loud"]
    run = msmemscope("sh", "-c", 'printf "%s\\n" "$@"', "app", *words)
    # An empty list of events is one that we allow, so that one is ours.
    assert run.stdout.splitlines() == [word for word in words if word != "--events="]
    assert run.returncode == 0


@pytest.mark.parametrize("value", ["op0,op1,full-content", "op0:out1,op1", "op0:1，op1", "op1", "op1,full-content"])
def test_a_watch_that_could_be_is_refused_in_other_words(msmemscope, out, value):
    """Until this version can watch; after the program, too, so that nobody waits for dumps that never come."""
    for words in ([f"--watch={value}", "touch", out / "started"], ["touch", out / "started", f"--watch={value}"]):
        run = msmemscope(*words, output=False, cwd=out)
        assert run.returncode == 2 and "--watch is not in this version" in run.stderr, str(run)
        assert list(out.iterdir()) == []
