# SPDX-License-Identifier: Apache-2.0
"""msmemscope bundle: one tar file for a ticket, which Python's own reader of tar files opens, with what is promised and nothing else."""
import json
import os
import tarfile
from pathlib import Path


def members(path):
    with tarfile.open(path) as archive:
        for member in archive:
            assert member.isreg() and member.uid == member.gid == 0 and member.uname == member.gname == ""
            assert not member.name.startswith("/") and ".." not in member.name.split("/")
            yield member.name, archive.extractfile(member).read()


def test_a_bundle_has_traces_reports_and_versions(msmemscope, program, out):
    for _ in range(2):
        msmemscope("--", *program("threads", 2, 50), output=out / "results").check()
    result = msmemscope("bundle", out / "results", output=False).check()
    path = Path(result.stdout.strip())
    assert path == out / "results" / "msmemscope_bundle.tar" and oct(path.stat().st_mode & 0o777) == "0o600"
    found = dict(members(path))
    projects = sorted(place.name for place in (out / "results").glob("msmemscope_*_*_*"))
    assert len(projects) == 2
    wanted = {f"bundle/{project}/{name}" for project in projects for name in ("trace.msc", "report.txt", "findings.json", "config.json")}
    assert set(found) == wanted | {"bundle/versions.txt"}
    for name in wanted:
        assert found[name] == (out / "results" / name.split("/", 1)[1]).read_bytes()
    assert os.uname().nodename.encode() not in found["bundle/versions.txt"] and b"msmemscope " in found["bundle/versions.txt"]
    # Who gets it reads it as the run itself.
    with tarfile.open(path) as archive:
        archive.extractall(out / "there")
    here = msmemscope("info", "--json", out / "results" / projects[0], output=False).check()
    there = msmemscope("info", "--json", out / "there" / "bundle" / projects[0], output=False).check()
    assert [one["pools"] for one in json.loads(here.stdout)["processes"]] == [one["pools"] for one in json.loads(there.stdout)["processes"]]


def test_a_project_without_its_trace_brings_its_dump_files(msmemscope, program, out):
    run = msmemscope("--no-keep-trace", "--", *program("threads", 1, 20), output=out / "results").check()
    project = run.project().path
    result = msmemscope("bundle", "--json", project, "-o", out, output=False).check()
    document = json.loads(result.stdout)
    assert document["bundle"] == str(out / "msmemscope_bundle.tar")
    found = dict(members(document["bundle"]))
    assert list(found) == document["files"]
    dumps = [name for name in found if name.endswith(".csv")]
    assert {name.split("/", 1)[1] for name in dumps} == {str(path.relative_to(project.parent)) for path in project.rglob("*.csv")} != set()
    assert all(found[name] == (project.parent / name.split("/", 1)[1]).read_bytes() for name in dumps)
    # A second one gets a name of its own, and the first stays.
    again = msmemscope("bundle", project, "-o", out, output=False).check()
    assert again.stdout.strip() == str(out / "msmemscope_bundle_2.tar")


def test_a_long_name_and_a_link(msmemscope, program, out):
    """Names beyond a hundred bytes are split as the format has it; a link is not followed."""
    place = out / ("msmemscope_1_" + "x" * 100)
    place.mkdir()
    (place / "report.txt").write_text("report")
    (place / "trace.msc").symlink_to("/etc/passwd")
    result = msmemscope("bundle", place, "-o", out / "to", output=False)
    assert result.returncode == 1 and "cannot read" in result.stderr and not list((out / "to").iterdir())
    (place / "trace.msc").unlink()
    result = msmemscope("bundle", place, "-o", out / "to", output=False).check()
    assert dict(members(result.stdout.strip()))[f"bundle/{place.name}/report.txt"] == b"report"


def test_what_is_no_directory_of_results_is_refused(msmemscope, out):
    result = msmemscope("bundle", out, output=False)
    assert result.returncode == 1 and "has no project" in result.stderr and not list(out.glob("*.tar*"))
    result = msmemscope("bundle", out / "absent", output=False)
    assert result.returncode == 1 and "cannot open" in result.stderr


SECRET = """
import mstx, npu
mark = mstx.range_start("acme-secret-range")
def acme_secret_function():
    npu.alloc(1 << 20)
acme_secret_function()
mstx.range_end(mark)
mstx.mark("acme-secret-mark")
"""


def test_an_anonymous_bundle_names_nobody(scripts, msmemscope, out):
    """Neither in the trace nor in what is made of it; sums and shapes of stacks stay."""
    run = scripts.command(SECRET, "--call-stack=python,c").check()
    project = run.project().path
    result = msmemscope("bundle", "--anonymize", project, "-o", out / "to", output=False).check()
    found = dict(members(result.stdout.strip()))
    assert set(found) == {"bundle/versions.txt", f"bundle/{project.name}/trace.msc", f"bundle/{project.name}/report.txt",
                          f"bundle/{project.name}/findings.json"}
    there = out / "there"
    with tarfile.open(result.stdout.strip()) as archive:
        archive.extractall(there)
    trace = there / "bundle" / project.name / "trace.msc"
    told = [msmemscope(*words, trace, output=False).check().stdout for words in (["info", "--json", "--all"], ["info", "--all"])]
    exported = msmemscope("export", "--format=jsonl", trace, "-o", out / "lines", output=False).check().stdout.strip()
    texts = [*told, *(text.decode("utf-8", "replace") for text in found.values()), Path(exported).read_text()]
    secrets = ["acme", "script.py", *([os.uname().nodename] if len(os.uname().nodename) > 5 else [])]
    for text in texts:
        assert not [secret for secret in secrets if secret in text]
    before = json.loads(msmemscope("info", "--json", project, output=False).check().stdout)["processes"][0]["pools"]
    assert json.loads(told[0])["processes"][0]["pools"] == before
    assert "function" in Path(exported).read_text() and '"line":5' in Path(exported).read_text()


def test_names_are_replaced_by_the_same_words_in_every_view(scripts, msmemscope, out):
    run = scripts.command(SECRET, "--call-stack=python").check()
    seen = []
    for word in ("jsonl", "collapsed", "perfetto", "pprof", "speedscope", "torch"):
        result = msmemscope("export", "--anonymize", f"--format={word}", run.project().path, "-o", out / word, output=False).check()
        for path in map(Path, result.stdout.splitlines()):
            data = path.read_bytes()
            assert b"acme" not in data and b"script.py" not in data, path
            seen.append(data)
    first = msmemscope("export", "--anonymize", "--format=jsonl", run.project().path, "-o", out / "again", output=False).check()
    assert Path(first.stdout.strip()).read_bytes() == seen[0]
    csv = msmemscope("export", "--anonymize", run.project().path, "-o", out / "csv", output=False).check()
    texts = [path.read_text() for path in Path(csv.stdout.strip()).rglob("*.csv")]
    assert texts and not [text for text in texts if "acme" in text]
