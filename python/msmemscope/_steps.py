# SPDX-License-Identifier: Apache-2.0
"""Steps without being asked: where the program marks none, a step of PyTorch's optimizer is one. The engine decides; here each is
recorded.

One optimizer marks: the first that takes a step, because a GAN has two and each iteration of it steps both. Another one takes its
place when the first is gone, or has not been used for long (a training in stages), or had taken steps alone and the other one is for
the same parameters (a new optimizer in each epoch); should the first go on after all, it marks again. A GradScaler that skips a step calls no optimizer:
two iterations are one step then.
"""
import weakref

from ._boot import note
from ._native import collector
from ._who import step_ended

_IDLE = 100  # steps that others take before one of them marks instead

_step = collector.mscope_optimizer_step
_marking = None  # weak reference to the optimizer that marks
_others = 0  # steps of others since its last one
_in_row = 0  # its last steps, without one of another between them
_replaced = weakref.WeakSet()  # marked, until one for the same parameters took their place
_passing = weakref.WeakSet()  # took the place of one that went on


def _first_parameter(optimizer):
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            return parameter
    return None


def _takes_place(optimizer, marking):
    """Whether another optimizer marks from now on."""
    if marking is None or _others >= _IDLE:
        return True
    if optimizer in _replaced:
        _replaced.discard(optimizer)
        _passing.add(marking)
        return True
    if _in_row < 2 or optimizer in _passing or _first_parameter(optimizer) is not _first_parameter(marking):
        return False
    _replaced.add(marking)
    return True


def _after_step(optimizer, _args, _kwargs):
    global _marking, _others, _in_row
    marking = None if _marking is None else _marking()
    if marking is not optimizer:
        if not _takes_place(optimizer, marking):
            _others += 1
            _in_row = 0
            return
        _marking = weakref.ref(optimizer)
        _in_row = 0
    _in_row += 1
    _others = 0
    _step()
    step_ended(False)


# torch.compile() calls it as it is, and does not look inside.
_after_step._torchdynamo_disable = True


def enable(module):
    """`module` is torch.optim.optimizer."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        note("steps of optimizers are not seen: this PyTorch does not report them")
    else:
        register(_after_step)
