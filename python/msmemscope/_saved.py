# SPDX-License-Identifier: Apache-2.0
"""What a node of PyTorch's graph has saved, without running a hook of the program's: that may compute everything again.

A saved tensor of newer versions tells its hook and its data. Before, it tells neither: whether there is a hook is a pointer in its C++
object, whose place is searched for on saved tensors of ours, with and without hooks; and the data is what the node gives by another name.
"""
import ctypes
import _thread

import torch

_Saved = torch._C._autograd.SavedTensor
_WORDS = 14  # of the C++ object that are looked at
_HEAD = 16  # bytes before the pointer to it, in the Python object of pybind11
_WAIT = 60  # seconds, after which nothing is read

_told = hasattr(_Saved, "unpack_hook")
_place = None  # of the pointer in the C++ object, where that has to be known
_tried = False


def _object(saved):
    return ctypes.c_size_t.from_address(id(saved) + _HEAD).value


def _examples():
    """(node, what it has saved) of each kind: a leaf, a result of another operator, its own result, a constant, a view."""
    for kind in ("leaf", "inner", "own", "constant", "view"):
        leaf = torch.empty(3, device="meta", requires_grad=True)  # without memory
        if kind == "leaf":
            node = leaf.sin().grad_fn
        elif kind == "inner":
            node = leaf.exp().sin().grad_fn
        elif kind == "own":
            node = leaf.exp().grad_fn
        elif kind == "constant":
            node = (leaf * torch.empty(3, device="meta")).grad_fn
        else:
            node = leaf.exp().view(3, 1).sin().grad_fn
        yield node, getattr(node, {"own": "_raw_saved_result", "constant": "_raw_saved_other"}.get(kind, "_raw_saved_self"))


def _search():
    """The one word that is 0 without hooks and not with them; None when there is not exactly one."""
    found = set(range(_WORDS))
    for _node, saved in _examples():
        words = (ctypes.c_size_t * _WORDS).from_address(_object(saved))
        before = list(words)
        saved.register_hooks(lambda tensor: tensor, lambda tensor: tensor)
        found = {at for at in found if before[at] == 0 and words[at] != 0}
    return 8 * found.pop() if len(found) == 1 else None


def _search_guarded():
    global _place
    try:
        _place = _search()
    except Exception:
        pass  # as in a version without these names: nothing is read


def _search_elsewhere():
    """On a thread of its own: hooks belong to threads, and this one has none of the program's."""
    done = _thread.allocate_lock()
    done.acquire()

    def search():
        _search_guarded()
        done.release()

    _thread.start_new_thread(search, ())
    done.acquire(timeout=_WAIT)


def can_be_read():
    """Whether read() finds anything in this version. Searched for once."""
    global _tried
    if not _told and not _tried:
        _tried = True
        # While PyTorch is imported there are no hooks, and another thread would wait for the import.
        if getattr(torch.__spec__, "_initializing", False):
            _search_guarded()
        else:
            _search_elsewhere()
    return _told or _place is not None


def names(kind):
    """Names under which nodes of a class save."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_")) if can_be_read() else ()


def _is_hooked(saved):
    if isinstance(saved, (list, tuple)):
        return any(_is_hooked(item) for item in saved)
    return saved is not None and ctypes.c_size_t.from_address(_object(saved) + _place).value != 0


def _flat(value):
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _flat(item)
    elif value is not None:
        yield value


def read(node, name):
    """Tensors that a node has saved under one of its names; none where a hook would have to run, and none of a node that was freed."""
    try:
        saved = getattr(node, name)
        if _told:
            return [one.data for one in _flat(saved) if one.unpack_hook is None and one.data is not None]
        if _is_hooked(saved):
            return ()
        other = name[len("_raw"):]
        return list(_flat(getattr(node, other if hasattr(type(node), other) else other[1:])))  # saved_tensors of Python's functions
    except RuntimeError:
        return ()
