# SPDX-License-Identifier: Apache-2.0
"""Whose memory a block is, for analysis decompose. A label is an address and a class; the engine finds the block, and its table of
classes (src/replay/classes.def) says which of several labels counts.

    weight           when a module registers, loads or moves it, an optimizer takes it, or an operator uses it
    buffer, kv_cache by the name that the module has for them; kv_cache also what a forward pass is given under such a name
    attribute        tensors that a module has as plain attributes
    input            what the outermost forward pass is given, and what the graph has saved of tensors made outside of it
    activation       what the graph has saved, read from its nodes right after the operator that made them; without a graph all
                     that a forward pass makes
    gradient         grad of weights as the backward pass makes it, and what torch.autograd.grad() gives for them
    optimizer_state  as it appears in a step
    state_dict       what load_state_dict() is given
    temporary        everything else that a forward pass, a backward pass or a step makes

Beside its class, memory has the layer that it belongs to (_layers.py): tensors of modules by their name, their gradients and states with
them, and what a forward pass makes by the innermost module that is running.

The last one needs no label of a block: a thread enters and leaves the pass, and what it allocates in between is of that class.

Nothing here keeps a tensor alive or hooks one. In particular no hooks on saved tensors: PyTorch does not check hooked tensors for
changes in place, refuses them in torch.func, runs the innermost pair only, and keeps some alive. Weak references are to results
of operators with a graph, until the next operator, or in a forward pass until the next few: PyTorch refuses to swap a tensor that has one.
"""
import collections.abc
import functools
import gc
import itertools
import re
import sys
import threading
import types
import weakref

import torch
from torch.nn import Module, Parameter
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from . import _graph, _layers, _saved
from ._api import LABEL_CLASS_POP, LABEL_CLASS_PUSH, LABEL_LAYER, LABEL_LAYER_POP, LABEL_LAYER_PUSH, LABEL_MODEL
from ._aten import _address, _devices, _device, _plain, _is_plain
from ._boot import note, when_imported
from ._native import collector
from ._tensors import extent

WEIGHT, GRADIENT, STATE, STATE_DICT = b"model@weight", b"model@gradient", b"model@optimizer_state", b"model@state_dict"
ACTIVATION, INPUT, KV_CACHE = b"model@activation", b"model@input", b"model@kv_cache"
SAVED = b"model@saved"  # activation or input: the engine knows where it was made
FORWARD, BACKWARD, STEP = b"model@temporary@forward", b"model@temporary@backward", b"model@temporary@optimizer"
_CACHE = re.compile(r"cache|past_key|(^|[_.])kv($|[_.])", re.IGNORECASE)
_ITEMS_MAX = 4096  # tensors of one argument or attribute that are looked at
_NODES_MAX = 200000  # of one graph that are looked at

_Tensor = torch.Tensor
_grad_is_on = torch.is_grad_enabled
_graph_task = torch._C._current_graph_task_id
_is_compiling = getattr(torch.compiler, "is_dynamo_compiling", bool)  # PyTorch 2.1 has none: never
_label_of = None if collector is None else collector.mscope_label

_noted = False  # whether the first failure is in the trace
_on = False
_nodes = {}  # class of a node -> (names of what it saves, whether it is a function of Python's)
_walk = False  # whether there are graphs whose nodes no operator has shown: compiled ones
_used = {}  # id of a parameter that an operator has used -> where it was
_grads = {}  # id of a leaf -> where its gradient of the latest backward pass is
_known = {}  # id of a module -> weak reference
_paths = {}  # id of a module -> its longest name so far, and a dot
_leaves = {}  # id of a tensor that is a leaf and no parameter -> weak reference
_optimizers = weakref.WeakSet()
_states = weakref.WeakKeyDictionary()  # optimizer -> {id of a state -> weak reference}, and how many entries it had
_pass = None  # the backward pass in progress


