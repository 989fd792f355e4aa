# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run the real command; no test imports them, conftest.py has them all.

    dist         staged tree under test: build/dist, or $MSMEMSCOPE_DIST
    targets      compiled tests/targets: build/release/tests/targets, or $MSMEMSCOPE_TARGETS
    runner       words in front of every program under test: $MSMEMSCOPE_RUNNER, an emulator for a cross build, else none
    out          fresh directory on a real disk, removed when the test passed; up to 4 of the traces in it are first copied to
                 $MSMEMSCOPE_KEEP_TRACES when that is set (for tools/same-output.py)
    msmemscope   runs the command, see harness.Command
    program      program("threads", 4): the words that run a target with arguments
    python       the words that run Python with PyTorch
    traced, collector, copies   see truth.py
    client       see said.py
    scripts      see scripts.py
    steered      see steered.py
    together     see together.py
    operators    see atb.py
    memory_group   see groups.py
    cuda, cuda_env   see cuda.py
    store, pg, add, fleet, traces, base    see stores.py
    view, browser   see viewed.py

Whatever is missing is a failure, never a skip: these tests only mean something when they run. Another folder of tests gets
all this by a conftest.py that puts tests/e2e/lib into sys.path and says `from fixtures import *`.
"""
import inspect
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import costs
import file_queue
import harness
import insight
import same
from atb import operators  # noqa: F401
from cuda import cuda, cuda_env  # noqa: F401
from groups import memory_group  # noqa: F401
from said import client  # noqa: F401
from scripts import scripts  # noqa: F401
from steered import steered  # noqa: F401
from stores import add, base, fleet, pg, pg_server, store, traces  # noqa: F401
from together import together  # noqa: F401
from truth import collector, copies, traced  # noqa: F401
from viewed import browser, view  # noqa: F401

LIB = Path(__file__).resolve().parent
ROOT = LIB.parents[2]
SCRATCH = ROOT / "build" / "tmp-e2e"


def pytest_configure(config):
    for plugin in (costs, file_queue):
        if not config.pluginmanager.is_registered(plugin):
            config.pluginmanager.register(plugin)
    config.addinivalue_line("markers", "qemu: also run against the aarch64 build under qemu-user")
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line("markers", "not_insight(why): databases that the test leaves are not for Insight (lib/insight.py)")
    config.addinivalue_line("markers", "not_same(why): what the test leaves behind is not compared in all forms (lib/same.py)")


def waits(item):
    """Whether a test waits for something that another process does: it starts one and goes on, or looks again and again."""
    return re.search(r"\.start\(|wait_for\(|sleep\(|readline\(|kill\(|Popen\(|poll\(", inspect.getsource(item.function)) is not None


def pytest_collection_modifyitems(config, items):
    """--listed FILE: the tests that it names, with --waiting also those that wait."""
    listed = config.getoption("listed", None)
    if listed:
        names = {line for line in Path(listed).read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")}
        gone = names - {item.nodeid for item in items}
        if gone:
            raise pytest.UsageError(f"{listed} names tests that are not there: {', '.join(sorted(gone)[:5])}; rename or delete these lines")
        chosen = [item for item in items if item.nodeid in names or config.getoption("waiting") and waits(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        item.passed = report.passed
    if report.failed:
        kept = [str(item.funcargs[name]) for name in ("out", "tmp_path") if name in getattr(item, "funcargs", {})]
        kept += [str(item.funcargs["together"].place)] if "together" in getattr(item, "funcargs", {}) else []
        if kept:
            report.sections.append(("Files of this test are kept", "\n".join(kept)))


def _existing(variable, default, proof):
    path = Path(os.environ.get(variable) or default).resolve()
    if not (path / proof).exists():
        pytest.fail(f"no {path / proof}: run make, or set {variable}", pytrace=False)
    return path


@pytest.fixture(scope="session", autouse=True)
def own_devices():
    """Simulated NPUs on which no process of another run of these tests has memory. Users without rights are to find them, too."""
    with tempfile.TemporaryDirectory(prefix="simnpu-tests-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        os.chmod(directory, 0o1777)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SIMNPU_SHARE", directory)
            yield


@pytest.fixture(scope="session")
def dist():
    return _existing("MSMEMSCOPE_DIST", ROOT / "build" / "dist", "bin/msmemscope")


@pytest.fixture(scope="session")
def targets():
    return _existing("MSMEMSCOPE_TARGETS", ROOT / "build" / "release" / "tests" / "targets", ".")


@pytest.fixture(scope="session")
def runner():
    return os.environ.get("MSMEMSCOPE_RUNNER", "").split()


def _keep_traces(path, place):
    traces = sorted(trace for trace in path.rglob("trace.msc") if trace.is_file() and not trace.is_symlink())
    for number, trace in enumerate(traces[:4]):
        place.mkdir(parents=True, exist_ok=True)
        shutil.copy(trace, place / f"{number}.msc")


@pytest.fixture
def out(request):
    SCRATCH.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", request.node.name)[:60]
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=SCRATCH))
    yield path
    if os.environ.get("MSMEMSCOPE_KEEP_TRACES"):
        _keep_traces(path, Path(os.environ["MSMEMSCOPE_KEEP_TRACES"]) / path.name)
    if getattr(request.node, "passed", False):
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def msmemscope(dist, out, runner, request):
    """What its launches wrote must agree in every form (same.py), unless a test says why not: @pytest.mark.not_same("why"). Each
    database that it leaves must be one that Insight opens (insight.py), unless: @pytest.mark.not_insight("why")."""
    command = harness.Command(dist, out, runner)
    yield command
    command.close()
    insight.after(request.node, [out, request.node.funcargs.get("tmp_path")])
    same.after(request.node, command, out)


@pytest.fixture
def program(targets, runner):
    def words(name, *arguments):
        path = targets / name
        if not path.is_file():
            pytest.fail(f"no target {path}: run make", pytrace=False)
        return [*runner, str(path), *map(str, arguments)]

    return words


@pytest.fixture(scope="session")
def python():
    """That of build/venv, or $MSMEMSCOPE_TORCH: one with another PyTorch. NumPy is not there, which PyTorch would say on stderr."""
    if "MSMEMSCOPE_TORCH" in os.environ:
        return [os.environ["MSMEMSCOPE_TORCH"], "-W", "ignore"]
    subprocess.run([ROOT / "tools" / "install-packages.sh", "pip"], check=True)
    return [str(ROOT / "build" / "venv" / "bin" / "python"), "-W", "ignore"]
