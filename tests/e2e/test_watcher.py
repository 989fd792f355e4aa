# SPDX-License-Identifier: Apache-2.0
"""msmemscope.watcher: blocks that a Python program names itself. Plain memory of the program stands for tensors, so that no
framework is needed; operators are told as code that sees them tells them."""
import json
import re
import sys
import textwrap

import pytest

from watch_model import checksum, checksums

PRELUDE = '''
import ctypes, json, os, threading
from msmemscope import watcher

class Device:
    type, index = "cpu", None

class Tensor:
    """As much of a tensor as watcher asks for, over memory that ctypes owns."""
    device = Device()
    def __init__(self, data):
        self.memory = ctypes.create_string_buffer(bytes(data), len(data))
        self.shape = (len(data),)
    def data_ptr(self): return ctypes.addressof(self.memory)
    def element_size(self): return 1
    def numel(self): return len(self.memory)
    def is_contiguous(self): return True
    def stride(self): return (1,)
    def untyped_storage(self): return self.storage if hasattr(self, "storage") else self.keep()
    def keep(self):
        self.storage = Storage(self)
        return self.storage

class Storage:
    def __init__(self, tensor): self.place, self.size = tensor.data_ptr(), tensor.numel()
    def data_ptr(self): return self.place
    def nbytes(self): return self.size

said = []
def run(name, result=(), work=lambda: None):
    said.append(["before", name, {key: value.raw.hex() for key, value in blocks.items()}])
    number = watcher.begin(name.encode(), 0) if watcher.active() else None
    work()
    said.append(["after", name, {key: value.raw.hex() for key, value in blocks.items()}])
    if number is not None:
        watcher.end(number, name.encode(), 0, result)

a, b = Tensor(range(200)), Tensor(range(100, 150))
blocks = {"a": a.memory, "b": b.memory}
'''
END = "\nprint(json.dumps([threading.get_native_id(), said]))\n"


@pytest.fixture
def script(msmemscope, dist, out):
    def run(text, *options, collected=True, env=None):
        (out / "script.py").write_text(PRELUDE + textwrap.dedent(text) + END, encoding="utf-8")
        words = [sys.executable, str(out / "script.py")]
        env = {"PYTHONPATH": dist / "python", **(env or {})}
        return msmemscope(*options, "--", *words, env=env) if collected else msmemscope.bare(*words, env=env)

    return run


def sums(run, wanted):
    """Lines that the csv must have: of each wanted (index of what was said, watched name, block, number, bytes)."""
    tid, said = json.loads(run.stdout)
    lines = []
    for index, name, block, number, size in wanted:
        moment, operator, held = said[index]
        data = bytes.fromhex(held[block])[:size]
        lines.append((f"cpu_{tid}_{operator}_{number}-{name}_0_{moment}.bin", f"{checksum(data):016x}"))
    return lines


def test_a_tensor_is_dumped_before_and_after_each_operator_until_removed(script):
    run = script('''
        run("first")
        watcher.watch(a, name="test")
        run("second", work=lambda: a.memory.__setitem__(3, 99))
        run("third")
        watcher.remove(a)
        run("fourth")
    ''').check()
    assert checksums(run.out, "cpu") == sums(run, [(2, "test", "a", 1, 200), (3, "test", "a", 1, 200), (4, "test", "a", 1, 200),
                                                   (5, "test", "a", 1, 200)])
    assert ("Watched: test output 0 on cpu, 200 bytes, 4 dumps: changed during call 1 of second, which did not declare to write it: "
            "1 byte (offset 3), thread ") in " ".join(run.stderr.split()), str(run)


def test_two_dumps_are_those_before_and_after_the_first_operator(script):
    run = script('''
        watcher.watch(a, name="test", dump_nums=2)
        watcher.watch(b, name="other", dump_nums=-1)
        run("mul")
        run("mul")
        watcher.remove(b)
    ''').check()
    assert sorted(checksums(run.out, "cpu")) == sorted(
        sums(run, [(0, "test", "a", 1, 200), (1, "test", "a", 1, 200), (0, "other", "b", 1, 50), (1, "other", "b", 1, 50),
                   (2, "other", "b", 2, 50), (3, "other", "b", 2, 50)]))


