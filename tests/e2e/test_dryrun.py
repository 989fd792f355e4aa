# SPDX-License-Identifier: Apache-2.0
"""msmemscope dryrun: its answer, its mark in every form of a run, and what it refuses. The programs here use the simulated NPU as torch_npu does
(targets/client_pta.c); the real torch_npu is in realclients/test_dryrun.py."""
import json
import re
import sqlite3
import subprocess

import pytest

import harness
import rows
from viewed import answers

NOT_COUNTED = "Operator workspaces and HCCL buffers are not counted."
CLIENT = ("client_pta", "--rounds=100")


def peaks(stderr):
    """The most that the pool had in use and had from the driver, as the program itself reports."""
    parts = sorted((json.loads(line) for line in stderr.splitlines() if line.startswith('{"pid"')), key=lambda part: part["part"])
    events = [event for part in parts for event in part["events"] if event[0] == "register"]
    return max(event[6] for event in events), max(event[7] for event in events)


@pytest.fixture
def dryrun(msmemscope, program, out):
    def run(*words, program_words=CLIENT, **options):
        return msmemscope("dryrun", *words, "--", *program(*program_words), **options)
    return run


def test_the_answer_has_the_figures_of_the_pool(dryrun):
    run = dryrun("--json").check()
    answer = json.loads(run.stdout)
    assert (answer["needs_bytes"], answer["reserves_bytes"]) == peaks(run.stderr), "standard output has nothing but the answer"
    assert answer["figures"] == "exact" and answer["steps"] == 0 and answer["not_counted"] == NOT_COUNTED
    [device] = answer["devices"]
    assert device["device"] == "npu:64G" and device["bytes"] == 64 << 30 and device["fits"]
    assert device["project"] == str(run.project().path)
    assert sum(place["bytes"] for place in answer["places"]) == answer["needs_bytes"]


def test_a_device_that_is_too_small_is_told_from_one_that_is_not(dryrun):
    """Its program dies; a run without a limit says what it needs."""
    run = dryrun("--device=npu:16M", "--device=npu:8M,npu:4G")
    assert run.returncode == 4
    lines = run.stdout.splitlines()
    needs, reserves = re.fullmatch(r"Needs ([\d.]+ MiB); PyTorch would reserve ([\d.]+ MiB)\.", lines[1]).groups()
    assert float(needs[:-4]) > 16 and float(reserves[:-4]) >= float(needs[:-4])
    assert lines[2].split(maxsplit=1)[0] == "npu:16M" and "does not fit: dies in step 1" in lines[2]
    assert lines[3].split(maxsplit=1)[0] == "npu:8M" and "does not fit: dies in step 1" in lines[3]
    assert re.fullmatch(r"  npu:4G +fits, 3\.\d GiB left", lines[4])
    assert NOT_COUNTED in lines


def test_without_a_device_that_fits_it_runs_once_more(dryrun):
    run = dryrun("--device=npu:16M")
    assert run.returncode == 4 and len(run.projects()) == 2
    assert re.search(r"^Dry run on NPU 0 \(16\.0 MiB\); no device was used: no step in [\d.]+ m?s\.$", run.stdout, re.M)
    assert re.search(r": does not fit\.\nDies in step 1[ .]", run.stdout)
    assert max(map(len, run.stdout.splitlines()[:-1])) <= 100, "the last line is a path"


def test_every_form_of_the_run_says_that_it_is_dry(dryrun, msmemscope):
    run = dryrun().check()
    project = run.project().path
    assert f"Dry run on npu:64G; no device was used. {NOT_COUNTED}\n" in (project / "report.txt").read_text()
    assert json.loads((project / "findings.json").read_text())["processes"][0]["dry"] == "npu:64G"
    assert f"Dry run on npu:64G; no device was used. {NOT_COUNTED}\n" in msmemscope("info", project, output=False).check().stdout
    assert msmemscope.info(run.project())["dry"] == "npu:64G"
    assert ", dry run on npu:64G): " in msmemscope("report", "--text", project, output=False).check().stdout
    assert "| Dry run | npu:64G; no device was used." in msmemscope("report", "--markdown", project, output=False).check().stdout
    assert [answer["dry"] for key, answer in answers(project / "report.html", ("summary",)).items() if "dry" in answer] == ["npu:64G"]
    hidden = msmemscope("report", "--markdown", "--anonymize", project, output=False).check().stdout
    assert "| Dry run | npu:64G; no device was used." in hidden, "who hides names does not hide that"


