# SPDX-License-Identifier: Apache-2.0
"""The command as the manuals show it: whose is what on the command line, and what options do to the results. Steps, devices and
analyses are in test_filters.py, values that are refused in test_options.py."""
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from pathlib import Path

import pytest

WIDE_COMMA = "，"
# A shell prints its words one to a line, so that none can hide in another.
SAY = ["sh", "-c", 'printf "%s\\n" "$@"', "app"]


def events(said):
    return {row.event for row in said.rows()}


def test_a_shell_script_is_traced_with_all_it_starts(msmemscope, program, tmp_path):
    script = tmp_path / "user.sh"
    target = " ".join(program("acl_train", "--steps=1"))
    script.write_text(f"TRUTH=/dev/null {target}\nTRUTH=/dev/null bash -c '{target}; true'\nexit 5\n")
    run = msmemscope("bash", script)
    assert run.returncode == 5, str(run)
    assert len(run.projects()) == 2
    for project in run.projects():
        assert {row.event for row in project.rows()} == {"MALLOC", "FREE", "MSTX", "SYSTEM"}


def test_everything_after_two_dashes_is_the_programs(msmemscope):
    words = ["--steps=3", "--level=kernel", "-o", "/nowhere", "--", "--help", "-v", "", "a b", "*"]
    run = msmemscope("--", *SAY, *words)
    assert (run.returncode, run.stdout) == (0, "".join(f"{word}\n" for word in words))
    assert run.projects() == []


def test_options_behind_the_program_are_ours(msmemscope, program, tmp_path):
    """They are taken out of its words, which one line says."""
    run = msmemscope(*SAY, "--level=kernel", "keep", "--call-stack=c:3", "--strange=1")
    assert (run.returncode, run.stdout) == (0, "keep\n--strange=1\n")
    [line] = [line for line in run.stderr.splitlines() if "--level=kernel" in line]
    assert "--call-stack=c:3" in line
    run = msmemscope(*program("acl_train", "--steps=1"), "--level=kernel", "--call-stack=c:3",
                     env={"TRUTH": tmp_path / "truth"}).check()
    rows = run.project().rows()
    assert {row.event for row in rows} == {"MALLOC", "FREE", "MSTX", "SYSTEM", "KERNEL_LAUNCH"}
    assert {len(row.c_stack) for row in rows if row.event == "MALLOC"} == {3}


def test_a_closed_stdout_is_said(msmemscope, program, out):
    """What is printed reaches nobody then; no file of ours gets its number."""
    project = msmemscope("--", *program("churn", 1), env={"TRUTH": "/dev/null"}, output=out / "results").check().project().path
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for words in (["info", project], ["info", "--json", project], ["report", "--text", project], ["analyze", "leaks", project], ["--version"],
                  ["export", project, "-o", out / "export"]):
        run = msmemscope.bare("sh", "-c", 'exec "$@" >&-', "sh", msmemscope.path, *words)
        assert (run.returncode, run.stderr) == (1, "msmemscope: cannot write to stdout: Bad file descriptor\n"), run
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    [dump] = (out / "export").glob("*/device_*/dump/*.csv")
    assert dump.read_text(encoding="utf-8").startswith("ID,Event,")
    run = msmemscope.bare("sh", "-c", 'exec "$@" >&-', "sh", msmemscope.path, "-o", out / "closed", *program("churn", 1), env={"TRUTH": "/dev/null"})
    assert run.returncode == 0, "the program's own output is its own"


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help(msmemscope, word):
    run = msmemscope(word, output=False)
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.startswith("Usage: msmemscope ") and "--call-stack" in run.stdout


@pytest.mark.parametrize("word", ["--version", "-v", "-V"])
def test_version(msmemscope, word):
    run = msmemscope(word, output=False)
    assert run.returncode == 0 and run.stderr == ""
    assert re.search(r"^msmemscope version \d+\.\d+\.\d+-\w+$", run.stdout, re.MULTILINE)


def test_deferred_mode_that_was_never_started_says_that(msmemscope, program):
    """Not that no step was marked: the program marks three."""
    run = msmemscope("--collect-mode=deferred", "--", *program("acl_train", "--steps=3"), env={"TRUTH": "/dev/null"}).check()
    for text in (run.stderr, (run.project().path / "report.txt").read_text()):
        text = " ".join(text.split())
        assert "Leaks are not judged: collection was never started." in text and "start() of the Python module" in text
        assert "no step" not in text


