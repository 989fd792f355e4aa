# SPDX-License-Identifier: Apache-2.0
"""Operators of the simulated NPU, called by an unmodified torch_npu, compute what PyTorch computes on the CPU."""
import os
import random

from database import all_pairs, ever_wrong, problems, run

SAMPLED = 260


def test_operators_agree_with_the_cpu(client):
    result = client.run("operators.py")
    assert not [line for line in result.lines if "bad" in line]
    assert result.value("checked") > 400
    assert "simnpu:" not in result.stderr


def test_entries_of_pytorchs_operator_database_agree_with_the_cpu_or_are_refused_by_name(client):
    """A sample, by a seed that is printed, and all that were ever wrong; `make soak PART=operators` has the rest."""
    seed = int(os.environ.get("MSMEMSCOPE_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"MSMEMSCOPE_SEED={seed}")
    pairs = all_pairs(client)
    chosen = dict.fromkeys(random.Random(seed).sample(pairs, SAMPLED) + ever_wrong())
    results = run(client, chosen, samples=2)
    assert len(results) == len(chosen)
    assert not problems(results), f"MSMEMSCOPE_SEED={seed}\n" + "\n".join(problems(results))


def test_random_numbers_are_random(client):
    assert client.run("chance.py").value("chance") == "fair"


def fails(client, program, *arguments):
    result = client.start(client.command(program, *arguments), None, client.directory(), 240)
    assert result.code != 0, result.stdout
    return result.stderr


def test_an_operator_that_is_not_simulated_fails_by_name(client):
    """Where it is called: the line of the program is in the traceback."""
    said = fails(client, "not_simulated.py")
    assert "simnpu: aclnnTransQuantParamV3: it is not simulated" in said
    assert "torch_npu.npu_trans_quant_param(x)" in said


def test_a_type_that_an_operator_does_not_compute_with_fails_by_name(client):
    assert "simnpu: aclnnGelu: complex64 is not simulated" in fails(client, "refused.py", "type")


def test_an_index_out_of_range_fails_the_stream(client):
    assert "simnpu: aclnnIndex: an index is out of range" in fails(client, "refused.py", "index")


def test_when_asked_an_operator_that_is_not_simulated_only_says_so_once(client):
    """And its kernel is launched all the same."""
    kernels = client.work / "not_simulated.txt"
    result = client.run("not_simulated.py", env={"SIMNPU_LOG": str(kernels), "SIMNPU_LENIENT": "1"})
    said = [line for line in result.stderr.splitlines() if line.startswith("simnpu: ")]
    assert said == ["simnpu: aclnnTransQuantParamV3: it is not simulated, its result is not computed"]
    assert kernels.read_text(encoding="utf-8").count("aclnnTransQuantParamV3") == 2
    assert "done" in result.stdout


def test_the_report_lists_what_was_not_computed(client):
    result = client.trace("not_simulated.py", env={"SIMNPU_LENIENT": "1"}).check()
    report = " ".join(result.stderr.split())
    assert "values are not reliable: the simulated NPU did not compute aclnnTransQuantParamV3." in report


def test_what_is_made_on_the_device_of_something_on_the_host_is_an_operator_of_the_device(client):
    """x.to("npu"), x.npu(), zeros_like(x, device="npu"), module.to("npu"): a row each, and its result is written."""
    result = client.trace("moves.py", tool=["--events=alloc,free,launch,access"]).check()
    rows = result.rows()
    moves = [tuple(move) for move in result.value("moves")]
    assert [(row.name, row.ptr) for row in rows if row.event == "ACCESS" and row.type == "WRITE" and (row.name, row.ptr) in moves] == moves
    started = [row.name for row in rows if row.type == "ATEN_START"]
    assert [name for name in started if name in dict(moves)] == [name for name, _ in moves]
    assert {row.device for row in rows if row.type == "ATEN_START"} == {"0"}