class _State:
    """Of one thread."""

    __slots__ = ("pending", "depth", "inputs", "outputs", "entered", "optimizer", "finding", "node", "shrinks", "watched")

    def __init__(self):
        self.pending = ()  # weak references to results of the last operator with a graph
        self.depth = 0  # of forward passes
        self.watched = {}  # address of a result of one of the last operators of a forward pass -> weak reference, memory
        self.inputs = ()  # weak references to inputs of the last outermost forward pass that get a gradient
        self.outputs = ()  # addresses of what it gave without a graph, and of what was made of that
        self.entered = False  # a thread of autograd has entered the backward pass; it does nothing else
        self.optimizer = None  # weak reference to the one that takes a step
        self.finding = False  # states of it are expected to appear
        self.node = -1  # number of the node that the backward pass was in at the last operator
        self.shrinks = None  # the same, if it has computed its gradients


_local = threading.local()


def _mine():
    try:
        return _local.state
    except AttributeError:
        _local.state = state = _State()
        return state


def _guarded(function):
    @functools.wraps(function)
    def inner(*args):
        global _noted
        try:
            return function(*args)
        except Exception as error:
            if not _noted:
                _noted = True
                note(f"owner labels may be missing: {type(error).__name__}: {error}")
            return None

    return inner


def _memory(tensor):
    """Device number, address and size of the memory of a tensor, None when it has none or nothing there is recorded."""
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, the shard that lies here
    device = tensor.device
    device = _devices[device] if device in _devices else _device(device)
    of = tensor.__class__
    if device is None or tensor.layout is not torch.strided or not (_plain[of] if of in _plain else _is_plain(of)):
        return None
    address = _place(tensor)
    return (device, address, tensor.nbytes if tensor.is_contiguous() else extent(tensor)) if address else None


def _place(tensor):
    """First byte of a tensor, 0 for one without memory of its own."""
    try:
        return _address(tensor)
    except RuntimeError:
        return 0  # nested, sparse and wrapped tensors


def _label(tensor, text, of=None):
    """`of`: the tensor that it is a gradient or state of."""
    memory = _memory(tensor)
    if memory is not None:
        _label_of(LABEL_MODEL, *memory, text)
        _label_layer(tensor, tensor if of is None else of, memory)
    return memory


def _label_layer(tensor, named, memory=None):
    """The layer of `named`, which is the tensor itself, or whose gradient or state it is. Memory of several tensors is their module's."""
    layer = _layers.of_tensor(named)
    memory = memory or (layer and _memory(tensor))
    if not layer or memory is None:
        return
    storage = _shared_storage(tensor)
    if storage:
        layer = _layers.of_all(named, lambda other: _shared_storage(other if tensor is named else _grad_of(other)) == storage)
    _label_of(LABEL_LAYER, *memory, layer)


def _grad_of(tensor):
    return tensor.grad if tensor.is_leaf else None  # PyTorch warns of others


def _shared_storage(tensor):
    """Where the memory starts that a tensor is only a part of, as parameters of FSDP and gradients in DDP's buckets may be; 0: all of it is its own."""
    if tensor is None:
        return 0
    tensor = getattr(tensor, "_local_tensor", tensor)
    try:
        storage = tensor.untyped_storage()
        return storage.data_ptr() if storage.nbytes() > tensor.nbytes else 0
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0


def _name_layers():
    """Labels what has got a name since the last call, with its gradient and its states."""
    for tensor in _layers.refresh([module for module in [known() for known in list(_known.values())] if module is not None]):
        if _layers.of_tensor(tensor) is None:
            continue
        _label_layer(tensor, tensor)
        if tensor.is_leaf and tensor.grad is not None:
            _label_layer(tensor.grad, tensor)
        for optimizer in list(_optimizers):
            if tensor in optimizer.state:
                for state in _tensors(optimizer.state[tensor]):
                    _label_layer(state, tensor)


def _enter(text):
    _label_of(LABEL_CLASS_PUSH, 0, 0, 0, text)


def _leave(text):
    _label_of(LABEL_CLASS_POP, 0, 0, 0, text)


# ---- operators: all that is learned from them ----