def test_the_level_of_a_window_says_whether_operators_dump(script):
    run = script("""
        import msmemscope
        watcher.watch(a, name="a")
        run("first")
        for number, level in enumerate(("kernel", "op")):
            msmemscope.config(level=level)
            msmemscope.start()
            run(f"of {level}")
    """)
    assert checksums(run.out, "cpu") == sums(run, [(index, "a", "a", 1, 200) for index in (0, 1, 4, 5)])


def test_a_program_without_a_standard_error_is_left_alone(script):
    script("""
        import sys
        sys.stderr = None
        watcher.remove(a)
    """).check()


def test_an_address_and_a_length_are_enough(script):
    run = script('''
        watcher.watch(a.data_ptr(), length=17, name="test", dump_nums=2)
        run("mul")
        watcher.watch(b.data_ptr(), length=50, name="b")
        watcher.remove(b.data_ptr(), length=50)
        run("mul")
    ''').check()
    assert checksums(run.out, "cpu") == sums(run, [(0, "test", "a", 1, 17), (1, "test", "a", 1, 17)])


def test_of_a_length_that_goes_too_far_what_can_be_read_is_dumped(script):
    run = script('''
        import mmap
        page = mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        at = libc.mmap(None, 2 * page, 3, 0x22, -1, 0)
        assert libc.mprotect(at + page, page, 0) == 0
        ctypes.memset(at, 5, page)
        watcher.watch(at + page - 700, length=1000, name="test", dump_nums=2)
        run("mul")
    ''').check()
    assert [line[1] for line in checksums(run.out, "cpu")] == [f"{checksum(bytes([5] * 700)):016x}"] * 2
    assert run.stderr.count("only the first 700 of the 1000 bytes of test can be read") == 1, str(run)


def test_outputs_of_the_start_are_watched_and_full_content_keeps_the_bytes(script, out):
    run = script('''
        run("op0", result=(a, [b]), work=lambda: a.memory.__setitem__(0, 7))
        run("op2")
        run("op1")
        run("op2")
    ''', "--watch=op0:1,op1,full-content").check()
    tid, said = json.loads(run.stdout)
    names = ["op0_1-op0_1_after", "op2_1-op0_1_before", "op2_1-op0_1_after", "op1_1-op0_1_before", "op1_1-op0_1_after"]
    files = {path.name: path.read_bytes() for path in (out / "watch_dump").iterdir()}
    assert files == {f"cpu_{tid}_{name}.bin": bytes.fromhex(said[0][2]["b"]) for name in names}


def test_a_tensor_that_is_gone_is_no_longer_watched(script):
    run = script('''
        blocks.clear()
        watcher.watch(b, name="named")
        run("op0", result=a)
        run("op2")
        del a
        run("op2")
        del b
        run("op2")
    ''', "--watch=op0,op1").check()
    names = [name.split("_", 2)[2] for name, _ in checksums(run.out, "cpu")]
    assert names == ["op0_1-named_0_before.bin", "op0_1-named_0_after.bin", "op0_1-op0_0_after.bin",
                     "op2_1-named_0_before.bin", "op2_1-op0_0_before.bin", "op2_1-named_0_after.bin", "op2_1-op0_0_after.bin",
                     "op2_2-named_0_before.bin", "op2_2-named_0_after.bin"]
    assert "Note: watch: the memory of op0 was freed and is no longer watched." in run.stderr, str(run)


CUDA = '''
import sys, types
device = ctypes.CDLL(os.environ["DEVICE"])
device.stand_in_alloc.restype, device.stand_in_alloc.argtypes = ctypes.c_uint64, [ctypes.c_size_t]
SIZE = (2 << 20) + 5
place = device.stand_in_alloc(SIZE)
class Stream: cuda_stream = 0x5eed
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(
    current_stream=lambda index: Stream, is_initialized=lambda: True, current_device=lambda: 0))
class OnDevice(Tensor):
    device = types.SimpleNamespace(type="cuda", index=0)
    def __init__(self): self.shape = (SIZE,)
    def data_ptr(self): return place
    def numel(self): return SIZE
def fill(name, value):
    number = watcher.begin(name.encode(), 1 << 8)
    device.stand_in_fill_later(value)
    watcher.end(number, name.encode(), 1 << 8, ())
'''
SIZE = (2 << 20) + 5


