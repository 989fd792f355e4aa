# SPDX-License-Identifier: Apache-2.0
"""AscendCL: a training loop as people write it, with every kind of memory that it can take, on several devices and in several
processes. Its rows are what it did; its beginning and end stand in the file of every device."""
import struct
import subprocess
import sys
import time
from collections import Counter

import pytest

import harness
import rows

STACKS = ["--call-stack=c:20"]


def files(project):
    """Rows by the directory of their device."""
    return {path.parent.parent.name: rows.read_rows(path) for path in project.dumps()}


def of_type(found, *types):
    return [row for row in found if row.type in types]


@pytest.mark.qemu
@pytest.mark.parametrize("arguments", [[], ["--threads=4", "--devices=2"], ["--threads=8", "--devices=8", "--steps=2"]],
                         ids=["one", "two-devices", "eight-devices"])
def test_a_training_is_in_the_dump_as_it_went(client, arguments):
    client("acl_train", *arguments).exact()


def test_initialisation_and_end_stand_in_the_file_of_every_device(client):
    said = client("acl_train", "--threads=3", "--devices=3").exact()
    found = files(said.run.project())
    assert found.keys() == {"device_0", "device_1", "device_2", "device_cpu"}
    seen = set()
    for some in found.values():
        system = of_type(some, "ACL_INIT", "ACL_FINI")
        assert [(row.event, row.type, row.device, row.name, row.ptr, row.attr) for row in system] == [
            ("SYSTEM", kind, "N/A", None, None, {}) for kind in ("ACL_INIT", "ACL_FINI")]
        assert system[0].id == min(row.id for row in some) and system[1].id == max(row.id for row in some)
        seen.add(tuple((row.id, row.time_ns, row.tid) for row in system))
    assert len(seen) == 1, "the same rows in each"


def test_a_program_without_a_device_has_them_too(client):
    said = client("acl_train", "--plain").exact()
    assert {name: [row.type for row in some] for name, some in files(said.run.project()).items()} == {
        "device_cpu": ["ACL_INIT", "ACL_FINI"]}


def test_a_program_that_never_finalises_has_no_end(client):
    assert [row.type for row in client("acl_train", "--plain", "--abrupt").exact().rows()] == ["ACL_INIT"]


def test_registered_memory_counts_only_when_pinned(client):
    """Two registrations succeed, one is refused; the driver's own pinned memory is of the same kind."""
    said = client("acl_train", "--steps=2").exact()
    pinned = of_type(said.rows(), "HOST_PINNED")
    assert {row.device for row in pinned} == {"cpu"}
    assert [(row.event, row.attr["size"]) for row in pinned] == [
        (event, size) for size in (8192, 7000, 8000, 9000, 4096, 4097) for event in ("MALLOC", "FREE")]
    assert all(row.attr["pinned"] is True for row in pinned)


def test_every_kind_of_address_is_the_hosts_or_a_devices(client):
    """Pinned, agent and unified host memory is HOST_PINNED; shared, DVPP and managed memory counts on its device."""
    said = client("acl_train", "--steps=0", env={"ASCEND_RT_VISIBLE_DEVICES": "3"}).exact()
    blocks = [(row.type, row.device, row.attr["size"], row.attr.get("page_type")) for row in said.rows()
              if row.event == "MALLOC" and row.attr.get("alloc_type") != "create"]
    assert blocks == [("HOST_PINNED", "cpu", 8192, None), ("HAL", "3", 3 << 20, "huge"), ("HAL", "3", 100, "normal"),
                      ("HAL", "3", 1 << 30, "giant"), ("HAL", "3", 5000, "normal"), ("HAL", "3", 6000, "normal"),
                      ("HOST_PINNED", "cpu", 7000, None), ("HOST_PINNED", "cpu", 8000, None),
                      ("HOST_PINNED", "cpu", 9000, None)]


def test_physical_memory_is_created_memory_with_its_pages(client):
    created = [row for row in client("acl_train", "--steps=0").exact().rows() if row.attr.get("alloc_type") == "create"]
    assert [(row.attr["size"], row.attr["page_type"]) for row in created] == [(2 << 20, "huge"), (2 << 20, "normal")]


def test_sizes_and_pages_are_those_that_the_driver_is_asked_for(client):
    rows_of_steps = client("acl_train", "--steps=6", options=["--steps=1,2,3,4,5,6"]).rows()
    blocks = Counter((row.attr["size"], row.attr["page_type"]) for row in rows_of_steps
                     if row.attr.get("alloc_type") == "alloc")
    assert blocks == {(1056, "normal"): 6, (1048608, "normal"): 1, (1048608, "huge"): 1, (2097184, "normal"): 1,
                      (2097184, "huge"): 1, (3145760, "normal"): 1, (3145760, "huge"): 1}


def test_devices_are_physical(client):
    said = client("acl_train", "--threads=4", "--devices=4", env={"ASCEND_RT_VISIBLE_DEVICES": "7,0,5,2"}).exact()
    assert files(said.run.project()).keys() == {"device_0", "device_2", "device_5", "device_7", "device_cpu"}
    by_thread = {row.tid: row.device for row in said.rows() if row.type == "HAL"}
    assert sorted(by_thread.values()) == ["0", "2", "5", "7"]


def test_workers_with_a_device_each_have_their_own_project(client):
    """The environment of a worker is set after the fork, and holds."""
    said = client("acl_train", "--workers=4", "--threads=2").exact()
    devices = {project.pid: files(project).keys() - {"device_cpu"} for project in said.run.projects()}
    assert sorted(map(sorted, devices.values())) == [[], ["device_1"], ["device_2"], ["device_3"], ["device_4"]]