_ops = torch.ops.aten
_sum = _ops.add.Tensor
# Of backward passes; while there is a dispatch mode PyTorch takes these instead of the same in place.
_casts = _ops._to_copy.default
_in_place = {_sum, _ops.index_put.default, _ops.scatter.src, _ops.scatter.value, _ops.scatter_add.default}
# What PyTorch does with gradients that a node has computed, where an argument was broadcast: it sums; then they get its shape and type.
_shrinks = {_ops.sum.default, _ops.sum.dim_IntList}
_fits = {_ops.view.default, _ops._unsafe_view.default, _casts}
_detach = torch.ops.aten.detach.default


def operator_begins(operator, args):
    """Before an operator: what the one before it has left in the graph, and the weights among the arguments. Returns what
    operator_ended() has to do; None: it need not be called."""
    if operator is _detach:
        return None  # also how PyTorch saves a result: its node is not complete yet
    state, running, graph = _mine(), _pass, _grad_is_on()
    if state.pending:
        _read_results(state)
    if state.watched:
        _see_dropped(state.watched, operator, args)
    if state.optimizer is not None:
        if state.finding:
            _find_states(state.optimizer())
        if not graph:
            return None
    if running is not None and _graph_task() != -1:
        running.poll()
        state.node = _graph.runs(state.node, _memory)
        if not graph and operator in _in_place:
            _may_be_in_place(operator, args[0])
        if not graph and (operator in _shrinks or state.shrinks is not None and operator not in _fits):
            state.shrinks = _graph.shrinks(state.shrinks, operator in _shrinks and _is_for_broadcast(args))
        if not state.entered and threading.get_ident() != running.thread:
            state.entered = True
            _enter(BACKWARD)
        if not graph:
            return None
    if _look_at(args, graph, state):
        if state.depth:
            _graph.operator_begins()
        return _remember_cast if operator is _casts and args[0].__class__ is Parameter else _remember
    if state.outputs and not state.depth and _is_among(args, state.outputs):
        return _follow
    return None


def _may_be_in_place(operator, tensor):
    """A sum is not in place if something else has the memory, as the base of a view does."""
    if tensor.__class__ is _Tensor and tensor._base is None:
        _graph.may_be_in_place(tensor, operator is not _sum, _memory)


def _is_for_broadcast(args):
    """How PyTorch itself calls a sum for the gradient of what was broadcast: to one number, or with all dimensions kept."""
    return len(args) == 1 or args[2:] == (True,)


def _remember(result):
    """PyTorch will put the result into its graph right after this."""
    state = _mine()
    if isinstance(result, _Tensor):
        state.pending = (weakref.ref(result),)
        if state.depth:
            _watch(state.watched, result, state.pending[0])
    elif isinstance(result, (list, tuple)):
        state.pending = tuple(weakref.ref(one) for one in result if isinstance(one, _Tensor))


def _remember_cast(result):
    """Of a weight."""
    _remember(result)
    memory = _memory(result)
    if memory is not None:
        _graph.casts(memory)


# ---- when the program drops what the graph still has: a result inside an expression ----

_WATCHED = 6  # results of the last operators
_NEVER_TOLD = (-1, -1)
_dropped_count = _NEVER_TOLD  # what _counts() says of a tensor that only the graph has, where it says that of no other
_makes_views = {}  # operator -> whether its result is a view


def _counts(known):
    tensor = known()
    return None if tensor is None else (sys.getrefcount(tensor), min(tensor._use_count(), 2))


@_guarded
def _learn_counts():
    """How PyTorch and Python count references differs between versions. Other operators on "meta" import torch._dynamo."""
    global _dropped_count
    with torch._C._DisableTorchDispatch(), torch.enable_grad():
        weight = torch.empty(1, 1, device="meta", requires_grad=True)
        tensor = weight.mm(weight)
        known, _result = weakref.ref(tensor), tensor.mm(weight)
        held = _counts(known)
        del tensor
        dropped = _counts(known)
    if dropped not in (held, None):
        _dropped_count = dropped


def _watch(watched, result, known):
    memory = _memory(result) if result._base is None else None
    if memory is None:
        return
    watched.pop(memory[1], None)
    watched[memory[1]] = known, memory
    if len(watched) > _WATCHED:
        del watched[next(iter(watched))]


