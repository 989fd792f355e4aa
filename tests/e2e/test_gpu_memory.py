# SPDX-License-Identifier: Apache-2.0
"""Memory of GPUs without a GPU: a stand-in driver (tests/fakes), and a caching pool that reports as PyTorch's does and knows its truth."""
import itertools
import json
import random
import signal
import sys

import pytest

import nvml
from driver_truth import seen, truth

MIB = 1 << 20
WORDS = {"growth": "growth", "spike": "spike", "fragmentation": "fragmentation", "outside": "outside the pool",
         "others": "other processes", "full": "full"}
CAUSES = list(WORDS)


@pytest.fixture
def gpu(msmemscope, dist, targets, program, out):
    """gpu(options, program, words...): a run on two GPUs of the stand-in, of `size` MiB."""
    def run(options, name, *words, size=1024, context=8, others=0, env=None, output=None):
        paths = f"{targets.parent}/fakes:{targets}:{dist}/simnpu/lib64"
        command = program(name, *words) if not name.startswith("/") else [name, *map(str, words)]
        return msmemscope(*options, "--", *command, output=output or out,
                          env={"LD_LIBRARY_PATH": paths, "FAKE_CUDA_STATE": out / "gpu", "FAKE_CUDA_MEMORY_MB": size,
                               "FAKE_CUDA_CONTEXT_MB": context, "FAKE_CUDA_OTHER_MB": others, **(env or {})})

    return run