def test_every_row_of_its_files_says_that_it_is_dry(dryrun, msmemscope, out):
    """A file that is copied away from report.txt still says it, also to this command."""
    project = dryrun().check().project().path
    found = {form: msmemscope("export", f"--format={form}", project, output=out / form).check().project() for form in ("csv", "db", "parquet")}
    rows_of_csv = found["csv"].rows()
    assert len(rows_of_csv) > 100 and {row.attr["dry"] for row in rows_of_csv} == {"npu:64G"}
    [base] = found["db"].path.glob("**/*.db")
    with sqlite3.connect(base) as db:
        assert {json.loads(attr)["dry"] for attr, in db.execute("SELECT Attr FROM memscope_dump")} == {"npu:64G"}
    parts = list(found["parquet"].path.glob("**/*.parquet"))
    assert parts and all(b"msmemscope.dry" in part.read_bytes()[-4096:] for part in parts)
    for file in (next(found["csv"].path.glob("**/memscope_dump_*.csv")), base):
        assert json.loads(msmemscope("info", "--json", file, output=False).check().stdout)["processes"][0]["dry"] == "npu:64G"
    lines = msmemscope("export", "--format=jsonl", project, "-o", out / "lines", output=False).check().stdout.strip()
    with open(lines, encoding="utf-8") as file:
        first = json.loads(file.readline())
    assert first["dry"] == "npu:64G"


def test_the_store_says_that_a_run_was_dry(dryrun, msmemscope, out):
    project = dryrun().check().project().path
    store = f"--store=sqlite:{out}/store.db"
    msmemscope("store", "add", store, "--run=one", project, output=False).check()
    assert ", dry run on npu:64G, " in msmemscope("fleet", "show", store, "one", output=False).check().stdout
    shown = json.loads(msmemscope("fleet", "show", "--json", store, "one", output=False).check().stdout)
    assert [rank["dry"] for rank in shown["ranks"]] == ["npu:64G"]


def test_top_says_that_a_launch_is_dry(msmemscope, out):
    words = [msmemscope.path, "dryrun", f"--output-path={out}/live", "--", "sh", "-c", "echo runs >&2; read word"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=harness.environment(msmemscope.dist)) as dry:
        assert dry.stderr.readline() == b"runs\n"
        assert json.loads(msmemscope("top", "--json", out / "live", output=False).check().stdout)["dry"] == "npu:64G"
        assert ", dry run on npu:64G, " in msmemscope("top", out / "live", output=False).check().stdout
        dry.communicate(b"\n")


def test_dry_and_real_are_compared(dryrun, msmemscope, program, out):
    dry = dryrun().check().project().path
    real = msmemscope("--", *program(*CLIENT), output=out / "real").check().project().path
    both = msmemscope("--compare", f"--input={dry},{real}", output=out / "compared").check().stdout
    assert f"The first run is a dry run on npu:64G: no device was used. {NOT_COUNTED}\n" in both
    assert "The second run is a dry run" not in both
    document = json.loads(msmemscope("--compare", "--json", f"--input={real},{dry}", output=out / "compared").check().stdout)
    assert document["compare_dry"] == "npu:64G" and "base_dry" not in document
    [pool] = [pool for pool in document["pools"] if pool["event_type"] == "PTA"]
    assert pool["difference_peak_bytes"] == 0


@pytest.mark.parametrize("device", ["h201", "npu", "npu:", "npu:64X", "npu:64GB", "npu:1K", "npu:2T", "npu:-1G", "cuda:2T"])
def test_other_devices_are_refused(msmemscope, device):
    run = msmemscope("dryrun", f"--device={device}", "--", "true")
    assert run.returncode == 2 and run.stderr.startswith(f"msmemscope: --device: '{device}' is not a device of a dry run; allowed: b200, h200, ")


