# SPDX-License-Identifier: Apache-2.0
"""Whatever an option cannot mean ends the command before anything starts: exit status 2, one line that names the option, the
value and what is allowed, no output directory, no program. The options come from --help, so one without cases fails here."""
import os
import re
import subprocess

import pytest

import harness
from option_values import BAD_UTF8, LONG, OLD_NAMES, WRONG

# Allowed to be empty: it switches off. Everything else that takes a value must have one.
MAY_BE_EMPTY = {"inefficient", "call-stack", "events", "level", "analysis", "watch", "set"}


def helps(dist):
    """{verb, or "" for a launch: all its options}; the verbs are those that the first one lists."""
    def told(*words):
        return subprocess.run([dist / "bin" / "msmemscope", *words], capture_output=True, text=True, check=True).stdout

    first = told("--help=all")
    verbs = re.findall(r"^  ([a-z-]+)(?: |$)", first.split("\nVerbs")[1].split("\n\n")[0], re.MULTILINE)
    assert {"info", "recover", "export", "doctor", "selftest"} <= set(verbs)
    return {"": first, **{verb: told(verb, "--help") for verb in verbs}}


def value_options(dist):
    return {name: value for text in helps(dist).values() for name, value in re.findall(r"--([a-z-]+)=([A-Z]+)", text)}


def test_every_verb_has_its_own_help_also_asked_for_first(dist):
    texts = helps(dist)
    assert len(set(texts.values())) == len(texts)
    for verb, text in texts.items():
        assert verb == "" or text.startswith(f"Usage: msmemscope {verb} [OPTION...]")
        for words in (["--help", verb], ["-h", verb], [verb, "-h"]) if verb else ():
            assert subprocess.run([dist / "bin" / "msmemscope", *words], capture_output=True, text=True, check=True).stdout == text
    assert "--top=N" in texts["info"] and "--top" not in texts[""] and "--max-disk" not in texts["info"]


def test_a_plain_help_has_ten_options_and_says_where_the_rest_is(dist):
    full = helps(dist)
    text = subprocess.run([dist / "bin" / "msmemscope", "--help"], capture_output=True, text=True, check=True).stdout
    shown = re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.MULTILINE)
    assert len(shown) == 10 and {"output-path", "device", "call-stack", "analysis", "fail-on"} <= set(shown)
    assert all(re.search(rf"^  {verb}(?: |$)", text, re.MULTILINE) for verb in full if verb)
    assert "msmemscope --help=all" in text and "man msmemscope" in text and len(text.splitlines()) < 0.8 * len(full[""].splitlines())


def test_the_help_names_every_machine_and_ends_with_three_examples_that_work(dist, msmemscope, program, out):
    text = helps(dist)[""]
    assert all(word in text for word in ("NPU", "GPU", "CPU"))
    examples = re.findall(r"^  (msmemscope .*?)  +\S.*$", text.split("\nExamples:\n")[1], re.MULTILINE)
    assert len(examples) == 3 and len(text.split("\nExamples:\n")[1].splitlines()) == 3
    for example in examples:
        line = example.replace("python train.py", " ".join(program("acl_train", "--steps=1"))).partition(" ")[2]
        run = msmemscope.bare("sh", "-c", f"{msmemscope.path} {line}", cwd=out)
        assert run.returncode == 0, f"{example}: {run}"


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
    text = helps(dist)[""]
    flags = set(re.findall(r"--([a-z-]+)(?= )", text)) - WRONG.keys()
    assert {"help", "version", "quiet", "verbose", "best-effort", "insight-close-live", "no-keep-trace"} <= flags
    for name in flags:
        assert f"--{name} takes no value" in refused(f"--{name}=1")
    for word in ("--nosuch", "--nosuch=1", "-x", "--ver", "--c=c"):
        assert word.split("=")[0] in refused(word)
    assert "; did you mean --analysis?" in refused("--anlysis=leaks")


