# SPDX-License-Identifier: Apache-2.0
"""CUDA's driver, recorded through CUPTI. The driver here is the stand-in of tests/fakes; the programs find it in the ways that real
ones do, and tell what they did. tests/gpu has the same programs on a GPU."""
import os
import re
import shutil
import signal

import pytest

from cuda import SCRIPT
from driver_truth import seen, truth
from fixtures import ROOT
from kernel_truth import compare_graph, compare_times, executions
from kernel_truth import launches as kernel_launches

NOT_RECORDED = "calls of the CUDA driver are not recorded"


def launches(run):
    return [row for row in run.rows() if row.type == "KERNEL_LAUNCH"]


@pytest.mark.parametrize("way", ["proc", "ptsz", "dlsym", "linked"])
def test_rows_are_what_the_program_did(cuda, way):
    name = "cuda_linked" if way == "linked" else "cuda_random"
    run = cuda(name, 7, 3, 300, env={"WAY": way, "FAKE_CUDA_DEVICES": "3"})
    assert seen(run.rows()) == truth(run.out)
    # Stacks begin where the program calls the driver.
    for row in run.rows():
        if row.event == "MALLOC":
            assert f"/{name}(" in row.c_stack[0] and any("work" in frame for frame in row.c_stack), row.c_stack


def test_many_threads_and_devices(cuda, out, gpus):
    for seed in range(gpus):
        env = {"FAKE_CUDA_DEVICES": str(seed % 4 + 1), "WAY": ["proc", "ptsz", "dlsym"][seed % 3]}
        run = cuda("cuda_random", seed + 100, seed % 9 + 1, 50 + seed * 37 % 400, env=env, options=())
        assert seen(run.rows()) == truth(run.out), (seed, run)
        for project in run.projects():
            shutil.rmtree(project.path)
        (out / "truth").unlink()


@pytest.mark.parametrize("visible", ["2,0", "3", "1,2,nonsense,0"])
def test_devices_have_the_numbers_of_the_machine(cuda, visible):
    run = cuda("cuda_random", 11, 2, 150, env={"FAKE_CUDA_DEVICES": "4", "CUDA_VISIBLE_DEVICES": visible})
    assert seen(run.rows()) == truth(run.out)
    expected = {int(number) for number in visible.split(",nonsense")[0].split(",")}
    assert {event[3] for events in seen(run.rows()).values() for event in events if event[0] == "MALLOC" and event[3] >= 0} == expected


def test_memory_of_a_context_ends_with_it(cuda):
    run = cuda("cuda_steps", "contexts")
    [(thread, expected)] = truth(run.out).items()
    found = seen(run.rows())[thread]
    # A context gives back in no order that a program could know.
    assert sorted(found) == sorted(expected)
    assert [event for event in found if event[0] == "MALLOC"] == [event for event in expected if event[0] == "MALLOC"]
    [held] = [place for place in run.project().rows() if place.event == "MALLOC" and place.attr["size"] == 7 << 20]
    assert held.device == "1"


@pytest.mark.parametrize("visible", ["0,1", "1,0", "2,1"])
def test_memory_that_two_devices_have_mapped_is_one_block_of_the_device_that_has_it(cuda, visible):
    """Whichever device the thread is on, and until the last mapping goes."""
    run = cuda("cuda_steps", "peer", env={"FAKE_CUDA_DEVICES": "3", "CUDA_VISIBLE_DEVICES": visible})
    assert seen(run.rows()) == truth(run.out)
    taken = [(row.attr["size"], row.device) for row in run.rows() if row.event == "MALLOC"]
    assert taken == [(4 << 20, visible[0]), (1 << 20, visible[2])]


def test_what_is_freed_as_device_memory_and_is_not(cuda):
    run = cuda("cuda_steps", "others")
    assert seen(run.rows()) == truth(run.out)
    assert "unknown addresses" not in run.project().path.joinpath("report.txt").read_text()


