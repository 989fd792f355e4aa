# SPDX-License-Identifier: Apache-2.0
"""Which card is a program's GPU 0? CUDA sorts cards in an order of its own and lets the user name them; NVML has them in the order of the
bus. The figures of a whole device are of the card that the program uses, or there are none. The stand-in driver knows the truth."""
import itertools
import json
import os
import subprocess
import sys

import pytest

import nvml

CARDS, OTHERS = 4, 700
# Some memory on each device, all of different sizes, and what the driver says of each.
PROGRAM = nvml.SCRIPT + r"""
context, count = ctypes.c_void_p(), ctypes.c_int()
for name in ("VISIBLE", "ORDER"):
    if os.environ.get("LATE_" + name) is not None:
        os.environ["CUDA_" + {"VISIBLE": "VISIBLE_DEVICES", "ORDER": "DEVICE_ORDER"}[name]] = os.environ["LATE_" + name]
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
told = []
for device in range(count.value):
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
    out, left, total = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t((device + 1) * 10 * MIB)) == 0
    assert cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    report(out.value, (device + 1) * 10 * MIB, (device + 1) * 10 * MIB, (device + 1) * 10 * MIB, Device(1, device))
    told.append([(total.value - left.value) // MIB, total.value // MIB])
settle()
print(json.dumps({"told": told}))
"""


@pytest.fixture
def cards(targets):
    """cards(env): the UUIDs of the stand-in's GPUs, and of the parts of the last one."""
    def names(**env):
        script = """
import ctypes, json
nvml, handle, text, got = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), ctypes.create_string_buffer(96), []
def name():
    assert nvml.nvmlDeviceGetUUID(handle, text, 96) == 0
    return text.value.decode()
nvml.nvmlInit_v2()
for number in range(16):
    if nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)):
        break
    got.append([name()])
    whole = ctypes.c_void_p(handle.value)
    for part in range(7):
        if nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, part, ctypes.byref(handle)) == 0:
            got[-1].append(name())
print(json.dumps(got))"""
        return json.loads(subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env={
            **os.environ, "LD_LIBRARY_PATH": str(targets.parent / "fakes"), **{key: str(value) for key, value in env.items()}}).stdout)
    return names


@pytest.fixture
def used(msmemscope, targets, out):
    """used(env): what the program was told of its devices, by its own numbers; and the run's figures of whole devices by theirs."""
    def run(**env):
        script = out / "program.py"
        script.write_text(PROGRAM, encoding="utf-8")
        done = msmemscope("--", sys.executable, script, env={
            "FAKE_CUDA_STATE": out / "gpu", "FAKE_CUDA_DEVICES": CARDS, "FAKE_CUDA_MEMORY_MB": 4096, "FAKE_CUDA_MEMORY_STEP_MB": 512,
            "FAKE_CUDA_CONTEXT_MB": 8, "FAKE_CUDA_OTHER_MB": OTHERS, "CUDA_INJECTION64_PATH": None, "CUDA_DEVICE_ORDER": None,
            "CUDA_VISIBLE_DEVICES": None, **nvml.asked(out, targets), **env}).check()
        figures = {int(device["device"]): (device["last"]["used_bytes"] >> 20, device["total_bytes"] >> 20,
                                           device["last"]["other_processes_bytes"] >> 20)
                   for device in msmemscope.info(done.project())["devices"]}
        return done, done.value("told"), figures
    return run


def expected(units, numbers=None):
    """Of devices that are these cards: all that is used, the size, and what others use; the numbers are the program's if not given."""
    others = [OTHERS if unit == 0 else 0 for unit in units]
    return {number: ((place + 1) * 10 + 8 + other, 4096 + 512 * unit, other)
            for place, (number, unit, other) in enumerate(zip(numbers or range(len(units)), units, others))}


def check(told, figures, wanted):
    assert [tuple(entry) for entry in told] == [entry[:2] for entry in wanted.values()]
    assert figures == wanted


@pytest.mark.parametrize("visible, cards_seen", [("2,0", [2, 0]), ("3,1,0", [3, 1, 0]), ("1,nonsense,0", [1]), ("1,9,0", [1]), ("2gpu,0", [2, 0]), ("0,-1,1", [0]),
                                                 (" 3, 0", [3, 0])])
def test_numbers(used, visible, cards_seen):
    _, told, figures = used(CUDA_VISIBLE_DEVICES=visible)
    check(told, figures, expected(cards_seen, cards_seen))


