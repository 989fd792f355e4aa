# SPDX-License-Identifier: Apache-2.0
"""stop() completes: when it returns, rows, report and trace of the window are there and final, however the program goes on and ends."""
import json
import random
import re
import signal
import subprocess
import time

import pytest

import harness
import windows
from scripts import PYTHON

# Looks at the files right after stop(), and again after blocks of the window were freed and others came.
LOOK = """
import glob, json, os, subprocess, sys, msmemscope, npu
def look(name):
    project, = glob.glob(os.environ["OUT"] + "/msmemscope_*")
    found = {"report": open(project + "/report.txt").read(),
             "info": subprocess.run([os.environ["COMMAND"], "info", project], env={"PATH": os.environ["PATH"]}, capture_output=True,
                                    text=True).stdout,
             "json": json.loads(subprocess.run([os.environ["COMMAND"], "info", "--json", project], env={"PATH": os.environ["PATH"]},
                                               capture_output=True, text=True).stdout)["processes"][0],
             "rows": sorted(line for path in glob.glob(project + "/device_*/dump/*.csv") for line in open(path)),
             "trace": os.path.getsize(project + "/trace.msc")}
    json.dump(found, open(os.environ["OUT"] + "/" + name, "w"))
msmemscope.config(output=os.environ["OUT"])
"""
ONE = LOOK + """
old = npu.alloc(1 << 20)
npu.start()
blocks = [npu.alloc(4096 * (i + 1)) for i in range(7)]
npu.free(blocks.pop(3))
npu.stop()
print("stopped", flush=True)
look("at_stop")
[npu.free(block) for block in blocks]
huge = [npu.alloc(1 << 26) for _ in range(4)]
"""


def looks(scripts, name):
    return json.loads((scripts.results / name).read_text(encoding="utf-8"))


def without_process(report):
    """A report but for how the process is, what recording has cost, and notes of its end."""
    return [line for line in report.splitlines() if not line.startswith(("  process", "  cost"))]


@pytest.fixture
def preloaded(scripts, dist):
    def run(text, **more):
        env = {"COMMAND": dist / "bin" / "msmemscope", **more.pop("env", {})}
        return scripts.preloaded(text, env=env, **more)
    return run


def test_files_are_complete_when_stop_returns_and_teardown_adds_nothing(scripts, preloaded):
    run = preloaded(ONE).check()
    found = looks(scripts, "at_stop")
    project, = run.projects()
    report = (project.path / "report.txt").read_text(encoding="utf-8")
    rows = sorted(line for path in project.path.glob("device_*/dump/*.csv") for line in path.read_text().splitlines(keepends=True))
    assert without_process(found["report"]) == without_process(report)
    assert found["rows"] == rows and found["trace"] > 0
    pool, = [pool for pool in found["json"]["pools"] if pool["pool"] == "HAL"]
    held = (1 << 20) + 4096 * (1 + 2 + 3 + 5 + 6 + 7)
    assert (pool["peak_bytes"], pool["end_bytes"], pool["end_blocks"]) == ((1 << 20) + 4096 * 28, held, 7)
    assert found["json"]["end"] == "stop" and "runs on" in found["report"]
    scripts.exact(run, traced=False, on=False)


def test_the_summary_is_read_before_the_prompt_is_back(scripts, dist, out):
    """Also of a program that leaves by os._exit() behind stop(), and of one that never calls it."""
    for number, end in enumerate(["", "import os; os._exit(0)", "unstopped"]):
        script = ONE.replace("npu.stop()", "") if end == "unstopped" else ONE + end
        script = script.replace('look("at_stop")', "")
        path = scripts.write(script)
        said = out / f"said{number}"
        env = harness.environment(dist, scripts.environment({"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so",
                                                             "OUT": out / f"results{number}"}))
        with said.open("w") as stderr:
            subprocess.run([PYTHON, path], env=env, stderr=stderr, check=True, timeout=60)
        text = said.read_text(encoding="utf-8")
        assert len(harness.HEADLINE.findall(text)) == 1 and len(harness.MORE.findall(text)) == 1, (end, text)
        wait_for_end(out / f"results{number}")
        assert said.read_text(encoding="utf-8") == text, end


def wait_for_end(results):
    deadline = time.monotonic() + 60
    while list(results.glob(".msmemscope_*")):
        assert time.monotonic() < deadline, "the session is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("seed", range(3))