def test_a_child_has_its_own_rows(cuda):
    run = cuda("cuda_steps", "fork")
    assert len(run.projects()) == 2
    assert seen(run.rows()) == truth(run.out)


def test_a_program_that_only_asks_for_gpus_leaves_nothing(cuda):
    assert cuda("cuda_steps", "init").projects() == []


def test_a_kill_loses_nothing(msmemscope, program, cuda_env):
    started = msmemscope.start("--", *program("cuda_random", 5, 4, 200, "keep"), env=cuda_env)
    assert started.process.stdout.readline() == b"ready\n"
    pids = {pid for pid, _ in truth(started.out)}
    os.kill(pids.pop(), signal.SIGKILL)
    run = started.finish()
    assert run.returncode == -signal.SIGKILL, run
    assert seen(run.rows()) == truth(run.out)


def test_launches_are_recorded_when_asked_for(cuda):
    run = cuda("cuda_steps", "launches", options=("--level=kernel",))
    names = [row.name for row in launches(run)]
    assert names == ["plain_kernel"] * 5 + ["shape::kernel::fill"] * 4 + ["plain_kernel"] * 3
    assert {row.device for row in launches(run)} == {"0"}
    assert seen(run.rows()) == truth(run.out)


def test_launches_cost_nothing_otherwise(cuda):
    run = cuda("cuda_steps", "launches", options=())
    assert launches(run) == []


# ---- when kernels ran ----

# The stand-in says when a kernel ran; only our own clock can be off.
SLACK_NS = 1000


@pytest.mark.parametrize("threads, count, rate", [(1, 40, 1), (5, 60, 1), (3, 1500, 1), (3, 300, 3)])
def test_every_launch_ran_once(cuda, threads, count, rate):
    """Also more than a buffer has room for, and by a clock that another tool gave to CUPTI."""
    run = cuda("cuda_kernels", "times", threads + count, threads, count, options=("--level=kernel",), env={"FAKE_CUPTI_RATE": rate})
    said = compare_times(run.out, run.rows(), SLACK_NS * (1 if rate == 1 else 100))
    assert said.startswith(f"{threads * count} kernels")


def test_kernels_of_graphs_have_their_own_names(cuda):
    run = cuda("cuda_kernels", "graph", 7, 9, options=("--level=kernel",))
    assert compare_graph(run.out, run.rows(), run.value("nodes"), SLACK_NS)


def test_no_kernel_is_told_twice_by_windows(scripts, cuda_env, out):
    """What ran outside of windows has no rows."""
    run = scripts.preloaded(SCRIPT.replace('call_stack="python"', 'call_stack="python", level="kernel"') + """
gpu = Gpu()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
assert gpu.driver.cuModuleLoadData(ctypes.byref(module), b".entry work(") == 0
assert gpu.driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"work") == 0

def launch(count):
    for _ in range(count):
        assert gpu.driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
    assert gpu.driver.cuCtxSynchronize() == 0

launch(3)
for count in (5, 7):
    msmemscope.start()
    launch(count)
    msmemscope.stop()
    launch(2)
""", env={**cuda_env, "TRUTH": out / "truth"}).check()
    assert len(kernel_launches(run.rows())) == 12
    assert sorted(ran[2] for ran in executions(run.rows())) == sorted(row.attr["taskId"] for row in kernel_launches(run.rows()))


def test_a_kill_loses_times_and_says_so(msmemscope, program, cuda_env):
    started = msmemscope.start("--level=kernel", "--", *program("cuda_kernels", "times", 5, 2, 700, "kill"), env=cuda_env)
    os.kill(int(started.process.stdout.readline().split()[1]), signal.SIGKILL)
    run = started.finish()
    assert run.returncode == -signal.SIGKILL, run
    missing = 1400 - len(executions(run.rows()))
    assert len(kernel_launches(run.rows())) == 1400 and 0 < missing < 1400
    [told] = re.findall(r"Not recorded: when up to (\d+) kernels ran, because the process was killed", " ".join(run.stderr.split()))
    # A kernel may be told of before its launch.
    assert missing <= int(told) <= missing + 2


