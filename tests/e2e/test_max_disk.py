# SPDX-License-Identifier: Apache-2.0
"""--max-disk: after the oldest part of a trace was given up, `info` and `export` tell what the run itself told."""
import json
from pathlib import Path

import pytest

ANALYSIS = "--analysis=leaks,decompose,inefficient"


@pytest.fixture
def shrunken(msmemscope, program, out):
    """A run that made more than fits: blocks, kernels and their times, steps, samples of the driver, a leak. Project and info."""
    # The engine gives up chunks while it follows the program, so that has to take a while, and not shortly before its end. Samples of
    # the driver begin some time after the program: a run that has none in its last rows is the second choice.
    second = None
    for steps in (3000, 4500, 6000, 8000, 12000):
        run = msmemscope("--level=op,kernel", "--max-trace=1M", ANALYSIS, "--",
                         *program("acl_train", f"--steps={steps}", "--launches=5", "--threads=2"),
                         output=out / str(steps)).check()
        project = run.project().path
        info = msmemscope.info(run.project())
        if 0 < info["dropped_events"] < info["events"] - 10000:
            second = project, info
            if "process_used:" in [line for line in dumps(project)["device_0"].splitlines() if ",HAL," in line][-1]:
                return second
    assert second is not None, "nothing was dropped"
    return second


def dumps(project):
    """The rows of each device, as they are in its file."""
    return {path.parent.parent.name: path.read_text().split("\n", 1)[1] for path in project.glob("device_*/dump/*.csv")}


def test_info_and_export_of_a_shrunken_trace_tell_what_the_run_told(shrunken, msmemscope):
    project, info = shrunken
    report = (project / "report.txt").read_text()
    assert "Dropped to stay within --max-disk: the oldest " in report
    assert "Detected memory leaks" in report and "by owner" in report
    whole = msmemscope("info", "--all", project, ANALYSIS, output=False).check().stdout
    assert whole.split("Alive at the end: ")[0] == report.split("Alive at the end: ")[0]
    assert info["events"] == sum(info["events_by_type"].values())
    for usage in info["pools"]:
        assert usage["allocations"] - usage["frees"] == usage["live_blocks"], usage

    result = msmemscope("export", project, ANALYSIS, output=False).check()
    written, again = dumps(project), dumps(Path(result.stdout.strip()))
    first = min(int(text.split(",", 1)[0]) for text in again.values() if text)
    assert 0 < first < info["rows"] and "device_0" in again
    # Every row that can still be made, byte for byte: process_used and device_used, owners, times of kernels.
    for device, text in again.items():
        assert text and written[device].endswith("\n" + text), device
        before = written[device][:-len(text)].splitlines()
        assert int(before[-1].split(",", 1)[0]) < first, device
    types = {line.split(",", 3)[2] for line in again["device_0"].splitlines()}
    assert types >= {"HAL", "KERNEL_LAUNCH", "KERNEL_EXECUTE_START", "KERNEL_EXECUTE_END", "Range_start", "Range_end"}

    # What was allocated before cannot be edited.
    answer = msmemscope("advise", project, output=False)
    assert answer.returncode == 1 and "has no advice: its oldest part was dropped to stay within --max-disk\n" in answer.stderr
