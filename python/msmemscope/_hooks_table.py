# SPDX-License-Identifier: Apache-2.0
"""What init_framework_hooks() knows: one list of frameworks and of what is hooked in each of their versions.

A new framework, or a version that moved its classes, is one Entry: docs/adding-a-framework.md. Nothing here is imported by name;
_hooks.py waits for the modules.
"""
from typing import NamedTuple, Tuple

SNAPSHOT, DECOMPOSE = "snapshot", "decompose"


class Target(NamedTuple):
    """A function or method that is hooked."""
    module: str
    path: str  # "Class.method", or "function"
    phase: str = ""  # range in the rows, and name of a snapshot when it ends; "": no snapshots
    owner: str = ""  # with decompose: owner of what the thread allocates inside; "component@part"
    tensors: str = ""  # with decompose: function of _hooks_tensors.py that labels what the call has made
    # "opens": the owner stays until a call that "closes" the newest one, or "ends" all of them. "": while the call lasts
    span: str = ""
    seldom: bool = False  # not in every build of these versions: no message when it is missing
    subclasses: bool = False  # also what classes derived from it have in its place


class Entry(NamedTuple):
    """Targets of a component in some versions: "0.7.0", "2.10+" (at least), "2.6-2.9" (with all patches), "*" (any)."""
    framework: str
    versions: str
    component: str
    types: Tuple[str, ...]
    targets: Tuple[Target, ...]
    # (framework, component) that are hooked as well, in the version that is installed.
    also: Tuple[Tuple[str, str], ...] = ()
    automatic: bool = True  # whether analysis decompose switches it on by itself


class Framework(NamedTuple):
    package: str  # whose __version__ counts
    distribution: str = ""  # name in the package index; "": the version that the caller names counts
    short_from: int = 0  # "11.0" means 0.11.0 from this number on; 0: never


FRAMEWORKS = {
    "vllm_ascend": Framework("vllm_ascend", "vllm-ascend", short_from=7),
    "vllm": Framework("vllm", "vllm", short_from=7),
    "verl": Framework("verl", "verl"),
    "mindspeed_llm": Framework("mindspeed_llm"),
    "pytorch": Framework("torch", "torch"),
}


# ---- vLLM, on NPUs and GPUs ----

def _runner(module, name, *, tensors=True):
    """A model runner. `tensors`: it allocates the KV cache in a method of its own."""
    def method(method, *rest, **more):
        return Target(module, f"{name}.{method}", *rest, subclasses=True, **more)

    return (
        method("load_model", "load_weight", "vllm@load_weight", "weights"),
        method("profile_run", "profile_run", "vllm@profile"),
        method("initialize_kv_cache", "kv_cache", "vllm@kv_cache", "all_kv_caches"),
        *(method("initialize_kv_cache_tensors" + kind, "", "vllm@kv_cache", "kv_cache", seldom=not tensors or bool(kind))
          for kind in ("", "_deepseek_mla", "_deepseek_sfa")),
        method("execute_model", "activate", "vllm@serve"),
        method("sample_tokens", "", "vllm@serve", seldom=True),
        method("capture_model", "capture_model", "vllm@graph_pool"),
    )


def _warmup(module, name):
    return Target(module, f"{name}.compile_or_warm_up_model", "compile_or_warm_up_model", "vllm@warmup", subclasses=True)


_BOTH = (DECOMPOSE, SNAPSHOT)
_ASCEND = "vllm_ascend.worker."
_VLLM = "vllm.v1.worker."
_CPU = Target(_VLLM + "cpu_model_runner", "CPUModelRunner.warming_up_model", "", "vllm@warmup", seldom=True)

_VLLM_ENTRIES = (
    Entry("vllm_ascend", "0.9-0.10", "worker", _BOTH, (
        *_runner(_ASCEND + "model_runner_v1", "NPUModelRunner", tensors=False),
        _warmup(_ASCEND + "worker_v1", "NPUWorker"),
    )),
    # The worker got its new place in 0.12 or 0.13.
    Entry("vllm_ascend", "0.11-0.12", "worker", _BOTH, (
        *_runner(_ASCEND + "model_runner_v1", "NPUModelRunner"),
        _warmup(_ASCEND + "worker_v1", "NPUWorker"),
        _warmup(_ASCEND + "worker", "NPUWorker"),
    )),
    Entry("vllm_ascend", "0.13+", "worker", _BOTH, (
        *_runner(_ASCEND + "model_runner_v1", "NPUModelRunner"),
        *_runner(_ASCEND + "v2.model_runner", "NPUModelRunner", tensors=False),
        _warmup(_ASCEND + "worker", "NPUWorker"),
    )),
    Entry("vllm", "0.9-0.12", "worker", _BOTH, (
        *_runner(_VLLM + "gpu_model_runner", "GPUModelRunner"),
        _warmup(_VLLM + "gpu_worker", "Worker"),
        _CPU,
    )),
    Entry("vllm", "0.13+", "worker", _BOTH, (
        *_runner(_VLLM + "gpu_model_runner", "GPUModelRunner"),
        *_runner(_VLLM + "gpu.model_runner", "GPUModelRunner", tensors=False),
        _warmup(_VLLM + "gpu_worker", "Worker"),
        _CPU,
    )),
)


