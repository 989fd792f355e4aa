#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records every program of tests/targets that has anything to record, with several sets of options, and keeps the traces, for
tools/same-output.py.

    tools/make-corpus.py DIST TARGETS CORPUS      as build/dist build/release/tests/targets build/corpus

Programs that need PyTorch run in build/venv and are left out where that is missing. A trace is called
CORPUS/<program>-<number>/<options>/<process>.msc. With $MSMEMSCOPE_KEEP_TRACES set, the end-to-end tests keep theirs, too.
"""
import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e" / "lib"))

import atb  # noqa: E402
import harness  # noqa: E402
import rows  # noqa: E402
import scripts  # noqa: E402
import watch_model  # noqa: E402

INTERPRETER = ROOT / "build" / "venv" / "bin" / "python"
EVERYTHING = ["--call-stack=c:20,python:20", "--events=alloc,free,launch,access,traceback", "--level=op,kernel",
              "--analysis=leaks,decompose,inefficient", "--device=npu,cpu"]
OPTION_SETS = {"default": [], "everything": EVERYTHING, "steps": ["--steps=2,3", "--level=kernel", "--call-stack=c"]}

# On the simulated NPU.
PROGRAMS = """
acl_train --steps=4 --devices=2 --threads=2
acl_train --steps=2 --workers=2 --late=1 --again
acl_train --plain
acl_train --abrupt
acl_train_cpp --work
chdir_root %tmp/gone
churn 200
cleared_env
client_atb --threads=4
client_atb --no-device --rounds=5
client_mindspore --threads=2 --devices=2
client_mstx --threads=2 --memory --rounds=7
client_pta --threads=3 --devices=2 --rounds=200
client_pta --expandable --threads=2 --rounds=100
client_pta --domain=msleaks --rounds=50
client_workspace --threads=2
client_workspace --nested
close_all
components
crash_target %tmp/truth 2 3000 0
ctor
deep 1200
deepbind %targets/libplugin_a.so
ends_by abort
ends_by kill
ends_by pthread_exit
errno_kept
exec_self
fork_kinds fork nested vfork spawn thread
free_fails
late_load %targets/libtls_greedy.so
leaky_steps --steps=7
leaky_steps --steps=4 --leaks=300
leaky_steps --steps=4 --killed
leaky_steps --no-steps
many_devices 8
mstx_tables new --threads=4
names
oom
plugin_loop 20 %targets/libplugin_a.so %targets/libplugin_b.so %targets/libplugin_c.so
rlimit nofile 64
small_stack
threads 4 2000
threads 8 40000
tls_dtor
two_acts 100 100
""".strip().splitlines()
# On the bare driver, which is safe in handlers of signals and after any fork.
BARE = ["fork_kinds fork nested _Fork clone", "fork_walks fork 3", "handoff 4 3000", "logging_allocator", "many_devices 8", "storm 200"]
SCRIPTS = ["%targets/steps.py", "%targets/python/calls.py", "%targets/python/workers.py", "%targets/python/ranges.py",
           "%targets/python/processes.py fork", f"{ROOT}/tests/targets/python_stacks.py"]
TORCH = ["torch_train.py 3", "torch_accesses.py", "torch_inefficient.py", "torch_owners.py"]
CHAIN = "op9=: op0=01:01 op1=:2 op2=2:2 op3=0:3 op1=:2 op2=2:2 op0=01:01 op1=:2 op4=:"
# Windows that the program opens and closes itself.
WINDOWS = """
import os, msmemscope, npu
before = [npu.alloc(4096 * size) for size in range(1, 5)]
msmemscope.config(output=os.environ["OUT"], analysis="leaks,decompose")
for window in range(3):
    msmemscope.start()
    blocks = [npu.alloc(8192 * size) for size in range(1, 6)]
    msmemscope.step()
    npu.free(blocks.pop()); npu.free(before.pop())
    msmemscope.step()
    msmemscope.stop()
    npu.free(blocks.pop())
    between = npu.alloc(1 << 20)
