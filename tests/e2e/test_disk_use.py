# SPDX-License-Identifier: Apache-2.0
"""What the raw traces of a launch take on the disk while it runs."""
import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

from harness import engine_of


def used_bytes(place):
    return sum(path.stat().st_blocks * 512 for path in Path(place).rglob("*.raw"))


def test_a_process_with_two_events_takes_little_space(traced, tmp_path):
    """Its header, the chunk that it writes and one chunk ahead; the engine has seen every process."""
    place, count, found = tmp_path / "traces", 20, []
    place.mkdir()

    def look(_):
        # One round of the engine after it has found all traces: it reserves in each round.
        deadline = time.monotonic() + 60
        while len(list(place.rglob("*.part"))) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        found.append(used_bytes(place))

    result = traced("sleepers", count, options=["--trace-dir", place], between=look)
    result.exact()
    assert len(result.processes) == count
    assert found[0] > 0
    assert found[0] <= count * (700 << 10), f"{found[0] / count / 1024:.0f} KiB for each of {count} processes"


def test_the_limit_holds_without_the_engine(msmemscope, program, dist, tmp_path):
    """The engine is gone: the writers stop at --max-disk and count what they drop, and the report says so."""
    place, limit = tmp_path / "traces", 4 << 20
    place.mkdir()
    acts = shlex.join(map(str, program("two_acts", 100, 400000)))
    started = msmemscope.start("--max-disk", limit, "--trace-dir", place, "--", "sh", "-c",
                               f"{acts}; du -sB1 $MSMEMSCOPE_SESSION; wait",
                               env={"LD_LIBRARY_PATH": dist / "simnpu" / "lib64"}, stdin=subprocess.PIPE)
    assert started.process.stdout.readline() == b"ready\n", str(started.finish())
    os.kill(engine_of(started.pid), signal.SIGKILL)
    run = started.finish()
    used = int(run.stdout.split()[-2])
    assert used <= limit, run
    assert msmemscope("recover", run.out, output=False).returncode in (0, 3)
    info = msmemscope.info(run.project())
    assert info["losses"]["disk_limit"] > 0
    assert info["events"] + info["losses"]["disk_limit"] >= 2 * 400100 - 400100 // 8
    report = (run.project().path / "report.txt").read_text(encoding="utf-8")
    assert "Recording ended early: the trace reached --max-disk" in report