def test_addresses_have_one_form_in_what_people_read_and_one_in_files(client, msmemscope):
    """As the program prints them; and in documents for scripts as the dump has them, so that they can be joined."""
    said = client("leaky_steps", "--steps=12")
    path = said.run.project().path
    texts = [said.run.stderr, (path / "report.txt").read_text(),
             msmemscope.bare(msmemscope.path, "info", "--all", path).check().stdout,
             msmemscope.bare(msmemscope.path, "info", "--all", "--json", path).check().stdout]
    addresses = {row.ptr for row in said.rows() if row.ptr is not None}
    for text, form in zip(texts, ("{:#x}", "{:#x}", "{:#x}", "0x{:016x}")):
        found = set(re.findall(r"0x[0-9a-f]{9,}", text))
        assert found and found <= {form.format(address) for address in addresses}, found


def test_by_default_blocks_and_launches_are_written(client):
    said = client("acl_train", options=["--level=kernel"]).exact()
    assert events(said) == {"MALLOC", "FREE", "KERNEL_LAUNCH", "MSTX", "SYSTEM"}


@pytest.mark.parametrize("word", ["alloc", "free", "access", f"alloc{WIDE_COMMA}free"])
def test_allocations_and_frees_come_together(client, word):
    said = client("acl_train", options=["--level=kernel", f"--events={word}"])
    assert events(said) == {"MALLOC", "FREE", "MSTX", "SYSTEM"}
    assert Counter(row.event for row in said.rows())["MALLOC"] == len(said.process().events("malloc"))


@pytest.mark.parametrize("option, depth", [
    ("--call-stack=c", 50), ("--call-stack=c:1", 1), ("--call-stack=c:20", 20), ("--call-stack=c:1000", 1000),
    ("--call-stack=c:0", 0), ("--call-stack=", 0), (f"--call-stack=c:7{WIDE_COMMA}python:3", 7),
])
def test_c_stacks_have_the_depth_that_was_asked_for(traced, option, depth):
    result = traced("deep", 1200, options=[option]).exact()
    for row in result.run.rows():
        assert len(row.c_stack) == depth
        if depth > 4:
            assert "/deep(truth_" in row.c_stack[0] and "/deep(descend+0x" in row.c_stack[4], row.c_stack[:5]


@pytest.mark.parametrize("options", [[], ["--collect-mode=immediate"]], ids=["default", "immediate"])
def test_immediate_mode_records_from_start_to_end(traced, options):
    traced("ctor", options=options).exact()


def test_deferred_mode_writes_nothing_before_it_is_asked(client):
    said = client("acl_train", options=["--collect-mode=deferred", "--level=kernel"])
    projects = said.run.projects()
    assert projects and {row.event for project in projects for row in project.rows()} <= {"SYSTEM"}


@pytest.mark.parametrize("option", ["--collect-mode=immediate,deferred", "--data-format=", "--steps=one", "--steps=1.5",
                                    "--device=npu:32", "--device="])
def test_what_makes_no_sense_is_refused(msmemscope, option):
    run = msmemscope(option, "--", *SAY, output=False)
    assert run.returncode == 2 and run.stdout == ""
    assert option.split("=")[0] in run.stderr


@pytest.mark.parametrize("options", [[], ["--data-format=csv"], ["--format=csv"]], ids=["default", "data-format", "format"])
def test_files_are_csv(client, options):
    said = client("acl_train", options=options).exact()
    dumps = list(said.run.project().path.glob("device_*/dump/*"))
    assert {path.parent.parent.name for path in dumps} == {"device_0", "device_cpu"}
    assert all(re.fullmatch(r"memscope_dump_\d{14}\.csv", path.name) for path in dumps)


@pytest.mark.parametrize("option", ["--output={}", "--output-path={}", "-o{}"])
def test_output_says_where_files_go(msmemscope, program, out, option):
    place = out / "some where" / "else"
    run = msmemscope(option.format(place), "--", *program("many_devices", 1), output=False, cwd=out, env={"TRUTH": "/dev/null"})
    assert run.returncode == 0, str(run)
    assert [path.name for path in out.iterdir()] == ["some where"]
    assert re.fullmatch(r"msmemscope_\d+_\d{14}_ascend", next(place.iterdir()).name)


def test_by_default_files_go_to_memscopeDumpResults(msmemscope, program, out):
    msmemscope("--", *program("many_devices", 1), output=False, cwd=out, env={"TRUTH": "/dev/null"}).check()
    assert [path.name for path in out.iterdir()] == ["memscopeDumpResults"]
    assert next((out / "memscopeDumpResults").iterdir()).name.startswith("msmemscope_")


HOOKS = ["libleaks_ascend_hal_hook.so", "libascend_mstx_hook.so", "libascend_kernel_hook.so", "libatb_abi_0_hook.so",
         "libatb_abi_1_hook.so"]


