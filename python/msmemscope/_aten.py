# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators and the tensors that they take and give, while they are wanted.

A dispatch mode on every thread sees each operator with its arguments; docs/decisions/0010-operators.md tells why it is one, and
what it costs. It reports and calls the operator: what an operator is given, gives back and raises is not touched, and a failure
of ours ends in a note of the trace. Everything that can be known from an operator's schema is worked out once per operator.

    begin, tensors that are read, the operator itself, tensors that were written, end
"""
import functools
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ._boot import ACCESS, HOST, LABELS, OPS, WATCH, note, when_imported
from ._native import collector

BEGINS, ENDED = 1, 2  # enum operation_kind in src/trace/context.h
READ, WRITE = 1, 2  # enum access_kind

_TYPES = {"cpu": 0, "cuda": 1}  # c10::DeviceType; torch_npu's tensors are PrivateUse1
_PRIVATE = 20

_Tensor = torch.Tensor
_strided = torch.strided
# Unlike data_ptr() this one does not make a copy-on-write tensor copy.
_address = getattr(torch._C, "_data_address", _Tensor.data_ptr)
_modes = torch._C._len_torch_dispatch_stack
_NOTHING = {}
_CACHE_MAX = 4096

if collector is not None:
    _op, _access = collector.mscope_op, collector.mscope_access


# ---- what is known for long ----

_devices = {}  # torch.device -> its number for the collector, None: not recorded
_kinds = {}  # dtype, shape -> the text of both
_plain = {}  # class -> whether it is an ordinary tensor with memory of its own
_plans = {}  # operator -> _Plan
_wants_host = False


class _Plan:
    """What an operator's schema says. Places are numbers of positional arguments, or names."""

    __slots__ = ("name", "call", "reads", "writes", "fresh")

    def __init__(self, function):
        schema = getattr(function, "_schema", None)
        if schema is not None and schema.name.startswith("profiler::"):
            schema = None  # marks of PyTorch's own profiler: nothing is computed
        self.name = None if schema is None else f"{function.__module__}.{function.__name__}".encode()
        # The overload's own function, without the Python frame around it.
        self.call = function._op if type(function) is torch._ops.OpOverload else function
        self.reads, self.writes, self.fresh = (), (), ()
        if schema is None or torch.Tag.inplace_view in getattr(function, "tags", ()):
            return
        base = schema.name.partition("::")[2]
        factory = base.startswith("new_") or base.endswith("_like")
        for place, argument in enumerate(schema.arguments):
            if "Tensor" not in str(argument.type):
                continue
            where = argument.name if argument.kwarg_only else place
            if argument.alias_info is None:
                # A factory looks at the shape of what it is given, not at the data.
                self.reads += () if factory else (where,)
            elif argument.alias_info.is_write:
                self.writes += (where,)
            # Neither: the result is a view of it, and nobody touches the data.
        # Memory that is handed out as it is has not been written.
        if not base.startswith(("empty", "new_empty", "_empty")):
            self.fresh = tuple(place for place, result in enumerate(schema.returns) if result.alias_info is None)
            if len(self.fresh) == len(schema.returns):
                self.fresh = True


def _device(device):
    kind = device.type
    if kind == "cpu":
        number = 0 if _wants_host else None
    elif kind == "cuda":
        number = _TYPES[kind] << 8 | (device.index or 0)
    elif kind == torch._C._get_privateuse1_backend_name():
        number = _PRIVATE << 8 | (device.index or 0)
    else:
        number = None
    _devices[device] = number
    return number


def _is_plain(kind):
    """Subclasses with a dispatch of their own are wrappers: they have no memory, or not the memory that they seem to have."""
    plain = getattr(kind, "__torch_dispatch__", None) in (_Tensor.__torch_dispatch__,
                                                           torch._C._disabled_torch_dispatch_impl)
    _plain[kind] = plain
    return plain


def _all_plain(kinds):
    for kind in kinds:
        if not (_plain[kind] if kind in _plain else _is_plain(kind)):
            return False
    return True


def _kind_of(key):
    if len(_kinds) >= _CACHE_MAX:
        _kinds.clear()
    text = _kinds[key] = b"%s\0%s" % (str(key[0]).encode(), str(key[1]).encode())
    return text


