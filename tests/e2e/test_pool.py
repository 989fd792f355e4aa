# SPDX-License-Identifier: Apache-2.0
"""PyTorch's pool on a GPU in detail, without a GPU: stand-ins for libc10_cuda and libtorch_cuda by a real C++ compiler (targets/torch_pool),
whose allocator knows its truth and has its functions in another place each time."""
import json
import subprocess
from pathlib import Path

import pytest
from pool_truth import at, blocks, driver_differences, pool_differences

SOURCES = Path(__file__).resolve().parents[1] / "targets" / "torch_pool"
# Virtual functions before those that matter.
FEW, MANY = 3, 37
NO_CUPTI = {"CUPTI_LIBRARY": "/nonexistent/libcupti.so"}


@pytest.fixture(scope="session")
def stand_in(targets, tmp_path_factory):
    """stand_in(defines): the directory of libraries and program that are built so, once."""
    built = {}

    def build(defines):
        if defines in built:
            return built[defines]
        place = built[defines] = tmp_path_factory.mktemp("pool")
        flags = ["-std=c++17", "-O0", "-w", "-pthread", *(f"-D{define}" for define in defines)]
        paths = [f"-L{place}", f"-L{targets}", f"-Wl,-rpath-link,{targets}"]
        for name, libraries in (("libc10_cuda", ["-lc10"]), ("libtorch_cuda", ["-lc10_cuda"])):
            subprocess.run(["c++", *flags, "-fPIC", "-shared", SOURCES / f"{name}.cpp", "-o", place / f"{name}.so", *paths, *libraries, "-ldl"],
                           check=True)
        subprocess.run(["c++", *flags, SOURCES / "pool_random.cpp", "-o", place / "pool_random", *paths, "-ltorch_cuda", "-lc10_cuda", "-ldl"],
                       check=True)
        return place

    return build


@pytest.fixture
def pool(stand_in, msmemscope, targets, out):
    """pool(defines, words...): a random program on a stand-in that is built so."""
    def run(defines, *words, env=None):
        place = stand_in(tuple(defines))
        run = msmemscope("--", place / "pool_random", *words, output=out / "results",
                         env={"LD_LIBRARY_PATH": f"{place}:{targets.parent}/fakes:{targets}", "FAKE_CUDA_MEMORY_MB": 65536,
                              "FAKE_CUDA_STATE": out / "gpu", **(env or {})})
        run.check()
        return run, json.loads([line for line in run.stdout.splitlines() if line.startswith("{")][-1])

    return run


@pytest.mark.parametrize("seed, words", [(1, []), (2, ["expandable"]), (3, ["threads"]), (4, ["threads", "expandable"])])
def test_rows_and_snapshots_are_what_the_pool_says(pool, seed, words):
    run, said = pool([f"PADDING={FEW if seed % 2 else MANY}"], seed, *words)
    assert not pool_differences(run.rows(), said)
    assert not driver_differences(run.rows(), said, False)
    assert max(truth["waiting"]["size"] for truth in said.values()) and any(" 0-7" in place for place in said["full"]["pools"])


@pytest.mark.parametrize("seed, words", [(5, []), (6, ["threads", "expandable"])])
def test_segments_are_the_drivers_rows_where_there_is_no_cupti(pool, seed, words):
    run, said = pool([f"PADDING={MANY}"], seed, *words, env=NO_CUPTI)
    assert not pool_differences(run.rows(), said)
    assert not driver_differences(run.rows(), said, True)
    assert said["emptied"]["reserved"] < said["drained"]["reserved"]


def test_reserved_behind_empty_cache(pool, msmemscope):
    run, said = pool([f"PADDING={FEW}"], 7, env=NO_CUPTI)
    [told] = [part for part in msmemscope.info(run.project())["pools"] if part["pool"] == "PTA"]
    assert told["segment_bytes"] == said["again"]["reserved"] and told["waiting_bytes"] == said["again"]["waiting"]["size"]
    assert told["requested_bytes"] + said["again"]["waiting"]["requested"] == said["again"]["requested"]
    before, snapshot = at(run.rows(), "emptied")
    last = [row for row in before if row.type == "HAL" and row.event == "FREE"][-1]
    assert last.attr["reserved"] == snapshot["reserved"] == said["emptied"]["reserved"]


def test_a_block_of_the_page_has_its_request_and_stream(pool, view):
    run, _ = pool([f"PADDING={FEW}"], 7, env=NO_CUPTI)
    known = [row for row in run.rows() if row.event == "MALLOC" and row.type == "PTA" and "requested" in row.attr]
    page = view(run.project().path)
    assert len(known) > 20 and len({row.attr["stream"] for row in known}) > 1
    for row in known[::len(known) // 10]:
        [block] = page.ask("block", process=0, id=row.attr["allocation_id"])["blocks"]
        assert int(block["address"], 16) == row.ptr
        assert (block["requested"], block["stream"]) == (row.attr["requested"], row.attr["stream"]), row


def test_an_older_pytorch_knows_no_private_pools(pool):
    run, said = pool(["LAYOUT=1", "PADDING=20"], 8, "version=203")
    assert not pool_differences(run.rows(), said)
    assert not [row for row in run.rows() if "private_pool" in row.attr or "private_reserved" in row.attr]


@pytest.mark.parametrize("seed, defines, told", [(9, ["LAYOUT=2"], True), (10, ["LAYOUT=3"], True), (11, ["LAYOUT=4"], True),
                                                 (12, ["ASYNC"], False)])
def test_what_is_not_known_is_not_used(pool, msmemscope, seed, defines, told):
    """An entry that is laid out otherwise, and an allocator that has no trackers: rows as without them."""
    run, said = pool(defines, seed)
    rows = run.rows()
    assert not [row for row in rows if row.attr.keys() & {"requested", "stream", "private_pool", "waiting"}]
    for name, truth in said.items():
        before, _ = at(rows, name)
        assert sum(attr["size"] for attr in blocks(before, "PTA").values()) == truth["allocated"]
    assert " ".join(run.stderr.split()).count("streams and private pools of PyTorch's pool are not recorded") == told, str(run)
    refused = msmemscope("whatif", "--json", str(run.project().path), output=False)
    assert refused.returncode == 1 and "the record of PyTorch's pool cannot be replayed: it has no requested sizes" in refused.stderr
    said = json.loads(refused.stdout)["pools"]
    assert said and all(not one["agrees"] and one["left_at"] is None and one["refusal"].startswith("The record cannot be replayed: it has no requested sizes")
                        and "settings" not in one for one in said)
