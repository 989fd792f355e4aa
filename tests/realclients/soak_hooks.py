# SPDX-License-Identifier: Apache-2.0
"""init_framework_hooks() on the real packages: vLLM and vLLM-Ascend of many versions, whose sources must have what the table hooks
(they do not import without their device), and verl, which is imported; one of them runs its TaskRunner as an actor of Ray.

Packages come from PyPI without their dependencies into build/hooks-packages, and are used again. What verl imports is the group hooks
of tools/packages.txt, in build/venv-hooks, or any Python that has it by $MSMEMSCOPE_HOOKS_PYTHON.
"""
import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "e2e" / "lib"))

from fixtures import dist, msmemscope, out, runner  # noqa: E402, F401  # pylint: disable=wrong-import-position,unused-import

PACKAGES = ROOT / "build" / "hooks-packages"
VENV = ROOT / "build" / "venv-hooks"
VLLM_ASCEND = ["0.9.1", "0.10.1rc1", "0.11.0", "0.12.0rc1", "0.13.0", "0.18.0", "0.23.0"]
VLLM = ["0.9.1", "0.11.0", "0.29.0", "0.32.0"]
VERL = ["0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1"]


def package(name, version):
    """Directory with the Python files of a wheel."""
    there = PACKAGES / f"{name}-{version}"
    if not there.exists():
        load = PACKAGES / "load"
        load.mkdir(parents=True, exist_ok=True)
        subprocess.run([ROOT / "build" / "venv" / "bin" / "python3", "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps",
                        "--only-binary", ":all:", "--dest", load, f"{name}=={version}"], check=True)
        [wheel] = [path for path in load.iterdir() if path.name.lower().startswith(f"{name.replace('-', '_')}-{version}-")]
        part = there.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(part, [one for one in archive.namelist() if not one.endswith(".so")])
        part.rename(there)
        wheel.unlink()
    return there


@pytest.fixture(scope="session")
def table(dist):
    """The table's modules, of the tree under test."""
    sys.path.insert(0, str(dist / "python"))
    from msmemscope import _hooks
    return _hooks