def _extent(tensor):
    """Bytes from the first element to the end of the last, of a tensor with gaps."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()


# ---- one operator ----

def _touch(value, kind, name):
    """Reports one argument or result, however deep its tensors lie in lists."""
    if isinstance(value, _Tensor):
        device = value.device
        device = _devices[device] if device in _devices else _device(device)
        if device is None or value.layout is not _strided:
            return
        of = value.__class__
        if not (_plain[of] if of in _plain else _is_plain(of)):
            return
        try:
            address = _address(value)
            if address:
                key = (value.dtype, value.shape)
                _access(kind, device, address, value.nbytes if value.is_contiguous() else _extent(value), name,
                        _kinds.get(key) or _kind_of(key))
        except RuntimeError:
            pass  # without one shape or one piece of memory, as nested tensors are
    elif value.__class__ is list or value.__class__ is tuple:
        for item in value:
            _touch(item, kind, name)


def _touch_arguments(places, args, kwargs, kind, name):
    for place in places:
        if place.__class__ is str:
            value = kwargs.get(place)
        else:
            value = args[place] if place < len(args) else None
        if value is not None:
            _touch(value, kind, name)


def _touch_results(fresh, result, name):
    if fresh is True:
        _touch(result, WRITE, name)
    else:
        for place in fresh:
            _touch(result[place], WRITE, name)


def _device_of(values, found):
    """Number of the device that an operator with these arguments runs on; a device that is not the host goes first."""
    for value in values:
        if isinstance(value, _Tensor):
            device = value.device
            number = _devices[device] if device in _devices else _device(device)
            if number:
                return number
            if found is None:
                found = number
        elif value.__class__ is list or value.__class__ is tuple:
            found = _device_of(value, found)
            if found:
                return found
        elif value.__class__ is torch.device:
            number = _devices[value] if value in _devices else _device(value)
            if number:
                return number
    return found


def _no_tensor(values):
    for value in values:
        if isinstance(value, _Tensor) or value.__class__ is torch.device:
            return False
        if (value.__class__ is list or value.__class__ is tuple) and not _no_tensor(value):
            return False
    return True


def _where(args, kwargs):
    number = _device_of(args, None)
    if number is None and kwargs:
        number = _device_of(kwargs.values(), None)
    if number is None and _wants_host:
        # Made from nothing: on the host unless it says otherwise.
        device = kwargs.get("device")
        if device is None:
            if _no_tensor(args) and _no_tensor(kwargs.values()):
                number = 0
        elif torch.device(device).type == "cpu":
            number = 0
    return number


def _is_traced():
    """Whether a mode below ours only pretends to compute: those of torch.compile and torch.export, and fake tensors."""
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.FUNCTIONAL, keys.PROXY))


_told = False


def _failed(error):
    global _told
    if not _told:
        _told = True
        note(f"operators of PyTorch may be missing: {type(error).__name__}: {error}")


class _Mode(TorchDispatchMode):
    accesses = False

    # Operators that take functions come here as well, instead of being refused.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls):
        return True  # else torch.compile would compile nothing while we look

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # done by _skip_ours(), without a wrapper around every operator

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if kwargs is None:
            kwargs = _NOTHING
        # A class of tensors with its own idea of operators, or other modes below this one.
        if types and not _all_plain(types) and not _modes():
            return NotImplemented  # it does its work with ordinary tensors, and those operators come here
        if _modes() and _is_traced():
            return func(*args, **kwargs)
        try:
            plan = _plans.get(func)
            if plan is None:
                plan = _plans[func] = _Plan(func)
            name = plan.name
            device = None if name is None else _where(args, kwargs)
        except Exception as error:
            _failed(error)
            return func(*args, **kwargs)
        if device is None:
            return plan.call(*args, **kwargs)
        _op(BEGINS, device, name)
        try:
            if not self.accesses:
                return plan.call(*args, **kwargs)
            if plan.reads:
                try:
                    _touch_arguments(plan.reads, args, kwargs, READ, name)
                except Exception as error:
                    _failed(error)
            result = plan.call(*args, **kwargs)
            try:
                if plan.writes:
                    _touch_arguments(plan.writes, args, kwargs, WRITE, name)
                if plan.fresh:
                    _touch_results(plan.fresh, result, name)
            except Exception as error:
                _failed(error)
            return result
        finally:
            _op(ENDED, device, name)


# ---- on and off ----

_mode = _Mode()
_state = threading.local()  # .on: the mode is on this thread's stack
_wanted = False  # whether threads that begin get it
_prepared = False  # whether the program is ready for it: once per process


def _skip_ours(_dynamo):
    """torch.compile must not look into our functions when it meets them; it has a list of such code."""
    skip = getattr(torch._dynamo.eval_frame, "skip_code", None) or torch._C._dynamo.eval_frame.skip_code
    for function in (_Mode.__torch_dispatch__, _touch, _touch_arguments, _touch_results, _device_of, _where, _no_tensor,
                     _is_traced, _device, _is_plain, _all_plain, _kind_of, _extent, _failed, _Plan.__init__):
        skip(function.__code__)


def _let_higher_order_pass():
    """Before supports_higher_order_operators an operator that takes functions knew its modes by a table."""
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        return

    def handler(_mode, *args, operator, **kwargs):
        return operator(*args, **kwargs)

    for operator in getattr(torch._ops, "_higher_order_ops", {}).values():
        try:
            operator.py_impl(_Mode)(lambda mode, *args, _operator=operator, **kwargs:
                                    handler(mode, *args, operator=_operator, **kwargs))
        except Exception as error:
            _failed(error)


def _leave_tracers_alone():
    """torch.jit.trace fails under any dispatch mode: it runs without ours, and what it traces is not reported."""
    def without_mode(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            on = getattr(_state, "on", False)
            _pop()
            try:
                return function(*args, **kwargs)
            finally:
                if on and _wanted:
                    _push()

        return inner

    for name in ("trace", "trace_module", "_get_trace_graph"):
        function = getattr(torch.jit._trace, name, None)
        if function is None:
            continue
        wrapped = without_mode(function)
        for module in (torch.jit._trace, torch.jit):
            if getattr(module, name, None) is function:
                setattr(module, name, wrapped)


def _push():
    # Not by `with`: that would also set flags of the whole process, for one thread of it.
    if not getattr(_state, "on", False):
        torch._C._push_on_torch_dispatch_stack(_mode)
        _state.on = True


def _pop():
    """Takes the mode off this thread's stack, where it may lie below others."""
    if not getattr(_state, "on", False):
        return
    _state.on = False
    above = []
    while _modes():
        mode = torch._C._pop_torch_dispatch_stack(None)
        if mode is _mode:
            break
        above.append(mode)
    for mode in reversed(above):
        torch._C._push_on_torch_dispatch_stack(mode)


