# SPDX-License-Identifier: Apache-2.0
"""msmemscope dryrun for cards of CUDA. PyTorch's wheel for CUDA is too large for every run: a small package `torch` has a library that needs CUDA's
by name and version, as PyTorch's does (targets/cuda_client.c). The real wheels are in `make soak PART=dryrun`."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

import rows

# Measured on an H200, torch 2.11.0, cuDNN 9.19: mode, type, input, hidden, layers, directions, dropout, steps, batch; then bytes of weights, of what
# the forward pass keeps, and of the workspace.
NETWORKS = (
    ("LSTM", "f32", 64, 128, 2, 1, 0.0, 20, 8, 925696, 901376, 19521856), ("GRU", "f16", 128, 650, 3, 1, 0.3, 64, 20, 13197600, 33488256, 47378176),
    ("GRU", "f32", 128, 1024, 4, 1, 0.3, 100, 16, 89751552, 177561856, 158105984),
    ("LSTM", "bf16", 1, 256, 3, 2, 0.3, 200, 32, 7368704, 113049856, 104743936), ("LSTM", "f32", 32, 50, 4, 2, 0.0, 1, 4, 864000, 37056, 68063776),
    ("RNN", "f32", 1024, 256, 2, 2, 0.0, 200, 32, 4202496, 39321856, 307364352), ("RNN", "f16", 100, 64, 2, 1, 0.0, 50, 16, 37888, 307456, 18650752),
    ("RNN", "bf16", 300, 128, 1, 2, 0.0, 2, 8, 220160, 8448, 17107520), ("GRU", "f32", 16, 1, 2, 2, 0.3, 200, 32, 576, 669056, 36579808))
MEASURE_NETWORK = """
import ctypes, json, os, sys
cuda = ctypes.CDLL(os.environ["SIMCUDA"])
mode, kind, width, hidden, layers, directions, rate, steps, batch = json.loads(sys.argv[1])[:9]
rnn, data, dropout, size, kept = (ctypes.c_void_p() for _ in range(5))
cuda.cudnnCreateDropoutDescriptor(ctypes.byref(dropout))
cuda.cudnnSetDropoutDescriptor(dropout, None, ctypes.c_float(rate), None, ctypes.c_size_t(0), ctypes.c_ulonglong(0))
cuda.cudnnCreateRNNDescriptor(ctypes.byref(rnn))
assert cuda.cudnnSetRNNDescriptor_v8(rnn, 0, {"RNN": 1, "LSTM": 2, "GRU": 3}[mode], 2, directions - 1, 0, {"f32": 0, "f16": 2, "bf16": 9}[kind], 0, 0,
                                     width, hidden, hidden, layers, dropout, 0) == 0
cuda.cudnnCreateRNNDataDescriptor(ctypes.byref(data))
cuda.cudnnSetRNNDataDescriptor(data, 0, 0, steps, batch, width, None, None)
found = []
cuda.cudnnGetRNNWeightSpaceSize(None, rnn, ctypes.byref(size))
found.append(size.value)
for wanted in ("none", "most"):
    ctypes.CDLL(None).setenv(b"SIMCUDA_WORKSPACE", wanted.encode(), 1)
    assert cuda.cudnnGetRNNTempSpaceSizes(None, rnn, 1, data, ctypes.byref(size), ctypes.byref(kept)) == 0
    found += [kept.value, size.value]
print(json.dumps(found))
"""
NOT_COUNTED = "Buffers of NCCL and what kernels of Triton take are not counted."
TORCH = """
import ctypes, os
__version__ = "2.99.0+cu130"
lib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_cuda.so"), ctypes.RTLD_GLOBAL)
take, give, error = lib.client_take, lib.client_give, lib.client_error
take.restype, take.argtypes = ctypes.c_void_p, [ctypes.c_int64]
give.argtypes = [ctypes.c_void_p, ctypes.c_int64]
lib.client_read.argtypes = [ctypes.c_void_p]
lib.client_write.argtypes = [ctypes.c_void_p, ctypes.c_int]
lib.client_free.restype = ctypes.c_size_t
error.restype = ctypes.c_char_p
class cuda:
    @staticmethod
    def get_arch_list():
        return ["sm_80", "sm_90"]
    @staticmethod
    def max_memory_allocated():
        return 1