def test_memory_of_another_makers_device_is_copied_by_its_runtime(script, targets):
    """A stand-in for its library, whose memory nobody else can read and whose work is done when somebody waits for it."""
    run = script(CUDA + '''
tensor = OnDevice()
watcher.watch(tensor, name="test", dump_nums=4)
fill("first", 3)
fill("second", 4)
watcher.watch(place + SIZE - 9, length=9, name="end", dump_nums=2)
fill("third", 6)
''', env={"DEVICE": targets / "libdevice_stand_in.so"}).check()
    held = [(0, SIZE), (3, SIZE), (3, SIZE), (4, SIZE), (4, 9), (6, 9)]
    names = ["first_1-test_0_before", "first_1-test_0_after", "second_1-test_0_before", "second_1-test_0_after",
             "third_1-end_0_before", "third_1-end_0_after"]
    assert [(name.split("_", 2)[2], value) for name, value in checksums(run.out, "0")] == [
        (f"{name}.bin", f"{checksum(bytes([byte]) * size):016x}") for name, (byte, size) in zip(names, held)]


def test_a_capture_is_not_disturbed_and_its_dumps_do_not_count(script, targets):
    run = script(CUDA + '''
tensor = OnDevice()
watcher.watch(tensor, name="test", dump_nums=2)
device.stand_in_capture(1)
fill("captured", 3)
assert device.stand_in_captures() == 1
device.stand_in_capture(0)
fill("first", 4)
''', env={"DEVICE": targets / "libdevice_stand_in.so"}).check()
    assert [name.split("_", 2)[2] for name, _ in checksums(run.out, "0")] == ["first_1-test_0_before.bin",
                                                                              "first_1-test_0_after.bin"]
    assert "Note: watch: nothing is dumped while a graph is captured." in run.stderr, str(run)


@pytest.mark.parametrize("call, error", [
    ("watch()", TypeError), ("watch(a, b, name='x')", TypeError), ("watch(a)", TypeError), ("watch(a, name='')", TypeError),
    ("watch(a, name=5)", TypeError), ("watch(a, name='n' * 65)", ValueError), ("watch(a, length=5, name='x')", TypeError),
    ("watch(a.data_ptr(), name='x')", TypeError), ("watch(a.data_ptr(), length=0, name='x')", TypeError),
    ("watch(a.data_ptr(), length='5', name='x')", TypeError), ("watch(a.data_ptr(), length=True, name='x')", TypeError),
    ("watch(a, name='x', dump_nums='2')", TypeError), ("watch(a, name='x', dumps=2)", TypeError),
    ("watch('a', name='x')", TypeError), ("watch(2**64, length=1, name='x')", TypeError), ("remove()", TypeError),
    ("remove(a, b)", TypeError), ("remove(a.data_ptr())", TypeError), ("remove('a')", TypeError),
    ("remove(a, length=5)", TypeError),
])
def test_wrong_arguments_raise_with_and_without_the_collector(script, call, error):
    for collected in (True, False):
        run = script(f'''
            try:
                watcher.{call}
            except {error.__name__} as error:
                print(error)
            else:
                print("nothing")
            raise SystemExit(0)
        ''', collected=collected)
        assert run.returncode == 0 and re.match(r"watch\(\)|remove\(\)|.*unexpected keyword", run.stdout), str(run)
        assert "nothing" not in run.stdout


def test_a_name_of_64_characters_is_allowed(script):
    run = script("watcher.watch(a, name='名' * 64, dump_nums=1)\nrun('mul')\n").check()
    assert "名" * 64 in checksums(run.out, "cpu")[0][0]


def test_what_is_not_watched_cannot_be_removed_and_is_said(script):
    run = script("watcher.remove(a)\nwatcher.remove(a.data_ptr(), length=3)\n").check()
    assert run.stderr.count("nothing is watched at 0x") == 2, str(run)


def test_without_a_collector_the_program_runs_on(script):
    run = script("watcher.watch(a, name='x')\nrun('mul')\nwatcher.remove(a)\n", collected=False).check()
    assert "x is not watched: nothing is recorded in this process" in run.stderr, str(run)