def _share_with_threads():
    """Threads that Python starts from now on begin with the mode; those of autograd take it from the thread that waits for them."""
    inner = threading.Thread._bootstrap_inner

    def _bootstrap_inner(self):
        if _wanted:
            _push()
        return inner(self)

    threading.Thread._bootstrap_inner = _bootstrap_inner


def enable(ops=True, accesses=False, labels=False):
    """Reports operators, accesses, owner labels from now on. Calling it again changes what is reported and nothing else."""
    global _wanted, _prepared
    if collector is None:
        return
    _mode.accesses = accesses
    if ops or accesses:
        if not _prepared:
            _prepared = True
            _share_with_threads()
            _leave_tracers_alone()
            _let_higher_order_pass()
            when_imported("torch._dynamo", _skip_ours)
        _wanted = True
        _push()
    else:
        _wanted = False
        _pop()
    if labels:
        from . import _owners
        _owners.enable()


def disable():
    """Ends it, on this thread at once; on others the collector drops what they still report."""
    global _wanted
    _wanted = False
    _pop()
    from . import _owners
    _owners.disable()


def start(wants):
    """Called once torch has been imported, in a program that the command started."""
    global _wants_host
    _wants_host = bool(wants & HOST)
    _devices.clear()

    def begin(_module=None):
        enable(ops=bool(wants & (OPS | WATCH)), accesses=bool(wants & ACCESS), labels=bool(wants & LABELS))

    if _wants_host:
        begin()
        return
    # Nothing on the host counts: wait for a device.
    when_imported("torch_npu", begin)
    torch.cuda._lazy_call(begin)
