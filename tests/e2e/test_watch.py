# SPDX-License-Identifier: Apache-2.0
"""--watch: blocks of memory are dumped before and after each operator from START to END. The program (targets/watch_ops.c) says
what its memory held at each moment; watch_model.py knows the rules."""
import json
import os
import re
import stat
import time

import pytest

import watch_model
from watch_model import checksums, content, expected, sums

# op0 writes and gives blocks 0 and 1; op1 only reads; op2 writes a block of its own; op3 writes block 0, as a plan or by mistake.
CHAIN = ["op9=:", "op0=01:01", "op1=:2", "op2=2:2", "op3=0:3", "op1=:2", "op2=2:2", "op0=01:01", "op1=:2", "op4=:"]


def watched(msmemscope, program, watch, *words, options=()):
    run = msmemscope(*([f"--watch={watch}"] if watch else []), *options, "--", *program("watch_ops", *words)).check()
    assert "not in this version" not in run.stderr, str(run)
    return run


@pytest.mark.parametrize("watch, settings", [
    ("op0,op1", {"start": "op0", "end": "op1"}),
    ("op0:out1,op1", {"start": "op0", "output": 1, "end": "op1"}),
    ("op0:1,op1", {"start": "op0", "output": 1, "end": "op1"}),
    ("op0:0，op2", {"start": "op0", "output": 0, "end": "op2"}),
    ("op0:7,op4", {"start": "op0", "output": 7, "end": "op4"}),
    ("op0,op0", {"start": "op0", "end": "op0"}),
    ("op0,never", {"start": "op0", "end": "never"}),
])
def test_every_operator_from_start_to_end_dumps_the_outputs_before_and_after(msmemscope, program, watch, settings):
    run = watched(msmemscope, program, watch, *CHAIN)
    wanted = expected(run.stdout, **settings)
    assert len(wanted) > 5
    assert checksums(run.out) == sums(wanted)


@pytest.mark.parametrize("watch", ["never,op1", "op1"])
def test_nothing_is_dumped_when_nothing_is_watched(msmemscope, program, watch):
    run = watched(msmemscope, program, watch, *CHAIN)
    assert not (run.out / "watch_dump").exists()


@pytest.mark.parametrize("watch", ["op0,op1,full-content", "op0,op1，full-content"])
def test_with_full_content_the_bytes_are_files(msmemscope, program, watch):
    run = watched(msmemscope, program, watch, *CHAIN)
    wanted = expected(run.stdout, start="op0", end="op1")
    files = {path.name: path for path in (run.out / "watch_dump").iterdir()}
    assert sorted(files) == sorted(name for name, _, _ in wanted)
    for name, block, added in wanted:
        assert re.fullmatch(r"0_\d+_op\d_\d+-op0_\d+_(before|after)\.bin", name)
        assert files[name].read_bytes() == content(block, added)[0], name
        assert stat.S_IMODE(files[name].stat().st_mode) == 0o600


def test_operators_before_start_need_no_room(msmemscope, program):
    """200 operators that write their outputs run before START and end; nothing was watched, so none of them has to be remembered."""
    run = watched(msmemscope, program, "op0,op1", *["op2=2:2"] * 200, *CHAIN)
    assert checksums(run.out) == sums(expected(run.stdout, start="op0", end="op1"))
    [project] = run.projects()
    assert "operators at a time" not in run.stderr + (project.path / "report.txt").read_text(encoding="utf-8")


