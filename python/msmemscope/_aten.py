# SPDX-License-Identifier: Apache-2.0
"""PyTorch's operators and the tensors that they take and give, while they are wanted.

A dispatch mode on every thread sees each operator with its arguments; docs/decisions/0013-operators.md tells why it is one, and
what it costs. It reports and calls the operator: what an operator is given, gives back and raises is not touched, and a failure
of ours ends in a note of the trace. Everything that can be known from an operator's schema is worked out once per operator.

    begin, tensors that are read, the operator itself, tensors that were written, end
"""
import atexit
import functools
import struct
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode

from ._api import (ACCESS_READ as READ, ACCESS_WRITE as WRITE, OPERATION_BEGINS as BEGINS, OPERATION_ENDED as ENDED, RECORDING_ON,
                   WANTS_ACCESS, WANTS_HOST, WANTS_LABELS, WANTS_NPU_OPS, WANTS_OPS, WANTS_WATCH)
from . import _callback
from ._boot import note, when_cuda_is_ready, when_imported
from ._native import collector
from ._tensors import CPU, current_index, device_number, extent

_Tensor = torch.Tensor
_modes = torch._C._len_torch_dispatch_stack
_NOTHING = {}
_CACHE_MAX = 4096

_TENSORS_MAX = 8  # that one call reports

if collector is not None:
    _op, _access = collector.mscope_op, collector.mscope_access
    _ranges = [struct.Struct(f"={2 * count}Q").pack for count in range(_TENSORS_MAX + 1)]


# ---- what is known for long ----

_devices = {}  # torch.device -> its number for the collector, None: not recorded
_kinds = {}  # dtype, shape -> the text of both
_plain = {}  # class -> whether it is an ordinary tensor with memory of its own
_plans = {}  # id of an operator, whose own hash is a call -> _Plan
_wants_host = False
_accelerated = False  # whether there may be tensors on a device
_npu = False  # whether torch_npu is there
_OPERATORS = WANTS_OPS | WANTS_ACCESS | WANTS_LABELS | WANTS_WATCH


def _is_above_autograd(function):
    """Whether a device has a kernel of its own for an operator that is made of others, and autograd has none: so it is with dropout and
    softmax of torch_npu 2.1. The kernel's own operators are what autograd sees."""
    if type(function) is not torch._ops.OpOverload:
        return False
    name = function.name()

    def has(key):
        return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)

    return has("PrivateUse1") and has("CompositeImplicitAutograd") and not has("Autograd") and not has("AutogradPrivateUse1")


def _call_above_autograd(function, *args, **kwargs):
    """Below a mode autograd is off: the result would have no gradient. So the operator is called as the program called it."""
    if _modes():
        return function(*args, **kwargs)
    with torch._C._RestorePythonTLSSnapshot(), torch._C._DisableTorchDispatch():
        return function(*args, **kwargs)


class _Plan:
    """What an operator's schema says. Places are numbers of positional arguments, or names."""

    __slots__ = ("function", "name", "watched", "alias", "call", "reads", "writes", "fresh", "unsaid", "training", "lasting")

    def __init__(self, function):
        self.function = function  # lives as long as its id is in use
        schema = getattr(function, "_schema", None)
        self.watched = None if schema is None else f"{function.__module__}.{function.__name__}".encode()  # whatever it is
        self.alias = b"" if schema is None else schema.name.encode()  # as PyTorch's own messages call it: aten::mul
        if schema is not None and schema.name.startswith("profiler::"):
            schema = None  # marks of PyTorch's own profiler: nothing is computed, so only watched memory is looked at
        self.name = None if schema is None else self.watched
        # The overload's own function, without the Python frame around it.
        self.call = function._op if type(function) is torch._ops.OpOverload else function
        if schema is not None and _is_above_autograd(function):
            self.call = functools.partial(_call_above_autograd, function)
        self.reads, self.writes, self.fresh = (), (), ()
        self.unsaid, self.training, self.lasting = (), None, False
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
            # Neither: the result is a view of it; the operator does not touch the data.
        self._find_unsaid(schema, base)
        # Memory that is handed out as it is has not been written.
        if not base.startswith(("empty", "new_empty", "_empty")):
            self.fresh = tuple(place for place, result in enumerate(schema.returns) if result.alias_info is None)
            if len(self.fresh) == len(schema.returns):
                self.fresh = True


    def _find_unsaid(self, schema, base):
        """Arguments that are written though the schema does not say so."""
        namespace = schema.name.partition("::")[0]
        if "c10d" in namespace:  # collectives: done when somebody has waited for them
            self.lasting = True
        if base.endswith("_") and not self.writes:
            self.unsaid = self.reads
        elif "backward" not in base:
            # Statistics of batch normalization, in training.
            names = [argument.name for argument in schema.arguments]
            self.unsaid = tuple(place for place in self.reads
                                if (place if place.__class__ is str else names[place]) in ("running_mean", "running_var"))
            self.training = next((place for place, name in enumerate(names) if self.unsaid and name in ("training", "train")), None)


