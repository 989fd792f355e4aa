# SPDX-License-Identifier: Apache-2.0
"""msmemscope selftest: says yes where the tool works, and no where it does not."""
import json
import shutil
import signal
import time

CHECKS = ["recording", "live blocks", "stacks", "kill", "database", "cost"]


def test_it_finds_this_installation_in_order(msmemscope, out):
    """Whatever is set in the shell, within seconds, and leaving nothing behind."""
    start = time.monotonic()
    run = msmemscope("selftest", output=False, cwd=out, env={
        "TMPDIR": out, "MSMEMSCOPE_DISABLE": "1", "LD_PRELOAD": None, "LD_LIBRARY_PATH": None, "ASCEND_HOME_PATH": "/nowhere",
        "SIMNPU_HBM": "1M"}).check()
    assert time.monotonic() - start < 30
    lines = run.stdout.splitlines()
    assert [line[6:19].strip() for line in lines] == CHECKS
    assert all(line.startswith("ok ") for line in lines), run.stdout
    assert "38 of 38 allocations and 33 of 33 frees" in lines[0] and "5 of 5 blocks" in lines[1]
    assert " ns per event" in lines[-1]
    assert list(out.iterdir()) == [] and run.stderr == ""


def test_a_tree_below_a_path_with_a_blank(dist, msmemscope, out):
    shutil.copytree(dist, out / "a tree", symlinks=True)
    run = msmemscope.bare(out / "a tree" / "bin" / "msmemscope", "selftest", "--json", env={"TMPDIR": out}).check()
    assert [line["check"] for line in json.loads(run.stdout)] == CHECKS


def test_what_is_broken_is_named(dist, msmemscope, out):
    """Where nothing is recorded, there is nothing else to look at."""
    copy = out / "copy"
    shutil.copytree(dist, copy, symlinks=True)
    (copy / "lib64" / "libascend_kernel_hook.so").write_bytes(b"no library")
    run = msmemscope.bare(copy / "bin" / "msmemscope", "selftest", "--json", env={"TMPDIR": out})
    assert run.returncode == 1
    assert [(line["check"], line["ok"]) for line in json.loads(run.stdout)] == [("recording", False)]
    assert list(out.iterdir()) == [copy]


def test_interrupted_it_leaves_nothing(msmemscope, out):
    started = msmemscope.start("selftest", output=False, env={"TMPDIR": out})
    assert started.process.stdout.readline().startswith(b"ok ")
    assert list(out.iterdir()) != []
    started.process.send_signal(signal.SIGINT)
    assert started.finish().returncode == -signal.SIGINT
    assert list(out.iterdir()) == []


def test_without_the_example_it_says_so(dist, msmemscope, out):
    shutil.copytree(dist / "bin", out / "bin", symlinks=True)
    run = msmemscope.bare(out / "bin" / "msmemscope", "selftest", env={"TMPDIR": out})
    assert (run.returncode, run.stdout) == (1, "") and "leaky_npu" in run.stderr