def test_every_window_of_a_random_program_is_complete_at_its_stop(scripts, preloaded, seed):
    """Rows at each stop() are those of the model up to there; figures are those of what the windows have seen."""
    rng = random.Random(seed)
    lines, live, window = [LOOK], [], False
    for number in range(rng.randint(60, 120)):
        what = rng.random()
        if what < 0.08 and window:
            lines += ["npu.stop()", f'look("stop{number}")']
            window = False
        elif what < 0.16 and not window:
            lines.append("npu.start()")
            window = True
        elif what < 0.6 or not live:
            lines.append(f"b{number} = npu.alloc({rng.randint(1, 9) * 4096}, {rng.randint(0, 1)})")
            live.append(number)
        else:
            lines.append(f"npu.free(b{live.pop(rng.randrange(len(live)))})")
    lines += ["npu.start()" if not window else "", "npu.stop()", 'look("last")'] + [f"npu.free(b{number})" for number in live]
    run = preloaded("\n".join(lines))
    scripts.exact(run, traced=False, on=False)
    last = looks(scripts, "last")
    project, = run.projects()
    assert without_process(last["report"]) == without_process((project.path / "report.txt").read_text(encoding="utf-8"))
    events = scripts.events()[project.pid]
    stops = [at for at, event in enumerate(events) if event[1] == "stop"]
    seen = sorted((scripts.results).glob("stop*"), key=lambda path: int(path.name[4:]))
    assert len(seen) == len(stops) - 1
    for at, path in zip(stops, seen):
        wanted = windows.wanted(events[:at + 1], traced=False, on=False)
        devices = {row[3] for row in wanted if row[1] != "SYSTEM"}
        system = [row for row in wanted if row[1] == "SYSTEM"]
        # Rows of no device are in the file of each, below its header.
        total = len(wanted) - len(system) + max(len(devices), 1) * (len(system) + 1)
        assert len(json.loads(path.read_text(encoding="utf-8"))["rows"]) == total
    held = {}
    for _, what, *rest in events[:stops[-1] + 1]:
        if what == "alloc":
            held[rest[0]] = rest[1:]
        elif what == "free":
            held.pop(rest[0], None)
    for device in (0, 1):
        sizes = [size for size, of in held.values() if of == device]
        pools = [pool for pool in last["json"]["pools"] if pool["device"] == device or pool["device"] == str(device)]
        assert (pools[0]["end_bytes"], pools[0]["end_blocks"]) == (sum(sizes), len(sizes)) if pools else not sizes


GENERATOR = """
def batches():
    for i in range(5):
        block = npu.alloc(4096 * (i + 1))
        yield block
        npu.free(block)
npu.start()
for _ in batches():
    pass
npu.stop()
"""
ASYNC = """
import asyncio
async def work(i):
    block = npu.alloc(4096 * (i + 1))
    await asyncio.sleep(0.001)
    npu.free(block)
async def main():
    npu.start()
    await asyncio.gather(*[work(i) for i in range(5)])
    npu.stop()
asyncio.run(main())
"""
FORK = """
import multiprocessing
def work(i):
    import npu
    npu.free(npu.alloc(4096 * (i + 1)))
    kept = npu.alloc(8192)
if __name__ == "__main__":
    npu.start()
    kept = npu.alloc(4096)
    workers = [multiprocessing.get_context("fork").Process(target=work, args=(i,)) for i in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    npu.stop()
"""
IDLE_CHILD = """
npu.start()
npu.free(npu.alloc(4096))
if os.fork() == 0:
    raise SystemExit  # it runs the handlers of its parent, and has recorded nothing
os.wait()
npu.stop()
"""
SPAWN = """
import multiprocessing
def work(i):
    import os, msmemscope, npu
    msmemscope.config(output=os.environ["OUT"])
    npu.start()
    npu.free(npu.alloc(4096 * (i + 1)))
    npu.stop()
if __name__ == "__main__":
    workers = [multiprocessing.get_context("spawn").Process(target=work, args=(i,)) for i in range(2)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
"""


@pytest.mark.parametrize("script, processes", [(GENERATOR, 1), (ASYNC, 1), (FORK, 3), (IDLE_CHILD, 1), (SPAWN, 2)],
                         ids=["generator", "async", "fork", "idle child", "spawn"])
def test_programs_of_other_shapes_leave_complete_files(scripts, preloaded, script, processes):
    run = preloaded("import os, msmemscope, npu\nmsmemscope.config(output=os.environ['OUT'])\n" + script).check()
    wait_for_end(scripts.results)
    projects = run.projects()
    assert len(projects) == processes, run
    for project in projects:
        assert {"report.txt", "trace.msc", "config.json"} <= {path.name for path in project.path.iterdir()}, run
        assert not list(project.path.glob(".unfinished*"))
        if script is not FORK:
            found = [windows.seen(row) for row in project.rows()]
            assert found == windows.wanted(scripts.events()[project.pid], False, False), run


