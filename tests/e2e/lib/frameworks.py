# SPDX-License-Identifier: Apache-2.0
"""Small packages with the names that frameworks have: modules, classes and methods of a version, which allocate on the simulated NPU
and note the owner that each block must have.

    frameworks.vllm_ascend(directory, "0.11.0"); frameworks.verl(directory, "0.7.0"); ...
    told.take("vllm@profile")      in their code and in scripts: allocates, and notes the owner
    told.tell()                    prints the notes of this process as a line of JSON

A test gives the directory to scripts as $PYTHONPATH.
"""
TOLD = """
import json, os
import npu
said = {}
def take(owner):
    block = npu.alloc(4096)
    said[block] = owner
    return block
def tell():
    print(json.dumps({"pid": os.getpid(), "said": said}), flush=True)
"""

RUNNER = """
from told import take
class {name}{base}:
    def load_model(self):
        take("vllm@load_weight")
    def profile_run(self):
        take("vllm@profile")
    def initialize_kv_cache(self, kv_cache_config):
        take("vllm@kv_cache")
    def execute_model(self, scheduler_output):
        take("vllm@serve")
        return scheduler_output
    def capture_model(self):
        take("vllm@warmup@graph_pool")
"""
KV_TENSORS = """
    def initialize_kv_cache_tensors(self, kv_cache_config):
        take("vllm@kv_cache")
        return {}
"""
WORKER = """
from told import take
from {module} import {runner}
class {name}:
    def __init__(self):
        self.model_runner = {runner}()
    def load_model(self):
        self.model_runner.load_model()
    def determine_available_memory(self):
        self.model_runner.profile_run()
    def initialize_from_config(self, config):
        self.model_runner.initialize_kv_cache(config)
    def compile_or_warm_up_model(self):
        take("vllm@warmup")
        self.model_runner.capture_model()
    def execute_model(self, output):
        return self.model_runner.execute_model(output)
"""


def write(directory, name, text):
    """A module, and the packages that it is in."""
    *packages, module = name.split(".")
    at = directory
    for package in packages:
        at = at / package
        at.mkdir(exist_ok=True)
        if not (at / "__init__.py").exists():
            (at / "__init__.py").write_text("")
    (at / f"{module}.py").write_text(text)


