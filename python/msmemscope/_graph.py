# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's graph saves and runs, and what modules are given and give: all that `msmemscope advise` needs to know which memory a change
of the program would free, and when it would come back (src/advise). _owners.py finds it, here it becomes records.

A node has the number that PyTorch gives it: nodes that are made later on a thread have higher ones. A module's forward pass is the range of
numbers between its start and its end, so that what a node saves belongs to a module however late it is seen.

Nothing is recorded by PyTorch before 2.1, which does not say which node runs.
"""
import sys

import torch

from ._api import GRAPH_ADDS, GRAPH_AGAIN, GRAPH_BACKWARD, GRAPH_CASTS, GRAPH_DROPPED, GRAPH_ENTER, GRAPH_GIVES, GRAPH_LEAVE, GRAPH_OPERATOR, \
    GRAPH_SAVED, GRAPH_SAVED_BYTES, GRAPH_SAVED_RESULT, GRAPH_SHRINKS, GRAPH_STATE, GRAPH_SUMS, GRAPH_TAKES, GRAPH_ZEROED, LABEL_MODULE, \
    LABEL_ZEROED
from ._native import collector

_next_node = getattr(torch.autograd, "_get_sequence_nr", None)
_running_node = getattr(torch._C, "_current_autograd_node", None)
_is_known = collector is not None and _next_node is not None and _running_node is not None
_record = None if collector is None else collector.mscope_graph
_Function = torch._C._FunctionBase  # of Python: what it sums is its own
_LAST = 1 << 55  # numbers above are not of nodes with an order: AccumulateGrad
_TEXT_MAX = 1000

_named = {}  # id of a module -> its text when its class was recorded


def forget():
    _named.clear()


def saved(node, tensor, memory, result):
    """A node has saved a tensor. `result`: its own operator made it."""
    if _is_known:
        _record(GRAPH_SAVED_RESULT if result else GRAPH_SAVED, memory[0], memory[1], node._sequence_nr())
        if tensor.untyped_storage().nbytes() != tensor.nbytes:
            _record(GRAPH_SAVED_BYTES, memory[0], memory[1], tensor.nbytes)


def dropped(memory):
    if _is_known:
        _record(GRAPH_DROPPED, memory[0], memory[1], 0)


def casts(memory):
    if _is_known:
        _record(GRAPH_CASTS, memory[0], memory[1], 0)


def operator_begins():
    if _is_known:
        _record(GRAPH_OPERATOR, 0, 0, _next_node())


def state(memory, element_bytes):
    if _is_known:
        _record(GRAPH_STATE, memory[0], memory[1], element_bytes)


def runs(before, memory_of):
    """The node that the backward pass is in. `before`: what this returned for the last operator."""
    if not _is_known:
        return before
    node = _running_node()
    if node is None:
        return before
    number = node._sequence_nr()
    if number >= _LAST:
        grad = getattr(getattr(node, "variable", None), "grad", None)
        memory = None if grad is None else memory_of(grad)
        if memory is not None:
            _record(GRAPH_ADDS, memory[0], memory[1], 0)
    elif number != before:
        _record(GRAPH_BACKWARD, 0, 0, number + 1)
        return number
    return before


def may_be_in_place(tensor, own, memory_of):
    """In the backward pass a sum of gradients starts, perhaps; `own`: something into memory that the node itself has made."""
    memory = memory_of(tensor) if _is_known else None
    if memory is not None:
        _record(GRAPH_SUMS, memory[0], memory[1], int(own))


def shrinks(before, is_sum):
    """The node has computed its gradients, and sums start that are not its own; or it computes on. `before`: what this returned for the last operator:
    the number of the node for which that is recorded."""
    node = _running_node() if _is_known else None
    if node is None:
        return before
    number = node._sequence_nr()
    if is_sum == (number == before) or number >= _LAST or isinstance(node, _Function):
        return before
    _record(GRAPH_SHRINKS, 0, 0, int(is_sum))
    return number if is_sum else None


def backward_ended():
    if _is_known:
        _record(GRAPH_BACKWARD, 0, 0, 0)


def zeroed(label):
    if _is_known:
        label(LABEL_ZEROED, 0, 0, 0, _line())
        _record(GRAPH_ZEROED, 0, 0, 0)


def _is_torchs(frame):
    return frame.f_globals.get("__name__", "").startswith(("torch.", "msmemscope."))


def _line():
    """Of the program, that PyTorch was called from."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_torchs(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.replace('@', '_')}:{frame.f_lineno}"[-_TEXT_MAX:].encode("utf-8", "replace")


def _name(module, layer, label):
    """Its class, and the line that calls it; once. What PyTorch has without parts is not named: nobody changes it by itself, but for RNNs."""
    if _named.get(id(module)) == layer:
        return
    _named[id(module)] = layer
    kind = type(module)
    if not module._modules and kind.__module__.startswith("torch.nn.") and kind.__module__ != "torch.nn.modules.rnn":
        return
    text = f"{kind.__name__.replace('@', '_')}@".encode("utf-8", "replace")
    label(LABEL_MODULE, 0, 0, 0, layer + b"@" + text + _line())


def _tensors(value, depth=0):
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth + 1)


def _record_tensors(kind, value, memory_of):
    for tensor in _tensors(value):
        memory = memory_of(tensor)
        if memory is not None:
            _record(kind, memory[0], memory[1], tensor.shape[0] if tensor.dim() else 0)


def module_begins(module, layer, arguments, memory_of, label):
    """Whether module_ends() has something to do."""
    if not _is_known:
        return False
    if torch._C._current_graph_task_id() != -1:
        _record(GRAPH_AGAIN, 0, 0, _next_node())
        return False
    if not torch.is_grad_enabled():
        return False
    _name(module, layer, label)
    _record(GRAPH_ENTER, 0, 0, _next_node())
    _record_tensors(GRAPH_TAKES, arguments, memory_of)
    return True


def module_ends(result, memory_of):
    _record_tensors(GRAPH_GIVES, result, memory_of)
    _record(GRAPH_LEAVE, 0, 0, _next_node())