@pytest.mark.parametrize("digits", [36, 8, 5])
@pytest.mark.parametrize("order", [[1, 0], [3, 0, 2], [2]])
def test_uuids(cards, used, digits, order):
    """Whole ones and beginnings."""
    names = [gpu[0][:4 + digits] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    _, told, figures = used(CUDA_VISIBLE_DEVICES=",".join(names[number] for number in order))
    check(told, figures, expected(order))


@pytest.mark.parametrize("bad", ["GPU-", "GPU-ffffffff-none", "MIG-none", "", "17"])
def test_what_is_no_device_ends_the_list(cards, used, bad):
    """A beginning that fits several cards is none."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    _, told, figures = used(CUDA_VISIBLE_DEVICES=f"{names[2]},{names[1]},{bad},{names[0]}")
    check(told, figures, expected([2, 1]))


def test_numbers_and_uuids_in_one_list(cards, used):
    """No two cards have one number."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    _, told, figures = used(CUDA_VISIBLE_DEVICES=f"1,{names[0]},{names[3]}")
    check(told, figures, expected([1, 0, 3]))


@pytest.mark.parametrize("order, cards_seen", [(None, [3, 2, 1, 0]), ("FASTEST_FIRST", [3, 2, 1, 0]), ("PCI_BUS_ID", [0, 1, 2, 3])])
def test_the_fastest_card_is_first_for_cuda(used, order, cards_seen):
    _, told, figures = used(FAKE_CUDA_FASTEST_LAST=1, CUDA_DEVICE_ORDER=order)
    check(told, figures, expected(cards_seen))


def test_numbers_in_the_order_of_cuda(used):
    _, told, figures = used(FAKE_CUDA_FASTEST_LAST=1, CUDA_VISIBLE_DEVICES="3,1")
    check(told, figures, expected([0, 2], [3, 1]))


def test_a_program_that_chooses_itself(cards, used):
    """As torch scripts do: os.environ before CUDA is used."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    _, told, figures = used(LATE_VISIBLE=f"{names[3]},{names[0]}")
    check(told, figures, expected([3, 0]))


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("old", [False, True])
def test_a_part_of_a_card(cards, used, part, old):
    """MIG: the figures are of the part, not of the card. It is the only device, whatever follows."""
    env = {"FAKE_CUDA_WHOLE": 2}
    names = cards(FAKE_CUDA_DEVICES=CARDS, **env)
    assert [len(gpu) for gpu in names] == [1, 1, 3]
    name = f"MIG-{names[2][0]}/{part + 1}/0" if old else names[2][1 + part]
    done, told, figures = used(CUDA_VISIBLE_DEVICES=f"{name},{names[0][0]}", **env)
    check(told, figures, expected([2 + part]))
    assert "NVML" not in (done.project().path / "report.txt").read_text()


@pytest.mark.parametrize("visible", ["0,0", "{0},{1},{0}", "", "-1"])
def test_no_device_at_all(cards, msmemscope, targets, out, visible):
    """A list with one card twice, and an empty one, show none."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    script = out / "program.py"
    script.write_text("import ctypes\nprint(ctypes.CDLL('libcuda.so.1').cuInit(0))\n", encoding="utf-8")
    run = msmemscope("--", sys.executable, script, env={"FAKE_CUDA_DEVICES": CARDS, "CUDA_VISIBLE_DEVICES": visible.format(*names),
                                                        "LD_LIBRARY_PATH": targets.parent / "fakes"}).check()
    assert run.stdout.strip() == "100" and run.projects() == []


@pytest.mark.parametrize("missing", ["driver", "library"])
def test_nobody_tells_which_card_it_is(used, monkeypatch, missing):
    """No figures, and one note; never those of another card."""
    if missing == "library":
        monkeypatch.setattr(nvml, "NVML", "\n".join(line for line in nvml.NVML.splitlines() if "nvmlDeviceGetUUID" not in line))
    done, told, figures = used(CUDA_VISIBLE_DEVICES="2,0", **({"FAKE_CUDA_NO_UUIDS": 1} if missing == "driver" else {}))
    assert len(told) == 2 and figures == {}
    report = " ".join((done.project().path / "report.txt").read_text().split())
    assert report.count("(NVML) does not say which of its devices that is") == 1, report
    assert "what GPU 2, 0 has in all is not known" in report


def test_a_pool_without_cupti(cards, used):
    """Another tool has CUPTI: PyTorch's pool is all that tells of the devices."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    _, told, figures = used(CUDA_VISIBLE_DEVICES=f"{names[2]},{names[0]}", FAKE_CUPTI_BUSY=1)
    assert len(told) == 2
    assert {number: entry[:2] for number, entry in figures.items()} == {number: entry[:2] for number, entry in expected([2, 0]).items()}


RANKS = nvml.SCRIPT + r"""
for name in os.environ["NAMES"].split(","):
    if os.fork() == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = name
        context, out = ctypes.c_void_p(), ctypes.c_uint64()
        assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
        assert cuda.cuMemAlloc_v2(ctypes.byref(out), ctypes.c_size_t(20 * MIB)) == 0
        settle()
        os.write(1, (json.dumps({"pid": os.getpid(), "name": name}) + "\n").encode())
        sys.exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""


def test_a_card_for_each_process(cards, msmemscope, targets, out):
    """All have a device 0, and each another one."""
    names = [gpu[0] for gpu in cards(FAKE_CUDA_DEVICES=CARDS)]
    script = out / "program.py"
    script.write_text(RANKS, encoding="utf-8")
    run = msmemscope("--", sys.executable, script, env={
        "FAKE_CUDA_STATE": out / "gpu", "FAKE_CUDA_DEVICES": CARDS, "FAKE_CUDA_MEMORY_MB": 4096, "FAKE_CUDA_MEMORY_STEP_MB": 512,
        "FAKE_CUDA_CONTEXT_MB": 8, "FAKE_CUDA_OTHER_MB": OTHERS, "CUDA_INJECTION64_PATH": None, "CUDA_DEVICE_ORDER": None,
        "NAMES": ",".join(reversed(names)), **nvml.asked(out, targets)}).check()
    unit_of = {entry["pid"]: names.index(entry["name"]) for entry in map(json.loads, run.stdout.splitlines())}
    seen = {}
    for project, pid in itertools.product(run.projects(), unit_of):
        if str(pid) in project.path.name.split("_"):
            [device] = msmemscope.info(project)["devices"]
            seen[unit_of[pid]] = (device["device"], device["last"]["used_bytes"] >> 20, device["total_bytes"] >> 20)
    assert seen == {unit: ("0", 28 + (OTHERS if unit == 0 else 0), 4096 + 512 * unit) for unit in range(CARDS)}
