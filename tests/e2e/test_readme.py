# SPDX-License-Identifier: Apache-2.0
"""README.md and the manuals, typed on a machine without an NPU and a GPU: every block of Python and of shell commands. Names in
capitals are filled in; train.py and infer.py are a training of PyTorch on the CPU, ./app is the example of the simulated NPU. The
screens that README.md shows are those of real runs."""
import lzma
import re
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

import harness

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import readme_screens  # noqa: E402
BARE = {"LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": None}
CHOICE = "Recorded: CPU tensors too, because no NPU and no GPU was found here"

TRAIN = """
import torch
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data, losses = [torch.ones(16, 64) for _ in range(8)], []
def train(batch):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(torch.ones(100))
"""
LOOP = "import msmemscope\nfor batch in data:\n    train(batch)\n    msmemscope.step()\n"
# Waits for memory to be wanted of it: until there is a file `end`, and for at most some minutes.
WAITS = """
import os, time
print(os.getpid(), flush=True)
for _ in range(6000):
    train(data[0])
    if os.path.exists("end"):
        break
    time.sleep(0.05)
"""

pytestmark = pytest.mark.skipif(any(path for name in ("nvidia[0-9]*", "davinci[0-9]*") for path in Path("/dev").glob(name)),
                                reason="this machine has an accelerator")


def blocks(language, name="README.md"):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [block for its, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if its == language]


# Tested elsewhere: tools/test.sh, test_wheel.py, test_ctl.py, realclients/test_dryrun.py.
ELSEWHERE = ("make ", "pip install ", "msmemscope attach ", "msmemscope dryrun ")


def commands(name="README.md"):
    """The lines of the shell blocks without their comments."""
    lines = [re.sub(r"\s+#.*", "", line) for block in blocks("sh", name) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(ELSEWHERE)]


@pytest.fixture
def bare(msmemscope, dist, out, python):
    """bare(line): a line typed on a machine without an accelerator."""
    for name in ("train.py", "infer.py"):
        (out / name).write_text(TRAIN + LOOP, encoding="utf-8")
    (out / "app").write_text(f"#!/bin/sh\nLD_LIBRARY_PATH={dist}/simnpu/lib64 exec {dist}/examples/leaky_npu\n", encoding="utf-8")
    (out / "app").chmod(0o755)
    env = {**BARE, "PYTHONPATH": dist / "python", "PYTHONWARNINGS": "ignore", "PATH": f"{dist / 'bin'}:{Path(python[0]).parent}:/usr/bin:/bin"}

    def run(line, results="memscopeDumpResults", status=0):
        done = msmemscope.bare("bash", "-c", line, cwd=out, env=env)
        assert done.returncode == status, str(done)
        return harness.Run([line], done.returncode, done.stdout, done.stderr, out / results)

    run.env = env
    return run


def script(bare, out, text, results="results"):
    (out / "script.py").write_text(text, encoding="utf-8")
    return bare("python script.py", results)


def tensors(run):
    return [row for row in run.rows() if row.event == "MALLOC" and row.type == "HOST"]


# ---- one default ----

def test_the_python_example_records_cpu_tensors_and_says_why(bare, out):
    [example] = [block for block in blocks("python") if "msmemscope.start()" in block]
    run = script(bare, out, TRAIN + example)
    assert len(tensors(run)) >= 8 and run.stderr.count(CHOICE) == 1 and "8 steps" in run.stderr, str(run)


def test_a_device_that_is_named_is_never_changed(bare, out):
    run = script(bare, out, TRAIN + "import msmemscope\nmsmemscope.config(device='npu,gpu', output='results')\nmsmemscope.start()\n" + LOOP +
                 "msmemscope.stop()\n")
    assert tensors(run) == [] and CHOICE not in run.stderr, str(run)


def test_a_later_window_without_a_device_has_the_default(bare, out):
    run = script(bare, out, TRAIN + """
import msmemscope
def window(count, **settings):
    msmemscope.config(**settings)
    msmemscope.start()
    kept.append(torch.empty(count))
    msmemscope.stop()
kept = []
window(1000, device="npu", output="results")
window(2000, events="alloc,free")
window(3000, device="gpu")
""")
    assert {row.attr["size"] for row in tensors(run)} == {8000}, str(run)


def test_with_an_npu_the_default_is_the_npu(msmemscope, dist, out, python):
    """As on a machine without one, but for the simulated NPU."""
    (out / "script.py").write_text(TRAIN + "import msmemscope\nmsmemscope.config(output='results')\nmsmemscope.start()\n" + LOOP +
                                   "msmemscope.stop()\n", encoding="utf-8")
    done = msmemscope.bare(*python, "script.py", cwd=out, env={"PYTHONPATH": dist / "python"})
    run = harness.Run(done.argv, done.returncode, done.stdout, done.stderr, out / "results").check()
    assert tensors(run) == [] and CHOICE not in run.stderr, str(run)


# ---- every block ----

def test_both_languages_show_the_same_commands():
    for page in ("README", "docs/manual"):
        assert commands(f"{page}.md") == commands(f"{page}.zh.md") != []
    assert len(blocks("python")) == len(blocks("python", "README.zh.md")) == 2