def test_a_file_of_another_run_is_not_overwritten(msmemscope, program, out):
    (out / "watch_dump").mkdir()
    run = watched(msmemscope, program, "op0,op1,full-content", "op0=0:0", "op1=:", "op1=:")
    wanted = expected(run.stdout, start="op0", end="op1")
    taken = {path.name for path in (out / "watch_dump").iterdir()}
    assert taken == {name for name, _, _ in wanted}
    # The thread's number is part of the name, so a clash is made by hand: a program that is told another number cannot be had.
    run = msmemscope("--watch=op0,op1,full-content", "--", "sh", "-c",
                     'd=$1; shift; for k in after; do echo mine > "$d/watch_dump/0_$$_op0_1-op0_0_$k.bin"; done; exec "$@"',
                     "sh", out, *program("watch_ops", "op0=0:0", "op1=:")).check()
    tid = json.loads(run.stdout.splitlines()[0])["tid"]
    assert (out / f"watch_dump/0_{tid}_op0_1-op0_0_after.bin").read_text(encoding="utf-8") == "mine\n"
    assert (out / f"watch_dump/0_{tid}_op0_1-op0_0_after.1.bin").read_bytes() == content(0, 1)[0]


def test_slashes_and_long_names_make_file_names(msmemscope, program):
    long = "n" * 300
    run = watched(msmemscope, program, "a/b,z,full-content", "a/b=0:0", f"{long}=:", "z=:")
    names = sorted(path.name for path in (run.out / "watch_dump").iterdir())
    assert all(len(name) <= 255 for name in names)
    assert [name for name in names if "_a.b_1-a.b_0_after.bin" in name]
    cut = [name for name in names if "nnn" in name]
    assert {re.search(r"~[0-9a-f]{16}_(before|after)\.bin$", name)[1] for name in cut} == {"after", "before"}
    for name in cut:
        assert (run.out / "watch_dump" / name).read_bytes() == content(0, 1)[0]


def test_no_file_name_has_what_a_terminal_obeys_or_what_is_no_text(msmemscope, program):
    run = watched(msmemscope, program, "a,z,full-content", "a=0:0", os.fsdecode(b"x\x1b[31m\xff\xe2\x80\xae\xc2\x9b=:"), "z=:")
    names = {os.fsencode(path.name) for path in (run.out / "watch_dump").iterdir()}
    assert {name.split(b"_", 2)[2] for name in names if b"x_" in name} == {
        b"x_[31m_______1-a_0_before.bin", b"x_[31m_______1-a_0_after.bin"}, names
    assert not [path for path in run.out.rglob("*") if b"\x1b" in os.fsencode(path.name)]


def test_in_the_csv_slashes_stay_and_commas_are_quoted(msmemscope, program):
    run = watched(msmemscope, program, "a/b,z", "a/b=0:0", 'x,"y"=:', "z=:")
    tid = json.loads(run.stdout.splitlines()[0])["tid"]
    assert [name for name, _ in checksums(run.out)] == [
        f"0_{tid}_a/b_1-a/b_0_after.bin", f'0_{tid}_x,"y"_1-a/b_0_before.bin', f'0_{tid}_x,"y"_1-a/b_0_after.bin',
        f"0_{tid}_z_1-a/b_0_before.bin", f"0_{tid}_z_1-a/b_0_after.bin"]
    text = next((run.out / "watch_dump").iterdir()).read_text(encoding="utf-8")
    assert f'\n"0_{tid}_x,""y""_1-a/b_0_before.bin",' in text


@pytest.mark.parametrize("device", ["0", "3", "cpu"])
def test_the_csv_has_device_and_time_in_its_name(msmemscope, program, device):
    words = ["--host", *CHAIN] if device == "cpu" else CHAIN
    run = msmemscope("--watch=op0,op1", "--", *program("watch_ops", *words),
                     env={} if device == "cpu" else {"ASCEND_RT_VISIBLE_DEVICES": device}).check()
    (name,) = [path.name for path in (run.out / "watch_dump").iterdir()]
    stamp = re.fullmatch(rf"watch_dump_data_check_sum_{device}_(\d{{14}})\.csv", name)[1]
    assert checksums(run.out, device) == sums(expected(run.stdout, start="op0", end="op1", device=device))
    assert abs(int(stamp) - int(re.search(r"_(\d{14})_", run.project().path.name)[1])) < 100
    config = json.loads((run.project().path / "config.json").read_text(encoding="utf-8"))
    assert config["watchConfig"] == {"end": "op1", "fullContent": False, "isWatched": True, "outputId": 4294967295,
                                     "start": "op0"}


