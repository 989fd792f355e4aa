# SPDX-License-Identifier: Apache-2.0
"""The rows are exactly what the program did: none missing, none doubled, each FREE with the size and the allocation_id of
its own MALLOC, whatever the program does with threads, processes and its own end."""
import re
import stat

import pytest

# Debug builds and emulators are slow; what matters is that threads meet, not how often.
EVENTS = 2000
WITH_STACKS = ["--call-stack=c:20"]


@pytest.mark.qemu
@pytest.mark.parametrize("threads", [1, 4, 64])
def test_every_event_of_every_thread_is_a_row(traced, threads):
    traced("threads", threads, EVENTS).exact()


@pytest.mark.parametrize("threads", [1, 4, 64])
def test_stacks_change_nothing_about_the_rows(traced, threads):
    result = traced("threads", threads, EVENTS // 4, options=WITH_STACKS).exact()
    for row in result.run.rows():
        assert "/threads(truth_" in row.c_stack[0], row.c_stack


@pytest.mark.parametrize("threads", [1, 4, 64])
def test_three_more_copies_of_the_collector_double_nothing(traced, copies, threads):
    result = traced("threads", threads, EVENTS, env={"LD_PRELOAD": ":".join(map(str, copies))}).exact()
    assert any("3 more copies" in note for note in result.info(result.run.project())["notes"])


def test_all_names_of_the_collector_preloaded_double_nothing(traced, dist):
    names = sorted(path for path in (dist / "lib64").glob("*.so") if path.is_symlink())
    assert len(names) >= 5, names
    traced("threads", 4, EVENTS, env={"LD_PRELOAD": ":".join(map(str, names))}).exact()


def test_copies_also_keep_quiet_in_children(traced, copies):
    traced("fork_kinds", "fork", "_Fork", "clone", "vfork", "spawn", "nested", driver="bare",
           env={"LD_PRELOAD": ":".join(map(str, copies))}).exact()


def test_the_driver_without_create_inner_gives_the_same_rows(traced):
    traced("threads", 4, EVENTS, driver="old").exact()


def test_a_driver_with_public_names_only_gives_the_same_rows(traced):
    traced("many_devices", 8, driver="bare").exact()


def test_each_device_has_its_own_file_and_its_own_sum(traced):
    result = traced("many_devices", 8).exact()
    directories = {path.name for path in result.run.project().path.glob("device_*")}
    assert directories == {"device_cpu", *(f"device_{number}" for number in range(8))}


@pytest.mark.parametrize("driver, kinds", [
    ("simulated", "fork vfork spawn nested idle thread fork fork fork"),
    ("bare", "fork _Fork clone vfork spawn nested idle thread clone _Fork clone _Fork"),
])
def test_each_child_has_its_own_rows_and_none_of_its_parent(traced, driver, kinds):
    result = traced("fork_kinds", *kinds.split(), driver=driver).exact()
    made = [kind for kind in kinds.split() if kind != "idle"]
    assert len(result.run.projects()) == 1 + len(made) + made.count("nested")


def test_a_child_knows_its_parents_run(traced):
    result = traced("fork_kinds", "fork", "nested", "_Fork", "clone", driver="bare").exact()
    infos = [result.info(project) for project in result.run.projects()]
    runs = {info["run"] for info in infos}
    assert len(runs) == len(infos), "a run id was used twice"
    roots = [info for info in infos if info["parent_run"] not in runs]
    assert len(roots) == 1
    children = [info for info in infos if info["parent_run"] == roots[0]["run"]]
    assert len(children) == 4
    assert len(infos) == 6, "the grandchild"


def test_each_image_of_a_pid_has_its_own_project(traced):
    result = traced("exec_self").exact()
    assert len(result.run.projects()) == 7
    assert len({project.pid for project in result.run.projects()}) == 1


@pytest.mark.parametrize("how, status", [
    ("return", 7), ("exit", 7), ("quick_exit", 7), ("_exit", 7), ("thread", 7), ("atexit", 7), ("pthread_exit", 0),
    ("abort", -6), ("kill", -9), ("segv", -11),
])
def test_rows_are_complete_however_the_program_ends(traced, msmemscope, how, status):
    result = traced("ends_by", how).exact(status)
    closed = result.info(result.run.project())["closed"]
    if how in ("return", "exit", "atexit", "pthread_exit"):
        assert closed
    killed = {"kill": "SIGKILL", "abort": "SIGABRT", "segv": "SIGSEGV"}.get(how)
    document = result.info(result.run.project())
    assert document.get("killed_by") == killed
    if killed:
        assert not closed
        # The screen, the report and info say by what.
        path = result.run.project().path
        assert f", killed by {killed}\n" in result.run.stderr
        for text in ((path / "report.txt").read_text(), msmemscope.bare(msmemscope.path, "info", path).check().stdout):
            assert re.search(rf"^  process +was killed by {killed}$", text, re.MULTILINE), text


def test_one_address_passed_between_threads_stays_in_order(traced):
    traced("handoff", 8, 20000, driver="bare", env={"BARE_SLOTS": 1}).exact()


def test_a_refused_free_has_no_row_and_its_code_is_the_drivers(traced, msmemscope, program):
    alone = msmemscope.bare(*program("free_fails")).check()
    result = traced("free_fails", options=["--quiet"]).exact()
    assert codes(result.run.stderr) == codes(alone.stderr)
    assert len(codes(alone.stderr)) == 64


def test_a_block_that_two_threads_free_ends_with_the_free_that_worked(traced):
    result = traced("free_race", 200, driver="bare").exact()
    assert result.info(result.run.project())["live_blocks"] == []


def test_a_refused_allocation_has_no_row_and_its_code_is_the_drivers(traced, msmemscope, program):
    env = {"SIMNPU_HBM": "256M"}
    alone = msmemscope.bare(*program("oom"), env=env).check()
    result = traced("oom", env=env, options=["--quiet"]).exact()
    assert codes(result.run.stderr) == codes(alone.stderr)
    assert codes(alone.stderr).count("6 6 6") == 40


def codes(stderr):
    """The lines of return codes, without whatever the tool says."""
    return [line for line in stderr.splitlines() if line.replace(" ", "").isdigit()]


def test_the_programs_output_is_its_own(msmemscope, program):
    alone = msmemscope.bare(*program("plain", 3))
    traced_run = msmemscope("--", *program("plain", 3))
    assert (traced_run.stdout, traced_run.returncode) == (alone.stdout, alone.returncode) == ("plain stdout\n", 3)
    assert alone.stderr in traced_run.stderr


def test_a_program_that_takes_no_memory_leaves_no_project(msmemscope, program, out):
    msmemscope("--", *program("plain")).check()
    assert [path for path in out.iterdir()] == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_the_results(traced, umask):
    result = traced("many_devices", 2, umask=umask).exact()
    for path in result.run.project().path.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = 0o750 if path.is_dir() else 0o600
        assert mode == wanted & ~umask, f"{path} {mode:o}"
    assert stat.S_IMODE(result.run.project().path.stat().st_mode) == 0o750 & ~umask
