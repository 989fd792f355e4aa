# SPDX-License-Identifier: Apache-2.0
"""Watched memory of a GPU, on the stand-in driver, which runs our kernel from its PTX text: checksums that the device makes are those of
the bytes, what changed is found to the byte, captures of graphs are not broken, and none of our own calls is a row."""
import csv
import json
import random

import pytest

from watch_model import checksum

# Operators are announced as code that sees them does; their memory is written by hand, since that of the stand-in is the host's.
SCRIPT = """
import ctypes, json, os, sys, types
from msmemscope import watcher
CUDA, CPU = 1 << 8, 0
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
stream = ctypes.c_void_p()
assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
side = ctypes.c_void_p()
assert driver.cuStreamCreate(ctypes.byref(side), 1) == 0
current = stream
def current_stream(device=None):
    return types.SimpleNamespace(cuda_stream=current.value)
sys.modules["torch"] = types.SimpleNamespace(__version__="2.11", cuda=types.SimpleNamespace(
    current_stream=current_stream, is_initialized=lambda: True, current_device=lambda: 0))

def take(size):
    address = ctypes.c_uint64()
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value

def take_mapped(size):
    "Mapped by pieces of 2 MiB, as expandable segments are."
    piece = 2 << 20
    address, handle = ctypes.c_uint64(), ctypes.c_uint64()
    assert driver.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(64 << 20), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
    at = address.value
    while at < address.value + size:
        place = (ctypes.c_uint32 * 8)(1, 0, 1, 0)
        assert driver.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(piece), place, ctypes.c_uint64(0)) == 0
        assert driver.cuMemMap(ctypes.c_uint64(at), ctypes.c_size_t(piece), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)) == 0
        at += piece
    return address.value

def fill(address, data):
    ctypes.memmove(address, data, len(data))

def op(name, work=None, declares=(), device=CUDA):
    number = watcher.begin(name.encode(), device)
    watcher.writes(list(declares))
    if work:
        work()
    watcher.end(number, name.encode(), device, (), declared=True)
"""


@pytest.fixture
def watched(msmemscope, python, cuda_env, tmp_path):
    """watched(script): the run, what `info` says, and [(name of a dump, checksum)]."""
    def run(script, *options):
        path = tmp_path / "script.py"
        path.write_text(SCRIPT + script, encoding="utf-8")
        done = msmemscope("--device=gpu", *options, "--", *python, path, env=cuda_env).check()
        dumps = []
        for file in done.out.rglob("watch_dump_data_check_sum_*.csv"):
            with file.open(newline="", encoding="utf-8") as lines:
                dumps += [(name.split("_", 2)[2], value) for name, value in csv.reader(lines) if name != "Tensor info"]
        return done, msmemscope.info(done.project()), dumps
    return run


SUMS = """
import random
rng = random.Random(7)
for name, size, first, taken in json.loads(os.environ["BLOCKS"]):
    address = (take_mapped if taken == "mapped" else take)(size + first) + first
    data = rng.randbytes(size)
    fill(address, data)
    watcher.watch(address, length=size, name=name, dump_nums=2)
    op("looks")
    watcher.remove(address, length=size)
"""


def test_checksums_by_the_device_are_those_of_the_bytes(watched, cuda_env):
    mib = 1 << 20
    blocks = [("small", 1000, 0, "plain"), ("as a piece", mib, 0, "plain"), ("one more", mib + 1, 0, "plain"),
              ("whole chunks", mib + 4096, 0, "plain"), ("odd begin", mib + 4095, 3, "plain"), ("other begin", mib + 9, 13, "plain"),
              ("in words", mib + 4104, 8, "plain"), ("mapped", 2 * mib + 77, 5, "mapped")]
    cuda_env["BLOCKS"] = json.dumps(blocks)
    run, found, dumps = watched(SUMS, "--level=op,kernel")
    rng = random.Random(7)
    wanted = []
    for number, (name, size, _, _) in enumerate(blocks, 1):
        value = f"{checksum(rng.randbytes(size)):016x}"
        wanted += [(f"looks_{number}-{name}_0_{moment}.bin", value) for moment in ("before", "after")]
    assert dumps == wanted
    assert len([note for note in found["notes"] if "computed on the GPU" in note]) == 1, found["notes"]
    assert all(item["changes"] == 0 for item in found["watched"])
    assert not [row for row in run.rows() if row.event == "KERNEL_LAUNCH" or row.type == "HOST_PINNED"], "none of our own calls"


