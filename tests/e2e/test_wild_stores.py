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


# The process makes a few records besides its blocks, and the engine adds figures of the device.
OTHER_RECORDS = 100


@pytest.mark.parametrize("seed,stores,blocks", [(1, 20000, 1), (2, 1000, 100), (12, 100, 1000), (25, 10, 10000)])
def test_what_stray_stores_took_is_counted(msmemscope, program, seed, stores, blocks):
    """Kept and missing are what the program made, whatever of the header, the ring and the chunks was written over; the times are the run's."""
    run = damage(msmemscope, program, "stores", seed, stores, blocks)
    assert run.returncode == 7, run
    info = msmemscope("info", run.project().path, "--json", output=False)
    [report] = json.loads(info.stdout)["processes"]
    made = BLOCKS + 2 * stores * blocks
    found = report["events"] + report["damage"]["missing_events"] + sum(report["losses"].values())
    assert made <= found <= made + OTHER_RECORDS, (made, report["events"], report["damage"], report["losses"])
    [seconds] = re.findall(r"events in (\d+\.\d+) s", (run.project().path / "report.txt").read_text(encoding="utf-8"))
    assert float(seconds) < 600, run
    said = re.search(r"(\d+)\s+events?\s+(?:is|are)\s+missing", run.stderr)
    assert int(said[1] if said else 0) == report["damage"]["missing_events"], run


def test_no_stray_store_makes_the_trace_grow_without_end(msmemscope, program, tmp_path):
    """Numbers of chunks that were written over take no disk space beyond what engines keep ready."""
    run = damage(msmemscope, program, "chunks")
    assert run.returncode == 7, run
    grown = int(re.findall(r"grown (\d+)", run.stdout)[0])
    assert grown < 200 << 20, grown


@pytest.mark.parametrize("how", ["zero", "half"])
def test_a_trace_that_is_cut_while_it_is_read_does_not_stop_the_engine(msmemscope, program, how):
    found = check_what_is_kept(msmemscope, damage(msmemscope, program, how))
    assert found["truncated"]
