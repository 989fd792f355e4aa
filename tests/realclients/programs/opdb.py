# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own operator database on the NPU against the CPU: results, and gradients where an operator has some.

    opdb.py list                       names of all entries and, for each, the types of TYPES that it has
    opdb.py run SAMPLES SEED PAIRS     the file PAIRS has lines of "entry type"; a line of JSON for each, before it starts and when it is done

What comes out of one pair:

    right     every sample that ran gives what the CPU gives
    refused   the simulated NPU said by name what it does not compute, in at least one sample; all others are right
    torch     torch_npu itself does not take it (a type that it refuses, a check of its own); all others are right
    failed    the simulated NPU said by name what it cannot do when it computed it: the stream failed, and torch_npu with it, for good
    wrong     a sample gave something else than on the CPU, and nobody said so
"""
import json
import random
import re
import sys
import types
import unittest
import warnings

import torch
import torch_npu  # pylint: disable=unused-import
# PyTorch's test helpers derive a class from this one's and use nothing else of the package, which is not installed.
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
from torch.testing._internal.common_methods_invocations import op_db  # pylint: disable=wrong-import-position
from torch.utils._pytree import tree_flatten, tree_map

warnings.filterwarnings("ignore")

TYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
# Relative and absolute; integers must be equal.
TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 2e-5,
    torch.float16: 8e-3,
    torch.bfloat16: 5e-2,
    torch.complex128: 1e-6,
    torch.complex64: 2e-5,
}
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.float32: torch.float64, torch.complex64: torch.complex128}

# Whose values are chance, or whatever was in memory: only types and shapes are compared.
BY_CHANCE = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric", "log_normal", "multinomial",
    "new_empty", "new_empty_strided", "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "pca_lowrank", "rand_like", "randint", "randint_like", "randn", "randn_like",
    "svd_lowrank", "torch.ops.aten._efficient_attention_forward", "torch.ops.aten._flash_attention_forward", "uniform",
}


# Where torch_npu itself does something else than PyTorch on the CPU, on real devices too: the entry, which of its samples, and what.
OF_TORCH_NPU = {
    "nn.functional.gelu": (lambda sample: sample.kwargs.get("approximate") == "tanh", "calls aclnnGelu whatever the approximation"),
    "float_power": (lambda sample: True, "computes in float32"),
    "native_dropout_backward": (lambda sample: True, "has a mask of bits"),
}
# What it makes of types that its devices do not have.
NARROWED = {torch.float64: torch.float32, torch.complex128: torch.complex64, torch.int64: torch.int32}


# The only ones where the device says how many results there are.
SHAPED_BY_DEVICE = {"argwhere", "combinations", "isin", "masked_select", "nonzero", "to_sparse", "unique", "unique_consecutive"}
# Whose indices may be those of any of several equal elements.
WITH_TIES = {"argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"}


def key_of(op):
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


ENTRIES = {key_of(op): op for op in op_db}


def move(value, device, dtype=None):
    """The same sample elsewhere, with leaves of its own."""
    def one(item):
        if isinstance(item, torch.Tensor):
            wider = WIDER.get(item.dtype) if dtype else None
            moved = item.detach().to("cpu", copy=True)
            if wider:
                moved = moved.to(wider)
            # Layout and overlap stay: what is a view of other elements on the CPU is one there.
            if item.layout is torch.strided and item.device.type == "cpu" and not moved.is_contiguous() and device == "npu":
                base = moved.to(device)
                moved = base if base.stride() == moved.stride() else base.as_strided(moved.size(), base.stride())
            else:
                moved = moved.to(device)
            return moved.requires_grad_(item.requires_grad)
        if isinstance(item, torch.device) or item == "cpu":
            return torch.device(device)
        return item
    return tree_map(one, value)


def sample_type(sample):
    """The first type with a fraction; None if there is none."""
    return next((item.dtype for item in tree_flatten((sample.input, sample.args, sample.kwargs))[0]
                 if isinstance(item, torch.Tensor) and item.is_floating_point()), None)


def results_of(op, sample, device, wide=False):
    """What the operator gives, and its gradients, as flat lists; `seeds` repeat."""
    moved, args, kwargs = move((sample.input, sample.args, sample.kwargs), device, "wide" if wide else None)
    out = op(moved, *args, **kwargs)
    grads = []
    wanted = [item for item in tree_flatten((moved, args, kwargs))[0] if isinstance(item, torch.Tensor) and item.requires_grad]
    if wanted:
        given = sample.output_process_fn_grad(out)
        ends = [item for item in tree_flatten(given)[0] if isinstance(item, torch.Tensor) and item.requires_grad and item.grad_fn]
        if ends:
            generator = torch.Generator().manual_seed(7)
            # The numbers of the narrow type, in the wide one too.
            narrow = sample_type(sample)
            seeds = [torch.randn(end.shape, generator=generator).to(narrow or end.dtype).to(end.dtype).to(device) for end in ends]
            grads = torch.autograd.grad(ends, wanted, seeds, allow_unused=True)
    return [item for item in tree_flatten(out)[0]], list(grads)


def to_host(items):
    return [item.detach().cpu() if isinstance(item, torch.Tensor) else item for item in items]


def same(want, got, slack=1):
    if want is None or got is None:
        # No gradient, or one that is 0 everywhere.
        other = got if want is None else want
        return other is None or (isinstance(other, torch.Tensor) and not other.any())
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return want == got or (want != want and got != got)
    if want.layout is not torch.strided:
        want, got = want.to_dense(), got.to_dense()
    if want.shape != got.shape:
        return False
    tolerance = TOLERANCE.get(got.dtype, 0) * slack
    want = want.to(got.dtype)
    if got.dtype in (torch.float16, torch.bfloat16):
        want, got = want.float(), got.float()
    return torch.allclose(want, got, rtol=tolerance, atol=tolerance, equal_nan=True)


def without_ties(op, sample, results):
    """Which of equal elements comes first is not said: their places, and gradients that go there, are left out, what is there is not."""
    out, grads = results
    given = sample.input
    if op.name not in WITH_TIES or given.numel() == given.detach().unique().numel():
        return results
    if op.name == "argsort":
        dim = sample.kwargs.get("dim", sample.args[0] if sample.args else -1)
        return [given.detach().gather(dim, out[0])] if given.dim() else [], []
    return out[:1], []


def describe(want, got):
    if isinstance(want, torch.Tensor) and isinstance(got, torch.Tensor):
        if want.shape != got.shape or want.dtype != got.dtype:
            return f"{want.dtype} {tuple(want.shape)} and {got.dtype} {tuple(got.shape)}"
        if want.layout is torch.strided:
            tolerance = TOLERANCE.get(got.dtype, 0)
            worst = (~torch.isclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)).flatten().nonzero().flatten()
            return f"{want.flatten()[worst][:4].tolist()} and {got.flatten()[worst][:4].tolist()} in {len(worst)} of {want.numel()}"
    return f"{want} and {got}"


def wide_results(op, sample):
    """Of the same numbers in a wider type; None where the operator does not have it."""
    try:
        return [to_host(items) for items in results_of(op, sample, "cpu", wide=True)]
    except Exception:  # pylint: disable=broad-exception-caught
        return None


class NotOfTheDevice(Exception):
    """torch_npu decides this, before a device is asked: types and shapes of results, and what has a gradient."""


def compare(op, sample, want, got):
    """Why two results are not the same, or None."""
    chance = op.name in BY_CHANCE
    wide = None
    own = None
    for part, (wanted, given) in enumerate(zip(want, got)):
        if part == 1 and (chance or own):
            break
        if len(wanted) != len(given):
            return f"{len(wanted)} results and {len(given)}"
        for n, (left, right) in enumerate(zip(wanted, given)):
            what = "gradient: " if part else ""
            if part and right is None and not same(left, None):
                own = own or "has no gradient of an argument"
                continue
            tensors = isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)
            if tensors and NARROWED.get(left.dtype) == right.dtype:
                left = left.to(right.dtype)
            if tensors and (left.dtype != right.dtype or left.shape != right.shape):
                if left.dtype == right.dtype and op.name in SHAPED_BY_DEVICE:
                    return what + describe(left, right)
                own = own or what + describe(left, right)
                continue
            # A gradient is the work of several operators, each with results that are rounded.
            slack = 5 if part else 1
            if chance or same(left, right, slack):
                continue
            if wide is None:
                wide = wide_results(op, sample) or ()
            # Our sums are exact and rounded once: they may be nearer to the truth than those of the CPU.
            if wide and n < len(wide[part]) and tensors and isinstance(wide[part][n], torch.Tensor) and same(wide[part][n], right, slack):
                continue
            return what + describe(left, right)
    if own:
        raise NotOfTheDevice(own)
    return None


def run_sample(op, sample):
    """The outcome of one sample, and why."""
    differs, how = OF_TORCH_NPU.get(key_of(op), (lambda sample: False, ""))
    if differs(sample):
        return "torch", how
    try:
        want = without_ties(op, sample, [to_host(items) for items in results_of(op, sample, "cpu")])
    except Exception:  # pylint: disable=broad-exception-caught
        return "none", ""
    try:
        got = without_ties(op, sample, [to_host(items) for items in results_of(op, sample, "npu")])
    except Exception as error:  # pylint: disable=broad-exception-caught
        text = str(error)
        found = re.search(r"simnpu: ([^\n]*)", text)
        if "507015" in text or "Inner error" in text:
            return "failed", found.group(1) if found else text.splitlines()[0]
        if found:
            return "refused", found.group(1)
        return "torch", f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    try:
        difference = compare(op, sample, want, got)
    except NotOfTheDevice as reason:
        return "torch", str(reason)
    return ("wrong", difference) if difference else ("right", "")


def samples_of(op, dtype, count, seed):
    torch.manual_seed(seed)
    random.seed(seed)
    wants_grad = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=wants_grad))
    if len(samples) > count:
        # The same ones and more when more are asked for.
        first, rest = samples[0], samples[1:]
        random.Random(seed).shuffle(rest)
        samples = [first] + rest[:count - 1]
    return samples


def run_pair(key, name, count, seed):
    op = ENTRIES[key]
    outcomes = {}
    ran = 0
    for sample in samples_of(op, TYPES[name], count, seed):
        outcome, why = run_sample(op, sample)
        ran += outcome == "right"
        outcomes.setdefault(outcome, why)
        if outcome == "failed":
            break
    for outcome in ("wrong", "failed", "refused", "torch", "right"):
        if outcome in outcomes:
            return {"outcome": outcome, "why": outcomes[outcome][:300], "ran": ran}
    return {"outcome": "none", "why": "the CPU takes none of the samples", "ran": 0}


def main():
    if sys.argv[1] == "list":
        for key, op in ENTRIES.items():
            print(json.dumps({"entry": key, "types": [name for name, dtype in TYPES.items() if dtype in op.supported_dtypes("cpu")]}))
        return
    count, seed = map(int, sys.argv[2:4])
    with open(sys.argv[4] if len(sys.argv) > 4 else 0, encoding="utf-8") as file:
        pairs = file.read().splitlines()
    for line in pairs:
        key, name = line.rsplit(maxsplit=1)
        print(json.dumps({"start": f"{key} {name}"}), flush=True)
        found = run_pair(key, name, count, seed)
        print(json.dumps({"entry": key, "type": name, **found}), flush=True)
        if found["outcome"] == "failed":
            break  # whoever started this goes on in a new process


main()
