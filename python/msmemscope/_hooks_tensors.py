# SPDX-License-Identifier: Apache-2.0
"""Owners of tensors that a hooked function has made, by their addresses; a Target names one of these functions (_hooks_table.py).

Each gets the result, the positional and the named arguments of the call, and returns pairs of a tensor and its owner. Of a tensor
that comes twice the first owner counts.
"""
from ._tensors import is_tensor

_ATTENTION, _MAMBA, _HIDDEN = "vllm@kv_cache@attn", "vllm@kv_cache@mamba", "vllm@kv_cache@hidden_state"


def _tensors(value, depth=0):
    if is_tensor(value):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one, depth + 1)


def _of_module(module):
    for walk in ("parameters", "buffers"):
        yield from getattr(module, walk, tuple)()


# ---- vLLM: methods of a model runner ----

def weights(_result, args, _kwargs):
    runner = args[0]
    model = getattr(runner, "model", None)
    for module in getattr(model, "modules", tuple)():
        for name, value in list(vars(module).items()):
            if name.startswith("lora_"):
                for tensor in _tensors(value):
                    yield tensor, "vllm@weights@lora"
    for tensor in _of_module(getattr(getattr(runner, "drafter", None), "model", None)):
        yield tensor, "vllm@weights@drafter"
    for tensor in _of_module(model):
        yield tensor, "vllm@weights"


def _kind(spec):
    name = type(spec).__name__.lower()
    return _MAMBA if "mamba" in name else _HIDDEN if "hidden" in name else _ATTENTION


def _layers(args, kwargs):
    """{name of a layer: owner of its cache}, by the description that vLLM passes along."""
    config = kwargs.get("kv_cache_config", args[1] if len(args) > 1 else getattr(args[0], "kv_cache_config", None))
    owners = {}
    for group in getattr(config, "kv_cache_groups", None) or ():
        spec = group.kv_cache_spec
        own = getattr(spec, "kv_cache_specs", None)
        for layer in group.layer_names:
            owners[layer] = _kind(own.get(layer, spec) if isinstance(own, dict) else spec)
    return owners


def kv_cache(result, args, kwargs):
    owners = _layers(args, kwargs)
    for layer, value in result.items() if isinstance(result, dict) else ():
        for tensor in _tensors(value):
            yield tensor, owners.get(layer, _ATTENTION)


def all_kv_caches(_result, args, kwargs):
    """For runners that allocate them in no method of its own. Where there are several kinds, nothing tells which one is which."""
    kinds = set(_layers(args, kwargs).values()) or {_ATTENTION}
    if len(kinds) == 1:
        owner = kinds.pop()
        for tensor in _tensors(getattr(args[0], "kv_caches", None)):
            yield tensor, owner