@pytest.mark.parametrize("order", ["register", "enable"])
def test_another_tool_has_its_activity_records(msmemscope, program, cuda, cuda_env, order):
    alone = msmemscope.bare(*program("cuda_kernels", "profiler", order), env=cuda_env).check()
    run = cuda("cuda_kernels", "profiler", order, options=("--level=kernel",))
    for key in ("registered", "enabled", "got", "strange"):
        assert run.value(key) == alone.value(key), run
    assert run.value("got") == 10
    assert len(kernel_launches(run.rows())) == 20 and len(executions(run.rows())) == 10
    assert "another tool took CUPTI's records of kernels" in " ".join(run.stderr.split())


def test_memory_that_is_refused(cuda):
    run = cuda("cuda_steps", "refused", options=("--analysis=oom",))
    assert seen(run.rows()) == truth(run.out)
    assert len(run.value("refused")) == 2


# ---- other tools ----

@pytest.mark.parametrize("what", ["profiler", "profiler2"])
def test_another_subscriber_has_all_its_events(msmemscope, program, cuda, cuda_env, what):
    alone = msmemscope.bare(*program("cuda_tools", what), env=cuda_env).check()
    (msmemscope.out / "truth").unlink()
    run = cuda("cuda_tools", what)
    for key in ("subscribed", "told"):
        assert run.value(key) == alone.value(key), run
    assert run.value("told") == 20
    # The first ten are ours, and none of them is called a leak: nobody saw how they ended.
    [found], [expected] = seen(run.rows()).values(), truth(run.out).values()
    assert found == expected[:10]
    assert "another tool took CUPTI" in run.stderr


def test_a_busy_cupti_is_left_alone(cuda):
    run = cuda("cuda_random", 3, 1, 50, env={"FAKE_CUPTI_BUSY": "1"})
    assert not seen(run.rows())
    assert f"{NOT_RECORDED}: another tool uses CUPTI" in run.stderr


def test_without_cupti_the_program_runs_as_before(cuda, targets, out, cuda_env):
    alone = out / "driver-alone"
    alone.mkdir()
    (alone / "libcuda.so.1").symlink_to(targets.parent / "fakes" / "libcuda.so.1")
    run = cuda("cuda_random", 3, 1, 50, env={"LD_LIBRARY_PATH": str(alone), "CUPTI_LIBRARY": str(out / "none.so")})
    assert not seen(run.rows())
    assert NOT_RECORDED in run.stderr


def test_calls_that_cupti_numbers_differently_are_left_out(cuda):
    run = cuda("cuda_random", 3, 1, 50, env={"FAKE_CUPTI_SHIFTED": "1"})
    assert not seen(run.rows())
    assert "numbers" in run.stderr and "differently" in run.stderr


def test_another_tools_injection_is_kept_and_told(msmemscope, program, cuda_env, cuda, out):
    other = str(out / "libother.so")
    run = cuda("cuda_random", 3, 1, 50, env={"CUDA_INJECTION64_PATH": other, "NVTX_INJECTION64_PATH": other})
    assert not seen(run.rows())
    assert f"calls of the CUDA driver are not recorded: CUDA_INJECTION64_PATH={other} is kept" in run.stderr
    assert f"NVTX_INJECTION64_PATH={other} is kept" in run.stderr
    said = msmemscope("--", "/usr/bin/env", env={**cuda_env, "CUDA_INJECTION64_PATH": other}).check()
    assert f"CUDA_INJECTION64_PATH={other}" in said.stdout.splitlines()


# ---- NVTX ----