@pytest.mark.parametrize("names", [*([name] for name in HOOKS), HOOKS, HOOKS[:2]], ids=lambda names: names[0] + str(len(names)))
def test_preloaded_by_hand_a_program_that_never_asks_is_left_alone(msmemscope, program, dist, out, names):
    """Each of the five names loads; `ls` and a program that takes device memory do as ever, and no file appears."""
    env = {"LD_PRELOAD": ":".join(str(dist / "lib64" / name) for name in names), "TRUTH": "/dev/null"}
    for words in (["ls", "/"], program("many_devices", 2), program("acl_train", "--steps=1")):
        alone = msmemscope.bare(*words, cwd=out, env={"TRUTH": "/dev/null"}).check()
        with_us = msmemscope.bare(*words, cwd=out, env=env).check()
        assert (with_us.stdout, with_us.stderr) == (alone.stdout, alone.stderr)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("name", HOOKS)
def test_each_name_of_the_hook_library_records_when_it_alone_is_preloaded_again(traced, dist, name):
    traced("threads", 2, 200, env={"LD_PRELOAD": dist / "lib64" / name}).exact()


# ---- names ----

def test_by_its_old_name_it_has_its_old_directory(msmemscope, program, dist, out):
    words = program("many_devices", 1)
    msmemscope.bare(dist / "bin" / "msleaks", *words, cwd=out, env={"TRUTH": "/dev/null"}).check()
    assert [path.name for path in out.iterdir()] == ["leaksDumpResults"]
    msmemscope.bare(dist / "bin" / "msleaks", "--output=here", *words, cwd=out, env={"TRUTH": "/dev/null"}).check()
    assert sorted(path.name for path in out.iterdir()) == ["here", "leaksDumpResults"]


def test_a_word_that_is_a_verb_and_a_program_is_said_to_be_the_verb(msmemscope, out):
    program = out / "info"
    program.write_text("#!/bin/sh\necho the program $1\n")
    program.chmod(0o755)
    env = {"PATH": f"{out}:{os.environ['PATH']}"}
    verb = msmemscope("info", "nothing", output=False, cwd=out, env=env)
    assert verb.returncode == 1 and verb.stdout == ""
    assert f"msmemscope: info is taken as a verb; to run {program}, put -- before it\n" in verb.stderr
    for words in (["--", "info", "x"], ["./info", "x"]):
        run = msmemscope(*words, cwd=out, env=env)
        assert (run.returncode, run.stdout) == (0, "the program x\n") and "verb" not in run.stderr
    assert "verb" not in msmemscope("info", "nothing", output=False, cwd=out, env={"PATH": "/nowhere"}).stderr


# ---- who else can change the results ----

def test_root_is_told_that_permissions_are_not_checked(msmemscope):
    if os.geteuid() != 0:
        pytest.skip("not root here")
    line = "msmemscope: running as root: owner and permissions of the output directory are not checked\n"
    said = msmemscope("--", "true").stderr
    # Below what is new to the reader.
    assert said.count(line) == 1 and said.endswith(line)
    assert line not in msmemscope("--quiet", "--", "true").stderr


@pytest.fixture
def common():
    """A directory that anybody may enter."""
    place = Path(tempfile.mkdtemp(prefix="common-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


def test_a_common_user_is_warned_of_an_output_that_others_can_change(msmemscope, dist, common):
    root = os.geteuid() == 0
    user = {"user": 65534, "group": 65534, "extra_groups": []} if root else {}
    for part in ("bin", "lib64"):
        shutil.copytree(dist / part, common / part, symlinks=True)

    def warnings(name, mode, theirs):
        output = common / name
        if mode is not None:
            output.mkdir()
            output.chmod(mode)
        if root and mode is not None and not theirs:
            os.chown(output, 65534, 65534)
        run = msmemscope.bare(common / "bin" / "msmemscope", "-o", output, "--", "true", cwd="/", **user)
        assert run.returncode == 0, str(run)
        lines = [line for line in run.stderr.splitlines() if "output directory" in line]
        assert all(str(output) in line for line in lines)
        return [re.search("belongs to another user|others may write", line)[0] for line in lines]

    if root:
        os.chown(common, 65534, 65534)
        assert warnings("of-root", 0o777, True) == ["belongs to another user", "others may write"]
    assert warnings("own", 0o750, False) == []
    assert warnings("group", 0o770, False) == ["others may write"]
    assert warnings("all", 0o757, False) == ["others may write"]
    assert warnings("new", None, False) == []
    assert stat.S_IMODE((common / "new").stat().st_mode) & 0o022 == 0
