# SPDX-License-Identifier: Apache-2.0
"""Steps without being asked: where the program marks none, a step of PyTorch's optimizer is one. The engine decides; here each is
recorded.

One optimizer marks: the first that takes a step, because a GAN has two and each iteration of it steps both. Another one takes its
place when the first is gone, or has not been used for long (a training in stages). A GradScaler that skips a step calls no optimizer:
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


def _after_step(optimizer, _args, _kwargs):
    global _marking, _others
    marking = None if _marking is None else _marking()
    if marking is not optimizer:
        if marking is not None and _others < _IDLE:
            _others += 1
            return
        _marking = weakref.ref(optimizer)
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
