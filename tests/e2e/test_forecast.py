# SPDX-License-Identifier: Apache-2.0
"""A device that fills is announced while the program runs: once, in time, and with a step near the truth that the program prints."""
import concurrent.futures
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

from scripts import PYTHON, python_path

SEEDS = (1, 6, 16, 20)
FILLS = Path(__file__).resolve().parents[1] / "targets" / "python" / "runs_out.py"
SIDE_BY_SIDE = 6
SAID = re.compile(r"process \d+: NPU 0 will be full at step ([\d,]+)(?: to ([\d,]+))?")

# Marks its steps, and keeps memory of the driver: 100 MiB before the first.
KEEPS = """
import ctypes, time
acl = ctypes.CDLL("libascendcl.so")
mstx = ctypes.CDLL("libms_tools_ext.so")
mstx.mstxRangeStartA.restype = ctypes.c_uint64
mstx.mstxRangeEnd.argtypes = [ctypes.c_uint64]
acl.aclInit(None), acl.aclrtSetDevice(0)
def keep(size):
    block = ctypes.c_void_p()
    assert acl.aclrtMalloc(ctypes.byref(block), ctypes.c_size_t(size), 0) == 0
keep(100 << 20)
"""


def surroundings(seed, out):
    """Each program has a machine of its own: others on the device would count."""
    share = out / "share"
    share.mkdir(parents=True, exist_ok=True)
    return {"SIMNPU_HBM": f"{(512, 768, 1024, 1536, 4096)[seed * 7 // 6 % 5]}M", "SIMNPU_SHARE": str(share)}


def said_by(run):
    return [tuple(int(number.replace(",", "")) for number in found if number) for found in SAID.findall(" ".join(run.stderr.split()))]


def test_a_device_that_fills_is_announced_once_and_in_time(msmemscope, program, out):
    """Programs that sleep run side by side."""
    started = [msmemscope.start("--", *program("oom_causes", "filling", seed), env=surroundings(seed, out / str(seed)),
                                output=out / str(seed) / "o") for seed in SEEDS]
    for seed, one in zip(SEEDS, started):
        run = one.finish()
        full = run.value("filled_steps") + 1
        [said] = said_by(run)
        assert said[0] * 0.6 <= full <= said[-1] * 1.4, (seed, said, full)
        [told, *_] = msmemscope.info(run.project())["forecasts"] or [None]
        if told is not None:
            assert told["full_step_low"] <= told["full_step"] <= told["full_step_high"] and "will be full at step" in told["sentence"]


def test_a_command_runs_when_a_device_will_be_full(msmemscope, program, out):
    run = msmemscope("--on-forecast=echo \"$MSMEMSCOPE_FORECAST_DEVICE $MSMEMSCOPE_FORECAST_STEP $MSMEMSCOPE_FORECAST_TEXT\" >%s" % (out / "called"),
                     "--call-stack=c", "--", *program("oom_causes", "filling", 6), env=surroundings(6, out), output=out / "o")
    device, step, *text = (out / "called").read_text().split()
    [said] = said_by(run)
    assert device == "0" and said[0] <= int(step) <= said[-1] and " ".join(text).startswith("NPU 0 will be full at step")
    assert re.search(r" per step, most of it at \w+ \(oom_causes\)", " ".join(text)), text


def test_who_does_not_grow_hears_nothing(msmemscope, program, out):
    run = msmemscope("--on-forecast=touch %s" % (out / "called"), "--fail-on=oom-in:500steps", "--",
                     *program("leaky_steps", "--steps=30", "--no-leaks"), output=out / "o").check()
    assert said_by(run) == [] and not (out / "called").exists() and msmemscope.info(run.project())["forecasts"] == []


def test_a_condition_on_the_steps_that_are_left(msmemscope, out):
    """1 MiB of 512 is kept with each of 20 steps, 100 MiB before them. They take 2 MiB and 102 of the device: some 185 steps are left."""
    script = out / "keeps.py"
    script.write_text(KEEPS + """
for step in range(20):
    step = mstx.mstxRangeStartA(b"step start", None)
    keep(1 << 20)
    time.sleep(0.02)
    mstx.mstxRangeEnd(step)
""")
    env = {**surroundings(0, out), "SIMNPU_HBM": "512M"}
    for steps, status in ((500, 4), (100, 0)):
        run = msmemscope(f"--fail-on=oom-in:{steps}steps", "--", sys.executable, str(script), env=env, output=out / str(steps))
        assert run.returncode == status, str(run)
    [told] = msmemscope.info(run.project())["forecasts"]
    assert told["full_step_low"] <= 20 + 185 <= told["full_step_high"] and told["total_bytes"] == 512 << 20


def test_pages_that_blocks_do_not_fill_count(msmemscope, out):
    """aclrtMalloc makes 2 MiB and 32 bytes of 2 MiB, which take 4 MiB of the device: 512 MiB are full after 102 such steps, not after 205."""
    script = out / "pages.py"
    script.write_text(KEEPS + """
for step in range(20):
    step = mstx.mstxRangeStartA(b"step start", None)
    keep(2 << 20)
    time.sleep(0.02)
    mstx.mstxRangeEnd(step)
""")
    run = msmemscope("--", sys.executable, str(script), env={**surroundings(0, out), "SIMNPU_HBM": "512M"}, output=out / "o").check()
    [told] = msmemscope.info(run.project())["forecasts"]
    assert abs(told["full_step"] - 102) <= 2 and round(told["bytes_per_step"] / (1 << 20), 1) == 2.0, told


