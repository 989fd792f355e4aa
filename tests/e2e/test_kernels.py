# SPDX-License-Identifier: Apache-2.0
"""Kernels: each launch is a row with its name, stream and task, through whichever function it was launched, and the device's
own begin and end of it are two more, at the device's time. What the simulated device really ran is in its own log."""
import re
import shutil
import time
from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest

import harness

KERNEL = ["--level=kernel"]
# Between the device's log and our rows lie two conversions of clocks.
CLOCK_SLACK_NS = 5_000_000

# Both ways in which ids are packed, and both layouts of the device's records.
GENERATIONS = {
    "910B": {},
    "910B-expanded": {"SIMNPU_EXPAND_STREAMS": 1},
    "950": {"SIMNPU_SOC": "Ascend950PR_9589"},
    "950-expanded": {"SIMNPU_SOC": "Ascend950PR_9589", "SIMNPU_EXPAND_STREAMS": 1},
}
every_generation = pytest.mark.parametrize("env", GENERATIONS.values(), ids=GENERATIONS.keys())


@dataclass(frozen=True)
class Ran:
    """A line of the device's log; times in nanoseconds since the epoch."""
    device: str
    stream: int
    task: int
    name: str
    begin_ns: int
    end_ns: int

    @property
    def key(self):
        return self.device, self.stream, self.task, self.name