def _device(device):
    number = device_number(device)
    if number == CPU and not _wants_host:
        number = None
    if number == CPU or number is None or device.index is not None:
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


if hasattr(torch._C, "_data_address"):
    _storage_address = torch._C._data_address

    def _address(tensor):
        """First byte of a tensor. Unlike data_ptr() it does not make a copy-on-write tensor copy."""
        address, offset = _storage_address(tensor), tensor.storage_offset()
        return address + offset * tensor.element_size() if offset and address else address
else:
    _address = _Tensor.data_ptr


# ---- one operator ----

def _collect(value, device, ranges, texts, kind, name):
    """Adds address, size and kind of the tensors of one argument or result, however deep they lie in lists.

    Tensors of another device than the operator's, as copies between devices have them, are reported by themselves.
    """
    of = value.__class__
    if of is _Tensor or isinstance(value, _Tensor):
        if not (_plain[of] if of in _plain else _is_plain(of)):
            return
        try:
            address = _address(value)
            if not address:
                return
            key = (value.dtype, value.shape)
            text = _kinds.get(key) or _kind_of(key)
            size = value.nbytes if value.is_contiguous() else extent(value)
        except RuntimeError:
            return  # without one shape or one piece of memory: nested and sparse tensors
        own = value.device
        own = _devices[own] if own in _devices else _device(own)
        if own == device:
            ranges += address, size
            texts.append(text)
        elif own is not None:
            _access(kind, own, address, size, name, text)
    elif of is list or of is tuple:
        for item in value:
            _collect(item, device, ranges, texts, kind, name)


def _collect_arguments(places, args, kwargs, device, ranges, texts, kind, name):
    for place in places:
        if place.__class__ is str:
            value = kwargs.get(place)
        else:
            value = args[place] if place < len(args) else None
        if value is not None:
            _collect(value, device, ranges, texts, kind, name)


def _collect_written(plan, args, kwargs, result, device, ranges, texts):
    if plan.writes:
        _collect_arguments(plan.writes, args, kwargs, device, ranges, texts, WRITE, plan.name)
    if plan.fresh is True:
        _collect(result, device, ranges, texts, WRITE, plan.name)
    else:
        for place in plan.fresh:
            _collect(result[place], device, ranges, texts, WRITE, plan.name)


def _report(kind, device, name, ranges, texts):
    count = len(texts)
    if count <= _TENSORS_MAX:
        _op(kind, device, name, count, _ranges[count](*ranges), *texts)
        return
    # Lists of many tensors, as the optimizers' operators have them.
    if kind == BEGINS:
        _op(kind, device, name, 0, None)
    for at, text in enumerate(texts):
        _access(READ if kind == BEGINS else WRITE, device, ranges[2 * at], ranges[2 * at + 1], name, text)
    if kind == ENDED:
        _op(kind, device, name, 0, None)


def _device_of(values):
    """Number of the device of the first tensor, or of the first that is not on the host; -1: there is no tensor."""
    found = -1
    for value in values:
        of = value.__class__
        if of is _Tensor or isinstance(value, _Tensor):
            of = value.device
        elif of is list or of is tuple:
            number = _device_of(value)
            if number == -1:
                continue
            if number or not _accelerated:
                return number
            found = number
            continue
        elif of is not torch.device:
            continue
        else:
            of = value
        number = _devices[of] if of in _devices else _device(of)
        if number or not _accelerated:
            return number
        if found == -1:
            found = number
    return found


def _where(args, kwargs):
    number = _device_of(args)
    # What is made on a device of something on the host, as x.to("npu"), is an operator of the device.
    if kwargs and (number == -1 or (_accelerated and not number)):
        named = _device_of(kwargs.values())
        number = number if named == -1 else named or number
    if number == -1:
        # Made from nothing, without a device in the arguments.
        number = 0 if _wants_host else None
    return number


def _is_traced():
    """Whether a mode below ours only pretends to compute: those of torch.compile and torch.export, and fake tensors."""
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(key) is not None for key in (keys.FAKE, keys.FUNCTIONAL, keys.PROXY))


_noted = False  # whether the first failure is in the trace