"""


@pytest.fixture(name="torch")
def fixture_torch(program, out):
    """Directory of a package `torch` for PYTHONPATH."""
    packages = out / "packages"
    (packages / "torch/lib").mkdir(parents=True)
    (packages / "torch-2.99.0.dist-info").mkdir()
    (packages / "torch/__init__.py").write_text(TORCH)
    (packages / "torch/version.py").write_text("from typing import Optional\ncuda: Optional[str] = '13.0'\n")
    (packages / "torch-2.99.0.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: torch\nVersion: 2.99.0\nRequires-Dist: nvidia-cudnn-cu13==9.19.0.56; platform_system == \"Linux\"\n")
    targets = pathlib.Path(program("client_pta")[0]).parent
    for name, there in (("libtorch_cuda.so", "libcuda_client.so"), ("libc10.so", "libc10.so")):
        (packages / "torch/lib" / name).write_bytes((targets / there).read_bytes())
    return packages


@pytest.fixture(name="dryrun")
def fixture_dryrun(msmemscope, torch, out):
    def run(text, *words, **options):
        script = out / "script.py"
        script.write_text("import torch\nMIB = 1 << 20\n" + text)
        environment = {"PYTHONPATH": torch, "LD_LIBRARY_PATH": torch / "torch/lib"}
        return msmemscope("dryrun", *(words or ("--device=cuda:64M",)), "--", "python3", script, env=environment, **options)
    return run


def test_figures_are_those_of_the_program(dryrun):
    run = dryrun("a = torch.take(10 * MIB)\nb = torch.take(5 * MIB)\ntorch.give(a, 10 * MIB)\nc = torch.take(3 * MIB)\n",
                 "--json", "--device=cuda:64M").check()
    answer = json.loads(run.stdout)
    assert answer["needs_bytes"] == answer["reserves_bytes"] == 15 << 20 and answer["figures"] == "exact"
    assert answer["devices"][0]["fits"] and answer["not_counted"] == NOT_COUNTED and answer["not_simulated"] == []
    assert "Dry run on cuda:64M; no device was used." in (run.project().path / "report.txt").read_text()


def test_a_card_that_is_too_small_is_told(dryrun):
    run = dryrun("a = torch.take(10 * MIB)\nassert torch.take(10 * MIB), 'none left'\n", "--device=cuda:16M,cuda:32M")
    assert run.returncode == 4
    assert re.search(r"^  cuda:16M    does not fit: dies in step 1 at script\.py:4 ", run.stdout, re.M), run.stdout
    assert re.search(r"^  cuda:32M    fits, 12\.0 MiB left$", run.stdout, re.M)
    assert "Needs 20.0 MiB; PyTorch would reserve 20.0 MiB." in run.stdout


def test_a_card_has_what_is_left_of_it(dryrun):
    """Of an H200 the context and, after the first kernel, its code are gone."""
    run = dryrun("a = torch.lib.client_free()\nassert torch.lib.client_launch() == 0\nprint('left', a, torch.lib.client_free())\ntorch.take(MIB)\n",
                 "--device=h200").check()
    before, after = map(int, re.search(r"^left (\d+) (\d+)$", run.stderr, re.M).groups())
    assert before == (143156 - 548) << 20 and after == before - (96 << 20)
    assert ": fits, 139 GiB left.\nAbout 644 MiB more are taken outside of its pool.\n" in run.stdout


def test_a_number_that_was_copied_is_known_until_something_runs(dryrun):
    run = dryrun("a = torch.take(MIB)\ntorch.lib.client_write(a, 42)\nassert torch.lib.client_read(a) == 42\n").check()
    assert "came from data" not in run.stdout
    run = dryrun("a = torch.take(MIB)\ntorch.lib.client_write(a, 42)\ntorch.lib.client_launch()\nprint(torch.lib.client_read(a))\n"
                 "print(torch.lib.client_read(a + 65536))\n").check()
    assert "script.py:6 torch.lib.client_read(a) read as it was when it was copied to the card" in run.stdout
    assert "script.py:7 torch.lib.client_read(a + 65536) read as 0" in run.stdout


@pytest.mark.parametrize("text", ["assert input() == 'yes'\nassert input() == 'no'\n", "import sys\nassert sys.stdin.read() == 'yes\\nno\\n'\n",
                                  "import sys\nassert [line for line in sys.stdin] == ['yes\\n', 'no\\n']\n"])
def test_each_run_reads_the_same_input(dryrun, text):
    """There are three runs; the second card would have none without the first one's input."""
    reader, writer = os.pipe()
    os.write(writer, b"yes\nno\n")
    os.close(writer)
    run = dryrun(f"{text}a = torch.take(10 * MIB)\n", "--device=cuda:64M,cuda:32M", stdin=reader).check()
    os.close(reader)
    assert re.search(r"^  cuda:32M    fits, 22\.0 MiB left$", run.stdout, re.M)