def test_blocks_of_the_api_are_dumped_until_removed_used_up_or_the_end(msmemscope, program):
    words = ["op0=0:0", "watch:0:one:2", "watch:1:other:3", "watch:2:third:-1", "op1=0:0", "op2=1:1", "op1=:", "remove:2",
             "op2=:"]
    for watch, settings in (("", {}), ("op2", {"end": "op2"}), ("op1,op2", {"start": "op1", "end": "op2"})):
        out = msmemscope.out / (watch or "none")
        run = msmemscope(*([f"--watch={watch}"] if watch else []), "-o", out, "--", *program("watch_ops", *words), output=False)
        wanted = sums(expected(run.check().stdout, **settings))
        assert checksums(out) == wanted, watch
        assert len(wanted) > 5


def test_a_block_that_is_given_back_is_no_longer_watched(msmemscope, program):
    run = watched(msmemscope, program, "op0,op4", "op0=01:01", "op1=:", "free:0", "op2=:", "free:1", "op3=:", "op0=2:2", "op1=:")
    assert checksums(run.out) == sums(expected(run.stdout, start="op0", end="op4"))
    assert "Note: watch: the memory of op0 was freed and is no longer watched." in run.stderr, str(run)


def test_a_process_that_is_killed_leaves_whole_files_and_a_csv_that_can_be_recovered(msmemscope, program, out):
    words = ["op0=02:02", *["op1=:"] * 400]
    for watch, count in (("op0,never,full-content", 40), ("op0,never", 0)):
        results = out / str(count)
        started = msmemscope.start(f"--watch={watch}", "-o", results, "--", *program("watch_ops", *words), output=False)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (
                len(list(results.glob("watch_dump/*.bin"))) > 40 if count else list(results.glob("watch_dump/*.csv"))):
            time.sleep(0.005)
        started.kill()
        started.process.wait()
        recovered = msmemscope("recover", results, output=False)
        while re.search("is in use|still runs?", recovered.stderr) and time.monotonic() < deadline:  # until the last of them is gone
            recovered = msmemscope("recover", results, output=False)
        recovered.check()
        stdout = started.process.stdout.read().decode()
        wanted = expected("\n".join(line for line in stdout.splitlines() if line.endswith("}")), start="op0", end="never")
        if count:
            files = list((results / "watch_dump").iterdir())
            assert len(files) >= 40 and not [path for path in files if path.name.startswith(".")]
            assert {path.stat().st_size for path in files} == {4096, (3 << 20) + 17}
        else:
            lines = checksums(results)
            assert lines == sums(wanted)[:len(lines)] and len(lines) >= len(wanted) - 4


def test_a_tensor_inside_a_block_goes_with_the_block(msmemscope, program):
    run = watched(msmemscope, program, "op0,op4", "op0=:6", "op1=:", "free:2", "op2=:")
    lines = [name.partition("_")[2].partition("_")[2] for name, _ in checksums(run.out)]
    assert lines == ["op0_1-op0_0_after.bin", "op1_1-op0_0_before.bin", "op1_1-op0_0_after.bin"]


@pytest.mark.parametrize("level, settings", [
    ("kernel", {"op": False, "kernel": True}), ("1", {"op": False, "kernel": True}),
    ("0,1", {"op": True, "kernel": True}), ("op", {"op": True}), ("0", {"op": True}),
])
def test_the_level_says_whether_operators_or_kernels_dump(msmemscope, program, level, settings):
    run = watched(msmemscope, program, "op0,op2", *CHAIN, options=[f"--level={level}"])
    wanted = expected(run.stdout, start="op0", end="op2", **settings)
    assert checksums(run.out) == sums(wanted)
    assert any("_k_op2_2_1-op0_0_after" in name for name, _, _ in wanted) == ("kernel" in settings)


def test_kernels_dump_their_bytes_too(msmemscope, program):
    run = watched(msmemscope, program, "op0,op2,full-content", *CHAIN, options=["--level=kernel"])
    wanted = expected(run.stdout, start="op0", end="op2", op=False, kernel=True)
    files = {path.name: path for path in (run.out / "watch_dump").iterdir()}
    assert sorted(files) == sorted(name for name, _, _ in wanted)
    for name, block, added in wanted:
        assert files[name].read_bytes() == content(block, added)[0], name


