# SPDX-License-Identifier: Apache-2.0
"""The real MindSpore on the simulated NPU, as far as tensors and operators one by one go: rows against what its pool itself counts and,
event by event, against a receiver of our own; and a graph, which it runs operator by operator. The graph engine itself is stubs here.

The packages are large, so this is a part of `make soak`. Their environments are build/venv-mindspore-VERSION, made when they are missing.
"""
import os
import re
import subprocess
from pathlib import Path

import pytest

import stubs
from clients import ROOT, Client, build_receiver

VERSIONS = ("2.7.0", "2.10.0")
# What of the plugin is loaded; its other libraries are for graphs, other ways of communication and ATB. The last one came with 2.10.
PLUGIN = ("libmindspore_ascend.so.2", "libmindspore_ops_ascend.so", "ascend/libmindspore_ascend_res_manager.so",
          "ascend/libmindspore_graph_ir.so", "ascend/libd_collective.so", "ascend/libhccl_plugin.so",
          "ascend/ms_kernels_symmetric_memory/shmem/shmem/lib/libshmem.so")


def environment(version):
    venv = ROOT / "build" / f"venv-mindspore-{version}"
    if not list(venv.glob("lib/python*/site-packages/mindspore/version.py")):
        subprocess.run(["/usr/bin/python3", "-m", "venv", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "--disable-pip-version-check", "--quiet", "install", f"mindspore=={version}", "numpy<2"], check=True)
    return venv


def toolkit(folder, simnpu):
    """The folders that MindSpore looks for, of which the libraries are ours. One in their path must be called so."""
    latest = folder / "latest"
    for name in ("compiler", "opp", "opp_kernel"):
        (latest / name).mkdir(parents=True)
    (latest / "compiler" / "version.info").write_text("Version=8.2.RC1\n", encoding="utf-8")
    for name in ("lib64", "python"):
        (latest / name).symlink_to(simnpu / name)
    return latest


@pytest.fixture(scope="module", name="place", params=VERSIONS)
def place_fixture(request, tmp_path_factory):
    """A client, and the variables with which MindSpore finds the simulated NPU and stubs for the rest."""
    work = tmp_path_factory.mktemp("mindspore")
    dist = Path(os.environ.get("MSMEMSCOPE_DIST", ROOT / "build" / "dist")).resolve()
    simnpu = Path(os.environ.get("SIMNPU_HOME", dist / "simnpu")).resolve()
    client = Client(environment(request.param) / "bin" / "python", dist, simnpu, work)
    (libraries,) = client.python.parent.parent.glob("lib/python*/site-packages/mindspore/lib")
    functions = stubs.build(work / "stubs", [path for path in (libraries / "plugin" / name for name in PLUGIN) if path.exists()],
                            [*libraries.glob("*.so*"), *(simnpu / "lib64").glob("*.so*")])
    print(f"{len(functions)} functions are stubs")
    latest = toolkit(work, simnpu)
    return client, work, {"ASCEND_HOME_PATH": str(latest), "ASCEND_OPP_PATH": str(latest / "opp"), "GLOG_v": "3",
                          "LD_LIBRARY_PATH": f"{latest / 'lib64'}:{work / 'stubs'}"}


@pytest.fixture(scope="module", name="story")
def story_fixture(place):
    """A run of the program with rows, the receiver's lines and those of the simulated device."""
    client, work, env = place
    receiver = build_receiver(work)
    log, kernels = work / "received.txt", work / "kernels.txt"
    result = client.trace("mindspore_story.py", tool=["--level=op,kernel", "--events=alloc,free,launch"], env={
        **env, "MSTX_INJECTION_PATH": str(receiver), "RECEIVER": str(log), "RECEIVER_HEAPS": "1", "SIMNPU_LOG": str(kernels)})
    result.check()
    result.received = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    result.kernels = [line.split() for line in kernels.read_text(encoding="utf-8").splitlines()]
    return result


def test_rows_agree_with_an_independent_receiver(story):
    """MindSpore registers a block, or takes it back, and then says how much it holds in all: that is the block's own total."""
    rows = [row for row in story.rows() if row.type == "MINDSPORE"]
    events, heaps = story.received[::2], story.received[1::2]
    assert len(rows) == len(events) == len(heaps) and len(rows) > 200
    for row, (event, domain, device, address, size, _), (heap, _, _, place, total, _) in zip(rows, events, heaps):
        assert (domain, heap, place) == ("mindsporeMemPool", "HEAP", address)
        assert (row.event, row.ptr, row.attr["total"]) == (event, int(address, 16), int(total)), row
        if event == "MALLOC":
            assert (row.device, row.attr["size"]) == (device, int(size)), row
    print(f"{len(rows)} of {len(events)} rows are equal")


def test_rows_agree_with_the_counters_of_mindspore(story):
    used = total = marks = 0
    for row in story.rows():
        if row.type == "MINDSPORE":
            used += row.attr["size"] if row.event == "MALLOC" else -row.attr["size"]
            total = row.attr["total"]
            assert row.attr["used"] == used, row
        elif row.type == "HAL" and "reserved" in row.attr:
            total = row.attr["reserved"]
        elif row.event == "MSTX" and row.name.startswith("count "):
            name, allocated, reserved = re.fullmatch(r"count (\S+) allocated=(\d+) reserved=(\d+)", row.name).groups()
            assert (used, total) == (int(allocated), int(reserved)), name
            marks += 1
    assert marks == len([line for line in story.lines if "mark" in line]) == 15
    print(f"{marks} marks are equal")


def test_kernels_are_those_that_ran(story):
    ran = sorted((device, stream, task, name) for device, stream, task, name, _, _ in story.kernels)
    rows = sorted((row.device, str(row.attr["streamId"]), str(row.attr["taskId"]), row.name)
                  for row in story.rows() if row.type == "KERNEL_LAUNCH")
    assert rows == ran and {"aclnnAdd", "aclnnMul", "aclnnMatmul"} <= {name for _, _, _, name in ran}


def test_nothing_that_it_called_was_missing_but_graphs(story):
    """A registration of an operator for graphs, and channels for what graphs print."""
    said = set(re.findall(r"not simulated: (\w+)|simnpu: (.*)", story.stderr))
    names = {stub or line for stub, line in said}
    assert all("OperatorCreatorRegister" in name or name.startswith("acltdtCreateChannel") for name in names), names


def test_a_graph_is_computed_operator_by_operator(place):
    client, _, env = place
    result = client.trace("mindspore_graph.py", tool=["--level=kernel", "--events=alloc,free,launch"], env=env).check()
    assert result.lines == [{"graph": "right"}]
    assert {"aclnnMatmul", "aclnnRelu"} <= {row.name for row in result.rows() if row.type == "KERNEL_LAUNCH"}