"""


def cases(dist, targets, place):
    """(words, changes of the environment, option sets) of each recording. `place` is a scratch directory."""
    def filled(line):
        return [word.replace("%targets", str(targets)).replace("%tmp", str(place)) for word in line.split()]

    def of_target(line):
        name, *arguments = filled(line)
        return [str(targets / name), *arguments]

    python = {"PYTHONPATH": scripts.python_path(dist)}
    simulated = dist / "simnpu" / "lib64"
    for line in PROGRAMS:
        small = {"SIMNPU_HBM": "256M"} if line == "oom" else {}
        yield of_target(line), {"LD_LIBRARY_PATH": f"{simulated}:{targets}", **small}, OPTION_SETS
    for line in BARE:
        slots = {"BARE_SLOTS": 1} if line.startswith("handoff") else {}
        yield of_target(line), {"LD_LIBRARY_PATH": f"{targets / 'bare'}:{targets}", **slots}, OPTION_SETS
    yield of_target("threads 8 200000"), {"LD_LIBRARY_PATH": f"{simulated}:{targets}"}, {"dropped": ["--max-disk=1M"]}
    for form in atb.FORMS:
        library = atb.libraries(dist, targets, form)
        yield of_target(f"{form}/atb_ops --threads=2 --devices=2 --rounds=20"), library, OPTION_SETS
        yield of_target(f"{form}/atb_watch {' '.join(watch_model.MODEL)}"), library, {"watch": ["--watch=op0,op1", *EVERYTHING]}
    yield of_target(f"watch_ops {CHAIN}"), {}, {"watch": ["--watch=op0,op1", *EVERYTHING]}
    for line in SCRIPTS:
        yield [scripts.PYTHON, *filled(line)], python, OPTION_SETS
    (place / "windows.py").write_text(WINDOWS)
    yield ([scripts.PYTHON, str(place / "windows.py")], {**python, "OUT": place / "out"},
           {"deferred": ["--collect-mode=deferred"], "everything deferred": ["--collect-mode=deferred", *EVERYTHING]})
    for line in TORCH if INTERPRETER.exists() else []:
        yield [str(INTERPRETER), "-W", "ignore", str(ROOT / "tests" / "targets" / line.split()[0]), *line.split()[1:]], {}, \
            {"cpu": ["--device=cpu", "--analysis=leaks,decompose"],
             # Without the trace of Python: millions of calls while PyTorch is imported.
             "everything": [option.replace(",traceback", "") for option in EVERYTHING]}


def record(dist, words, changes, options, place):
    """Runs it; the traces of its processes, oldest first. How it ends is the program's own affair."""
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    (place / "truth").unlink(missing_ok=True)
    subprocess.run([dist / "bin" / "msmemscope", "-o", out, *options, "--", *words], stdin=subprocess.DEVNULL, timeout=300,
                   capture_output=True, check=False, cwd=place, env=harness.environment(dist, {"TRUTH": "/dev/null", **changes}))
    return [project.path / "trace.msc" for project in rows.projects(out)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=lambda text: Path(text).resolve())
    parser.add_argument("targets", type=lambda text: Path(text).resolve())
    parser.add_argument("corpus", type=Path)
    arguments = parser.parse_args()
    count, interpreters = 0, (scripts.PYTHON, str(INTERPRETER))
    with tempfile.TemporaryDirectory() as scratch:
        for number, (words, changes, sets) in enumerate(cases(arguments.dist, arguments.targets, Path(scratch))):
            program = next(Path(word).name for word in words if Path(word).is_file() and word not in interpreters)
            for name, options in sets.items():
                place = arguments.corpus / f"{program}-{number}" / name.replace(" ", "-")
                place.mkdir(parents=True, exist_ok=True)
                traces = record(arguments.dist, words, changes, options, Path(scratch))
                if not traces:
                    print(f"no trace: {' '.join([*options, *words])}")
                for process, trace in enumerate(traces):
                    shutil.copy(trace, place / f"{process}.msc")
                    count += 1
    print(f"{count} traces in {arguments.corpus}")


if __name__ == "__main__":
    main()