def _see_dropped(watched, operator, args):
    if operator not in _makes_views:
        _makes_views[operator] = any(one.alias_info is not None and not one.alias_info.is_write for one in operator._schema.returns)
    if _makes_views[operator]:  # the view has the memory, too
        for value in args:
            if value.__class__ is _Tensor:
                watched.pop(_place(value), None)
    for address, (known, memory) in list(watched.items()):
        counts = _counts(known)
        if counts is None or counts == _dropped_count:
            del watched[address]
            _graph.dropped(memory)


def _follow(result):
    """Made of what a model gave, outside of it."""
    outputs = _mine().outputs
    for tensor in _tensors(result):
        memory = _label(tensor, FORWARD)
        if memory is not None and len(outputs) < _ITEMS_MAX:
            outputs.add(memory[1])


def _is_among(values, addresses):
    for value in values:
        if value.__class__ is _Tensor and _place(value) in addresses:
            return True
        if value.__class__ in (list, tuple) and _is_among(value, addresses):
            return True
    return False


def _look_at(values, graph, state):
    tracked = False
    for value in values:
        of = value.__class__
        if of is _Tensor:
            if graph and value.requires_grad:
                tracked = True
                node = value.grad_fn
                if node is None:
                    _leaf(value, state)
                elif (_nodes.get(node.__class__) or _node_kind(node.__class__))[1]:
                    _read_node(node, ())
        elif of is Parameter:
            address = _place(value)
            if _used.get(id(value)) != address:
                _used[id(value)] = address
                _label(value, WEIGHT)
            tracked = tracked or (graph and value.requires_grad)
        elif of is list or of is tuple:
            tracked = _look_at(value, graph, state) or tracked
    return tracked


def _leaf(tensor, state):
    """A tensor that gets a gradient and is no parameter: a weight, unless the program has given it to a model."""
    if id(tensor) not in _leaves:
        _leaves[id(tensor)] = weakref.ref(tensor, lambda _, key=id(tensor): _leaves.pop(key, None))
    if not any(known() is tensor for known in state.inputs):
        _label(tensor, WEIGHT)


def _read_results(state):
    results, state.pending = [one() for one in state.pending], ()
    addresses = None
    for result in results:
        node = None if result is None else result.grad_fn
        if node is None:
            continue
        if addresses is None:
            addresses = [_place(one) for one in results if one is not None]
            if not state.depth and _graph_task() == -1:
                _label(result, FORWARD)  # of a forward pass without a module
        _read_node(node, addresses)


@_guarded
def finish():
    """A moment that may be asked for: nothing waits for the next operator."""
    _read_results(_mine())


# ---- the graph ----

def _node_kind(kind):
    _nodes[kind] = found = _saved.names(kind), issubclass(kind, torch._C._FunctionBase)
    return found


def _read_node(node, results):
    """Labels what a node has saved. `results`: addresses of what its operator made."""
    global _walk
    names, python = _nodes.get(node.__class__) or _node_kind(node.__class__)
    for name in names:
        for tensor in _saved.read(node, name):
            memory, own = _label_saved(tensor, results)
            if memory is not None:
                _graph.saved(node, tensor, memory, own)
    if python:
        for value in list(vars(node).values()):  # kept by a function of Python's without save_for_backward()
            if value.__class__ is _Tensor:
                _label_saved(value, results)
        _walk = _walk or "Compiled" in node.__class__.__name__


def _label_saved(tensor, results):
    """Returns its memory, and whether the operator of the node made it."""
    origin = tensor if tensor._base is None else tensor._base
    own = bool(results) and _place(origin) in results
    if isinstance(origin, Parameter):
        return _label(tensor, WEIGHT), own
    if tensor.requires_grad and origin.is_leaf and origin.requires_grad:
        _leaf(origin, _mine())
        return _memory(tensor), own
    return _label(tensor, ACTIVATION if tensor.requires_grad or own else SAVED), own


def _read_graph(roots):
    """All nodes of a graph."""
    todo, seen = list(roots), set()
    while todo and len(seen) < _NODES_MAX:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        todo.extend(following for following, _ in node.next_functions if following is not None)
        _read_node(node, ())