def _failed(error):
    global _noted
    if not _noted:
        _noted = True
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
            plan = _plans.get(id(func))
            if plan is None:
                plan = _plans[id(func)] = _Plan(func)
            name = plan.name
            device = None if name is None else _where(args, kwargs)
        except Exception as error:
            _failed(error)
            return func(*args, **kwargs)
        if device is None:
            return plan.call(*args, **kwargs)
        if not self.accesses:
            _op(BEGINS, device, name, 0, None)
            try:
                return plan.call(*args, **kwargs)
            finally:
                _op(ENDED, device, name, 0, None)
        ranges, texts = [], []
        if plan.reads:
            try:
                _collect_arguments(plan.reads, args, kwargs, device, ranges, texts, READ, name)
            except Exception as error:
                _failed(error)
        _report(BEGINS, device, name, ranges, texts)
        ranges, texts = [], []
        try:
            result = plan.call(*args, **kwargs)
            if plan.writes or plan.fresh:
                try:
                    _collect_written(plan, args, kwargs, result, device, ranges, texts)
                except Exception as error:
                    _failed(error)
            return result
        finally:
            _report(ENDED, device, name, ranges, texts)


_reported_dispatch = _Mode.__torch_dispatch__


# ---- owners ----

_learn = None  # of the arguments of each operator whose memory they are; _owners.operator_begins


def _labelled_dispatch(self, func, types, args=(), kwargs=None):
    """Around an operator with everything that is reported of it."""
    if _modes() and _is_traced():
        return _reported_dispatch(self, func, types, args, kwargs)
    then = None
    try:
        then = _learn(func, args)
    except Exception as error:
        _failed(error)
    result = _reported_dispatch(self, func, types, args, kwargs)
    if then is not None and result is not NotImplemented:
        try:
            then(result)
        except Exception as error:
            _failed(error)
    return result


def _dispatch(self, func, types, args, kwargs):
    return (_reported_dispatch if _learn is None else _labelled_dispatch)(self, func, types, args, kwargs)


# ---- watched memory ----

def _add_spans(value, spans):
    """Adds address and size of the tensors of one argument or result."""
    if isinstance(value, _Tensor):
        of = value.__class__
        if not (_plain[of] if of in _plain else _is_plain(of)):
            return
        try:
            address = _address(value)
            if address:
                spans += address, value.nbytes if value.is_contiguous() else extent(value)
        except RuntimeError:
            pass  # without one piece of memory: nested and sparse tensors
    elif value.__class__ in (list, tuple):
        for item in value:
            _add_spans(item, spans)


def _declared(plan, args, kwargs):
    """Memory that an operator says it writes: arguments that its schema marks, and those that it writes all the same."""
    spans = []
    places = plan.writes
    if plan.unsaid and not (plan.training is not None and plan.training < len(args) and args[plan.training] is False):
        places += plan.unsaid
    for place in places:
        if place.__class__ is str:
            _add_spans(kwargs.get(place), spans)
        else:
            _add_spans(args[place] if place < len(args) else None, spans)
    return spans


def _watched_dispatch(self, func, types, args=(), kwargs=None):
    """Around an operator with everything that is reported of it: what watched memory holds before and after."""
    if not collector.mscope_watch_active() or (_modes() and _is_traced()):
        return _dispatch(self, func, types, args, kwargs)
    from . import watcher
    try:
        plan = _plans.get(id(func))
        if plan is None:
            plan = _plans[id(func)] = _Plan(func)
        name, alias = plan.watched, plan.alias
        # Memory of the host may be watched where its operators are not recorded.
        device = _where(args, kwargs or _NOTHING) or 0
        number = None if name is None else watcher.begin(name, device, alias)
        if number is not None and (plan.writes or plan.unsaid):
            watcher.writes(_declared(plan, args, kwargs or _NOTHING), plan.lasting)
    except Exception as error:
        _failed(error)
        number = None
    if number is None:
        return _dispatch(self, func, types, args, kwargs)
    result, ended = (), False
    try:
        result = _dispatch(self, func, types, args, kwargs)
        ended = True
        return result
    finally:
        try:
            if result is NotImplemented:
                result, ended = (), False
            if plan.fresh and ended:
                # Memory that is new to the operator may lie where another block was.
                spans = []
                _add_spans(result if plan.fresh is True else [result[place] for place in plan.fresh], spans)
                watcher.writes(spans)
            watcher.end(number, name, device, result, alias, declared=True)
        except Exception as error:
            _failed(error)


