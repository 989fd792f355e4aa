# SPDX-License-Identifier: Apache-2.0
"""memory_group(BYTES): a cgroup with that limit, of either version, as a path; it goes at the end of the test."""
import os
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def memory_group():
    made = []

    def make(limit):
        old = (GROUPS / "memory").is_dir()
        place = (GROUPS / "memory" if old else GROUPS) / f"msmemscope_{os.getpid()}_{len(made)}"
        try:
            place.mkdir()
            made.append(place)
            (place / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(limit))
        except OSError as error:
            pytest.skip(f"no right to make a cgroup with a limit of memory here: {error}")
        return place

    yield make
    for place in made:
        place.rmdir()
