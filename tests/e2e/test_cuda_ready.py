# SPDX-License-Identifier: Apache-2.0
"""What our package does when PyTorch makes CUDA ready: it never waits inside PyTorch's lock, never makes CUDA ready by itself, and what
fails in it never reaches the program. torch.cuda is the stand-in of targets/torch_pool, which aborts where PyTorch would wait for ever."""
import json
from pathlib import Path

import pytest

STANDIN = Path(__file__).resolve().parents[1] / "targets" / "torch_pool" / "python"

START = """
import json, os, sys, threading, types
native = types.ModuleType("torch._C")
waits = threading.Event()
def _cuda_init():
    making.set()
    waits.wait()
native._cuda_init, making = _cuda_init, threading.Event()
native._cuda_getDevice = lambda: sys.modules["torch.cuda"]._lazy_init() or 0
sys.modules["torch._C"] = native
torch = types.ModuleType("torch")
torch.__path__, torch._C, torch.version = [os.environ["STANDIN"] + "/torch"], native, types.SimpleNamespace(cuda="13.0")
sys.modules["torch"] = torch
import torch.cuda
from msmemscope import _boot, _tensors, describe
called = []
"""


@pytest.fixture
def answer(msmemscope, dist, out):
    """answer(script): what the script prints last, as JSON."""
    def run(script):
        path = out / "script.py"
        path.write_text(START + script, encoding="utf-8")
        env = {"PYTHONPATH": str(dist / "python"), "STANDIN": str(STANDIN), "MSMEMSCOPE_DISABLE": "1"}
        return json.loads(msmemscope.bare("/usr/bin/python3", path, env=env, cwd=out).check().stdout.splitlines()[-1])

    return run


def test_what_waits_for_cuda_is_called_once_and_may_fail(answer):
    assert answer("""
waits.set()
def fails():
    called.append("fails")
    raise ValueError("ours")
def asks():  # comes inside PyTorch's lock, and asks for one more call
    called.append("asks")
    _boot.when_cuda_is_ready(lambda: called.append("inner"))
_boot.when_cuda_is_ready(fails)
_boot.when_cuda_is_ready(asks)
before = list(called)
torch.cuda.init()
torch.cuda.init()
_boot.when_cuda_is_ready(lambda: called.append("late"))
print(json.dumps([before, called]))
""") == [[], ["fails", "asks", "inner", "late"]]


def test_a_thread_that_asks_while_another_makes_cuda_ready_is_not_kept(answer):
    assert answer("""
_boot._LOCK_S = 0.01
maker = threading.Thread(target=torch.cuda.init)
maker.start()
making.wait()
_boot.when_cuda_is_ready(lambda: called.append(threading.current_thread() is maker))
before = list(called)
waits.set()
maker.join()
print(json.dumps([before, called]))
""") == [[], [True]]


def test_an_address_does_not_make_cuda_ready(answer):
    assert answer("""
device = _tensors.present_device()
describe.describer(0x7e0000000000, owner="table")
unnumbered = _tensors.device_number(types.SimpleNamespace(type="cuda", index=None))
print(json.dumps([device, unnumbered, torch.cuda.is_initialized(), making.is_set()]))
""") == [256, 256, False, False]
