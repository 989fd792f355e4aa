# SPDX-License-Identifier: Apache-2.0
"""Three steps of verl's own training worker: its FSDP engine, its loss, its optimizer, with a model of some thousand weights. Its rollout
needs vLLM or SGLang, and Ray would start the worker as an actor."""
import os
import socket
import sys
import tempfile
from functools import partial

import msmemscope

msmemscope.init_framework_hooks("verl", sys.argv[1], "worker", "snapshot")
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", RAY_LOCAL_WORLD_SIZE="1", WG_BACKEND="ray",
                  MASTER_ADDR="127.0.0.1", MASTER_PORT=str(PORT))
import torch  # noqa: E402
import torch_npu  # noqa: E402,F401
from tensordict import TensorDict  # noqa: E402
from tokenizers import Tokenizer, models  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402
import verl.utils.torch_functional  # noqa: E402
from verl.trainer.config import CheckpointConfig  # noqa: E402
from verl.utils import tensordict_utils  # noqa: E402
from verl.workers.config import FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig  # noqa: E402
from verl.workers.engine_workers import TrainingWorker, TrainingWorkerConfig  # noqa: E402
from verl.workers.utils.losses import sft_loss  # noqa: E402

verl.utils.torch_functional.NPU_CROSS_ENTROPY_LOSS_AVAILABLE = False  # aclnnCrossEntropyLoss is not simulated
BATCH, LENGTH, WORDS = 4, 16, 64


def small_model():
    """A directory with it and its tokenizer."""
    place = tempfile.mkdtemp()
    LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                                 num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=2)).save_pretrained(place)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w3"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1").save_pretrained(place)
    return place


def batch():
    tokens = torch.randint(3, WORDS, (BATCH, LENGTH))

    def nested(rows):
        return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)

    data = TensorDict({"input_ids": nested(tokens), "position_ids": nested(torch.arange(LENGTH).repeat(BATCH, 1)),
                       "loss_mask": nested(torch.ones(BATCH, LENGTH)), "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long),
                       "responses": tokens[:, 8:], "response_mask": torch.ones(BATCH, 8)}, batch_size=BATCH)
    tensordict_utils.assign_non_tensor(data, use_dynamic_bsz=False, micro_batch_size_per_gpu=2, global_batch_size=BATCH, use_remove_padding=False,
                                       use_fused_kernels=False, pad_mode="no_padding", temperature=1.0, max_token_len_per_gpu=1024,
                                       calculate_entropy=False, update_lr_scheduler=True)
    return data


torch.distributed.init_process_group("cpu:gloo,npu:hccl")
worker = TrainingWorker(TrainingWorkerConfig(
    model_type="language_model",
    model_config=HFModelConfig(path=small_model(), use_remove_padding=False, enable_gradient_checkpointing=False,
                               override_config={"attn_implementation": "eager"}),
    engine_config=FSDPEngineConfig(forward_only=False, fsdp_size=1, strategy="fsdp", use_dynamic_bsz=False, micro_batch_size_per_gpu=2,
                                   use_torch_compile=False, param_offload=False, optimizer_offload=False, dtype="float32", model_dtype="fp32"),
    optimizer_config=FSDPOptimizerConfig(lr=1e-3, total_training_steps=4), checkpoint_config=CheckpointConfig()))
worker.reset()
worker.set_loss_fn(partial(sft_loss, config=None))
for _ in range(3):
    assert worker.train_batch(batch()) is not None
print("trained")
