# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs without a GPU: a stand-in driver (tests/fakes), and a caching pool that reports as PyTorch's does and knows its truth."""
import signal

import pytest

MIB = 1 << 20
WORDS = {"growth": "growth", "spike": "spike", "fragmentation": "fragmentation", "outside": "outside the pool",
         "others": "other processes", "full": "full"}
CAUSES = list(WORDS)


@pytest.fixture
def gpu(msmemscope, dist, targets, program, out):
    """gpu(options, program, words...): a run on two GPUs of the stand-in, of `size` MiB."""
    def run(options, name, *words, size=1024, context=8, others=0, env=None, output=None):
        paths = f"{targets.parent}/fakes:{targets}:{dist}/simnpu/lib64"
        return msmemscope(*options, "--", *program(name, *words), output=output or out,
                          env={"LD_LIBRARY_PATH": paths, "FAKE_CUDA_STATE": out / "gpu", "FAKE_CUDA_MEMORY_MB": size,
                               "FAKE_CUDA_CONTEXT_MB": context, "FAKE_CUDA_OTHER_MB": others, **(env or {})})

    return run


def try_cause(gpu, cause, seed, output, *options):
    size = (512, 768, 1024, 1536, 4096)[seed * 7 // 6 % 5]
    others = size * (52 + seed * 5 % 29) // 100 if cause == "others" else 0
    run = gpu(options, "oom_causes_cuda", cause, seed, size=size, others=others, output=output)
    assert run.returncode == (0 if run.value("goes_on") else -signal.SIGABRT), str(run)
    return run


def test_a_refused_request_of_the_pool_has_its_rows_and_a_verdict(gpu, msmemscope, out):
    run = try_cause(gpu, "spike", 1, out / "one", "--analysis=oom")
    found = [row for row in run.rows() if row.event == "SNAPSHOT"]
    assert {row.name for row in found} == {"OOM_Snapshot Before", "OOM_Snapshot After"}
    assert run.project().path.name.endswith("_cuda")
    [verdict, *_] = msmemscope.info(run.project())["oom"]
    assert verdict["requested_bytes"] == -(-run.value("requested") // 512) * 512 and verdict["function"] == "CUDACachingAllocator"
    text = " ".join(run.stderr.split())
    assert "Out of memory on GPU 0" in text and "kernel_0" not in text and "NPU" not in text


def test_the_cause_is_named_on_a_gpu(gpu, msmemscope, out, ooms):
    wrong = []
    for seed in range(ooms):
        cause = CAUSES[seed % len(CAUSES)]
        run = try_cause(gpu, cause, seed, out / str(seed))
        [verdict, *_] = msmemscope.info(run.project())["oom"]
        if verdict["cause"] != WORDS[cause]:
            wrong.append((cause, seed, verdict["cause"]))
    print(f"{ooms - len(wrong)} of {ooms} causes named, wrong: {wrong}")
    assert len(wrong) * 20 <= ooms


@pytest.mark.parametrize("option, written", [(None, True), ("--device=gpu", True), ("--device=gpu:0", True), ("--device=cuda:0", True),
                                             ("--device=gpu:1", False), ("--device=npu", False), ("--device=npu:0,gpu:1", False),
                                             ("--device=npu,gpu:0,cpu", True), ("--device=cpu", False)])
def test_gpus_are_chosen_by_their_own_words(gpu, option, written):
    run = gpu([option] if option else [], "oom_causes_cuda", "full", 2)
    assert bool([row for row in run.rows() if row.type == "PTA"]) is written, str(run)