@pytest.fixture(scope="session")
def python():
    if "MSMEMSCOPE_HOOKS_PYTHON" in os.environ:
        return os.environ["MSMEMSCOPE_HOOKS_PYTHON"]
    listed = (ROOT / "tools" / "packages.txt").read_text().splitlines()
    wanted = [line.split()[1] for line in listed if line.startswith("hooks ")]
    if not (VENV / "packages").exists() or (VENV / "packages").read_text() != "\n".join(wanted):
        subprocess.run([ROOT / "tools" / "install-packages.sh", "pip"], check=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", VENV], check=True)
        [site] = VENV.glob("lib/python3.*/site-packages")
        [torch] = (ROOT / "build" / "venv").resolve().glob("lib/python3.*/site-packages")
        (site / "torch.pth").write_text(f"{torch}\n")
        subprocess.run([VENV / "bin" / "pip", "--quiet", "--disable-pip-version-check", "install", *wanted], check=True)
        (VENV / "packages").write_text("\n".join(wanted))
    return str(VENV / "bin" / "python")


# ---- what the sources have ----

def names_of(path):
    """{"function", "Class.method"} of a module, and the classes whose methods may also be those of a base class."""
    found, derived = set(), set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
            if node.bases:
                derived.add(node.name)
    return found, derived


def looked_up(table, directory, framework, component, version):
    """(targets that are there, paths of those that are missing), of all modules that are there."""
    [entry] = [one for one in table.TABLE if (one.framework, one.component) == (framework, component)
               and table._matches(one.versions, table._numbers(version))]
    there, missing = [], []
    for target in entry.targets:
        path = directory / target.module.replace(".", "/")
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if not path.exists():
            continue
        found, derived = names_of(path)
        if target.path in found or (not target.seldom and target.path.partition(".")[0] in derived):
            there.append(target)
        elif not target.seldom:
            missing.append(f"{target.module}: {target.path}")
    return there, missing


@pytest.mark.parametrize("framework, version", [*(("vllm_ascend", one) for one in VLLM_ASCEND), *(("vllm", one) for one in VLLM)])
def test_sources_have_what_the_table_hooks(table, framework, version):
    there, missing = looked_up(table, package(framework.replace("_", "-"), version), framework, "worker", version)
    assert not missing
    phases = {target.phase for target in there}
    assert {"load_weight", "profile_run", "kv_cache", "activate", "capture_model", "compile_or_warm_up_model"} <= phases
    print(framework, version, len(there), "targets")


@pytest.mark.parametrize("component", ["TaskRunner", "worker"])
@pytest.mark.parametrize("version", VERL)
def test_sources_of_verl_have_what_the_table_hooks(table, version, component):
    there, missing = looked_up(table, package("verl", version), "verl", component, version)
    assert not missing and len(there) > (4 if component == "TaskRunner" else 8)
    print("verl", version, component, len(there), "targets")


def test_sources_of_megatron_have_what_mindspeed_llm_uses(table):
    """MindSpeed-LLM itself is not on PyPI."""
    there, _ = looked_up(table, package("megatron-core", "0.12.1"), "mindspeed_llm", "training", "0.12.1")
    found = {target.path for target in there}
    layers = ("GPTModel", "TransformerBlock", "TransformerLayer", "MLP", "MoELayer", "TopKRouter")
    optimizers = ("MegatronOptimizer", "MixedPrecisionOptimizer", "FP32Optimizer", "ChainedOptimizer")
    assert {"get_megatron_optimizer", "backward_step", "vocab_parallel_cross_entropy", "DistributedOptimizer.step_with_ready_grads",
            *(f"{name}.forward" for name in layers), *(f"{name}.step" for name in optimizers)} <= found


def test_sources_of_mindspeed_llm_have_what_the_table_hooks(table):
    """MSMEMSCOPE_MINDSPEED_LLM: a directory with its package mindspeed_llm, of a release for Megatron 0.12."""
    place = os.environ.get("MSMEMSCOPE_MINDSPEED_LLM")
    if place is None:
        pytest.skip("MindSpeed-LLM is not on PyPI; MSMEMSCOPE_MINDSPEED_LLM names a checkout")
    there, missing = looked_up(table, Path(place), "mindspeed_llm", "training", "0.12.1")
    assert not missing and {"train", "GPTModel.forward", "TransformerLayer.forward"} <= {target.path for target in there}
    print("mindspeed_llm", len(there), "targets")


# ---- what is hooked when it is imported ----

IMPORT = """
import importlib, json, sys
import msmemscope
from msmemscope import _hooks
modules = json.loads(sys.argv[1])
imported = [importlib.import_module(name) for name in modules]
def functions():
    found = {}
    for module in imported:
        for name, value in list(vars(module).items()):
            value = getattr(getattr(value, "__ray_metadata__", None), "modified_class", value)
            if isinstance(value, type):
                found.update({(module.__name__, name, key): one for key, one in vars(value).items()})
            else:
                found[module.__name__, name] = value
    return found
before = functions()
msmemscope.init_framework_hooks("verl", sys.argv[2], "TaskRunner", "snapshot")
hooked = sorted(f"{wrap.holder.__module__}.{wrap.holder.__qualname__}.{wrap.name}" for wrap in _hooks._wraps.values())
msmemscope.cleanup_framework_hooks()
after = functions()
assert before.keys() == after.keys() and all(before[key] is after[key] for key in before)
print(json.dumps({"hooked": hooked}))
"""


@pytest.mark.parametrize("version", VERL)
def test_verl_is_hooked_and_clean_again(table, msmemscope, python, dist, out, version):
    directory = package("verl", version)
    modules, wanted = [], 0
    for component in ("TaskRunner", "worker"):
        there, _ = looked_up(table, directory, "verl", component, version)
        there = [target for target in there if "megatron" not in target.module and target.module != "verl.trainer.main_ppo_sync"]
        modules += [target.module for target in there]
        wanted += len(there)
    (out / "script.py").write_text(IMPORT)
    done = msmemscope.bare(python, "-W", "ignore", out / "script.py", json.dumps(list(dict.fromkeys(modules))), version,
                           env={"PYTHONPATH": f"{dist / 'python'}:{directory}", "HF_HUB_OFFLINE": "1"}, timeout=300)
    assert done.returncode == 0 and "init_framework_hooks" not in done.stderr, done
    hooked = done.value("hooked")
    assert len(hooked) >= wanted, (wanted, hooked)
    print("verl", version, len(hooked), "functions")


ACTOR = """
import os, sys
import msmemscope
msmemscope.init_framework_hooks("verl", "0.7.0", "TaskRunner", "snapshot")
import ray
from omegaconf import OmegaConf
from verl.trainer.main_ppo import TaskRunner
ray.init(num_cpus=1, include_dashboard=False, _temp_dir=sys.argv[1])
actor = ray.remote(num_cpus=1)(TaskRunner).remote()
config = OmegaConf.create({"trainer": {"use_legacy_worker_impl": "auto"}, "critic": {"strategy": "fsdp"}})
assert ray.get(actor.add_critic_worker.remote(config)) is None
ray.shutdown()
"""


def test_an_actor_of_ray_has_the_phases_of_verl(msmemscope, python, out):
    (out / "script.py").write_text(ACTOR)
    # Ray's sockets need a short path.
    done = msmemscope("--device=cpu", "--", python, "-W", "ignore", out / "script.py", f"/tmp/ray-{os.getpid()}",
                      env={"PYTHONPATH": package("verl", "0.7.0"), "HF_HUB_OFFLINE": "1"}, timeout=600).check()
    assert "init_framework_hooks" not in done.stderr
    rows = [row for row in done.rows() if row.event == "SNAPSHOT"]
    start = "verl.trainer.main_ppo@TaskRunner@add_critic_worker@Start"
    assert [row.name for row in rows] == [start, start.replace("Start", "End"), "add_critic_worker"], rows


def test_the_worker_of_verl_trains_on_the_simulated_npu(msmemscope, python, dist, out):
    """verl's own loop with the real torch_npu: every batch has its snapshots, and the optimizer's steps are seen."""
    sites = [next((ROOT / "build" / name).resolve().glob("lib/python3.*/site-packages")) for name in ("venv", "venv-npu")]
    simnpu = dist / "simnpu"
    done = msmemscope("--", python, "-W", "ignore", Path(__file__).parent / "programs" / "verl_worker.py", "0.8.0",
                      env={"PYTHONPATH": ":".join(map(str, [*sites, package("verl", "0.8.0")])), "HF_HUB_OFFLINE": "1", "ASCEND_HOME_PATH": simnpu,
                           "ASCEND_OPP_PATH": simnpu / "opp", "LD_LIBRARY_PATH": simnpu / "lib64", "SIMNPU_SHARE": out}, timeout=600).check()
    assert "trained" in done.stdout and "init_framework_hooks" not in done.stderr
    names = [row.name for row in done.rows() if row.event == "SNAPSHOT" and "@" in row.name]
    batch = "verl.workers.engine_workers@TrainingWorker@train_batch@"
    assert names == [batch + "Start", batch + "End"] * 3, names
    assert "3 steps" in done.stderr and "PEAK of the PyTorch pool (PTA)" in done.stderr