def test_a_rate_that_rises_with_the_steps(msmemscope, out):
    """Step n keeps n times 64 KiB: with what pages lose, 512 MiB, 100 of which are taken before, are full in step 102. Half of the way the rate is
    half of the later mean."""
    script = out / "rises.py"
    script.write_text(KEEPS + """
for step in range(1, 58):
    mark = mstx.mstxRangeStartA(b"step start", None)
    keep(step << 16)
    time.sleep(0.01)
    mstx.mstxRangeEnd(mark)
""")
    run = msmemscope("--", sys.executable, str(script), env={**surroundings(0, out), "SIMNPU_HBM": "512M"}, output=out / "o").check()
    [told] = msmemscope.info(run.project())["forecasts"]
    assert abs(told["full_step"] - 102) <= 10 and told["full_step_low"] <= 102 <= told["full_step_high"], told


def test_a_run_that_ended_out_of_memory_has_no_forecast(msmemscope, out):
    """6 MiB of 256 are kept with each step, beside 100 MiB, and 20 MiB while a step runs. An exception leaves step 17, which ends it: its rate does not count."""
    script = out / "runs_out.py"
    script.write_text(KEEPS + """
def step():
    mark, used = mstx.mstxRangeStartA(b"step start", None), ctypes.c_void_p()
    try:
        assert acl.aclrtMalloc(ctypes.byref(used), ctypes.c_size_t(20 << 20), 0) == 0
        keep(6 << 20)
        acl.aclrtFree(used)
        time.sleep(0.01)
    finally:
        mstx.mstxRangeEnd(mark)
try:
    for _ in range(60):
        step()
except AssertionError:
    pass
""")
    run = msmemscope("--call-stack=python", "--fail-on=oom-in:5steps", "--", sys.executable, str(script),
                     env={**surroundings(0, out), "SIMNPU_HBM": "256M"}, output=out / "o")
    assert run.returncode == 4 and "--fail-on: memory ran out in" in run.stderr, run
    found = msmemscope.info(run.project())
    report = (run.project().path / "report.txt").read_text()
    assert found["forecasts"] == [] and "full in" not in report, report
    [leak] = [place for place in found["places"] if place["verdict"] == "leak"]
    assert round(leak["bytes_per_step"] / (1 << 20), 1) == 6.0
    assert "keeps 6.0 MiB more with every step" in " ".join(run.stderr.split()) and "LEAK on NPU 0: about +6.0 MiB per step" in run.stderr, run
    assert "its fastest call site by 6.0 MiB per step" in report and "The leaks account for 100 % of it." in report, report


def told_by(msmemscope, dist, seed, out):
    """The step that memory ran out in, the one in progress when that was announced (0: never), and the forecast when half of the way was gone."""
    out.mkdir(parents=True)
    steps, told = out / "step", out / "told"
    env = {**surroundings(seed, out), "SIMNPU_HBM": f"{random.Random(seed).choice((512, 768, 1024, 2048, 4096))}M",
           "TRUTH": "/dev/null", "STEP": str(steps), "PYTHONPATH": python_path(dist)}
    full = json.loads(msmemscope.bare(PYTHON, FILLS, "fills", seed, "fast", env=env).check().stdout)["full"]
    started = msmemscope.start(f"--on-forecast=cp {steps} {told}", "--", PYTHON, FILLS, "fills", seed, env=env, output=out / "o")
    while started.process.poll() is None and (not steps.exists() or int(steps.read_text()) < full // 2):
        time.sleep(0.02)
    [process] = json.loads(msmemscope("top", out / "o", "--once", "--json", output=False).check().stdout)["processes"]
    assert json.loads(started.finish().check().stdout)["full"] == full
    return full, int(told.read_text()) if told.exists() else 0, process["forecasts"]


def test_random_programs_are_told_in_time_and_the_step_is_near(msmemscope, dist, out, fillings):
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as side_by_side:
        found = dict(zip(range(100, 100 + fillings), side_by_side.map(lambda seed: told_by(msmemscope, dist, seed, out / str(seed)), range(100, 100 + fillings))))
    late, far, outside = [], [], []
    for seed, (full, told, forecasts) in found.items():
        assert full >= 30 and not 0 < told < 10, (seed, full, told)
        late += [seed] * (told == 0 or told + 5 > full)
        far += [seed] * (len(forecasts) != 1 or abs(forecasts[0]["full_step"] - full) * 10 > full)
        outside += [seed] * (len(forecasts) != 1 or not forecasts[0]["full_step_low"] <= full <= forecasts[0]["full_step_high"] + 1)
    print(f"{fillings} programs; not told 5 steps ahead: {late}; more than 10 % off at half of the way: {far}; outside the range: {outside}")
    assert len(late) * 20 <= fillings and len(far) * 10 <= fillings and len(outside) * 10 <= fillings, found