# ---- backward passes ----

class _Pass:
    """Finds gradients as they appear: the leaves of the graph get them, mostly in the reverse of the order they were made in."""

    def __init__(self):
        self.thread = threading.get_ident()
        _grads.clear()
        self.leaves = [leaf for leaf in _all_leaves() if leaf.requires_grad]
        # Those with a gradient get another one, or the same again.
        self.before = [(leaf, _grad_address(leaf)) for leaf in self.leaves if leaf.grad is not None]
        self.waiting = [leaf for leaf in self.leaves if leaf.grad is None]
        self.at = 0

    def poll(self):
        while self.waiting and self.waiting[-1].grad is not None:
            _label_grad(self.waiting.pop())
        if self.waiting or self.before:
            if self.waiting:
                self.at = (self.at + 1) % len(self.waiting)
                if self.waiting[self.at].grad is not None:
                    _label_grad(self.waiting.pop(self.at))
            if self.before:
                at = self.at % len(self.before)
                leaf, address = self.before[at]
                if _grad_address(leaf) != address:
                    self.before.pop(at)
                    if leaf.grad is not None:
                        _label_grad(leaf)
                elif not self.waiting:
                    self.at += 1

    def end(self):
        for leaf in self.leaves:
            if leaf.grad is not None:
                _label_grad(leaf)


def _label_grad(leaf):
    address = _grad_address(leaf)
    if _grads.get(id(leaf)) != address:
        _grads[id(leaf)] = address
        _label(leaf.grad, GRADIENT, leaf)


def _grad_address(leaf):
    grad = getattr(leaf.grad, "_local_tensor", leaf.grad)
    return 0 if grad is None else _place(grad)


def _all_leaves():
    """Everything that may get a gradient, each once."""
    found = {}
    for known in list(_known.values()):
        module = known()
        if module is not None:
            for parameter in module._parameters.values():
                if parameter is not None:
                    found[id(parameter)] = parameter
    for optimizer in list(_optimizers):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found[id(parameter)] = parameter
    for known in list(_leaves.values()):
        leaf = known()
        if leaf is not None:
            found[id(leaf)] = leaf
    return found.values()


@_guarded
def _backward_begins(roots):
    global _pass
    _read_results(_mine())
    _forget_broken_step()
    nodes = []
    for root in roots:
        node = getattr(root, "grad_fn", None) or (root if hasattr(root, "next_functions") else None)
        if node is not None:
            nodes.append(node)
    if _walk:
        _read_graph(nodes)
    else:
        for node in nodes:
            _read_node(node, ())
    _enter(BACKWARD)
    if _pass is None:
        _pass = _Pass()
        return _pass
    return None  # inside another one


@_guarded
def _backward_ends(mine):
    global _pass
    _leave(BACKWARD)
    _used.clear()
    _graph.backward_ended()
    if mine is not None:
        _pass = None
        mine.end()


@_guarded
def _label_results(inputs, results):
    """Of torch.autograd.grad(): gradients of leaves."""
    for tensor, result in zip(inputs, results):
        if isinstance(tensor, _Tensor) and tensor.is_leaf and result is not None:
            _label(result, GRADIENT, tensor)


def _run_backward(outputs, *args, **kwargs):
    if _is_compiling() or not _on:
        return _backward(outputs, *args, **kwargs)
    mine = _backward_begins(outputs)
    try:
        results = _backward(outputs, *args, **kwargs)
        if results and len(args) > 3 and args[3]:
            _label_results(args[3], results)
        return results
    finally:
        _backward_ends(mine)


class _Engine:
    """In the place of PyTorch's own, where that is called directly: until 2.2."""

    run_backward = staticmethod(_run_backward)

    def __getattr__(self, name):
        return getattr(_engine, name)


# ---- modules ----

def _named(prefix, name):
    name = name.replace("@", "_")
    return (KV_CACHE if _CACHE.search(name) else prefix) + b"@" + name.encode("utf-8", "replace")