def _watch_compiled(module):
    """Code that torch.compile made writes without operators; its graph knows which of its inputs."""
    graph = getattr(module, "CompiledFxGraph", None)
    if graph is None or hasattr(graph.__call__, "of_msmemscope"):
        return
    inner = graph.__call__

    @functools.wraps(inner)
    def call(self, inputs):
        if not collector.mscope_watch_active():
            return inner(self, inputs)
        from . import watcher
        number, name = None, b"torch.compile"
        try:
            device = _where(inputs, _NOTHING) or 0
            spans = []
            for place in getattr(self, "mutated_input_idxs", ()):
                _add_spans(inputs[place], spans)
            number = watcher.begin(name, device)
            watcher.writes(spans)
        except Exception as error:
            _failed(error)
        try:
            return inner(self, inputs)
        finally:
            if number is not None:
                watcher.end(number, name, device, (), declared=True)

    call.of_msmemscope = True
    graph.__call__ = call
    skip = getattr(torch._C._dynamo.eval_frame, "skip_code", None)
    if skip is not None:
        skip(call.__code__)


# ---- on and off ----

_mode = _Mode()
_state = threading.local()  # .on: the mode is on this thread's stack
_wanted = False  # whether threads that begin get it
_prepared = False  # whether the program is ready for it: once per process
_compiled = False  # whether what torch.compile makes tells what it writes
_labelled = False  # whether owners are labelled
_wants_bits = 0  # of enum python_wants
_waiting = False  # whether _device_is_here() will be called
_mode_noted = False  # whether a note tells that the callback cannot be used


def _skip_ours(_dynamo):
    """torch.compile must not look into our functions when it meets them; it has a list of such code."""
    skip = getattr(torch._dynamo.eval_frame, "skip_code", None) or torch._C._dynamo.eval_frame.skip_code
    for function in (_reported_dispatch, _watched_dispatch, _labelled_dispatch, _dispatch, _add_spans, _declared, _collect,
                     _collect_arguments, _collect_written, _report, _device_of, _where, _is_traced, _device, _is_plain, _all_plain,
                     _kind_of, _address, current_index, device_number, extent, _failed, _is_above_autograd, _call_above_autograd,
                     _Plan.__init__):
        if hasattr(function, "__code__"):
            skip(function.__code__)


def _guard_with_mode(guards):
    """torch.compile takes all modes off while it compiles. In older versions what is compiled so is not for a thread with a mode: each
    call would compile again. So its guards, which look at that, are made with ours on."""
    manager = getattr(guards, "CheckFunctionManager", None)
    if manager is None or hasattr(torch.utils._python_dispatch, "is_in_any_mode_without_ignore_compile_internals"):
        return
    inner = manager.__init__

    @functools.wraps(inner)
    def init(self, *args, **kwargs):
        if not getattr(_state, "on", False) or _modes():
            return inner(self, *args, **kwargs)
        torch._C._push_on_torch_dispatch_stack(_mode)
        try:
            return inner(self, *args, **kwargs)
        finally:
            _pop()

    manager.__init__ = init


def _let_higher_order_pass():
    """Before supports_higher_order_operators an operator that takes functions knew its modes by a table."""
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        return

    def handler(operator, _mode, *args, **kwargs):
        return operator(*args, **kwargs)

    for operator in getattr(torch._ops, "_higher_order_ops", {}).values():
        try:
            operator.py_impl(_Mode)(functools.partial(handler, operator))
        except Exception as error:
            _failed(error)