def flat(run):
    """What the screen says, whatever the lines are."""
    return " ".join(run.stderr.split())


def report(run):
    return (run.project().path / "report.txt").read_text(encoding="utf-8")


def first_change(msmemscope, run):
    return msmemscope.info(run.project())["watched"]


def test_the_report_names_the_operator_that_changed_a_block(msmemscope, program):
    run = watched(msmemscope, program, "op0,op4", "op0=01:01", "op1=:", "op3=0:", "op3=0:", "op4=:")
    line = re.search(r"Watched: op0 output 0 on device 0, 4096 bytes, 9 dumps: changed during call 1 of op3, which did not declare to "
                     r"write it: 4096 bytes \(offsets 0 to 4095\), thread \d+; and 1 more time\.", flat(run))
    assert line and line[0] in report(run), str(run)
    assert "Watched: op0 output 1 on device 0, 1000 bytes, 9 dumps: no change." in flat(run)
    change = first_change(msmemscope, run)[0]
    assert (change["changes"], change["first_change"]["during_one_call"], change["first_change"]["to"]["operator"]) == (
        2, True, "op3")


def test_the_report_names_the_two_operators_between_which_a_block_changed(msmemscope, program):
    run = watched(msmemscope, program, "op0,op4", "op0=01:01", "op1=:", "!1", "op2=:", "op4=:")
    line = "changed between the end of call 1 of op1 and the start of call 1 of op2: 1000 bytes (offsets 0 to 999), thread "
    assert f"Watched: op0 output 1 on device 0, 1000 bytes, 7 dumps: {line}" in flat(run), str(run)
    assert "Watched: op0 output 0 on device 0, 4096 bytes, 7 dumps: no change." in flat(run)
    change = first_change(msmemscope, run)[1]["first_change"]
    assert [change[key]["operator"] for key in ("from", "to")] == ["op1", "op2"]
    assert [change[key]["moment"] for key in ("from", "to")] == ["end", "start"]


def test_a_new_watch_of_the_same_operator_is_no_change(msmemscope, program):
    run = watched(msmemscope, program, "op0,op1", "op0=0:0", "op1=:", "op0=0:0", "op1=:")
    assert "Watched: op0 output 0 on device 0, 4096 bytes, 6 dumps: no change." in flat(run), str(run)


def test_memory_that_is_watched_by_its_address_is_its_devices(msmemscope, program):
    """Although this process can read it, and another device was guessed."""
    run = watched(msmemscope, program, "", "found:0:mine:-1", "op1=0:0", "op2=:")
    assert checksums(run.out) == sums(expected(run.stdout))
    assert "Watched: mine output 0 on device 0, 4096 bytes, 4 dumps: no unexpected change; 1 change by" in flat(run), str(run)


def asked(msmemscope, program, watch, *words):
    """What is said of a watch that did not find its operators."""
    out = msmemscope.out / str(len(list(msmemscope.out.iterdir())))
    msmemscope(f"--watch={watch}", "-o", out, "--", *program("watch_ops", *words), output=False).check()
    (path,) = out.glob("*/report.txt")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("Watch: ")]