# ---- verl: the runner of a job, and its workers, which are processes of their own ----

def _verl(module, name, *methods, seldom=False):
    """A method is named, or named with its phase."""
    named = (one if isinstance(one, tuple) else (one, one) for one in methods)
    return tuple(Target("verl." + module, f"{name}.{method}", phase, f"verl@{phase}", seldom=seldom) for method, phase in named)


_ROLES = ("add_actor_rollout_worker", "add_critic_worker", "add_ref_policy_worker")
_TRAINER = _verl("trainer.ppo.ray_trainer", "RayPPOTrainer", "init_workers", "fit", ("_validate", "validate"),
                 ("_save_checkpoint", "save_checkpoint"), seldom=True)
_ALSO = (("verl", "worker"), ("vllm_ascend", "worker"), ("vllm", "worker"))


def _old_workers(module):
    """Of the folder workers until 0.7."""
    return (
        *_verl(module, "ActorRolloutRefWorker", "init_model", ("generate_sequences", "rollout"), "update_actor", "compute_log_prob",
               "compute_ref_log_prob", "save_checkpoint", "load_checkpoint"),
        *_verl(module, "ActorRolloutRefWorker", "rollout_mode", "trainer_mode", seldom=True),
        *_verl(module, "AsyncActorRolloutRefWorker", "wake_up", "sleep", "update_weights", seldom=True),
        *_verl(module, "CriticWorker", "init_model", "compute_values", "update_critic", "save_checkpoint", "load_checkpoint"),
        *_verl(module, "RewardModelWorker", "init_model", "compute_rm_score", seldom=True),
    )


def _engine_workers(module, seldom=False):
    """From 0.7 on: the critic is a TrainingWorker."""
    return (
        *_verl(module, "ActorRolloutRefWorker", "init_model", "update_actor", "compute_log_prob", "compute_ref_log_prob",
               "save_checkpoint", "load_checkpoint", seldom=seldom),
        *_verl(module, "ActorRolloutRefWorker", "update_weights", "wake_up", "sleep", seldom=True),
        *_verl(module, "TrainingWorker", "train_batch", "infer_batch", "save_checkpoint", "load_checkpoint", seldom=seldom),
    )


_VERL_ENTRIES = (
    Entry("verl", "0.5", "TaskRunner", _BOTH, (*_verl("trainer.main_ppo", "TaskRunner", "run"), *_TRAINER), _ALSO),
    Entry("verl", "0.6-0.7.0", "TaskRunner", _BOTH, (
        *_verl("trainer.main_ppo", "TaskRunner", *_ROLES, "add_reward_model_worker", "run"), *_TRAINER), _ALSO),
    Entry("verl", "0.7.1-0.8", "TaskRunner", _BOTH, (
        *_verl("trainer.main_ppo", "TaskRunner", *_ROLES, "add_reward_model_resource_pool", "run"),
        *_verl("trainer.main_ppo", "TaskRunner", "add_teacher_model_resource_pool", seldom=True),
        *_verl("trainer.main_ppo_sync", "TaskRunner", "add_actor_rollout_worker", "add_critic_worker", "run", seldom=True),
        *_TRAINER), _ALSO),
    Entry("verl", "0.9+", "TaskRunner", _BOTH, (
        *_verl("trainer.main_ppo", "TaskRunnerV1", "init_agent_loop_manager", "run"),
        *_verl("trainer.main_ppo_v0", "BaseTaskRunner", *_ROLES, "add_reward_model_resource_pool", "add_teacher_model_resource_pool"),
        *_verl("trainer.main_ppo_v0", "TaskRunner", "run"),
        *_TRAINER), _ALSO),
    Entry("verl", "0.5-0.7", "worker", _BOTH, (
        *_old_workers("workers.fsdp_workers"), *_old_workers("workers.megatron_workers"),
        *_engine_workers("workers.engine_workers", seldom=True)), _ALSO[1:]),
    Entry("verl", "0.8+", "worker", _BOTH, _engine_workers("workers.engine_workers"), _ALSO[1:]),
)


# ---- MindSpeed-LLM: Megatron's functions, and what it has in the place of some ----

def _mindspeed(module, path, phase=""):
    return Target(module, path, phase or path.rpartition(".")[2], seldom=True)


_MEGATRON = "megatron.core."
_SPEED = "mindspeed_llm.core."
_LAYERS = (("models.gpt.gpt_model", "GPTModel"), ("transformer.transformer_block", "TransformerBlock"),
           ("transformer.transformer_layer", "TransformerLayer"), ("transformer.attention", "SelfAttention"), ("transformer.mlp", "MLP"),
           ("transformer.moe.moe_layer", "MoELayer"), ("transformer.moe.router", "TopKRouter"))