def try_cause(gpu, cause, seed, output, *options, limited=False):
    size = (512, 768, 1024, 1536, 4096)[seed * 7 // 6 % 5]
    others = size * (52 + seed * 5 % 29) // 100 if cause == "others" else 0
    more = {}
    if limited:
        # The device has much more, a large context and other processes.
        more = {"size": size * 8, "context": size // 3, "others": size * (seed % 3), "env": {"POOL_LIMIT": size}}
    run = gpu(options, "oom_causes_cuda", cause, seed, output=output, **{"size": size, "others": others, **more})
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
    assert "OUT OF MEMORY on GPU 0" in text and "kernel_0" not in text and "NPU" not in text


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


def test_the_cause_is_named_where_the_pool_has_a_limit(gpu, msmemscope, out, ooms):
    """As torch.cuda.set_per_process_memory_fraction(): what other processes and contexts have is no cause."""
    wrong = []
    for seed in range(ooms):
        cause = ("growth", "spike", "fragmentation", "full")[seed % 4]
        run = try_cause(gpu, cause, seed, out / str(seed), limited=True)
        [verdict, *_] = msmemscope.info(run.project())["oom"]
        if verdict["cause"] != WORDS[cause]:
            wrong.append((cause, seed, verdict["cause"], verdict["why"]))
        text = " ".join(run.stderr.split())
        # A program that leaks beside the pool fills the device.
        assert verdict["free_bytes"] < verdict["requested_bytes"] or "the pool's own limit was reached" in text, (cause, seed, text)
    print(f"{ooms - len(wrong)} of {ooms} causes named, wrong: {wrong}")
    assert len(wrong) * 10 <= ooms, wrong


@pytest.mark.parametrize("option, written", [(None, True), ("--device=gpu", True), ("--device=gpu:0", True), ("--device=cuda:0", True),
                                             ("--device=gpu:1", False), ("--device=npu", False), ("--device=npu:0,gpu:1", False),
                                             ("--device=npu,gpu:0,cpu", True), ("--device=cpu", False)])
def test_gpus_are_chosen_by_their_own_words(gpu, option, written):
    run = gpu([option] if option else [], "oom_causes_cuda", "full", 2)
    assert bool([row for row in run.rows() if row.type in ("PTA", "HAL")]) is written, str(run)


# ---- the whole device ----

# A library that takes memory by the function that it is given.
LIBRARY = "int take(int (*alloc)(unsigned long long *, unsigned long), unsigned long long *out, unsigned long n) { return alloc(out, n) * 2; }\n"
LEDGER = nvml.SCRIPT + r"""
def alloc(mib, library=None, bytes=0):
    out = ctypes.c_uint64()
    if library:
        assert ctypes.CDLL(library).take(cuda.cuMemAlloc_v2, ctypes.byref(out), ctypes.c_ulong(mib * MIB)) == 0
    else:
        assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(bytes or mib * MIB)) == 0
    return out.value

context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
if PLAN["code"]:
    settle()
    module = ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), b"code") == 0
    settle()
reserved = allocated = 0
segments = []
for mib in PLAN["segments"]:
    segments.append(alloc(mib))
    reserved += mib * MIB
    allocated += mib * MIB // 2
    report(segments[-1], mib * MIB // 2, allocated, reserved, Device(1, 0))
for library, mib in PLAN["libraries"]:
    alloc(mib, library)
if PLAN["late"]:
    msmemscope.start()
direct = [alloc(0, bytes=size) for size in PLAN["direct"]]
settle()
left, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
print(json.dumps({"used": total.value - left.value}))
# empty_cache(): the pool gives its last segment back, and nothing tells but the driver.
allocated -= PLAN["segments"][-1] * MIB // 2
report(segments[-1], -(PLAN["segments"][-1] * MIB // 2), allocated, reserved, Device(1, 0))
assert cuda.cuMemFree_v2(ctypes.c_uint64(segments[-1])) == 0
settle()
"""


@pytest.mark.parametrize("what, seed", [("pools", 0), ("pools", 1), ("nodes", 0)])
def test_what_the_driver_keeps_is_named(gpu, msmemscope, targets, out, what, seed):
    """Pools that keep what is freed, trimmed, destroyed, or let go when the program waits; memory nodes, also captured ones."""
    run = gpu([], "cuda_kernels", what, seed, size=8192, env={**nvml.asked(out, targets), "FAKE_CUDA_DEVICES": 1}).check()
    levels = [json.loads(line) for line in run.stdout.splitlines()]
    [device] = msmemscope.info(run.project())["devices"]
    assert len(levels) == {"pools": 7, "nodes": 6}[what]
    # The driver's figure is sampled when it changes.
    for level in (level for before, level in zip([None, *levels], levels) if before is None or level["used"] != before["used"]):
        there = [moment for moment in device["over_time"] if moment["used_bytes"] == level["used"]]
        assert any((moment["kept_bytes"], moment["graphs_bytes"], moment["unknown_bytes"]) == (level["kept"], level["graphs"], 0)
                   for moment in there), (level, there)
    for moment in (device["peak"], device["last"]):
        assert moment["unknown_bytes"] * 100 <= moment["used_bytes"], moment
    assert seen(run.rows()) == truth(out)
    assert "unknown addresses" not in run.project().path.joinpath("report.txt").read_text()


@pytest.mark.parametrize("seed", range(6))
def test_every_part_of_a_device_is_named(gpu, msmemscope, targets, out, seed):
    chance = random.Random(seed)
    libraries = [(name, 2 * chance.randrange(1, 40)) for name in ("libcublasLt.so.12", "libnccl.so.2", "libcudnn_ops.so.9")]
    plan = {"segments": [2 * chance.randrange(1, 60) for _ in range(chance.randrange(2, 12))],
            "libraries": [(str(nvml.build(out / "lib" / name, LIBRARY)), mib) for name, mib in libraries],
            "direct": [chance.randrange(1, chance.choice([2000, MIB, 9 * MIB])) for _ in range(chance.randrange(1, 90))],
            "code": seed % 2, "late": seed > 3}
    context, others = chance.randrange(50, 400), chance.choice([0, 512, 700])
    script = out / "program.py"
    script.write_text(f"PLAN = {plan!r}\n" + LEDGER, encoding="utf-8")
    options = ["--collect-mode=deferred"] if plan["late"] else []
    run = gpu(options, sys.executable, script, context=context, others=others, size=8192, env=nvml.asked(out, targets)).check()
    [device] = msmemscope.info(run.project())["devices"]
    peak, last = device["peak"], device["last"]
    pools, code = sum(plan["segments"]), 2 * plan["code"]
    # The stand-in counts pages, as a driver does.
    used = run.value("used") // MIB
    outside = used - context - code - pools - others
    assert outside * MIB >= sum(plan["direct"]) + sum(mib * MIB for _, mib in libraries)
    assert (device["device"], device["vendor"], device["total_bytes"]) == ("0", "cuda", 8192 * MIB)
    assert {key: value / MIB for key, value in peak.items() if key.endswith("_bytes")} == {
        "used_bytes": used, "pools_bytes": pools, "outside_bytes": outside, "kept_bytes": 0, "context_bytes": context, "code_bytes": code, "graphs_bytes": 0,
        "other_processes_bytes": others, "unknown_bytes": 0}
    named = {entry["library"]: entry["bytes"] / MIB for entry in peak["outside"]}
    assert {name: named.get(name) for name in ("cuBLAS", "NCCL", "cuDNN")} == dict(zip(("cuBLAS", "NCCL", "cuDNN"), (mib for _, mib in libraries)))
    assert sum(named.values()) == outside and not [name for name in named if "ffi" in name or "ctypes" in name], named
    assert last["pools_bytes"] == (pools - plan["segments"][-1]) * MIB, "reserved behind empty_cache()"
    assert last["unknown_bytes"] == 0
    assert device["over_time"][0]["used_bytes"] <= peak["used_bytes"]
    text = " ".join(run.stderr.split())
    assert "GPU 0 then: " in text and "GPU 0 at" not in text and "PEAK of the PyTorch pool: " in text
    report = (run.project().path / "report.txt").read_text()
    assert "GPU 0 at the peak of PTA: " in report and "NCCL" in report.split("GPU 0 at its fullest: ")[1].splitlines()[0]
    over_time = report.split("GPU 0 over time, in MiB:\n", 1)[1].splitlines()[1:]
    rows = [[float(word) for word in line.split()] for line in itertools.takewhile(lambda line: line[:2] == "  ", over_time)]
    assert all(abs(row[1] - sum(row[2:])) < 0.5 for row in rows) and max(row[1] for row in rows) == used, report
    assert rows[-1][1] == last["used_bytes"] / MIB, report


# A pool of its own that takes pieces as XLA's does, twice as large each time, and one block of the program's in each step.
PIECES = LEDGER.split("if PLAN[\"code\"]")[0] + r"""
import atexit, msmemscope
pieces = []
for step in range(1, 21):
    if step in (1, 2, 4, 8, 16):
        pieces.append(alloc(8 * step, PLAN["library"]))
    if PLAN["leaks"]:
        alloc(1)
    msmemscope.step()
if PLAN["ends"]:
    atexit.register(lambda: [cuda.cuMemFree_v2(ctypes.c_uint64(at)) for at in pieces])
"""


@pytest.mark.parametrize("name, leaks, ends", [("xla_cuda_plugin.so", False, False), ("xla_cuda_plugin.so", True, False), ("xla_cuda_plugin.so", False, True),
                                               ("libmine.so", False, False)])
def test_pieces_of_a_librarys_own_pool_are_not_judged(gpu, msmemscope, targets, out, name, leaks, ends):
    """What the program keeps in them is not recorded, so nothing may be said about it: neither a leak nor that there is none."""
    plan = {"library": str(nvml.build(out / "lib" / name, LIBRARY)), "leaks": leaks, "ends": ends}
    script = out / "program.py"
    script.write_text(f"PLAN = {plan!r}\n" + PIECES, encoding="utf-8")
    run = gpu([], sys.executable, script, env=nvml.asked(out, targets)).check()
    info = msmemscope.info(run.project())
    unjudged = {one["reason"]: (one["blocks"], one["bytes"]) for one in info["judgement"]["unjudged"]}
    assert unjudged.get("pool_foreign") == ((5, 8 * 31 * MIB) if name.startswith("xla") else None), unjudged
    assert ("LEAK on GPU 0: +1.0 MiB per step" in run.stderr) == leaks, run
    text = " ".join(run.stderr.split())
    said = "No leak found, but 5 blocks (248 MiB) were not judged: a library took it in large pieces" in text
    assert said == (name.startswith("xla") and not leaks) and ("SUSPECT" in text) == (name == "libmine.so"), run


# One line asks for blocks of the same size until the driver refuses one.
ROW = nvml.SCRIPT.split("def asked")[0] + r"""
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
kept = []
while cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(MIBS * MIB)) == 0:
    kept.append(MIBS)
print(json.dumps({"kept": len(kept)}))
"""


@pytest.mark.parametrize("mib, size, kept, cause, why", [
    (512, 2500, 4, "growth", "memory of the CUDA driver grew by 1.5 GiB over the run"),
    (1024, 2500, 2, "full", "the program needs more than there is: it holds 2.0 GiB in 2 blocks, has freed nothing so far, and asks for more")])
def test_one_more_of_the_same_is_no_spike(gpu, msmemscope, targets, out, mib, size, kept, cause, why):
    script = out / "program.py"
    script.write_text(f"MIBS = {mib}\n" + ROW, encoding="utf-8")
    run = gpu([], sys.executable, script, size=size, env=nvml.asked(out, targets)).check()
    assert run.value("kept") == kept
    [verdict] = msmemscope.info(run.project())["oom"]
    assert (verdict["cause"], verdict["why"]) == (cause, why)


# ---- one moment ----

# The pool has 169 of 192 MiB in use, then 64; later another 100 MiB lie beside it.
MOMENT = nvml.SCRIPT + r"""
def alloc(mib):
    out = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(mib * MIB)) == 0
    return out.value

context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
settle()
segment = alloc(192)
report(segment, 64 * MIB, 64 * MIB, 192 * MIB, Device(1, 0))
report(segment + 64 * MIB, 105 * MIB, 169 * MIB, 192 * MIB, Device(1, 0))
if WAIT:
    settle()
report(segment + 64 * MIB, -105 * MIB, 64 * MIB, 192 * MIB, Device(1, 0))
if WAIT:
    settle()
beside = alloc(100)
settle()
"""


@pytest.mark.parametrize("wait", [True, False])
def test_the_ledger_of_a_gpu_is_of_the_moment_of_the_peak_beside_it(gpu, msmemscope, targets, out, wait):
    script = out / "program.py"
    script.write_text(f"WAIT = {wait}\n" + MOMENT, encoding="utf-8")
    run = gpu([], sys.executable, script, context=300, others=50, size=8192, env=nvml.asked(out, targets)).check()
    [device] = msmemscope.info(run.project())["devices"]
    then, fullest = device["at_pool_peak"], device["peak"]
    [pool] = then["pools"]
    assert (then["pool"], pool["live_bytes"], pool["reserved_bytes"]) == ("PTA", 169 * MIB, 192 * MIB)
    assert (then["used_bytes"], then["outside_bytes"], then["unknown_bytes"]) == ((300 + 50 + 192) * MIB, 0, 0), then
    assert (fullest["used_bytes"], fullest["pools"][0]["live_bytes"]) == ((300 + 50 + 292) * MIB, 64 * MIB)
    text = " ".join(run.stderr.split())
    assert "PEAK of the PyTorch pool: 169 MiB in use, 192 MiB reserved (" in text, text
    assert "GPU 0 then: 0.5 of 8.0 GiB = PyTorch pool 192 MiB + context 300 + other processes 50 MiB" in text, text
    assert " on GPU 0 (Stand-in GPU, 8.0 GiB)" in text, text


def test_other_processes_that_come_and_go_leave_nothing_unknown(gpu, msmemscope, targets, out):
    """A device's figure and the list of its processes are two questions to the driver; what is said is of one moment."""
    script = out / "program.py"
    script.write_text("WAIT = True\n" + MOMENT + "settle()\n" * 3, encoding="utf-8")
    run = gpu([], sys.executable, script, context=300, size=8192, env={**nvml.asked(out, targets), "NVML_RESTLESS": 1}).check()
    [device] = msmemscope.info(run.project())["devices"]
    others = {moment["other_processes_bytes"] for moment in device["over_time"]}
    assert others == {0, 700 * MIB} and {moment["unknown_bytes"] for moment in device["over_time"]} == {0}, device["over_time"]


# All of the pool is in use when a request is refused; the program goes on with less.
REFUSED = MOMENT.split("if WAIT:")[0] + r"""
report(segment + 169 * MIB, 23 * MIB, 192 * MIB, 192 * MIB, Device(1, 0))
beside = alloc(100)
settle()
assert cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(200 * MIB)) != 0
report(segment + 64 * MIB, -105 * MIB, 87 * MIB, 192 * MIB, Device(1, 0))
assert cuda.cuMemFree_v2(ctypes.c_uint64(beside)) == 0
settle()
"""


def test_where_memory_ran_out_the_ledger_has_the_figures_of_the_verdict(gpu, msmemscope, targets, out):
    script = out / "program.py"
    script.write_text(REFUSED, encoding="utf-8")
    run = gpu([], sys.executable, script, context=300, others=350, size=1024, env=nvml.asked(out, targets)).check()
    found = msmemscope.info(run.project())
    [device], [verdict] = found["devices"], found["oom"]
    then = device["at_oom"]
    assert "at_pool_peak" not in device and then["used_bytes"] == verdict["total_bytes"] - verdict["free_bytes"] == (300 + 350 + 292) * MIB
    [pool] = then["pools"]
    assert (pool["live_bytes"], pool["reserved_bytes"]) == (192 * MIB, 192 * MIB)
    assert pool["live_bytes"] in [held["live_bytes"] for held in verdict["pools"] if held["pool"] == "PTA"]
    assert (then["outside_bytes"], then["other_processes_bytes"], then["unknown_bytes"]) == (100 * MIB, 350 * MIB, 0), then
    text = " ".join(run.stderr.split())
    assert "GPU 0 then: 0.9 of 1.0 GiB = PyTorch pool 192 MiB + " in text and "GPU 0 at" not in text, text