def test_without_torch_npu_it_says_what_to_install(msmemscope, out):
    def ask():
        return msmemscope("dryrun", "--", "python3", "-c", "open('ran', 'w')", cwd=out, env={"PYTHONPATH": out / "packages"})
    run = ask()
    assert run.returncode == 1 and run.stderr == "msmemscope: /usr/bin/python3 has no torch; dryrun runs PyTorch programs\n"
    for path, text in (("torch/__init__.py", "raise SystemExit('it is never imported')"), ("torch-2.9.1+cpu.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.1+cpu\n")):
        (out / "packages" / path).parent.mkdir(parents=True)
        (out / "packages" / path).write_text(text)
    run = ask()
    assert run.returncode == 1 and "has torch 2.9.1+cpu but not torch_npu" in run.stderr and "pip install torch_npu==2.9.1)" in run.stderr
    assert not (out / "ran").exists() and rows.projects(out) == []


def test_several_ranks_are_refused(dryrun, out):
    """By the variable of launchers before the start; several processes that use the NPU after it."""
    run = dryrun(env={"WORLD_SIZE": "4"})
    assert run.returncode == 1 and run.stderr.startswith("msmemscope: WORLD_SIZE=4: a dry run has one rank")
    assert rows.projects(out) == []


@pytest.mark.parametrize("words", [("torchrun", "--nproc-per-node=2"), ("-m", "torch.distributed.run", "--nproc_per_node", "8"),
                                   ("/opt/bin/accelerate", "launch", "--num_processes=4"), ("torchrun", "--nnodes=2", "--nproc-per-node=1")])
def test_launchers_of_several_ranks_are_refused(msmemscope, out, words):
    run = msmemscope("dryrun", "--", "true", *words, "train.py")
    option = [word for word in words if word.startswith("--n")][0]
    assert run.returncode == 1 and run.stderr.startswith(f"msmemscope: {option}: a dry run has one rank") and rows.projects(out) == []


@pytest.mark.parametrize("words", [("torchrun", "--nproc-per-node=1", "train.py"), ("train.py", "--num_processes=4"),
                                   ("torchrun", "train.py", "--num_gpus=4"), ("torchrun", "--nproc-per-node=gpu", "train.py")])
def test_one_rank_may_be_launched(msmemscope, words):
    run = msmemscope("dryrun", "--", "true", *words)
    assert run.returncode == 1 and "msmemscope: the program used no memory of an NPU" in run.stderr


def test_mindspore_is_refused(msmemscope, out):
    for path, text in (("mindspore/__init__.py", ""), ("mindspore-2.7.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mindspore\nVersion: 2.7.0\n")):
        (out / "packages" / path).parent.mkdir(parents=True)
        (out / "packages" / path).write_text(text)
    run = msmemscope("dryrun", "--", "python3", "-c", "open('ran', 'w')", cwd=out, env={"PYTHONPATH": out / "packages"})
    assert run.returncode == 1 and not (out / "ran").exists()
    assert run.stderr == ("msmemscope: /usr/bin/python3 has MindSpore 2.7.0 and no torch; dryrun runs programs of PyTorch only: "
                          "MindSpore cannot train on the simulated NPU\n")


def test_two_processes_are_refused(msmemscope, program):
    client = " ".join(map(str, program(*CLIENT)))
    run = msmemscope("dryrun", "--", "sh", "-c", f"{client} & {client}; wait")
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr.splitlines()[-1].startswith("msmemscope: 2 processes used an NPU: a dry run has one rank")


def test_a_program_that_uses_no_npu_is_refused(msmemscope):
    run = msmemscope("dryrun", "--", "true")
    assert run.returncode == 1 and run.stdout == "" and "msmemscope: the program used no memory of an NPU" in run.stderr
    run = msmemscope("dryrun", "--", "false")
    assert run.returncode == 1 and run.stdout == "" and run.stderr == "msmemscope: the program failed before it used an NPU\n"


def test_what_follows_the_program_is_its_own(msmemscope):
    run = msmemscope("dryrun", "--device=npu:1G", "sh", "-c", 'echo "$0 $*" >&2', "--steps=9", "--json", "--", "-o", "x")
    assert "--steps=9 --json -- -o x\n" in run.stderr
