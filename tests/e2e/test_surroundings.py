# SPDX-License-Identifier: Apache-2.0
"""Surroundings that programs meet: a cgroup with little memory, links inside results, a setuid program that somebody attaches to, a clock
that is set back, a pid that comes again, programs of another libc."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

MEMORY = 64 << 20
SECOND_NS = 1_000_000_000
NOBODY = 65534


def test_a_cgroup_of_64_mib_is_enough(msmemscope, program, memory_group):
    """Program, supervisor and engine are in it, and pages of the trace count; the program takes little itself."""
    pairs, group = 150000, memory_group(MEMORY)
    run = msmemscope("--no-report", "--", *program("crowd", 1, 1, pairs),
                     preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid()))).check()
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


def test_a_clock_that_is_set_back(traced, targets):
    """Each reading of the time of day is an hour earlier than the one before, in three processes: rows keep their order and distances."""
    result = traced("fork_kinds", "fork", "fork", driver="bare", env={"LD_PRELOAD": str(targets / "libclock_back.so")})
    result.window = 0, time.time_ns()
    result.exact()
    projects = result.run.projects()
    assert len(projects) == 3
    firsts = []
    for project in projects:
        times = [row.time_ns for row in result.rows(project)]
        assert times == sorted(times) and times[-1] - times[0] < 600 * SECOND_NS
        assert not result.info(project)["damaged"]
        firsts.append(times[0])
    assert time.time_ns() - max(firsts) > 3000 * SECOND_NS


# Run where pids are our own: each child has the number of the one before.
SAME_PID = """
import os, subprocess, sys
command, out, rounds, *words = sys.argv[1:]


def next_pid():
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write("777")


if command == "children":
    for _ in range(int(rounds)):
        next_pid()
        child = subprocess.Popen(words)
        assert child.pid == 778 and child.wait() == 0
    sys.exit()
launch = [command, "-o", out, "--", sys.executable, __file__, "children", out, rounds, *words]
subprocess.run(launch, check=True, stdout=subprocess.DEVNULL)
next_pid()
other = subprocess.Popen(["sleep", "60"])
asked = subprocess.run([command, "ctl", "778", "start"], capture_output=True, text=True)
print(other.pid, asked.returncode, asked.stderr)
other.kill()
"""


def test_a_pid_that_comes_again_is_another_process(msmemscope, dist, program, out, targets, tmp_path):
    """Within the clock tick of the process before it, too. `ctl` asks the process that has the number now."""
    script, rounds = tmp_path / "same_pid.py", 8
    script.write_text(SAME_PID)
    own = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no right to make a pid namespace here")
    ended = subprocess.run([*own, sys.executable, script, dist / "bin" / "msmemscope", out / "run", str(rounds), *program("threads", 1, 25)],
                           env={**os.environ, "LD_LIBRARY_PATH": str(targets / "bare"), "TRUTH": str(tmp_path / "truth")},
                           capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.startswith("778 1 ") and "does not have the collector" in ended.stdout, ended.stdout
    infos = [json.loads(msmemscope("info", path, "--json", output=False).check().stdout)["processes"][0]
             for path in sorted((out / "run").glob("msmemscope_778_*"))]
    assert len(infos) == rounds
    assert len({info["run"] for info in infos}) == rounds
    rows = {info["rows"] for info in infos}
    assert len(rows) == 1 and rows.pop() > 0 and not any(any(info["losses"].values()) for info in infos)


# Takes memory through the name that the collector defines, if the driver can be opened.
FOREIGN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(void)
{
	void *driver = dlopen("libascend_hal.so", RTLD_NOW | RTLD_GLOBAL), *block = 0, *function = dlsym(RTLD_DEFAULT, "halMemAlloc");
	int (*take)(void **, unsigned long long, unsigned long long) = (int (*)(void **, unsigned long long, unsigned long long))function;

	printf("%d %d\\n", driver != 0, take == 0 ? -1 : take(&block, 1000, (33ull << 56) | 0x904400));
	return 3;
}
"""


@pytest.mark.parametrize("compiler", ["musl-gcc", "musl-gcc -static", "gcc -static", "gcc -static-pie"])
def test_programs_that_cannot_be_recorded_run_as_without_us(msmemscope, targets, tmp_path, out, compiler):
    """Started by a shell that has the collector, and directly."""
    source, program = tmp_path / "foreign.c", tmp_path / "foreign"
    source.write_text(FOREIGN)
    subprocess.run([*compiler.split(), "-w", "-o", program, source], capture_output=True, check=True)
    library = {"LD_LIBRARY_PATH": str(targets / "bare")}
    bare = msmemscope.bare(program, env=library)
    assert bare.returncode == 3 and bare.stdout
    for words in ([program], ["sh", "-c", f"{program}; exit $?"]):
        run = msmemscope("--", *words, env=library)
        assert (run.returncode, run.stdout) == (3, bare.stdout), run
    assert "musl" in msmemscope("--", program, env=library).stderr or "static" in compiler
