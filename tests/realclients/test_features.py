# SPDX-License-Identifier: Apache-2.0
"""Features of torch_npu that have to do with memory, under the tool: what they do is right, and so are the rows."""
import pytest

from clients import HERE

MIB = 1 << 20


def test_out_of_memory_is_an_error_of_python(client):
    """And the rows show what was alive then, and that all of it was given back."""
    result = client.trace("features.py", "oom", env={"SIMNPU_HBM": "512M"}).check()
    assert result.value("blocks") == 7 and "NPU out of memory" in result.value("message")
    assert result.value("after") == 1000
    rows = [row for row in result.rows() if row.type == "PTA"]
    peak = max(range(len(rows)), key=lambda n: rows[n].attr["used"])
    assert rows[peak].attr["used"] >= 7 * 64 * MIB
    assert rows[peak].attr["total"] <= 512 * MIB
    assert min(row.attr["used"] for row in rows[peak:]) == 0


def test_operators_without_a_number_are_on_the_device_of_the_moment(client):
    result = client.trace("features.py", "unnumbered", tool=["--level=op", "--events=alloc,free,launch"]).check()
    made = [row.device for row in result.rows() if row.type == "ATEN_START" and ".empty" in row.name]
    assert made == result.value("devices") == ["1", "2", "1"]


def test_a_model_that_is_older_than_the_first_start_is_known(client):
    """With the library only preloaded: what torch_npu has in use then, its weights, and what is in use after the next tensor."""
    out = client.directory()
    env = {"LD_PRELOAD": str(client.dist / "lib64" / "libascend_kernel_hook.so"), "OUT": str(out),
           "PYTHONPATH": f"{client.dist / 'python'}:{client.environment()['PYTHONPATH']}"}
    result = client.start([client.python, HERE / "programs" / "late.py"], env, out, 240).check()
    pool = [row for row in result.rows() if row.type == "PTA"]
    older = {row.ptr: row for row in pool if row.event == "MALLOC" and row.attr.get("shadow")}
    assert sum(row.attr["size"] for row in older.values()) == result.value("before")
    first = next(row for row in pool if not row.attr.get("shadow"))
    assert first.event == "MALLOC" and first.attr["used"] == result.value("after")
    assert {older[weight].attr["owner"] for weight in result.value("weights")} == {"PTA@model@weight"}


def test_expandable_segments_have_rows(client):
    """Physical memory is created and released by handles of the driver."""
    result = client.trace("features.py", "expandable", env={"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"}).check()
    assert result.value("right") and result.value("emptied") == 0
    rows = result.rows()
    created = [row for row in rows if row.type == "HAL" and row.event == "MALLOC" and row.attr.get("alloc_type") == "create"]
    released = {row.ptr for row in rows if row.type == "HAL" and row.event == "FREE"}
    assert sum(row.attr["size"] for row in created) == result.value("reserved")
    assert {row.ptr for row in created} <= released
    pool = [row for row in rows if row.type == "PTA"]
    peak = max(row.attr["used"] for row in pool)
    assert peak >= result.value("allocated")
    assert all(row.attr["total"] <= result.value("reserved") for row in pool)


def test_a_pool_of_its_own_works(client):
    result = client.trace("features.py", "mempool").check()
    assert result.value("sum") == 2 * 5 * MIB and result.value("apart")


def test_a_loader_pins_its_batches(client):
    result = client.trace("features.py", "loader", tool=["--device=npu,cpu"]).check()
    assert result.value("total") == result.value("wanted")
    assert [row for row in result.rows() if row.type.startswith("HOST") and row.event == "MALLOC"]


def test_spawned_processes_have_rows(client):
    result = client.trace("features.py", "spawn").check()
    assert result.value("results") == [[0, 1000.0], [1, 2000.0]]
    rows = [row for row in result.rows() if row.type == "PTA" and row.event == "MALLOC"]
    assert {row.device for row in rows} == {"0", "1"}
    assert len({row.pid for row in rows}) == 2


def test_graphs_replay_what_they_captured(client):
    result = client.trace("features.py", "graph", tool=["--level=op,kernel"]).check()
    assert result.value("totals") == [5000.0, 13000.0, 21000.0]
    assert result.value("same") and result.value("gradient")


def test_the_sanitizer_of_torch_npu_finds_a_race(client):
    """Streams of the simulated device are real ones: what is not ordered is seen as such."""
    assert client.run("race.py").value("races") == 1
    assert client.run("race.py", "--wait").value("races") == 0


@pytest.mark.parametrize("how", [(), ("--python",)], ids=["c", "python"])
def test_a_race_of_an_operator_that_marks_announce_is_found(client, how):
    """Its name and the tensor stand in what torch_npu's sanitizer prints; a stream that waits is fine."""
    race = client.trace("marked_race.py", *how).check()
    assert race.stderr.count("possible data race") == 1
    assert "my.kernel" in race.stderr and str(race.value("data")) in race.stderr
    assert "a mark is ignored: it has no name=" in race.stderr or "is not alias:address:bytes" in race.stderr
    waits = client.trace("marked_race.py", "--wait", *how).check()
    assert "data race" not in waits.stderr


def test_the_script_that_sets_the_environment_is_enough(client):
    script = f"source {client.simnpu}/set_env.sh && exec {client.python} {HERE}/programs/features.py mempool"
    unset = dict.fromkeys(("ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "LD_LIBRARY_PATH", "PYTHONPATH"))
    result = client.start(["bash", "-c", script], unset, client.directory(), 100).check()
    assert result.value("sum") == 2 * 5 * MIB


@pytest.mark.parametrize("tool", [[], ["--collect-mode=deferred"], None], ids=["immediate", "deferred", "preloaded"])
def test_snapshots_have_the_counters_of_torch_npu(client, tool):
    """A device that the program does not use is not begun for it: its memory is the driver's figure."""
    devices = {"SIMNPU_DEVICES": "3", "PYTHONPATH": f"{client.dist / 'python'}:{client.environment()['PYTHONPATH']}"}
    if tool is None:
        out = client.directory()
        env = {**devices, "LD_PRELOAD": str(client.dist / "lib64" / "libascend_kernel_hook.so")}
        result = client.start(client.command("features.py", "snapshot"), env, out, 240).check()
        result.out = out / "memscopeDumpResults"
    else:
        result = client.trace("features.py", "snapshot", tool=tool, env=devices).check()
    keys = ["reserved", "max_reserved", "allocated", "max_allocated", "total", "free"]
    rows = [row for row in result.rows() if row.event == "SNAPSHOT"]
    first = [row for row in rows if row.name == "nothing yet"]
    assert [row.device for row in first] == ["0", "1", "2"] and result.value("begun") is False
    assert all([row.attr[key] for key in keys[:4]] == [0] * 4 and row.attr["free"] == row.attr["total"] for row in first)
    around = [row for row in rows if row.name.startswith("around")]
    assert [(row.name, row.device) for row in around] == [("around Start", "0"), ("around End", "0")]
    assert (around[0].attr["reserved"], around[1].attr["reserved"]) == (0, result.value("reserved"))
    told = result.value("snapshots")
    assert len(told) == 6 + 2 + 2 + 3 and len(rows) == len(told) + 3 + 2
    for (name, device, *figures), row in zip(told, rows[3:]):
        assert (row.name, row.device) == (name, device)
        whole = row.attr["total"]
        figures = [whole if figure is None else figure for figure in figures]
        assert [row.attr[key] for key in keys] == figures, (name, row)