def test_a_place_that_reads_several_values_has_one_line(dryrun):
    """However long it is, what it read stands at the end of its line of the screen."""
    run = dryrun("a_very_long_name_for_a_block = torch.take(MIB)\ntorch.lib.client_write(a_very_long_name_for_a_block, 42)\ntorch.lib.client_launch()\n"
                 "for offset in (0, 65536):\n    torch.lib.client_read(a_very_long_name_for_a_block + offset)\n").check()
    lines = run.stdout.splitlines()
    at = lines.index("2 values came from data that was not computed:")
    assert lines[at + 1].startswith("  script.py:7 torch.lib.client_read(a_very_") and not lines[at + 2].startswith(" ")
    assert lines[at + 1].endswith("... read as it was when it was copied to the card, 0") and max(map(len, lines[:-1])) <= 100


def test_a_loop_for_a_value_ends(dryrun):
    run = dryrun("a = torch.take(MIB)\ntorch.lib.client_launch()\nwhile torch.lib.client_read(a) == 0:\n    pass\n")
    assert run.returncode == 1 and "Needs at least 1.0 MiB" in run.stdout
    assert "The dry run ended at script.py:5 torch.lib.client_read(a): it read a value that was not computed 10,000 times" in run.stdout


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: f"{network[0]}-{network[1]}-{network[2]}")
def test_recurrent_networks_take_what_a_card_took(msmemscope, network):
    """Weights and what is kept to the byte, the workspace inside its range."""
    environment = {**os.environ, "SIMCUDA": str(msmemscope.dist / "simcuda/lib64/libsimcuda.so"), "SIMCUDA_DEVICE": "h200"}
    found = json.loads(subprocess.run([sys.executable, "-c", MEASURE_NETWORK, json.dumps(network)], env=environment, capture_output=True, text=True,
                                      check=True).stdout)
    weights, kept, workspace = network[9:]
    assert found[0] == weights and found[1] == found[3] == kept and found[2] <= workspace <= found[4]


@pytest.mark.parametrize("name, code", [("missing", 801), ("missing_nccl", 3)])
def test_what_is_not_simulated_fails_by_name(dryrun, name, code):
    function = "cudaMadeUp" if name == "missing" else "ncclMadeUp"
    call = f"torch.take(MIB)\ncode = torch.lib.client_{name}()\nassert code == {code}, code\n"
    run = dryrun(call + "raise RuntimeError(torch.error(801).decode())\n")
    assert run.returncode == 1 and f"script.py:6 raise RuntimeError(torch.error(801).decode()): RuntimeError: simcuda: {function} is not simulated" in run.stdout
    run = dryrun(call)
    assert run.returncode == 1, "it went on, so the figures may be wrong"
    assert f"its figures may be wrong:\n  script.py:4 torch.lib.client_{name}(): {function} is not simulated\n" in run.stdout