RANDOM = """
import random
rng = random.Random(int(os.environ["SEED"]))
said, blocks = {}, []
for number in range(3):
    size = rng.choice((500, (1 << 20) + rng.randrange(1, 5000), (1 << 20) + 4096 * 3))
    first = rng.randrange(9)
    address = rng.choice((take, take_mapped))(size + first) + first
    fill(address, rng.randbytes(size))
    watcher.watch(address, length=size, name=f"block {number}")
    blocks.append((address, size, f"block {number}"))
    said[f"block {number}"] = {"writes": 0, "strays": []}

def change(address, count):
    fill(address, bytes(byte ^ rng.randrange(1, 256) for byte in ctypes.string_at(address, count)))

for turn in range(12):
    address, size, name = rng.choice(blocks)
    count = rng.choice((1, 7, rng.randrange(1, 500), rng.randrange(1, min(size, 20000))))
    first = rng.choice((0, size - count, rng.randrange(size - count + 1)))
    kind = rng.choice(("declared", "stray", "beside", "nothing"))
    if kind == "declared":
        op(f"op{turn}", lambda: change(address + first, count), (address + first, count))
        said[name]["writes"] += 1
    elif kind == "stray":
        op(f"op{turn}", lambda: change(address + first, count))
        said[name]["strays"].append([f"op{turn}", count, first, first + count - 1])
    elif kind == "beside" and first > 8:
        op(f"op{turn}", lambda: (change(address + first, count), change(address + first - 8, 3)), (address + first, count))
        said[name]["strays"].append([f"op{turn}", 3, first - 8, first - 6])
    else:
        op(f"op{turn}")
print(json.dumps(said))
"""


@pytest.mark.parametrize("seed", range(4))
def test_what_changed_is_found_to_the_byte(watched, cuda_env, seed):
    cuda_env["SEED"] = str(seed)
    run, found, _ = watched(RANDOM)
    said = json.loads(run.stdout)
    assert {item["name"] for item in found["watched"]} == said.keys()
    for item in found["watched"]:
        strays = [[change["to"]["operator"], change["bytes"], change["first_offset"], change["last_offset"]]
                  for change in item["unexpected_changes"]]
        assert strays == said[item["name"]]["strays"]
        assert sum(writer["changes"] for writer in item["declared_writers"]) == said[item["name"]]["writes"]


CAPTURE = """
address, large = take(5000), take(3 << 20)
watcher.watch(address, length=5000, name="small")
watcher.watch(large, length=(2 << 20) + 1, name="large")
graph = ctypes.c_void_p()
if os.environ["WHICH"] == "before":
    op("first")
assert driver.cuStreamBeginCapture_v2(side, 0) == 0
op("beside")                 # on a stream that is not captured
op("on the host", device=CPU)
current = side
op("inside")                 # on the one that is
op("on the host inside", device=CPU)
current = stream
op("beside again")
print(json.dumps({"captured": driver.cuStreamEndCapture(side, ctypes.byref(graph))}))
op("last")
"""


@pytest.mark.parametrize("which", ["before", "never"])
def test_a_capture_is_not_broken(watched, cuda_env, which):
    """Also when our stream and kernel are made while somebody captures."""
    cuda_env["WHICH"] = which
    run, found, dumps = watched(CAPTURE)
    assert json.loads(run.stdout) == {"captured": 0}
    seen = list(dict.fromkeys(name.partition("-")[0] for name, _ in dumps))
    assert seen == [*(["first_1"] if which == "before" else []), "beside_1", "on the host_1", "beside again_1", "last_1"]
    assert [note for note in found["notes"] if "while a graph is captured" in note]
    assert [note for note in found["notes"] if "computed on the GPU" in note]