def test_a_word_that_is_no_program_is_answered_by_what_was_meant(msmemscope, out):
    for word, meant in (("inof", "verb info"), ("recovr", "verb recover"), ("help", "--help"), ("compare", "--compare")):
        run = msmemscope.bare(msmemscope.path, word, "x", cwd=out)
        assert (run.returncode, run.stdout) == (127, "") and f"did you mean {'the ' * ('verb' in meant)}{meant}?" in run.stderr, run
        run = msmemscope.bare(msmemscope.path, "--", word, cwd=out)
        assert run.returncode == 127 and "did you mean" not in run.stderr, run
    run = msmemscope.bare(msmemscope.path, "info", "--topp=3", "x", cwd=out)
    assert run.returncode == 2 and run.stderr.endswith("try 'msmemscope info --help'\n") and "mean --top?" in run.stderr, run


def test_a_run_in_the_place_of_the_program_is_answered_by_info(msmemscope, client, out):
    said = client("acl_train", "--steps=1").exact()
    project = said.run.project().path
    for path in (project / "trace.msc", project, *project.glob("device_*/dump/*.csv")):
        for executable in (False, True):
            if not path.is_dir():
                path.chmod(0o755 if executable else 0o644)
            run = msmemscope.bare(msmemscope.path, path.name, cwd=path.parent)
            assert run.returncode in (126, 127) and f"msmemscope info {path.name}\n" in run.stderr, run
            assert msmemscope.bare(msmemscope.path, "info", path.name, cwd=path.parent).returncode == 0


def test_flags_of_a_launch_behind_the_program_are_ours(msmemscope, program, tmp_path):
    """As the options with a value are. Those that programs have too stay with them."""
    words = ["--verbose", "--quiet", "--help", "--version", "--json", "--all", "--no-keep-trace=1"]
    run = msmemscope("sh", "-c", 'printf "%s\\n" "$@"', "app", "--no-keep-trace", *words, "--best-effort")
    assert run.stdout.splitlines() == words
    [line] = [line for line in run.stderr.splitlines() if "taken by msmemscope" in line]
    assert "'--no-keep-trace' '--best-effort'" in line
    run = msmemscope(*program("acl_train", "--steps=1"), "--no-keep-trace", env={"TRUTH": tmp_path / "truth"}).check()
    assert not list(run.project().path.glob("trace.msc"))


@pytest.mark.parametrize("words, need", [
    (["--output-path"], "--output-path needs a value"), (["--steps"], "--steps needs a value"), (["-o"], "-o needs a value"),
    ([], "no program"), (["--steps=1"], "no program"), (["--"], "no program"),
])
def test_an_unfinished_line_is_refused(msmemscope, words, need):
    run = msmemscope(*words, output=False)
    assert run.returncode == 2 and run.stdout == "" and need in run.stderr


def test_the_same_value_after_the_program_is_the_programs(msmemscope):
    """`train.py --device=cuda` is none of ours; where we could take it, we do and say so (test_command.py)."""
    words = ["--device=cuda", "--steps=many", "--format=png", "--level=3", "--events=", "--log-level=loud"]
    run = msmemscope("sh", "-c", 'printf "%s\\n" "$@"', "app", *words)
    # An empty list of events is one that we allow, so that one is ours.
    assert run.stdout.splitlines() == [word for word in words if word != "--events="]
    assert run.returncode == 0
    # No program has --watch, and the manuals put it there: a wrong value of it is a mistake.
    wrong = msmemscope("sh", "-c", "echo ran", "app", "--watch=,")
    assert wrong.returncode == 2 and wrong.stdout == "", wrong


@pytest.mark.parametrize("value", [
    "token0/layer0/module0/op0,token0/layer0/module0/op1,full-content", "op0,op1,full-content", "op0:out1,op1", "op0:1，op1", "op1",
    "op1,full-content", "op0,op1，full-content",
])
def test_a_watch_is_taken_before_and_after_the_program(msmemscope, out, value):
    for number, words in enumerate(([f"--watch={value}", "touch", out / "0"], ["touch", out / "1", f"--watch={value}"])):
        run = msmemscope(*words, output=False, cwd=out)
        assert run.returncode == 0 and "not in this version" not in run.stderr, str(run)
        assert (out / str(number)).exists()