def clock_offset():
    """From monotonic time to the time of day, by the pair of readings that lie closest together."""
    pairs = ((time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(20))
    before, wall, after = min(pairs, key=lambda pair: pair[2] - pair[0])
    return wall - (before + after) // 2


def read_log(path):
    """What the device ran, in the order in which it ended."""
    offset = clock_offset()
    lines = [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]
    return [Ran(device, int(stream), int(task), name, int(begin) + offset, int(end) + offset)
            for device, stream, task, name, begin, end in lines]


def key(row):
    return row.device, row.attr["streamId"], row.attr["taskId"], row.name


def kernel_rows(rows, kind):
    return [row for row in rows if row.event == "KERNEL_LAUNCH" and row.type == kind]


def by_key(things, key_of):
    """Several of a key follow each other in time: a stream's number is used again when it was destroyed."""
    found = defaultdict(list)
    for thing in things:
        found[key_of(thing)].append(thing)
    return found


def check_kernels(rows, ran):
    """Launches, begins and ends are those of the log, each once, and at its times."""
    logged = by_key(sorted(ran, key=lambda line: line.begin_ns), lambda line: line.key)
    kinds = {kind: by_key(kernel_rows(rows, kind), key)
             for kind in ("KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END")}
    assert logged
    for found in kinds.values():
        assert {ident: len(some) for ident, some in found.items()} == {ident: len(some) for ident, some in logged.items()}
    for ident, lines in logged.items():
        for line, launch, begin, end in zip(lines, *(found[ident] for found in kinds.values())):
            assert abs(begin.time_ns - line.begin_ns) < CLOCK_SLACK_NS, (line, begin)
            assert abs(end.time_ns - line.end_ns) < CLOCK_SLACK_NS, (line, end)
            assert begin.time_ns <= end.time_ns, (begin, end)
            assert launch.time_ns < begin.time_ns + CLOCK_SLACK_NS, (launch, begin)
            assert begin.tid == end.tid != launch.tid


@pytest.fixture
def trained(client, tmp_path):
    """trained(arguments...): acl_train at kernel level, with the device's log of each process by its pid."""
    def run(*arguments, options=KERNEL, env=None):
        said = client("acl_train", *arguments, options=options, env={"SIMNPU_LOG": tmp_path / "log.%p", **(env or {})})
        logs = {int(path.suffix[1:]): read_log(path) for path in tmp_path.glob("log.*")}
        return said, logs

    return run


@pytest.mark.qemu
@every_generation
def test_every_launch_and_execution_is_a_row(trained, env):
    """Ten functions launch a kernel, and each launch is one row."""
    said, logs = trained("--launches=5", env=env)
    said.exact()
    [ran] = logs.values()
    check_kernels(said.rows(), ran)
    names = Counter(row.name for row in kernel_rows(said.rows(), "KERNEL_LAUNCH"))
    assert len(names) == 10 and set(names.values()) == {4 * 5}, names


@every_generation
def test_kernels_of_several_threads_and_devices(trained, env):
    said, logs = trained("--threads=6", "--devices=3", env={"ASCEND_RT_VISIBLE_DEVICES": "4,7,1", **env})
    said.exact()
    [ran] = logs.values()
    assert {line.device for line in ran} == {"1", "4", "7"}
    check_kernels(said.rows(), ran)


@pytest.mark.parametrize("env, bits", [(GENERATIONS["910B"], 16), (GENERATIONS["950"], 32)], ids=["910B", "950"])
def test_task_numbers_beyond_16_bits(trained, env, bits):
    """Older devices have room for 16 bits in their records, so the numbers start over; newer ones have room for all."""
    said, logs = trained("--steps=1", "--launches=6700", env=env)
    [ran] = logs.values()
    tasks = [row.attr["taskId"] for row in kernel_rows(said.rows(), "KERNEL_LAUNCH")]
    assert tasks == [line.task % (1 << bits) for line in ran]
    assert max(line.task for line in ran) > 1 << 16
    for kind in ("KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END"):
        found = [(row.attr["taskId"], row.name) for row in kernel_rows(said.rows(), kind)]
        assert found == [(line.task % (1 << bits), line.name) for line in ran]


@every_generation
def test_windows_have_all_that_was_executed_in_them(msmemscope, program, env):
    """Also when numbers of streams and tasks are used again before the device's log was read."""
    for _ in range(5):
        run = msmemscope(*KERNEL, "--", *program("kernel_windows", 5, 20, 0), env=env).check()
        found = Counter(row.type for row in run.project().rows() if row.name == "inside")
        assert found == {"KERNEL_LAUNCH": 100, "KERNEL_EXECUTE_START": 100, "KERNEL_EXECUTE_END": 100}
        shutil.rmtree(run.out)


def test_the_clock_of_a_device_is_paired_again(msmemscope, program):
    run = msmemscope(*KERNEL, "--", *program("kernel_windows", 3, 4, 1100)).check()
    assert msmemscope.info(run.project())["events_by_type"]["device_clock"] >= 3


@pytest.mark.parametrize("level", ["1", "op,kernel", "0,1"])
def test_kernel_rows_are_there_when_the_level_names_them(trained, level):
    said, logs = trained("--steps=1", options=[f"--level={level}"])
    [ran] = logs.values()
    check_kernels(said.rows(), ran)


@pytest.mark.parametrize("options", [[], ["--level=op"], ["--level=0"]], ids=["default", "op", "0"])
def test_operator_level_has_no_kernel_rows_and_counts_launches(trained, options):
    said, _ = trained("--threads=2", options=options)
    said.exact()
    assert not any(row.event == "KERNEL_LAUNCH" for row in said.rows())
    assert said.info()["events_by_type"]["kernel_launch"] == 2 * 4 * 10
    assert said.info()["events_by_type"]["kernel_execute"] == 0


@every_generation
def test_executions_are_complete_without_a_finalise(trained, env):
    """A program that just ends, as most do: what the device logged until then is there."""
    said, logs = trained("--abrupt", "--launches=20", env=env)
    said.exact()
    [ran] = logs.values()
    check_kernels(said.rows(), ran)


def test_executions_go_on_after_a_second_initialisation(trained):
    said, logs = trained("--again", "--threads=2")
    said.exact()
    [ran] = logs.values()
    assert len(ran) == 2 * 2 * 4 * 10
    check_kernels(said.rows(), ran)


def test_memory_changes_from_kernel_to_kernel(trained):
    """What the device holds at each launch can be read off: launches and memory stand in one order, with sums."""
    said, _ = trained("--steps=3")
    used, at_launch = {}, []
    for row in said.rows():
        if row.type == "HAL":
            used[row.device] = row.attr["used"]
        elif row.type == "KERNEL_LAUNCH":
            at_launch.append(used[row.device])
    # A tensor of 1,056 bytes and a large block; the third step leaves its tensor behind, so nothing is left before.
    assert at_launch == [1056 + size for size in (1048608, 2097184, 3145760) for _ in range(10)]


def test_each_process_has_its_own_kernels(trained):
    """Processes that a launcher forks, each with a device that it calls 0."""
    said, logs = trained("--workers=3", "--threads=2")
    said.exact()
    assert len(said.run.projects()) == 4 and len(logs) == 3
    for project in said.run.projects():
        if project.pid in logs:
            check_kernels(said.rows(project), logs[project.pid])
            assert len({line.device for line in logs[project.pid]}) == 1
    assert {line.device for log in logs.values() for line in log} == {"1", "2", "3"}


def test_a_child_forked_after_the_training_has_its_own_kernels(trained):
    said, logs = trained("--late=2", "--steps=2")
    said.exact()
    assert len(said.run.projects()) == 3 and len(logs) == 3
    for project in said.run.projects():
        check_kernels(said.rows(project), logs[project.pid])


@pytest.fixture
def profiled(trained, msmemscope, program):
    """profiled(options): the same training with another profiler in the process, and what it got with us and without."""
    def run(options):
        words = program("acl_train", "--profiler")
        alone = msmemscope.bare(*words, env={"TRUTH": "/dev/null"}).check().stdout
        said, _ = trained("--profiler", options=options)
        numbers = [tuple(map(int, re.fullmatch(r"records (\d+) tracks (\d+)\n", text).groups()))
                   for text in (alone, said.run.stdout)]
        return said, *numbers

    return run


def test_another_profiler_gets_everything_at_operator_level(profiled):
    said, alone, with_us = profiled([])
    assert alone == with_us and alone[1] == 40
    said.exact()


def test_another_profiler_keeps_the_devices_channel(profiled):
    """We come second: launches have rows, executions do not, and the trace says why."""
    said, alone, with_us = profiled(KERNEL)
    assert with_us[0] == alone[0] > 0
    said.exact()
    assert len(kernel_rows(said.rows(), "KERNEL_LAUNCH")) == 40
    assert not kernel_rows(said.rows(), "KERNEL_EXECUTE_START")
    assert any("profiling channel of device 0" in note for note in said.info()["notes"])


def test_without_the_tool_the_program_is_the_same(msmemscope, program, tmp_path):
    """The truth of these tests does not come from us."""
    msmemscope.bare(*program("acl_train", "--threads=2"), env={"TRUTH": tmp_path / "truth"}, timeout=harness.TIMEOUT_S).check()


def test_kernels_of_very_many_names_have_their_rows(msmemscope, program):
    """One for each shape that a compiler saw: beyond 8,192 names launches had no rows, and nothing said so."""
    count = 12000
    run = msmemscope(*KERNEL, "--events=launch", "--", *program("many_kernels", count)).check()
    names = Counter(row.name for row in run.rows() if (row.event, row.type) == ("KERNEL_LAUNCH", "KERNEL_LAUNCH"))
    assert names == Counter({f"te_matmul_of_shape_{i}": 2 for i in range(count)})