KERNELS = """
ptx = b'''.version 7.0
.target sm_80
.address_size 64
.visible .entry _ZN4some6writerEPmmm(.param .u64 at, .param .u64 distance, .param .u64 value)
{
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [at];
    ld.param.u64 %d2, [distance];
    add.u64 %d1, %d1, %d2;
    ld.param.u64 %d2, [value];
    st.global.u64 [%d1], %d2;
    ret;
}
'''
module, function = ctypes.c_void_p(), ctypes.c_void_p()
assert driver.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"_ZN4some6writerEPmmm") == 0

def launch(*values):
    words = [ctypes.c_uint64(value % 2**64) for value in values]
    arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, words))
    assert driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None) == 0

first, second = take((1 << 20) + 64), take(4096)
watcher.watch(first, length=(1 << 20) + 64, name="first")
watcher.watch(second, length=4096, name="second")
ALL = 2**64 - 1
if os.environ["WHICH"] == "alone":
    launch(first, 800, ALL)               # handed what it writes
    launch(second, first + 4096 - second, ALL)  # handed the one, writes the other
else:
    op("says so", lambda: launch(first, 800, ALL), (first, 1 << 20))
    op("does not", lambda: launch(second, first + 4096 - second, ALL), (second, 4096))
"""


@pytest.mark.parametrize("which", ["alone", "in operators"])
def test_kernels_that_write_what_they_should_not_are_named(watched, cuda_env, which):
    cuda_env["WHICH"] = which
    run, found, dumps = watched(KERNELS, "--level=kernel")
    first, second = (next(item for item in found["watched"] if item["name"] == name) for name in ("first", "second"))
    assert [(writer["operator"], writer["changes"]) for writer in first["declared_writers"]] == [("some::writer", 1)]
    [change] = first["unexpected_changes"]
    assert (change["to"]["operator"], change["bytes"], change["first_offset"], change["last_offset"]) == ("some::writer", 8, 4096, 4103)
    assert change["during_one_call"] and change["to"]["call"] == 2
    assert change.get("inside") == (None if which == "alone" else "does not")
    assert second["changes"] == 0
    assert [name for name, _ in dumps] == [f"some::writer_{call}-{block}_0_{moment}.bin" for call in (1, 2)
                                           for moment in ("before", "after") for block in ("first", "second")]
    assert {row.name for row in run.rows() if row.event == "KERNEL_LAUNCH"} == {"some::writer"}


BEYOND = """
address = take_mapped(2 << 20)
watcher.watch(address, length=(2 << 20) + 4096, name="beyond")
op("looks")
free = take((1 << 20) + 5)
watcher.watch(free, length=(1 << 20) + 5, name="freed")
op("looks")
assert driver.cuMemFree_v2(ctypes.c_uint64(free)) == 0
op("looks")
assert driver.cuDevicePrimaryCtxReset_v2(0) == 0
context = ctypes.c_void_p()
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
again = take((1 << 20) + 5)
fill(again, bytes(range(256)) * 4096 + b"hello")
watcher.watch(again, length=(1 << 20) + 5, name="again")
op("looks")
"""


def test_memory_that_is_not_there_is_not_read(watched):
    """Not by the kernel, which would end the context. And a context that was reset has a stream and a kernel of ours again."""
    _, found, dumps = watched(BEYOND)
    assert {name for name, _ in dumps if "-freed_" in name} == {"looks_2-freed_0_before.bin", "looks_2-freed_0_after.bin"}
    value = f"{checksum(bytes(range(256)) * 4096 + b'hello'):016x}"
    assert [one for name, one in dumps if "-again_" in name] == [value, value]
    assert [note for note in found["notes"] if "only the first 2097152 of the 2101248 bytes of beyond can be read" in note], found["notes"]
