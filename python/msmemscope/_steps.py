# SPDX-License-Identifier: Apache-2.0
"""Steps without being asked: where the program marks none, a step of PyTorch's optimizer is one. The engine decides; here each is
recorded.

One optimizer marks: the first that takes a step, because a GAN has two and each iteration of it steps both. Another one takes its place

    at once       when the first is gone; when it was made after the first one's last step (a fold, a tenant, an image has its own); when the
                  first had taken steps alone and it is for the same parameters (a new optimizer in each epoch)
    after a while when the first is not used any more: others took more steps than ever before between two of the first one's

Should the first go on after all, it marks again, and from then on only the last rule replaces it. A GradScaler that skips a step calls
no optimizer: two iterations are one step then.
"""
import weakref

from ._boot import note
from ._native import collector
from ._who import step_ended

_IDLE = 100  # steps that others take before one of them marks instead, where nothing is known of the one that marks
_PATIENCE = 4  # times its longest pause, and as many steps where it took all steps alone

_step = collector.mscope_optimizer_step
_marking = None  # weak reference to the optimizer that marks
_others = 0  # steps of others since its last one
_in_row = 0  # its last steps, without one of another between them
_pause = 0  # the most steps of others between two of its own
_taken = 0  # steps of all optimizers
_last = 0  # how many there were with the last one that counted
_made = weakref.WeakKeyDictionary()  # optimizer: how many there were when it was made
_replaced = weakref.WeakKeyDictionary()  # marked until another one took their place: how many there were with their last one
_passing = weakref.WeakSet()  # took the place of one that went on
_returned = weakref.WeakSet()  # went on


def _first_parameter(optimizer):
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group.get("params", ()):
            return parameter
    return None


def _is_unused(marking):
    """Others have taken more steps than they ever did between two of its own."""
    if _in_row < 2 and _pause == 0 and marking not in _returned:
        return _others >= _IDLE
    return _others >= _PATIENCE * (1 + _pause)


def _is_next(optimizer, marking):
    """Whether it was made to go on where the one that marks ended."""
    if optimizer in _passing or marking in _returned:
        return False
    if _made.get(optimizer, 0) >= _last:
        return True
    return _in_row >= 2 and _first_parameter(optimizer) is _first_parameter(marking)


def _change(optimizer, marking):
    """Whether another optimizer marks from now on."""
    global _pause
    pause = 0
    if optimizer in _replaced:
        pause = _taken - _replaced.pop(optimizer) - 1
        _returned.add(optimizer)
        if marking is not None:
            _passing.add(marking)
    elif marking is not None:
        if not _is_unused(marking) and not _is_next(optimizer, marking):
            return False
        _replaced[marking] = _last
    _pause = pause
    return True


def _after_step(optimizer, _args, _kwargs):
    global _marking, _others, _in_row, _pause, _taken, _last
    marking = None if _marking is None else _marking()
    _taken += 1
    if marking is not optimizer:
        if not _change(optimizer, marking):
            _others += 1
            return
        _marking = weakref.ref(optimizer)
        _in_row = 0
    elif _others > 0:
        _pause = max(_pause, _others)
        _in_row = 0
    _in_row += 1
    _others = 0
    _last = _taken
    _step()
    step_ended(False)


# torch.compile() calls it as it is, and does not look inside.
_after_step._torchdynamo_disable = True


def _see_new_ones(kind):
    """Notes how many steps there were when an optimizer is made, copied or loaded. This function of PyTorch's is called then; it takes no part in
    what the program calls or sees."""
    prepare = getattr(kind, "_patch_step_function", None)
    if prepare is None:
        return

    def _patch_step_function(self):
        try:
            _made[self] = _taken
        except Exception:  # a class of the program's own that cannot be compared or hashed yet
            pass
        return prepare(self)

    kind._patch_step_function = _patch_step_function


def enable(module):
    """`module` is torch.optim.optimizer."""
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None:
        note("steps of optimizers are not seen: this PyTorch does not report them")
    else:
        register(_after_step)
        _see_new_ones(module.Optimizer)