def test_names_that_never_ran_are_told_with_the_nearest_that_did(msmemscope, program):
    words = ["matmul=0:0", "softmax=1:1", "layer0/norm=:", "gelu=:"]
    start, end = "Watch: no operator named {} ran (START of --watch); ", "Watch: no operator named {} ran (END of --watch); "
    for watch, lines in (
            ("matmull,softmx", [start.format("matmull") + "the nearest that did: matmul.",
                                end.format("softmx") + "the nearest that did: softmax."]),
            ("matmul,soft", [end.format("soft") + "the nearest that did: softmax."]),
            ("norms,gelu", [start.format("norms") + "the nearest that did: layer0/norm."]),
            ("zzzzzzzzzz,gelu", [start.format("zzzzzzzzzz") + "none of those that did is like it, as matmul, softmax, layer0/norm."]),
            ("matmul,gelu", []), ("matmul,matmul", []),
            ("gelu", ["Watch: nothing was watched: --watch=END watches what the program names by watcher.watch()."])):
        assert asked(msmemscope, program, watch, *words) == lines, watch
    assert asked(msmemscope, program, "matmul,gelu") == [start.format("matmul") + "none was seen at all.",
                                                         end.format("gelu") + "none was seen at all."]
    run = watched(msmemscope, program, "matmull,gelu", *words)
    assert "no operator named matmull ran (START of --watch); the nearest that did: matmul." in flat(run), str(run)


def test_an_empty_watch_is_none(msmemscope, program):
    run = msmemscope("--watch=op0,op1", "--watch=", "--", *program("watch_ops", *CHAIN)).check()
    assert not (run.out / "watch_dump").exists() and "Watch" not in run.stderr, str(run)
    config = json.loads((run.project().path / "config.json").read_text(encoding="utf-8"))
    assert config["watchConfig"]["isWatched"] is False


def test_a_kernel_of_nobodys_comes_after_one_that_was_not_handed_the_block(msmemscope, program):
    run = watched(msmemscope, program, "", "watch:1:mine:-1", "op0=:", "!1", "?1", "op1=1:1", options=["--level=kernel"])
    first, second, rest = [line for line in report(run).splitlines() if line.startswith("Watched: ")]
    assert "changed during call 1 of hidden, which did not declare to write it" in first
    assert "changed during call 1 of stray, a kernel that was handed it" in second
    assert "1 change by operators that declare to write it: k_op1_1 (1)" in rest


def test_memory_of_the_host_is_watched_without_a_device(msmemscope, program):
    run = watched(msmemscope, program, "op0,op1", "--host", *CHAIN)
    assert checksums(run.out, "cpu") == sums(expected(run.stdout, start="op0", end="op1", device="cpu"))


def test_when_bytes_cannot_be_kept_checksums_are_and_the_program_goes_on(msmemscope, program):
    run = watched(msmemscope, program, "op0,op1,full-content", "limit:2000", "op0=01:01", "op1=:")
    wanted = expected(run.stdout, start="op0", end="op1")
    fits = {name: content(block, added)[0] for name, block, added in wanted if block == 1}
    assert {path.name: path.read_bytes() for path in (run.out / "watch_dump").glob("*.bin")} == fits
    assert checksums(run.out) == [line for line in sums(wanted) if line[0] not in fits]
    assert run.stderr.count("cannot write the bytes to") == 1 and "File too large" in flat(run), str(run)
    assert not list((run.out / "watch_dump").glob(".*"))


@pytest.mark.parametrize("value", ["op0:outid,op1", "op0:,op1", "full-content"])
def test_a_watch_that_cannot_be_is_answered_with_its_form(msmemscope, program, value):
    run = msmemscope(f"--watch={value}", "--", *program("watch_ops", *CHAIN))
    assert run.returncode == 2 and "[START[:OUTPUT],]END[,full-content]" in run.stderr and run.stdout == "", str(run)


def test_the_older_command_writes_the_same_files_under_its_own_directory(msmemscope, program, dist, out):
    """With its option behind the program, as its manual shows it."""
    (out / "app").write_text('#!/bin/sh\nexec ' + " ".join(program("watch_ops", *CHAIN)) + "\n", encoding="utf-8")
    (out / "app").chmod(0o755)
    run = msmemscope.bare(dist / "bin" / "msleaks", "./app", "--watch=op0,op1", cwd=out).check()
    assert checksums(out / "leaksDumpResults") == sums(expected(run.stdout, start="op0", end="op1"))


def test_the_model_of_the_checksum_has_the_known_values():
    for text, value in ((b"", 0), (b"a", 0x856176de4cff4e76), (b"123456789", 0xb86883e6fa710a9f)):
        assert watch_model.checksum(text) == value
