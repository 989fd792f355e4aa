# SPDX-License-Identifier: Apache-2.0
"""Whose memory a block is: weights, gradients and states of the optimizer after each of its steps, activations before each
backward pass. A label is an address and a class; the engine finds the block, and a block keeps its latest label.

Activations are what the graph has saved for the backward pass. They are read from the graph itself when the pass begins. Hooks on
saved tensors would see them earlier, but PyTorch does not check hooked tensors for changes in place, refuses them in
torch.func, and runs the innermost pair of hooks only: the program would not be the same with us.
"""
import functools
import weakref

import torch
from torch.optim import optimizer as optimizers

from ._api import LABEL_MODEL
from ._aten import _address, _devices, _device, _plain, _is_plain
from ._boot import note
from ._native import collector
from ._tensors import extent

WEIGHT, GRADIENT, STATE, ACTIVATION = b"model@weight", b"model@gradient", b"model@optimizer_state", b"model@activation"
_NODES_MAX = 200000  # of one graph that are looked at

_noted = False  # whether the first failure is in the trace
_handle = None  # of the optimizers' hook
_backward = None  # PyTorch's own, while ours is in its place
_sent = weakref.WeakKeyDictionary()  # optimizer -> {id of a tensor -> (tensor, address)} of its last step
_saved_names = {}  # class of a node -> names of what it saves


def _guarded(function):
    @functools.wraps(function)
    def inner(*args):
        global _noted
        try:
            function(*args)
        except Exception as error:
            if not _noted:
                _noted = True
                note(f"owner labels may be missing: {type(error).__name__}: {error}")

    return inner


def _memory(tensor):
    """Device number, address and size of the memory of a tensor, None when it has none or nothing there is recorded."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, the shard that lies here
    device = tensor.device
    device = _devices[device] if device in _devices else _device(device)
    of = tensor.__class__
    if device is None or tensor.layout is not torch.strided or not (_plain[of] if of in _plain else _is_plain(of)):
        return None
    address = _address(tensor)
    return (device, address, tensor.nbytes if tensor.is_contiguous() else extent(tensor)) if address else None


def _label(memory, text):
    device, address, size = memory
    collector.mscope_label(LABEL_MODEL, device, address, size, text)


# ---- the optimizer ----

def _tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _owned(optimizer):
    """(tensor, class) of everything that a step has to do with; weights go last, for states may be views of them."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        for tensor in _tensors(optimizer.state.get(parameter) or ()):
            yield tensor, STATE
    for parameter in parameters:
        if parameter.grad is not None:
            yield parameter.grad, GRADIENT
    for parameter in parameters:
        yield parameter, WEIGHT


@_guarded
def _after_step(optimizer, _args, _kwargs):
    before, now = _sent.get(optimizer, {}), {}
    for tensor, text in _owned(optimizer):
        memory = _memory(tensor)
        if memory is None:
            continue
        known, address = before.get(id(tensor), (None, 0))
        # The same tensor where it was is the same block. Another one at the same address need not be.
        if address != memory[1] or known() is not tensor:
            _label(memory, text)
            known = weakref.ref(tensor)
        now[id(tensor)] = known, memory[1]
    _sent[optimizer] = now


# ---- the graph ----

def _names_of(kind):
    names = _saved_names.get(kind)
    if names is None:
        names = _saved_names[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return names


def _tensors_of(saved):
    """Tensors that a node has saved under one of its names; none where a hook of the program's would have to run for it."""
    if isinstance(saved, (list, tuple)):
        for item in saved:
            yield from _tensors_of(item)
    elif saved.unpack_hook is None and saved.data is not None:
        yield saved.data


@_guarded
def _before_backward(roots):
    todo, seen = [], set()
    for root in roots:
        node = getattr(root, "grad_fn", None) or (root if hasattr(root, "next_functions") else None)
        if node is not None:
            todo.append(node)
    while todo and len(seen) < _NODES_MAX:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        todo.extend(following for following, _ in node.next_functions if following is not None)
        for name in _names_of(type(node)):
            try:
                saved = list(_tensors_of(getattr(node, name)))
            except RuntimeError:
                continue  # freed by an earlier pass
            for tensor in saved:
                origin = tensor if tensor._base is None else tensor._base
                if isinstance(origin, torch.nn.Parameter) or (origin.is_leaf and origin.requires_grad):
                    continue  # a weight, or a view of one
                memory = _memory(tensor)
                if memory is not None:
                    _label(memory, ACTIVATION)


def _run_backward(outputs, *args, **kwargs):
    _before_backward(outputs)
    return _backward(outputs, *args, **kwargs)


# ---- on and off ----

def enable():
    """Calling it again does nothing."""
    global _handle, _backward
    if _handle is None:
        _handle = optimizers.register_optimizer_step_post_hook(_after_step)
    if _backward is None:
        # torch.autograd.backward and torch.autograd.grad both end there, and so does Tensor.backward.
        backward = getattr(torch.autograd, "_engine_run_backward", None)
        # Before it told whether a saved tensor has hooks, looking at it could have run them.
        if backward is None or not hasattr(torch._C._autograd.SavedTensor, "unpack_hook"):
            note("activations are not labelled: this PyTorch does not tell what its graph has saved")
        else:
            _backward, torch.autograd._engine_run_backward = backward, _run_backward


def disable():
    global _handle, _backward
    if _handle is not None:
        _handle.remove()
        _handle = None
    # Code that has replaced our function since then stays in place.
    if _backward is not None and torch.autograd._engine_run_backward is _run_backward:
        torch.autograd._engine_run_backward = _backward
        _backward = None
    _sent.clear()
