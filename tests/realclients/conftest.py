# SPDX-License-Identifier: Apache-2.0
"""The environment of tests/realclients. MSMEMSCOPE_DIST names the installed tool (build/dist), SIMNPU_HOME the simulated NPU (the
one that is installed with it), MSMEMSCOPE_NPU_VENV the environment with torch_npu (build/venv-npu, made when it is missing).

Where PyPI has no torch_npu for this Python or machine every test is skipped, and the last line of the run says so in capitals.
"""
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e" / "lib")]

import costs  # pylint: disable=wrong-import-position
import file_queue  # pylint: disable=wrong-import-position
from clients import ROOT, Client, build_receiver  # pylint: disable=wrong-import-position

_skipped = []


def pytest_configure(config):
    config.pluginmanager.register(costs)
    config.pluginmanager.register(file_queue)


def _environment(venv, *version):
    done = subprocess.run([HERE / "environment.sh", venv, *version], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode == 3:
        _skipped.append(done.stdout.strip().splitlines()[-1])
        pytest.skip(_skipped[-1])
    assert done.returncode == 0, done.stdout
    return venv


def pytest_terminal_summary(terminalreporter):
    for line in dict.fromkeys(_skipped):
        terminalreporter.write_line(f"REAL CLIENTS NOT TESTED: {line}", red=True)


@pytest.fixture(scope="session")
def client(request, tmp_path_factory):
    """With the torch_npu of build/venv-npu; for a test that is parametrised by versions (indirect), with each in turn."""
    dist = Path(os.environ.get("MSMEMSCOPE_DIST", ROOT / "build" / "dist")).resolve()
    simnpu = Path(os.environ.get("SIMNPU_HOME", dist / "simnpu")).resolve()
    assert (simnpu / "lib64" / "libopapi.so").exists(), f"{simnpu} has no operators: run `make` first"
    version = getattr(request, "param", None)
    if version is None:
        venv = _environment(Path(os.environ.get("MSMEMSCOPE_NPU_VENV", ROOT / "build" / "venv-npu")))
    else:
        venv = _environment(ROOT / "build" / f"venv-npu-{version}", version)
    return Client(venv / "bin" / "python", dist, simnpu, tmp_path_factory.mktemp("realclients"))


@pytest.fixture(scope="session")
def receiver(client):
    """The library of receiver.c."""
    return build_receiver(client.work)