def test_a_card_without_kernels_is_refused(dryrun):
    run = dryrun("torch.take(MIB)\nassert torch.lib.client_launch() == 801\nraise RuntimeError('x')\n", "--device=t4")
    assert run.returncode == 1 and "torch 2.99.0+cu130 has no kernels for a card of capability 7.5, only sm_80, sm_90" in run.stdout
    assert dryrun("torch.take(MIB)\nassert torch.lib.client_launch() == 0\n", "--device=h200,l40s,a100-40g").returncode == 0


def test_kernels_of_a_library_that_is_not_known_fail(dryrun, torch):
    other = torch / "other.so"
    other.write_bytes((torch / "torch/lib/libtorch_cuda.so").read_bytes())
    run = dryrun(f"torch.take(MIB)\nimport ctypes\nassert ctypes.CDLL({str(other)!r}).client_launch() == 0, 'a kernel'\n")
    assert run.returncode == 1 and "other.so launches kernels of its own, whose memory is not known" in run.stdout


@pytest.mark.parametrize("device", ["h201", "cuda:", "cuda:64X", "gpu:80G"])
def test_other_cards_are_refused(dryrun, out, device):
    run = dryrun("", f"--device={device}")
    assert run.returncode == 2 and f"--device: '{device}' is not a device of a dry run; allowed: b200, h200, h100-80g, " in run.stderr
    assert rows.projects(out) == []


def test_two_makers_are_refused(dryrun):
    run = dryrun("", "--device=h200,npu:64G")
    assert run.returncode == 2 and "h200 and npu:64G are of two makers" in run.stderr


def test_a_torch_for_the_cpu_is_refused(dryrun, torch, out):
    (torch / "torch/version.py").write_text("cuda = None\n")
    run = dryrun("open('ran', 'w')", "--device=h200")
    assert run.returncode == 1 and run.stderr == (
        "msmemscope: /usr/bin/python3 has torch 2.99.0, which is not built for CUDA; a dry run for h200 needs one that is, which needs no card and no "
        "CUDA: /usr/bin/python3 -m pip install --no-deps torch===2.99.0 (from PyPI, into this environment or a new one)\n")
    assert rows.projects(out) == []


def test_a_program_that_is_not_python_is_refused(msmemscope):
    run = msmemscope("dryrun", "--device=h200", "--", "true")
    assert run.returncode == 1 and "true is not Python: a dry run for CUDA looks at the PyTorch of the interpreter" in run.stderr


def left_in(place):
    return sorted(path.name for path in place.iterdir() if path.name.startswith("msmemscope-dry."))


@pytest.mark.parametrize("name, left", [("SIGTERM", 0), ("SIGKILL", 1)])
def test_nothing_is_left_of_an_interrupted_run(msmemscope, dryrun, torch, out, monkeypatch, name, left):
    """By SIGKILL something is, which the next run removes when the program is gone, too."""
    place, script, here = out / "tmp", out / "waits.py", out / "here"
    place.mkdir()
    os.mkfifo(here)
    monkeypatch.setenv("TMPDIR", str(place))
    script.write_text(f"import os, signal, torch\ntorch.take(1 << 20)\nopen({str(here)!r}, 'w').write(str(os.getpid()))\nsignal.pause()\n")
    run = msmemscope.start("dryrun", "--device=cuda:64M", "--", "python3", script,
                           env={"PYTHONPATH": torch, "LD_LIBRARY_PATH": torch / "torch/lib"})
    program = int(here.read_text())
    assert len(left_in(place)) == 1
    run.process.send_signal(getattr(signal, name))
    assert run.process.wait(60) == -getattr(signal, name)
    assert len(left_in(place)) == left
    if left:
        os.kill(program, signal.SIGKILL)
    run.finish()
    while left_in(place):
        dryrun("torch.take(MIB)\n").check()


@pytest.mark.parametrize("name", ["with blank", "with:colon", "中文", "missing/place"])
def test_any_directory_for_temporary_files_will_do(dryrun, out, monkeypatch, name):
    place = out / name
    if "/" not in name:
        place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    run = dryrun("a = torch.take(10 * MIB)\n").check()
    assert "Needs 10.0 MiB" in run.stdout and (not place.exists() or left_in(place) == [])
