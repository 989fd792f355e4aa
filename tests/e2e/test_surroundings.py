# SPDX-License-Identifier: Apache-2.0
"""Surroundings that programs meet: a cgroup with little memory, links inside results, a setuid program that somebody attaches to."""
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup")
MEMORY = 64 << 20
NOBODY = 65534


@pytest.fixture
def small_group():
    """A cgroup of 64 MiB, of either version."""
    old = (GROUPS / "memory").is_dir()
    place = (GROUPS / "memory" if old else GROUPS) / f"msmemscope_test_{os.getpid()}"
    try:
        place.mkdir()
        (place / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(MEMORY))
    except OSError as error:
        if place.is_dir():
            place.rmdir()
        pytest.skip(f"no right to make a cgroup with a limit of memory here: {error}")
    yield place
    place.rmdir()


def test_a_cgroup_of_64_mib_is_enough(msmemscope, program, small_group):
    """Program, supervisor and engine are in it, and pages of the trace count; the program takes little itself."""
    pairs = 150000
    run = msmemscope("--no-report", "--", *program("crowd", 1, 1, pairs),
                     preexec_fn=lambda: (small_group / "cgroup.procs").write_text(str(os.getpid()))).check()
    info = msmemscope.info(run.project())
    assert info["rows"] == 4 * pairs and not any(info["losses"].values()) and not info["damaged"]


@pytest.mark.parametrize("link, target", [("trace.msc", "/etc/passwd"), ("trace.msc", "trace.msc"), ("trace.msc", "/dev/zero"),
                                          ("device_0", "/etc"), ("device_0", ".")])
def test_links_in_results_lead_nowhere(msmemscope, program, out, link, target):
    """Whoever sends results cannot make the reader show another file, or read without end."""
    run = msmemscope("--", *program("threads", 1, 10)).check()
    place = out / "sent"
    shutil.copytree(run.project().path, place)
    (place / "trace.msc").unlink()
    shutil.rmtree(place / "device_0", ignore_errors=True)
    for dump in place.rglob("*.csv"):
        dump.unlink()
    (place / link).symlink_to(target)
    for verb in ("info", "report", "export"):
        result = msmemscope(verb, place, output=False, timeout=60)
        assert result.returncode in (1, 3), result
        assert "root:" not in result.stdout + result.stderr
        assert len(result.stderr.splitlines()) <= 2, result


def test_a_setuid_program_is_not_attached_to(dist):
    """The loader preloads nothing into it, and its user may not look at it. It lives on."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a setuid program of root")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        command, program = Path(shutil.copy(dist / "bin" / "msmemscope", place)), Path(shutil.copy("/bin/sleep", place))
        program.chmod(0o4755)
        with subprocess.Popen([program, "60"], user=NOBODY, group=NOBODY, extra_groups=[]) as started:
            try:
                result = subprocess.run([command, "attach", str(started.pid)], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/tmp",
                                        capture_output=True, text=True, timeout=60, check=False)
                assert started.poll() is None
            finally:
                started.kill()
    assert result.returncode == 1 and "no permission to inspect process" in result.stderr, result
