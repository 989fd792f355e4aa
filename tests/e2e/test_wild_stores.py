# SPDX-License-Identifier: Apache-2.0
"""A program that damages its own trace: the engine goes on, says so in a sentence, and keeps what it has read."""
import json
import re
import subprocess
import time

import pytest

# Blocks of 1, 2, 3... bytes that tests/targets/wild_stores.c allocates before it damages anything.
BLOCKS = 500


def wait_for_rows(out, count):
    """Until the engine has written so many rows."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = sum(path.read_bytes().count(b"\n") for path in out.glob("msmemscope_*/device_*/dump/*.csv"))
        if lines > count:
            return
        time.sleep(0.01)
    pytest.fail(f"no {count} rows in {out}")


def damage(msmemscope, program, *arguments):
    """Runs the target; the engine has read the blocks when the damage begins."""
    started = msmemscope.start("--", *program("wild_stores", *arguments), stdin=subprocess.PIPE)
    wait_for_rows(msmemscope.out, BLOCKS)
    started.process.stdin.write(b"!")
    started.process.stdin.flush()
    return started.finish()


def check_what_is_kept(msmemscope, run):
    assert run.returncode == 7, run
    assert len(re.findall(r"^.*Damaged: the program .*its trace", run.stderr, re.M)) == 1, run
    project = run.project()
    sizes = [row.attr["size"] for row in project.rows() if row.event == "MALLOC"]
    assert sizes[:BLOCKS] == list(range(1, BLOCKS + 1))
    info = msmemscope("info", project.path, "--json", output=False)
    assert info.returncode == 3, info
    [report] = json.loads(info.stdout)["processes"]
    assert report["damaged"]
    assert all(count < 100_000_000 for count in report["losses"].values()), report["losses"]
    assert not re.search(r"\d{16,}", run.stderr), run
    return report["damage"]


@pytest.mark.parametrize("seed", range(8))
def test_random_words_all_over_the_mapping_do_not_stop_the_engine(msmemscope, program, seed):
    found = check_what_is_kept(msmemscope, damage(msmemscope, program, "stores", seed, 3000))
    assert found["overwritten"]


@pytest.mark.parametrize("how", ["zero", "half"])
def test_a_trace_that_is_cut_while_it_is_read_does_not_stop_the_engine(msmemscope, program, how):
    found = check_what_is_kept(msmemscope, damage(msmemscope, program, how))
    assert found["truncated"]