def _leave_tracers_alone():
    """torch.jit.trace fails under any dispatch mode: it runs without ours, and what it traces is not reported."""
    def without_mode(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            on = getattr(_state, "on", False)
            _set(False)
            try:
                return function(*args, **kwargs)
            finally:
                _set(on and _wanted)

        return inner

    for name in ("trace", "trace_module", "_get_trace_graph"):
        function = getattr(torch.jit._trace, name, None)
        if function is None:
            continue
        wrapped = without_mode(function)
        for module in (torch.jit._trace, torch.jit):
            if getattr(module, name, None) is function:
                setattr(module, name, wrapped)


def _pop():
    try:
        return _pop_mode()
    except TypeError:  # PyTorch 2.1
        return torch._C._pop_torch_dispatch_stack()


def _take_off_modes():
    """Takes the program's own modes off this thread's stack, and ours; returns those of the program, lowest first."""
    taken = []
    while _modes():
        # Those of torch.compile and the like have places of their own below all others.
        if getattr(torch._C._get_dispatch_stack_at(_modes() - 1), "_mode_key", None) is not None:
            break
        taken.insert(0, _pop())
    return [mode for mode in taken if mode is not _mode]


def _set(on):
    """Puts the mode below those of the program, which take themselves off the top; or takes it off."""
    if getattr(_state, "on", False) == on:
        return
    _state.on = on
    # Not by `with`: that would also set flags of the whole process, for one thread of it.
    for mode in ([_mode] if on else []) + _take_off_modes():
        torch._C._push_on_torch_dispatch_stack(mode)


def _set_guarded(on):
    try:
        _set(on)
    except Exception as error:
        _failed(error)  # the thread is the program's and runs without


def _share_with_threads():
    """Threads that Python starts from now on begin with the mode; those of autograd take it from the thread that waits for them."""
    inner = threading.Thread._bootstrap_inner

    def _bootstrap_inner(self):
        _set_guarded(_wanted)
        try:
            return inner(self)
        finally:
            # Left on the stack, it would be given back by the C++ thread's own end, which needs the interpreter: when that is
            # ending too, the process aborts.
            _set_guarded(False)

    threading.Thread._bootstrap_inner = _bootstrap_inner


def _callback_works():
    """Whether operators can be seen without a mode; the first time that they cannot, one line says so."""
    global _mode_noted
    missing = _callback.why_not()
    if missing and not _mode_noted:
        _mode_noted = True
        note(f"operators of PyTorch are seen by a dispatch mode, which is slower: this PyTorch hides {missing}")
    return not missing


def enable(ops=True, accesses=False, labels=False):
    """Reports operators, accesses, owner labels from now on. Calling it again changes what is reported and nothing else."""
    global _wanted, _prepared, _labelled, _learn, _compiled
    if collector is None:
        return
    # Labels and watches need the tensors themselves.
    if (ops or accesses) and not labels and not _wants_bits & WANTS_WATCH and _callback_works():
        _callback.observe(WANTS_OPS | (WANTS_ACCESS if accesses else 0), _accelerated)
        ops = accesses = False
    else:
        _callback.observe(0)
    _mode.accesses = accesses
    if labels != _labelled:
        from . import _owners
        _labelled = labels
        (_owners.enable if labels else _owners.disable)()
        _learn = _owners.operator_begins if labels else None
    # A program that watches nothing does not pay for it, nor one without labels.
    if _wants_bits & WANTS_WATCH:
        _Mode.__torch_dispatch__ = _watched_dispatch
    else:
        _Mode.__torch_dispatch__ = _reported_dispatch if _learn is None else _labelled_dispatch
    if (ops or accesses) and not _prepared:
        _prepared = True
        _share_with_threads()
        _leave_tracers_alone()
        _let_higher_order_pass()
        when_imported("torch._dynamo", _skip_ours)
        when_imported("torch._dynamo.guards", _guard_with_mode)
        atexit.register(_set_guarded, False)
    if _wants_bits & WANTS_WATCH and not _compiled:
        _compiled = True
        when_imported("torch._inductor.output_code", _watch_compiled)
        when_imported("torch._inductor.codecache", _watch_compiled)  # until PyTorch 2.5
    _wanted = ops or accesses
    _set(_wanted)


def disable():
    """Ends it, on this thread at once; on others the collector drops what they still report."""
    enable(ops=False)


def start(wants):
    """What is wanted from now on, bits of enum python_wants; 0: nothing."""
    global _wants_host, _wants_bits, _waiting
    _wants_host = bool(wants & WANTS_HOST)
    _wants_bits = wants
    _devices.clear()
    if not _waiting and wants:
        _waiting = True
        when_imported("torch_npu", _npu_is_here)
        when_cuda_is_ready(_device_is_here)
    _apply()


def _npu_is_here(module):
    global _npu
    _npu = True
    _device_is_here(module)


def _device_is_here(_module=None):
    global _accelerated
    _accelerated = True
    _plans.clear()  # the device brings kernels of its own
    _callback.refresh()
    _apply()


def _apply():
    wants = _wants_bits
    if wants & WANTS_NPU_OPS:
        wants = wants & ~WANTS_NPU_OPS | (WANTS_OPS if _npu else 0)
    # Where nothing on the host counts, nothing is done before there is a device; between windows nothing at all.
    if wants & _OPERATORS and (_wants_host or _accelerated or wants & WANTS_WATCH) and collector.mscope_recording() == RECORDING_ON:
        # The owner of a block may be the operator that it was allocated in.
        enable(ops=bool(wants & (WANTS_OPS | WANTS_WATCH | WANTS_LABELS)), accesses=bool(wants & WANTS_ACCESS),
               labels=bool(wants & WANTS_LABELS))
    else:
        disable()
