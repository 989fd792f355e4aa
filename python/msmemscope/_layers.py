# SPDX-License-Identifier: Apache-2.0
"""Names of a model's parts, for memory by layer. A name is a text as src/replay/owners.h has it:

    Net@encoder.layers.3.mlp.up            a module: the class of the outermost one, and its path in that as named_modules() has it
    Net@encoder.layers.3.mlp.up@weight     a tensor of it, its gradient, its states in an optimizer
    Net@embed@weight@head.weight           a tensor that the model has under several names: counted once, at the first

The outermost modules are those that no other one contains. Two of one class are Net and Net#2. Modules that only wrap another one
(DistributedDataParallel, FSDP, torch.compile, checkpoint wrappers) are not in names.

Modules are referred to weakly and tensors not at all: that a tensor is the one that was named is seen by asking its module.
"""
import os.path
import weakref

_WRAPPERS = {"DistributedDataParallel": "module", "DataParallel": "module", "FullyShardedDataParallel": "_fsdp_wrapped_module",
             "OptimizedModule": "_orig_mod", "CheckpointWrapper": "_checkpoint_wrapped_module",
             "OffloadWrapper": "_checkpoint_wrapped_module"}
_TEXT_MAX = 480  # characters of a name
_NAMES_MAX = 8   # of one tensor

_tops = {}     # id of an outermost module -> (weak reference, its name)
_modules = {}  # id of a module -> (weak reference, text)
_tensors = {}  # id of a tensor -> (weak reference to its module, name there, text)
_stale = True  # modules have come, or have got other tensors, since names were made


def changed():
    """Names have to be made again."""
    global _stale
    _stale = True


def forget():
    for known in (_tops, _modules, _tensors):
        known.clear()
    changed()


def of_module(module):
    """The text of a module; None: it has none."""
    known = _modules.get(id(module))
    return known[1] if known is not None and known[0]() is module else None


def of_tensor(tensor):
    """The text of a parameter or buffer; None: it has none."""
    known = _tensors.get(id(tensor))
    if known is None:
        return None
    module = known[0]()
    if module is None or (module._parameters.get(known[1]) is not tensor and module._buffers.get(known[1]) is not tensor):
        return None
    return known[2]


def of_all(tensor, alike):
    """The innermost module that has this tensor and all others of its model for which alike() is true."""
    model, *path = _path_of(_tensors[id(tensor)])
    for known in list(_tensors.values()):
        module = known[0]()
        other = None if module is None else module._parameters.get(known[1])
        if other is None or _path_of(known)[0] != model or not alike(other):
            continue
        path = os.path.commonprefix([path, _path_of(known)[1:]])
    return b".".join([model + b"@", *path]).replace(b"@.", b"@")


def _path_of(known):
    """The model of a tensor, and the parts of its module's path."""
    model, path = known[2].split(b"@")[:2]
    return [model, *(path.split(b".") if path else [])]


def refresh(modules):
    """Makes names if they are stale. `modules`: all that are known. Returns tensors that have got another name."""
    global _stale
    if not _stale:
        return []
    _stale = False
    inside = {id(child) for module in modules for child in module._modules.values() if child is not None}
    before = {key: known[2] for key, known in _tensors.items()}
    _modules.clear()
    _tensors.clear()
    found = {}
    for top in modules:
        if id(top) not in inside:
            _name_model(top, found)
    return [tensor for tensor in found.values() if before.get(id(tensor)) != _tensors[id(tensor)][2]]


def _unwrapped(module):
    """The module itself, or what it wraps."""
    for _ in range(8):
        for kind in type(module).__mro__:
            inner = module._modules.get(_WRAPPERS.get(kind.__name__, "")) if kind.__module__.startswith("torch.") else None
            if inner is not None:
                break
        else:
            return module
        module = inner
    return module


def _named_modules(module, path, seen):
    """(module, path), as named_modules() without wrappers; wrappers have the path of what they wrap."""
    if module is None or id(module) in seen:
        return
    seen.add(id(module))
    yield module, path
    inner = _unwrapped(module)
    if inner is not module:
        yield from _named_modules(inner, path, seen)
    else:
        for name, child in module._modules.items():
            yield from _named_modules(child, f"{path}.{name}" if path else name, seen)


def _class_name(module):
    """fully_shard() makes FSDPNet of a Net: a class that is both FSDPModule and Net."""
    kinds = [kind.__name__ for kind in type(module).__mro__]
    return kinds[kinds.index("FSDPModule") + 1] if "FSDPModule" in kinds[1:-1] else kinds[0]


def _top_name(top):
    """Its class, and a number if another one of this class lives."""
    known = _tops.get(id(top))
    if known is not None and known[0]() is top:
        return known[1]
    taken = {name for ref, name in _tops.values() if ref() is not None}
    name = kind = _clean(_class_name(_unwrapped(top)))
    number = 1
    while name in taken:
        number += 1
        name = f"{kind}#{number}"
    _tops[id(top)] = weakref.ref(top, lambda _, key=id(top): _tops.pop(key, None)), name
    return name


def _clean(text):
    return text.replace("@", "_")


def _name_model(top, found):
    model = _top_name(top)
    names = {}  # id of a tensor -> [module, name, path of the module, further names]
    for module, path in _named_modules(top, "", set()):
        _modules[id(module)] = weakref.ref(module), f"{model}@{_clean(path)}"[:_TEXT_MAX].encode("utf-8", "replace")
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is None:
                continue
            entry = names.setdefault(id(tensor), [module, name, path, []])
            if entry[0] is not module or entry[1] != name:
                entry[3].append(f"{path}.{name}" if path else name)
            found[id(tensor)] = tensor
    for key, (module, name, path, also) in names.items():
        if key in _tensors:
            continue  # another model has it too
        parts = [model, path, name, *([", ".join(also[:_NAMES_MAX])] if also else [])]
        text = "@".join(_clean(part) for part in parts)[:_TEXT_MAX]
        _tensors[key] = weakref.ref(module), name, text.encode("utf-8", "replace")