def test_children_after_the_training_have_their_own_project(client):
    said = client("acl_train", "--late=3", "--steps=2").exact()
    assert len(said.run.projects()) == 4
    parents = {said.info(project)["parent_run"] for project in said.run.projects()}
    runs = {said.info(project)["run"] for project in said.run.projects()}
    assert len(parents & runs) == 1, "three children of one parent"


def test_stacks_lead_through_ascendcl_to_the_caller(client):
    said = client("acl_train", "--threads=2", options=STACKS).exact()
    callers = {("HAL", "alloc"): ("take", "take_spaces"), ("HAL", "create"): ("map_memory",),
               ("HOST_PINNED", None): ("take_host", "register_memory", "take_spaces")}
    blocks = [row for row in said.rows() if row.event == "MALLOC"]
    assert {(row.type, row.attr.get("alloc_type")) for row in blocks} == callers.keys()
    for row in blocks:
        names = callers[row.type, row.attr.get("alloc_type")]
        assert any(f"/acl_train({name}+0x" in frame for frame in row.c_stack for name in names), row.c_stack
        assert any("/acl_train(work+0x" in frame for frame in row.c_stack), row.c_stack


@pytest.mark.parametrize("driver", ["lib64", "lib64-old"])
def test_both_generations_of_the_driver_give_the_same_rows(client, dist, driver):
    client("acl_train", env={"LD_LIBRARY_PATH": f"{dist}/simnpu/{driver}:{dist}/simnpu/lib64"}).exact()


def test_failed_calls_leave_no_rows(client):
    """The program initialises and finalises a second time, registers twice and unregisters what is not: all refused."""
    said = client("acl_train").exact()
    assert Counter(row.type for row in said.rows() if row.event == "SYSTEM") == {"ACL_INIT": 1, "ACL_FINI": 1}


REST = """
import ctypes, time
ctypes.CDLL("libascend_hal.so", mode=ctypes.RTLD_GLOBAL)
hal = ctypes.CDLL(None)
hal.halMemAlloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_ulonglong, ctypes.c_ulonglong]
def take(size, device):
    assert hal.halMemAlloc(ctypes.byref(ctypes.c_void_p()), size, 33 << 56 | 0x904400 | device) == 0
take(3 << 20, 0)
take(1 << 20, 2)
time.sleep(1)
take(4096, 0)
take(4096, 2)
"""


@pytest.fixture
def other_use(dist, tmp_path):
    """Another process that holds 100 MiB of device 0 before the program starts; gives what both need in the environment."""
    share = tmp_path / "share"
    share.mkdir()
    env = harness.environment(dist, {"SIMNPU_SHARE": share})
    holder = subprocess.Popen([sys.executable, "-c", REST.split("take(3 <<")[0] + "take(100 << 20, 0)\nprint('held', flush=True)\ninput()"],
                              env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    yield {"SIMNPU_SHARE": share}
    holder.communicate("\n")


def test_the_drivers_own_figures_stand_beside_the_sums(client, other_use):
    """From the first row on: the driver was asked before the program ran, and what the process took since is known. Nothing is
    freed here, so they are exact, whenever the driver was asked."""
    said = client(None, command=[sys.executable, "-c", REST], env=other_use)
    found = [row for row in said.rows() if row.event == "MALLOC"]
    assert [(row.device, row.attr["process_used"]) for row in found] == [
        ("0", 3 << 20), ("2", 1 << 20), ("0", (3 << 20) + 4096), ("2", (1 << 20) + 4096)]
    assert [row.attr["device_used"] - row.attr["process_used"] for row in found] == [100 << 20, 0, 100 << 20, 0]
    assert list(found[0].attr) == ["allocation_id", "addr", "size", "used", "process_used", "device_used", "page_type", "alloc_type"]


@pytest.mark.parametrize("target", [["client_pta", "--threads=2", "--devices=2", "--rounds=2000"], ["client_mindspore"],
                                    ["client_workspace"], ["acl_train", "--steps=6"]],
                         ids=lambda target: target[0])
def test_every_row_of_a_device_has_the_drivers_figures_not_below_its_pool(client, other_use, target):
    said = client(*target, env=other_use)
    found = [row for row in said.rows() if row.event in ("MALLOC", "FREE") and row.device != "cpu" and "shadow" not in row.attr]
    assert len(found) > 20
    for row in found:
        assert row.attr["process_used"] >= max(row.attr["used"], row.attr.get("total", 0)), row
        assert row.attr["device_used"] - row.attr["process_used"] >= 0, row
    first = next(row for row in found if row.device == "0")
    assert first.attr["device_used"] == (100 << 20) + first.attr["process_used"], "what was there before the program ran"


RECORD = struct.Struct("IIQQII")  # struct sampler_record


def test_the_sampler_answers_when_it_is_asked(dist):
    """A round of figures comes at once when a byte asks for one, and by itself ten times a second. A ratio: no clock decides."""
    env = harness.environment(dist, {"MSMEMSCOPE_SAMPLER_FD": "1", "LD_PRELOAD": dist / "lib64" / "libmsmemscope_sampler.so"})
    sampler = subprocess.Popen(["/bin/true"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def rounds(ask):
        start = time.monotonic()
        for _ in range(8):
            if ask:
                sampler.stdin.write(b"x")
                sampler.stdin.flush()
            while RECORD.unpack(sampler.stdout.read(RECORD.size))[0] != 0xffffffff:
                pass
        return time.monotonic() - start

    rounds(False)
    assert rounds(True) < rounds(False)
    sampler.stdin.close()
    assert sampler.wait(30) == 0, "it ends with who asks"
