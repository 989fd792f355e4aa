# SPDX-License-Identifier: Apache-2.0
"""SIMNPU_SHAPES=1: the simulated NPU computes only what is small, and a program asks for the same memory, to the byte."""
# Lower than the default, because the tensors of these programs are small.
SHAPES = {"SIMNPU_SHAPES": "1", "SIMNPU_SHAPES_COMPUTED": "64"}


# Of story.py all but its threads, which take turns by chance.
PROGRAMS = ("story.py tensors training streams pinned devices caches", "train.py", "classes.py", "leak.py", "waste.py", "smoke_leaks.py")


def moves(client, env):
    """What each program allocates and frees in each pool of each device, in its order, with the sums that the rows have."""
    result = client.trace("each.py", *PROGRAMS, env={"TASK_QUEUE_ENABLE": "0", **env}).check()
    programs = {line["pid"]: line["program"] for line in result.lines if "program" in line}
    found = {program: {} for program in programs.values()}
    for row in result.rows():
        if row.pid in programs and row.event in ("MALLOC", "FREE") and row.type in ("PTA", "PTA_WORKSPACE", "HAL"):
            found[programs[row.pid]].setdefault((row.device, row.type), []).append(
                (row.event, row.attr["size"], row.attr.get("used"), row.attr.get("total")))
    return found


def test_memory_is_the_same_to_the_byte(client):
    """TASK_QUEUE_ENABLE=0: the order of rows is that of the program. Their own assertions about values are left out."""
    computed, shapes = moves(client, {}), moves(client, SHAPES)
    assert list(computed) == [words.split()[0] for words in PROGRAMS]
    for program, pools in computed.items():
        assert any(pool == "PTA" for _, pool in pools), program
        assert shapes[program] == pools, program


def test_seven_thousand_million_parameters_cost_no_memory_of_the_host(client):
    """Weights, gradients and two states of AdamW, 4 bytes each for each parameter, and at most one more set of temporary tensors."""
    [found] = client.run("seven.py", env={"SIMNPU_SHAPES": "1", "SIMNPU_HBM": "256G"}).lines
    assert found["parameters"] > 6.5e9
    assert found["losses"] == [0, 0, 0], "what is not computed is zero where it is small"
    assert found["parameters"] * 16 <= found["allocated"] <= found["reserved"] < found["parameters"] * 21
    assert found["host"] < 1 << 30


def test_a_device_that_is_too_small_refuses_at_the_line(client):
    result = client.trace("seven.py", env={"SIMNPU_SHAPES": "1", "SIMNPU_HBM": "64G"})
    assert result.code != 0 and "OutOfMemoryError" in result.stderr and "optimizer.step()" in result.stderr