def test_a_newcomer_finds_the_essentials_in_60_lines():
    for name in ("README.md", "README.zh.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        first = text.split("\n## ")[0].splitlines()
        shown = sum(text.count("\n", *match.span(3)) for match in readme_screens.BLOCK.finditer(text))
        assert len(first) - shown <= 60, "without the screens"
        assert all(word in text for word in ("memory_viz", "DataLoader", "Docker", "Kubernetes", "/dev/shm", "ptrace", "uid", "Slurm", "vLLM"))


def test_every_verb_has_a_line(dist, msmemscope):
    text = msmemscope("--help", output=False).check().stdout
    verbs = re.findall(r"^  ([a-z-]+)(?: |$)", text.split("\nVerbs")[1].split("\n\n")[0], re.MULTILINE)
    block = "".join(blocks("sh"))
    assert len(verbs) > 10 and [verb for verb in verbs if f"msmemscope {verb}" not in block] == []


def test_the_screens_are_those_of_today(dist, python):
    assert readme_screens.differences(dist, python[0]) == []


def test_the_marks_of_pytest_work_with_cpu_tensors(bare, out):
    [block] = [block for block in blocks("python") if "pytest.mark" in block]
    (out / "test_it.py").write_text("import pytest, torch\n" + block.replace("...", "torch.ones(100)"), encoding="utf-8")
    bare.env["PYTHONPATH"] = f"{bare.env['PYTHONPATH']}:/usr/lib/python3/dist-packages"
    run = bare("python -m pytest -q -p no:cacheprovider -p msmemscope.pytest_plugin test_it.py")
    assert "1 passed" in run.stdout, str(run)


def served(msmemscope, out, env, words):
    """`view`, which ends by Ctrl-C: its page is there."""
    started = msmemscope.start(*words, output=False, cwd=out, env=env)
    address = re.search(r"http://\S+", started.process.stderr.readline().decode())[0]
    with urllib.request.urlopen(address, timeout=60) as reply:
        assert b"<canvas" in reply.read()
    started.process.send_signal(signal.SIGINT)
    started.finish()


def filled(line, out, pid):
    """The line with real names for those in capitals."""
    results = out / "memscopeDumpResults"
    projects = [str(project.path) for project in (harness.rows.projects(results) if results.exists() else [])
                if (project.path / "trace.msc").exists()]
    for name, value in (("PROJECT1", 0), ("PROJECT2", 1), ("PROJECT", 0), ("RESULTS", 0)):
        line = line.replace(name, projects[value] if value < len(projects) else name)
    return line.replace("PID", pid).replace("START,END", "aten::addmm,aten::sum")


def test_every_command_of_readme_does_what_it_says(bare, msmemscope, dist, out, python):
    (out / "waits.py").write_text(TRAIN + WAITS, encoding="utf-8")
    (out / "snapshot.pickle").write_bytes(lzma.decompress((ROOT / "tests/twin/snapshots/cnn.pickle.xz").read_bytes()))
    waiting = msmemscope.start("--collect-mode=deferred", "--", *python, "waits.py", output=False, cwd=out, env=bare.env)
    pid = waiting.process.stdout.readline().decode().strip()
    bare("msmemscope -- python train.py")  # the second project of --compare
    typed = []
    for line in (filled(line, out, pid) for line in commands()):
        if line.startswith("msmemscope view "):
            served(msmemscope, out, bare.env, [*line.split()[1:], "--no-browser"])
        else:
            run = bare(line)
            assert "nothing was recorded" not in run.stderr, str(run)
        if line.startswith("msmemscope ctl "):
            (out / "end").write_text("", encoding="utf-8")
            waiting.finish()
        typed.append(line)
    assert len(typed) == len(commands()) > 15


def test_every_command_of_the_manual_does_what_it_says(bare, dist, out):
    """manual.zh.md has the same commands, see above."""
    bare.env["PATH"] = f"{dist}:{bare.env['PATH']}"
    typed = []
    for line in (filled(line, out, "") for line in commands("docs/manual.md")):
        # train() keeps a tensor of each step; no mark of that name is in the run
        run = bare(line, status=4 if "--fail-on=leak" in line else 1 if "--mark=test" in line else 0)
        assert "nothing was recorded" not in run.stderr, str(run)
        typed.append(line)
    assert len(typed) == len(commands("docs/manual.md")) > 15


def typed_examples(name="docs/manual.md"):
    """[(line behind "$ ", [lines that it prints])] of the blocks that show both."""
    shown = []
    for block in blocks("", name):
        for line in block.splitlines():
            if line.startswith("$ "):
                shown.append((line[2:], []))
            elif shown and block.startswith("$ "):
                shown[-1][1].append(line)
    return shown


def test_every_example_of_the_manual_prints_what_it_shows(bare, out):
    """Of snapshots that are here, to the letter but for the width of columns; "..." is what the manual leaves out."""
    for name, snapshot in (("cnn", "cnn"), ("gpt-8", "gpt"), ("gpt-12", "gpt-batch12")):
        (out / f"{name}.pickle").write_bytes(lzma.decompress((ROOT / f"tests/twin/snapshots/{snapshot}.pickle.xz").read_bytes()))
    lines = [line for line, _ in typed_examples()]
    assert [line for line, _ in typed_examples("docs/manual.zh.md")] == [] and len(lines) == 7, lines
    compared = 0
    for line, prints in typed_examples():
        if line.startswith("git bisect start ") or line.startswith(ELSEWHERE):
            continue
        run = bare(line.removeprefix("git bisect run "))
        if line.startswith("msmemscope whatif "):
            printed = [" ".join(one.split()) for one in run.stdout.splitlines()]
            shown = [" ".join(one.split()) for one in prints if one.strip() != "..."]
            assert shown == [one for one in printed if one in shown], str(run)
            compared += len(shown)
        elif line.startswith("msmemscope advise "):  # figures are those of another program
            assert re.match(r"Advice for the CPU \(peak [0-9.]+ [KM]iB, step \d+\)\n", run.stdout), str(run)
    assert compared == 15