def version(directory, distribution, number):
    """What the package index has installed."""
    at = directory / f"{distribution.replace('-', '_')}-{number}.dist-info"
    at.mkdir()
    (at / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {number}\n")


def told(directory):
    write(directory, "told", TOLD)


def vllm_ascend(directory, number):
    told(directory)
    version(directory, "vllm-ascend", number)
    minor = int(number.split(".")[1])
    runner = RUNNER.format(name="NPUModelRunner", base="")
    write(directory, "vllm_ascend.worker.model_runner_v1", runner if minor < 11 else runner + KV_TENSORS)
    worker = "vllm_ascend.worker.worker" if minor >= 13 else "vllm_ascend.worker.worker_v1"
    write(directory, worker, WORKER.format(module="vllm_ascend.worker.model_runner_v1", runner="NPUModelRunner", name="NPUWorker"))
    return worker, "NPUWorker"


def vllm(directory, number):
    told(directory)
    version(directory, "vllm", number)
    write(directory, "vllm.v1.worker.gpu_model_runner", RUNNER.format(name="GPUModelRunner", base="") + KV_TENSORS)
    write(directory, "vllm.v1.worker.gpu_worker",
          WORKER.format(module="vllm.v1.worker.gpu_model_runner", runner="GPUModelRunner", name="Worker"))
    return "vllm.v1.worker.gpu_worker", "Worker"


# ---- verl ----

# What Ray's decorator leaves in the place of a class.
RAY = """
def remote(cls):
    class ActorClass:
        pass
    class Modified(cls):
        pass
    ActorClass.__ray_metadata__ = type("Metadata", (), {"modified_class": Modified})
    return ActorClass()
"""
ROLES = ["add_actor_rollout_worker", "add_critic_worker", "add_ref_policy_worker"]
OLD = {
    "ActorRolloutRefWorker": {"init_model": "init_model", "generate_sequences": "rollout", "update_actor": "update_actor",
                              "compute_log_prob": "compute_log_prob", "compute_ref_log_prob": "compute_ref_log_prob",
                              "save_checkpoint": "save_checkpoint", "load_checkpoint": "load_checkpoint"},
    "CriticWorker": {name: name for name in ("init_model", "compute_values", "update_critic", "save_checkpoint", "load_checkpoint")},
    "RewardModelWorker": {"init_model": "init_model", "compute_rm_score": "compute_rm_score"},
}
NEW = {
    "ActorRolloutRefWorker": {name: name for name in ("init_model", "update_actor", "compute_log_prob", "compute_ref_log_prob",
                                                      "save_checkpoint", "load_checkpoint", "update_weights")},
    "TrainingWorker": {name: name for name in ("train_batch", "infer_batch", "save_checkpoint", "load_checkpoint")},
}


def classes(all_methods, asynchronous=()):
    text = "from told import take\n"
    for name, methods in all_methods.items():
        text += f"class {name}:\n"
        for method, phase in methods.items():
            prefix = "async " if method in asynchronous else ""
            text += f"    {prefix}def {method}(self, *arguments):\n        take('verl@{phase}')\n        return arguments\n"
    return text


def verl(directory, number):
    """Returns [(module, class, {method: phase})] of the runner and of the workers."""
    told(directory)
    write(directory, "ray", RAY)
    write(directory, "verl.trainer.ppo.ray_trainer", classes({"RayPPOTrainer": {"init_workers": "init_workers", "fit": "fit"}}))
    (directory / "verl" / "__init__.py").write_text(f"__version__ = '{number}'\n")
    numbers = tuple(map(int, number.split(".")))
    found = [("verl.trainer.ppo.ray_trainer", "RayPPOTrainer", {"init_workers": "init_workers", "fit": "fit"})]
    if numbers < (0, 6):
        runners = {"verl.trainer.main_ppo": {"TaskRunner": ["run"]}}
    elif numbers < (0, 9):
        reward = "add_reward_model_worker" if numbers < (0, 7, 1) else "add_reward_model_resource_pool"
        runners = {"verl.trainer.main_ppo": {"TaskRunner": [*ROLES, reward, "run"]}}
    else:
        more = ["add_reward_model_resource_pool", "add_teacher_model_resource_pool"]
        runners = {"verl.trainer.main_ppo": {"TaskRunnerV1": ["init_agent_loop_manager", "run"]},
                   "verl.trainer.main_ppo_v0": {"BaseTaskRunner": [*ROLES, *more], "TaskRunner": ["run"]}}
    decorated = numbers < (0, 6) or numbers >= (0, 9)
    for module, of_module in runners.items():
        of_module = {name: {method: method for method in methods} for name, methods in of_module.items()}
        text = classes(of_module)
        if decorated:
            names = [name for name in of_module if not name.startswith("Base")]
            text += "import ray\n" + "".join(f"{name} = ray.remote({name})\n" for name in names)
        write(directory, module, text)
        found += [(module, name, methods) for name, methods in of_module.items()]
    workers = {} if numbers >= (0, 8) else {"verl.workers.fsdp_workers": OLD, "verl.workers.megatron_workers": OLD}
    if numbers >= (0, 7):
        workers["verl.workers.engine_workers"] = NEW
    for module, of_module in workers.items():
        write(directory, module, classes(of_module, ("update_weights",)))
        found += [(module, name, methods) for name, methods in of_module.items()]
    return found


def mindspeed_llm(directory):
    told(directory)
    write(directory, "megatron.training.training", """
from told import take
def get_model():
    return take("")
def setup_model_and_optimizer():
    return get_model()
def train_step(step):
    take("")
    return step
""")
    write(directory, "megatron.core.transformer.mlp", "class MLP:\n    def forward(self, x):\n        return x\n")
    write(directory, "mindspeed_llm.training.training", """
from megatron.core.transformer.mlp import MLP
from megatron.training.training import setup_model_and_optimizer, train_step
def train(steps):
    for step in range(steps):
        train_step(step)
        MLP().forward(step)
def pretrain(steps):
    setup_model_and_optimizer()
    train(steps)
""")