_MINDSPEED_ENTRIES = (
    Entry("mindspeed_llm", "0.12", "training", (SNAPSHOT,), (
        Target("mindspeed_llm.training.training", "train", "train"),
        _mindspeed("mindspeed_llm.training.training", "train_step"),
        *(_mindspeed("megatron.training.training", name) for name in ("setup_model_and_optimizer", "get_model")),
        _mindspeed(_MEGATRON + "optimizer", "get_megatron_optimizer"),
        *(_mindspeed(place + module, f"{name}.forward", f"{name}.forward") for place in (_SPEED, _MEGATRON) for module, name in _LAYERS),
        _mindspeed(_MEGATRON + "pipeline_parallel.schedules", "backward_step"),
        _mindspeed(_SPEED + "pipeline_parallel.dualpipe.gpt_model", "gpt_model_backward"),
        _mindspeed(_SPEED + "models.gpt.gpt_model", "GPTModel.compute_language_model_loss"),
        _mindspeed(_MEGATRON + "tensor_parallel.cross_entropy", "vocab_parallel_cross_entropy"),
        *(_mindspeed(_MEGATRON + "optimizer.optimizer", f"{name}.step", "optimizer_step") for name in
          ("MegatronOptimizer", "MixedPrecisionOptimizer", "Float16OptimizerWithFloat16Params", "FP32Optimizer", "ChainedOptimizer")),
        _mindspeed(_MEGATRON + "optimizer.distrib_optimizer", "DistributedOptimizer.step_with_ready_grads", "optimizer_step"),
    )),
)


# ---- PyTorch: FSDP1, FSDP2, and any training ----

_FSDP1 = "torch.distributed.fsdp."
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_"
# A part of these runs before the module's own hooks and a part behind them, so the owner is open in between.
_SHARDED = (
    Target(_FSDP2 + "state", "FSDPState._pre_forward", owner="fsdp2@activation", span="opens"),
    Target(_FSDP2 + "state", "FSDPState._post_forward", owner="fsdp2@activation", span="closes"),
    Target(_FSDP2 + "state", "FSDPState._pre_backward", owner="fsdp2@backward", span="opens"),
    Target(_FSDP2 + "param_group", "FSDPParamGroup.post_backward", owner="fsdp2@backward", span="closes"),
    Target(_FSDP2 + "state", "FSDPState._root_post_backward_final_callback", owner="fsdp2@backward", span="ends"),
    Target(_FSDP2 + "param", "FSDPParam._init_sharded_param", owner="fsdp2@sharded_weight"),
    Target(_FSDP2 + "collectives", "foreach_reduce", owner="fsdp2@gradient"),
)
_PYTORCH_ENTRIES = (
    Entry("pytorch", "2.6+", "fsdp1", (DECOMPOSE,), (
        Target(_FSDP1 + "fully_sharded_data_parallel", "FullyShardedDataParallel.forward", owner="fsdp1@activation"),
        Target(_FSDP1 + "_runtime_utils", "_pre_backward_hook", owner="fsdp1@backward", span="opens"),
        Target(_FSDP1 + "_runtime_utils", "_post_backward_hook", owner="fsdp1@backward", span="closes"),
        Target(_FSDP1 + "_runtime_utils", "_post_backward_final_callback", owner="fsdp1@backward", span="ends"),
        Target(_FSDP1 + "_flat_param", "FlatParamHandle._init_flat_param_and_metadata", owner="fsdp1@sharded_weight"),
        Target(_FSDP1 + "_flat_param", "FlatParamHandle.shard", owner="fsdp1@sharded_weight"),
        Target(_FSDP1 + "_flat_param", "FlatParamHandle._alloc_padded_unsharded_flat_param", owner="fsdp1@all_gather"),
        Target(_FSDP1 + "_runtime_utils", "_reduce_grad", owner="fsdp1@gradient"),
    )),
    # The buffer of the all-gather is allocated inside one operator.
    Entry("pytorch", "2.6-2.9", "fsdp2", (DECOMPOSE,), (
        *_SHARDED, Target(_FSDP2 + "collectives", "foreach_all_gather", owner="fsdp2@all_gather_output"))),
    Entry("pytorch", "2.10+", "fsdp2", (DECOMPOSE,), (
        *_SHARDED,
        Target(_FSDP2 + "collectives", "DefaultAllGather.allocate", owner="fsdp2@all_gather_output"),
        Target(_FSDP2 + "collectives", "DefaultReduceScatter.allocate", owner="fsdp2@gradient"),
    )),
    # analysis decompose has classes of its own for these (_owners.py).
    Entry("pytorch", "2.1+", "training", _BOTH, (
        Target("torch.nn.modules.module", "Module.__call__", "forward", "training@forward"),
        Target("torch.autograd", "backward", "backward", "training@backward"),
        Target("torch.optim.optimizer", "Optimizer.step", "optimizer", "training@optimizer", subclasses=True),
    ), automatic=False),
)

TABLE = [*_VLLM_ENTRIES, *_VERL_ENTRIES, *_MINDSPEED_ENTRIES, *_PYTORCH_ENTRIES]
