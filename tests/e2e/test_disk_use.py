# SPDX-License-Identifier: Apache-2.0
"""What the raw traces of a launch take on the disk while it runs."""
import time
from pathlib import Path


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