def test_an_interrupt_in_a_window_leaves_complete_files(scripts, dist, out):
    """Ctrl-C ends the interpreter by a signal: what it found is told before that."""
    path = scripts.write("""
import os, time, msmemscope, npu
msmemscope.config(output=os.environ["OUT"])
npu.start()
block = npu.alloc(4096)
print("ready", flush=True)
time.sleep(60)
""")
    env = harness.environment(dist, scripts.environment({"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so"}))
    with (out / "said").open("w") as stderr:
        process = subprocess.Popen([PYTHON, path], env=env, stderr=stderr, stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    project, = scripts.results.glob("msmemscope_*")
    assert {"report.txt", "trace.msc"} <= {path.name for path in project.iterdir()}
    text = (out / "said").read_text(encoding="utf-8")
    assert "KeyboardInterrupt" in text and len(harness.MORE.findall(text)) == 1, text
    wait_for_end(scripts.results)
    assert re.search(r"HAL +peak 4\.0 KiB, at the end 4\.0 KiB in 1 block", (project / "report.txt").read_text(encoding="utf-8"))


def test_what_came_behind_its_row_is_in_the_row_at_stop(scripts, preloaded):
    """An owner that is told after the allocation: the row is written again, and later rows follow it."""
    run = preloaded(LOOK + """
from msmemscope.describe import describer
npu.start()
first, plain = npu.alloc(4096), npu.alloc(8192)
describer(first, owner="mine")
npu.stop()
look("first")
npu.start()
second, other = npu.alloc(4096), npu.alloc(4096, 1)
describer(second, owner="yours")
npu.free(first)
npu.stop()
look("second")
npu.start()
npu.free(second)
npu.stop()
""")
    rows = scripts.exact(run, traced=False, on=False)
    owners = [row.attr["owner"].rsplit("@", 1)[-1] for row in rows if row.event == "MALLOC" and "owner" in row.attr]
    assert [owner for owner in owners if owner in ("mine", "yours")] == ["mine", "yours"], owners
    assert sum("mine" in row for row in looks(scripts, "first")["rows"]) == 1
    assert sum("mine" in row or "yours" in row for row in looks(scripts, "second")["rows"]) == 2


def test_ranks_of_torchrun_leave_complete_files_each(msmemscope, scripts, dist, python):
    """The launcher starts processes that are preloaded as it is itself; only they call start()."""
    path = scripts.write("""
import os, msmemscope, npu
msmemscope.config(output=os.environ["OUT"])
npu.start()
npu.free(npu.alloc(4096 * (1 + int(os.environ["RANK"]))))
npu.stop()
""")
    env = scripts.environment({"LD_PRELOAD": dist / "lib64" / "libascend_kernel_hook.so"})
    run = msmemscope.bare(*python, "-m", "torch.distributed.run", "--nproc-per-node=2", path, env=env, cwd=scripts.out).check()
    wait_for_end(scripts.results)
    projects = harness.Run(run.argv, run.returncode, run.stdout, run.stderr, scripts.results).projects()
    assert len(projects) == 2, run
    for project in projects:
        assert {"report.txt", "trace.msc"} <= {path.name for path in project.path.iterdir()}
        assert [windows.seen(row) for row in project.rows()] == windows.wanted(scripts.events()[project.pid], False, False)
    assert {f"rank {rank})" for rank in (0, 1)} <= set(re.findall(r"rank \d\)", run.stderr)), run


@pytest.mark.parametrize("device, before, inside, suffix", [
    ("npu,cpu", "msmemscope.start(); t = torch.zeros(1000); msmemscope.stop()", "npu.alloc(4096)", "ascend"),
    ("cpu", "msmemscope.start(); msmemscope.stop()", "t = torch.zeros(1000)", "cpu")])
def test_directories_that_were_named_stay(preloaded, scripts, python, device, before, inside, suffix):
    """Each path that a screen or a line names is there at the end, also if the device was used last or the first window was empty."""
    run = preloaded(f"""
import os, torch, msmemscope, npu
msmemscope.config(output=os.environ["OUT"], device="{device}")
{before}
msmemscope.start()
{inside}
msmemscope.stop()
""", interpreter=python).check()
    named = set(re.findall(r"(?:Files: |so far in )(\S+)", run.stderr))
    assert named == {str(scripts.results / path.name) for path in scripts.results.iterdir()} and len(named) == 1, run
    assert run.project().path.name.endswith(f"_{suffix}")