def _items(value, name, depth=0):
    """(tensor, name) of everything in a value, however deep; the name of the first thing on the way that is a cache, else the
    first name."""
    if isinstance(value, _Tensor):
        yield value, name
    elif depth > 4 or value is None or isinstance(value, (str, bytes, int, float, Module, type)):
        return
    elif isinstance(value, collections.abc.Mapping):
        for key, item in list(value.items()):
            yield from _items(item, _longer(name, key), depth + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        fields = getattr(value, "_fields", None)
        for at, item in enumerate(value):
            yield from _items(item, _longer(name, fields[at]) if fields else name, depth + 1)
    elif isinstance(getattr(type(value), "__dict__", {}).get("__dict__"), types.GetSetDescriptorType) and \
            not type(value).__module__.startswith("torch."):
        if not _CACHE.search(name):
            name = _longer(name, type(value).__name__)
        for key, item in list(vars(value).items()):
            yield from _items(item, _longer(name, key), depth + 1)


def _longer(name, key):
    return name if _CACHE.search(name) or not isinstance(key, str) else key if not name or _CACHE.search(key) else name


def _labelled_items(values):
    return itertools.islice(itertools.chain.from_iterable(_items(value, name) for name, value in values), _ITEMS_MAX)


def _know(module):
    if id(module) not in _known:
        _layers.changed()
        _known[id(module)] = weakref.ref(module, lambda _, key=id(module): (_known.pop(key, None), _paths.pop(key, None)))


def _label_module(module, path):
    """What a module itself has. `path`: its own name and a dot, or "" """
    _know(module)
    for parameter in module._parameters.values():
        if parameter is not None:
            _label(parameter, WEIGHT)
            if parameter.grad is not None:
                _label(parameter.grad, GRADIENT, parameter)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            _label(buffer, _named(b"model@buffer", path + name))
    _label_attributes(module, path)


def _label_attributes(module, path):
    # The first ones are Module's own.
    for name, value in list(itertools.islice(vars(module).items(), _own_attributes, None)):
        if value.__class__ in (int, float, bool, str, type(None)):
            continue
        for tensor, _ in itertools.islice(_items(value, name), _ITEMS_MAX):
            if not isinstance(tensor, Parameter) and not _is_of_graph(tensor):
                _label(tensor, _named(b"model@attribute", path + name))


def _is_of_graph(tensor):
    try:
        return tensor.grad_fn is not None
    except RuntimeError:
        return True  # one of several views of a tensor that was changed in place, such as FSDP1 makes of its flat parameter


_own_attributes = len(vars(Module()))


@_guarded
def _registers_module(module, _name, _submodule):
    _know(module)
    _layers.changed()


@_guarded
def _registers_parameter(module, _name, parameter):
    _know(module)
    _layers.changed()
    if parameter is not None:
        _label(parameter, WEIGHT)


@_guarded
def _registers_buffer(module, name, buffer):
    _know(module)
    _layers.changed()
    if buffer is not None:
        _label(buffer, _named(b"model@buffer", f"{type(module).__name__}.{name}"))


@_guarded
def _module_changed(module):
    """Its tensors may lie somewhere else now: it was moved, or copied or read from a file."""
    _used.clear()
    _label_module(module, _paths.get(id(module)) or f"{type(module).__name__}.")


@_guarded
def _loads(_module, state_dict):
    for tensor, _ in itertools.islice(_items(state_dict, ""), _ITEMS_MAX * 16):
        _label(tensor, STATE_DICT)


def _then(function, do):
    """A method of modules, and a call with the module when it is done."""
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        result = function(self, *args, **kwargs)
        if _on and not _is_compiling():
            do(self)
        return result

    return inner


def _before(function, do):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        if _on and args:
            do(self, args[0])
        return function(self, *args, **kwargs)

    return inner


# ---- forward passes ----

_roots = {}  # id of a module that was called -> [weak reference, modules in it with names]


def _names_of_arguments(module):
    code = getattr(getattr(module.forward, "__func__", None), "__code__", None)
    return () if code is None else code.co_varnames[1:code.co_argcount]


def _modules_of(module):
    """(name and dot, weak reference) of the modules in one, with what they have labelled when they are seen first."""
    known = _roots.get(id(module))
    if known is not None and known[0]() is module:
        return known[1]
    inside = []
    for name, one in module.named_modules():
        path = max(name.replace("_orig_mod", "").replace("..", ".").strip(".") + ".", _paths.get(id(one), ""), key=len).lstrip(".")
        _label_module(one, path)
        _paths[id(one)] = path
        inside.append((path, weakref.ref(one)))
    _roots[id(module)] = weakref.ref(module, lambda _, key=id(module): _roots.pop(key, None)), inside
    return inside


@_guarded
def _forward_begins(module, args, kwargs):
    _read_results(_mine())
    _forget_broken_step()
    _know(module)
    _modules_of(module)
    _name_layers()
    inputs = []
    names = _names_of_arguments(module)
    names = [*names[:len(args)], *[""] * (len(args) - len(names))]
    for tensor, name in _labelled_items([*zip(names, args), *kwargs.items()]):
        if isinstance(tensor, Parameter) or tensor.grad_fn is not None:
            continue
        _label(tensor, _named(b"", name) if _CACHE.search(name) else INPUT)
        if tensor.requires_grad:
            inputs.append(weakref.ref(tensor))
    _mine().inputs = inputs
    text = FORWARD if _grad_is_on() else ACTIVATION
    _enter(text)
    return text


@_guarded
def _forward_ends(module, text, result):
    if text is not None:
        _leave(text)
    _read_results(_mine())
    outputs = set()
    for tensor, name in itertools.islice(_items(result, ""), _ITEMS_MAX):
        if tensor.grad_fn is not None:
            _read_node(tensor.grad_fn, ())
        elif _CACHE.search(name):
            _label(tensor, _named(b"", name))
        else:
            outputs.add(_place(tensor))
    _mine().outputs = outputs - {0}
    for path, known in _modules_of(module):
        one = known()
        if one is not None and len(vars(one)) > _own_attributes:
            _label_attributes(one, path)


@_guarded
def _module_begins(module, layer, arguments):
    return _graph.module_begins(module, layer, arguments, _memory, _label_of)


@_guarded
def _module_ends(result):
    _graph.module_ends(result, _memory)


def _call(self, *args, **kwargs):
    if _is_compiling() or not _on:
        return _module_call(self, *args, **kwargs)
    state, result, text = _mine(), None, None
    outermost = not state.depth
    if outermost:
        state.depth = 1
        text = _forward_begins(self, args, kwargs)
    layer = _layers.of_module(self)  # what it makes belongs to it, but for what modules in it make
    follow = False
    if layer is not None:
        _label_of(LABEL_LAYER_PUSH, 0, 0, 0, layer)
        follow = _module_begins(self, layer, (args, kwargs))
    try:
        result = _module_call(self, *args, **kwargs)
        return result
    finally:
        if layer is not None:
            if follow:
                _module_ends(result)
            _label_of(LABEL_LAYER_POP, 0, 0, 0, layer)
        if outermost:
            state.depth = 0
            _forward_ends(self, text, result)


# ---- the optimizer ----

def _tensors(value):
    if isinstance(value, _Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


@_guarded
def _takes_parameters(optimizer, _group=None):
    _optimizers.add(optimizer)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _label(parameter, WEIGHT)


@_guarded
def _zeroed(_of):
    _graph.zeroed(_label_of)


def _forget_broken_step():
    """A step that raised has not told that it ended. One that runs forward passes itself is still on the stack."""
    if _mine().optimizer is None:
        return
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "wrapper" and frame.f_code.co_filename == optimizers.__file__:
            return
        frame = frame.f_back
    _mine().optimizer = None
    _leave(STEP)


def _label_states(sent, states):
    """Labels those that are not in `sent`: {id of a state: weak reference}. Returns this of all of them. `states`: (parameter, value)."""
    now = {}
    for parameter, value in states:
        for tensor in _tensors(value):
            known = sent.get(id(tensor))
            if known is None or known() is not tensor:
                memory = _label(tensor, STATE, parameter)
                if memory is not None:
                    _graph.state(memory, tensor.element_size() if tensor.is_floating_point() and tensor.dim() else 0)
                known = weakref.ref(tensor)
            now[id(tensor)] = known
    return now


def _find_states(optimizer):
    """In the middle of a step: states that have appeared since the last operator. New ones are last."""
    if optimizer is None:
        return
    sent = _states.setdefault(optimizer, {})
    found = len(optimizer.state)
    before = sent.get("count", 0)
    newest = itertools.islice(reversed(optimizer.state.items()), max(found - before, 0) + 1)
    sent.update(_label_states(sent, list(newest)))
    sent["count"] = found


@_guarded
def _step_begins(optimizer, _args, _kwargs):
    state = _mine()
    _read_results(state)
    if state.optimizer is not None:
        _leave(STEP)
    _optimizers.add(optimizer)
    state.optimizer = weakref.ref(optimizer)
    state.finding = _states.get(optimizer, {}).get("whole") != len(optimizer.state) or not optimizer.state
    _enter(STEP)


@_guarded
def _step_ends(optimizer, _args, _kwargs):
    _mine().optimizer = None
    _leave(STEP)
    _used.clear()
    now = _label_states(_states.get(optimizer, {}), optimizer.state.items())
    now["count"] = now["whole"] = len(optimizer.state)
    _states[optimizer] = now
    _name_layers()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                _label_grad(parameter)


# ---- on and off ----

_module_call = Module.__call__
_engine = torch.autograd.Variable._execution_engine
_backward = getattr(torch.autograd, "_engine_run_backward", _engine.run_backward)
_handles = []
_patched = False


def _skip_ours(_dynamo):
    """torch.compile does not look into these, but at what they call."""
    skip = getattr(torch._dynamo.eval_frame, "skip_code", None) or torch._C._dynamo.eval_frame.skip_code
    for function in (_call, _run_backward):
        skip(function.__code__)


def _patch():
    """Once; what is put in place does nothing of its own while nothing is labelled."""
    when_imported("torch._dynamo", _skip_ours)
    Module.__call__ = functools.wraps(_module_call)(_call)
    Module._apply = _then(Module._apply, _module_changed)
    Module.__setstate__ = _then(Module.__setstate__, _module_changed)
    Module.load_state_dict = _before(Module.load_state_dict, _loads)
    Module.zero_grad = _then(Module.zero_grad, _zeroed)
    optimizers.Optimizer.zero_grad = _then(optimizers.Optimizer.zero_grad, _zeroed)
    optimizers.Optimizer.add_param_group = _then(optimizers.Optimizer.add_param_group, _takes_parameters)
    # torch.autograd.backward and torch.autograd.grad both end there, and so does Tensor.backward.
    if hasattr(torch.autograd, "_engine_run_backward"):
        torch.autograd._engine_run_backward = _run_backward
    else:
        torch.autograd.Variable._execution_engine = _Engine()
    if not _saved.can_be_read():
        note("activations are not labelled: this PyTorch does not report what its graph saves")


@_guarded
def _find_existing():
    """Modules and optimizers that were made before anything was wanted."""
    for found in gc.get_objects():
        of = type(found)
        if issubclass(of, Module):
            _label_module(found, f"{of.__name__}.")
        elif issubclass(of, optimizers.Optimizer):
            _takes_parameters(found)
            _states[found] = _label_states({}, list(found.state.items()))


def enable():
    """Calling it again does nothing."""
    global _on, _patched
    if _on:
        return
    if not _patched:
        _patched = True
        _patch()
        _learn_counts()
    _on = True
    _handles.extend((modules.register_module_parameter_registration_hook(_registers_parameter),
                     modules.register_module_buffer_registration_hook(_registers_buffer),
                     modules.register_module_module_registration_hook(_registers_module),
                     optimizers.register_optimizer_step_pre_hook(_step_begins),
                     optimizers.register_optimizer_step_post_hook(_step_ends)))
    if "torch.nn" in sys.modules:
        _find_existing()


def disable():
    global _on
    _on = False
    while _handles:
        _handles.pop().remove()
    for known in (_used, _grads, _known, _paths, _leaves, _roots, _optimizers, _states):
        known.clear()
    _layers.forget()
    _graph.forget()