MARKED = """
Mark mark a|Mark mark w|Mark mark ex|Mark mark \u00e9|Range_start first|Range_start second|end first|end second
Range_start mark ex|end mark ex|Range_start outer|Range_start in a domain|Range_start inner|end in a domain|end inner
Range_start mark ex|end mark ex|end outer|Mark registered|Range_start in a domain|end in a domain
""" + "Range_start step start|end step start\n" * 6


def marked(run):
    """What marks and ranges say, the ends of ranges by what their beginnings said."""
    said, begun = [], []
    for row in sorted(run.rows(), key=lambda row: row.id):
        if row.event != "MSTX":
            continue
        if row.type == "Range_start":
            begun.append(row.name)
        if row.type == "Range_end":
            said.append(f"end {begun[int(row.name.split()[-1]) - 1]}")
        else:
            said.append(f"{row.type} {row.name}")
    return said


def test_nvtx_marks_and_ranges_are_rows(cuda):
    run = cuda("cuda_tools", "nvtx", options=())
    assert run.value("nvtx") is True
    assert marked(run) == [word for line in MARKED.strip().splitlines() for word in line.split("|")]
    assert seen(run.rows()) == truth(run.out)


def test_nvtx_without_the_tool_is_silent(msmemscope, program, cuda_env, dist):
    path = dist / "lib64" / "libascend_kernel_hook.so"
    run = msmemscope.bare(*program("cuda_tools", "nvtx"), env={**cuda_env, "NVTX_INJECTION64_PATH": path}).check()
    assert run.value("nvtx") is False


def test_a_leak_outside_of_pools_has_its_line(cuda):
    run = cuda("cuda_tools", "leak")
    assert seen(run.rows()) == truth(run.out)
    [line] = [number for number, text in enumerate((ROOT / "tests/targets/cuda_tools.c").read_text().splitlines(), 1)
              if "return take(3 * MIB)" in text]
    told = run.stderr.split("PEAK of")[0]
    assert f"leaky_workspace (cuda_tools.c:{line})" in told or f"cuda_tools.c:{line}" in told, run.stderr
    assert "steady_buffer" not in told


# ---- from Python ----

@pytest.mark.parametrize("way", ["preloaded", "alone"])
def test_start_before_cuda_is_used(scripts, cuda_env, out, way):
    run = getattr(scripts, way)(SCRIPT + """
msmemscope.start()
gpu = Gpu()
kept = [gpu.take(size << 20) for size in (1, 2, 3)]
gpu.give(kept[1])
msmemscope.stop()
gpu.tell()
""", env={**cuda_env, "TRUTH": out / "truth"}).check()
    assert seen(run.rows()) == truth(out)
    assert all("script.py" in row.python_stack[0] for row in run.rows() if row.event == "MALLOC")


@pytest.mark.parametrize("way", ["preloaded", "alone"])
def test_start_after_cuda_is_used(scripts, cuda_env, out, way):
    run = getattr(scripts, way)(SCRIPT + """
gpu = Gpu()
gpu.noted = False
old = gpu.take(5 << 20)
msmemscope.start()
gpu.give(old)
gpu.noted = True
kept = [gpu.take(size << 20) for size in (1, 2, 3)]
gpu.give(kept[0])
msmemscope.stop()
gpu.tell()
""", env={**cuda_env, "TRUTH": out / "truth"}).check()
    assert seen(run.rows()) == truth(out)
    assert "unknown addresses" not in run.project().path.joinpath("report.txt").read_text()


def test_start_keeps_another_tools_injection(scripts, cuda_env, out):
    run = scripts.preloaded(SCRIPT + """
msmemscope.start()
assert os.environ["CUDA_INJECTION64_PATH"] == "/other.so"
gpu = Gpu()
gpu.take(1 << 20)
msmemscope.stop()
""", env={**cuda_env, "TRUTH": out / "truth", "CUDA_INJECTION64_PATH": "/other.so"}).check()
    assert not seen(run.rows())
    assert "CUDA_INJECTION64_PATH=/other.so is kept" in run.stderr
