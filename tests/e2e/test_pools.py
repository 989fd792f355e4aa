# SPDX-License-Identifier: Apache-2.0
"""Memory pools of the frameworks: each region that a pool hands out and gets back is a row, with the pool's name, its size, the
physical device, and what the pool has in use and in all after that step. The clients talk to mstx exactly as torch_npu's two
allocators, MindSpore and ATB do, with all that these leave uninitialised (tests/targets/client_*.c; that they do is proven in
test_clients.py). The driver's memory below the pools stands beside it."""
from collections import Counter

import pytest

ROUNDS = "--rounds=300"
POOLS = {"client_pta": "PTA", "client_workspace": "PTA_WORKSPACE", "client_mindspore": "MINDSPORE", "client_atb": "ATB"}
every_pool = pytest.mark.parametrize("name", POOLS)


def types(said):
    return {row.type for row in said.rows() if row.event in ("MALLOC", "FREE")}


@every_pool
@pytest.mark.qemu
def test_regions_of_one_thread_are_rows(client, name):
    said = client(name).exact()
    assert types(said) == {"HAL", POOLS[name]}
    assert not {"MSTX"} & {row.event for row in said.rows()}, "a pool's calls are no marks"


@pytest.mark.parametrize("name, arguments", [
    ("client_pta", ["--threads=4", "--devices=3", ROUNDS]),
    ("client_workspace", ["--threads=3", "--streams=4"]),
    ("client_mindspore", ["--threads=4", "--devices=2", ROUNDS]),
    ("client_atb", ["--threads=4", "--devices=2"]),
])
def test_threads_and_devices_keep_their_sums_apart(client, name, arguments):
    said = client(name, *arguments).exact()
    assert types(said) == {"HAL", POOLS[name]}
    assert len({row.device for row in said.rows()}) >= 2


def test_domain_name_of_old_torch_npu_is_the_same_pool(client):
    assert types(client("client_pta", "--domain=msleaks", ROUNDS).exact()) == {"HAL", "PTA"}


@pytest.mark.parametrize("name", ["client_pta", "client_workspace"])
def test_torch_npu_before_2026_is_heard_too(client, name):
    assert types(client(name, "--old-loader").exact()) == {"HAL", POOLS[name]}


def test_expandable_segments_are_created_memory_under_the_pool(client):
    said = client("client_pta", "--expandable", "--threads=2", ROUNDS).exact()
    assert types(said) == {"HAL", "PTA"}
    kinds = {row.attr["alloc_type"] for row in said.rows() if row.event == "MALLOC" and row.type == "HAL"}
    assert kinds == {"create"}


def test_workspace_memory_is_a_pool_of_its_own(client):
    """What torch_npu's workspace allocator reports. That TASK_QUEUE_ENABLE=2 makes torch_npu use it is shown with the real one
    (realclients/test_rows.py)."""
    said = client("client_workspace").exact()
    workspace = Counter(row.event for row in said.rows() if row.type == "PTA_WORKSPACE")
    assert workspace["MALLOC"] == 201 and workspace["FREE"] == 200


def test_region_over_a_region_ends_the_first_without_a_sum(client):
    """The address comes again while it is out: the first region gets a FREE that says it was not seen."""
    said = client("client_workspace", "--nested").exact()
    ended = [row for row in said.rows() if row.attr.get("shadow")]
    assert len(ended) == 200 and {row.event for row in ended} == {"FREE"}
    assert list(ended[0].attr) == ["allocation_id", "addr", "size", "shadow"]


def test_heap_without_a_device_has_no_rows(client):
    said = client("client_atb", "--no-device", "--rounds=5").exact()
    assert types(said) == {"HAL"}


@every_pool
def test_devices_are_physical(client, name):
    wide = "--threads=2" if name == "client_workspace" else "--devices=2"
    said = client(name, "--threads=2", wide, env={"ASCEND_RT_VISIBLE_DEVICES": "5,3"}).exact()
    assert {(row.type, row.device) for row in said.rows()} == {(pool, device) for pool in ("HAL", POOLS[name])
                                                             for device in "35"}
    assert {path.parent.parent.name for path in said.run.project().dumps()} == {"device_3", "device_5"}


@pytest.mark.parametrize("name, allocate, release", [
    ("client_pta", "torch_register", "torch_unregister"),
    ("client_workspace", "torch_register", "torch_unregister"),
    ("client_mindspore", "report_malloc", "report_free"),
    ("client_atb", "register_regions", "unregister_regions"),
])
def test_every_region_of_a_batch_has_its_callers_stack(client, name, allocate, release):
    said = client(name, "--rounds=50", options=["--call-stack=c:20"]).exact()
    regions = [row for row in said.rows() if row.type == POOLS[name] and not row.attr.get("shadow")]
    assert regions
    for row in regions:
        caller = allocate if row.event == "MALLOC" else release
        # Before it at most the mstx function itself, where the compiler did not make it a jump.
        assert any(f"/{name}({caller}+0x" in frame for frame in row.c_stack[:2]), row.c_stack
        assert any(f"/{name}({root}+0x" in frame for frame in row.c_stack for root in ("work", "main")), row.c_stack


@every_pool
def test_without_asking_there_are_no_stacks(client, name):
    assert not any(row.c_stack or row.python_stack for row in client(name, "--rounds=20").exact().rows())


def test_pools_of_several_processes_do_not_mix(client, program):
    """A shell that starts one framework after the other, and two at once."""
    names = list(POOLS)
    script = "\n".join([*(" ".join(program(name, "--rounds=20")) for name in names),
                        *(" ".join(program(name, "--rounds=100")) + " &" for name in names[:2]), "wait"])
    said = client(None, command=["sh", "-c", script]).exact()
    assert len(said.run.projects()) == 6
    for project, process in said.pairs():
        assert {row.type for row in said.rows(project)} == {"HAL", POOLS["client_" + process.client]}
