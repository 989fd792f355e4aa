# SPDX-License-Identifier: Apache-2.0
"""Small tensors of a dry run for CUDA, whose kernels do nothing: what the program computes from them is computed on the host as well.

A tensor of at most 4,096 elements, or 65,536 integers or truths, that the program makes from numbers, or from a tensor of the host, has a shadow: a tensor of the host with its
values. What the program's own lines compute of shadows alone has one too. So `int(lengths.max())` is the real number, and a mask that is known
selects as many rows as it really does. Where an operand is not known it counts as zeros, and the result is a guess: the program goes on with it, and
the answer lists its line.

A shadow is of one version of its tensor: PyTorch counts what changes a tensor in place, also where no line of Python does. Tensors without a count
(inference mode), and what a captured graph writes, have no shadow. Only functions of the tables below are computed twice; none of them is random. The
operations on the card are the same with and without this.
"""
import hashlib
import linecache
import os
import re
import sys
import weakref

from ._native import ctypes

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
ELEMENTS_MAX = 4096
INTEGERS_MAX = 65536  # elements where they are integers or truths, as tokens, masks and lengths
NUMBER = float(os.environ.get("MSMEMSCOPE_DRY_NUMBER", 0))  # what numbers that nobody computed read as, but for integers and truths
PARTS_MAX = 64  # tensors of one result

_MAKERS = frozenset("tensor zeros ones full arange eye linspace scalar_tensor as_tensor".split())
_LIKE = frozenset("zeros_like ones_like full_like new_zeros new_ones new_full new_tensor".split())  # of the tensor only its shape or type matters
_PURE = frozenset("""eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
    bitwise_not bitwise_xor __and__ __or__ __xor__ __rand__ __ror__ __rxor__ __invert__ add sub mul div true_divide floor_divide remainder fmod neg
    abs rsub __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __mod__ __neg__ __abs__ pow
    __pow__ __rpow__ sqrt exp log floor ceil round sign max min amax amin sum prod mean any all argmax argmin cumsum cumprod clamp clip minimum
    maximum isin isfinite isnan isinf where cat concat stack unsqueeze squeeze view reshape flatten expand transpose permute t __getitem__
    index_select gather clone contiguous float double half bfloat16 long int bool short type to cuda detach repeat tile split chunk unbind sort
    argsort topk diff roll flip tril triu masked_fill nonzero masked_select bincount one_hot repeat_interleave searchsorted bucketize count_nonzero
    scatter index_fill outer""".split())
_CHANGES = frozenset("""add_ sub_ mul_ div_ fill_ zero_ copy_ __setitem__ masked_fill_ logical_and_ logical_or_ bitwise_and_ bitwise_or_ clamp_ neg_
    __iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __iand__ __ior__ scatter_ index_fill_ index_copy_ index_put_""".split())
_SETS = frozenset("fill_ zero_ copy_".split())  # all of it, whatever there was before
_READS = frozenset("item __bool__ __int__ __float__ __index__ tolist __contains__ is_nonzero".split())
_ORDERS = frozenset("lt le gt ge __lt__ __le__ __gt__ __ge__".split())  # of one number that is not known: as of 0, which it reads as
_COMPARES = frozenset("eq ne __eq__ __ne__ isin".split())  # of numbers that are not known: as of zeros, so that a loop that looks for one goes on
_ASKS = frozenset("isfinite isnan isinf".split())  # of numbers that are not known: as if all were well
_INDEXES = frozenset("__getitem__ __setitem__ index_put_ index_put".split())
_LOOKS = frozenset("nonzero argwhere where __getitem__ index_put".split())
_NAMES = _MAKERS | _LIKE | _PURE | _CHANGES | _READS | _LOOKS | {"cpu", "randint"}


class _Shadow:
    __slots__ = ("tensor", "version", "values", "guess")

    def __init__(self, tensor, version, values, guess):
        self.tensor, self.version, self.values, self.guess = tensor, version, values, guess


class _Operands:
    """What a call was given, with shadows in the place of tensors of the card."""

    def __init__(self, small, args, kwargs):
        self._small = small
        self.found = 0  # shadows
        self.guess = False  # a value is not known
        self.whole = True  # no tensor is too large
        self.args = self._take(args)
        self.kwargs = {key: self._take(value) for key, value in kwargs.items() if key not in ("device", "requires_grad", "pin_memory", "non_blocking")}
        if "device" in kwargs:
            self.kwargs["device"] = "cpu"

    def _take(self, value):
        kind, torch = type(value), self._small.torch
        if kind in (list, tuple):
            return kind(self._take(part) for part in value)
        if kind is torch.device or kind is str and value.startswith("cuda"):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        if not self._small.fits(value):
            self.whole = False
        elif not value.is_cuda:
            return value.detach()
        else:
            shadow = self._small.of(value)
            if shadow is not None:
                self.found += 1
                self.guess |= shadow.guess
                return shadow.values
            self.guess = True
            return torch.zeros(value.shape, dtype=value.dtype)
        return value


class Small:
    """`told(how)` hears of each guess that the host reads, `counted(size)` too: an integer may decide a size, any other number a branch. With
    `more` they are other ones. `times()`: how many values that nobody computed were read so far, here or in C."""

    def __init__(self, torch, library, told, times, counted, more):
        self.torch, self._library, self._told, self._times, self._counted, self._more = torch, library, told, times, counted, more
        self._shadows = {}  # by the identity of their tensors
        self._plain = (torch.Tensor, torch.nn.Parameter)
        library.simcuda_answer.argtypes = [ctypes.c_int64]
        library.simcuda_mask.argtypes = [ctypes.c_int64] * 3

    def fits(self, tensor):
        return type(tensor) in self._plain and tensor.layout is self.torch.strided and \
            tensor.numel() <= (ELEMENTS_MAX if tensor.is_floating_point() or tensor.is_complex() else INTEGERS_MAX)

    def of(self, tensor):
        """The shadow of a tensor if it is still of its version."""
        shadow = self._shadows.get(id(tensor))
        if shadow is None or shadow.tensor() is not tensor:
            return None
        if shadow.version != tensor._version:
            del self._shadows[id(tensor)]
            return None
        return shadow

    def forget(self, tensor):
        self._shadows.pop(id(tensor), None)

    def _keep(self, tensor, values, guess):
        if tensor.is_inference() or self.torch.cuda.is_current_stream_capturing() or values.shape != tensor.shape or values.dtype != tensor.dtype:
            return
        key, shadows = id(tensor), self._shadows
        shadows[key] = _Shadow(weakref.ref(tensor, lambda _ref: shadows.pop(key, None)), tensor._version, values.detach().clone(), guess)

    def _is_small(self, result):
        if isinstance(result, self.torch.Tensor):
            return result.is_cuda and self.fits(result)
        return isinstance(result, (list, tuple)) and 0 < len(result) <= PARTS_MAX and all(
            isinstance(part, self.torch.Tensor) and part.is_cuda and self.fits(part) for part in result)

    @staticmethod
    def _beside(func, args, kwargs):
        """The same on the host; None where that does not have it."""
        try:
            return func(*args, **kwargs)
        except (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return None

    # ---- kinds of calls: each calls the program's own function once ----

    def _quietly(self, func, args, kwargs):
        self._library.simcuda_quiet(1)
        try:
            return func(*args, **kwargs)
        finally:
            self._library.simcuda_quiet(0)

    def _is_integer(self, tensor):
        return isinstance(tensor, self.torch.Tensor) and tensor.is_cuda and tensor.dtype in (self.torch.int64, self.torch.int32)

    def _changed_number(self, value):
        """Of a number that is not known: another one where the command asks for it, so that it sees what follows from it."""
        return changed_number(value, self._more) if self._more or NUMBER else value

    def read(self, _name, func, args, kwargs):
        taken = _Operands(self, args, kwargs) if self._shadows else None
        integer = self._is_integer(args[0])
        if taken is None or not taken.found or not taken.whole:
            before = self._times()
            value = reading(func, args, kwargs)
            if self._times() == before:
                return value
            self._counted(integer)
            return self._changed_number(value)
        self._quietly(func, args, kwargs)
        value = func(*taken.args, **taken.kwargs)
        if taken.guess:
            self._counted(integer)
            value = self._changed_number(value)
            self._told(f" read as {value}" if isinstance(value, (bool, int, float)) else " read without its values")
        return value

    def copied(self, func, args, kwargs):
        """To the host."""
        shadow, integer = self.of(args[0]), self._is_integer(args[0])
        before = self._times()
        result = func(*args, **kwargs) if shadow is None else self._quietly(func, args, kwargs)
        if shadow is not None and result.shape == shadow.values.shape:
            result.detach().copy_(shadow.values)
            if shadow.guess:
                self._told(" read without its values")
        if integer and self._times() != before:
            self._counted(True)
            if self._more:
                result.add_(self._more)
        elif NUMBER and self._times() != before and self.fits(result) and result.is_floating_point():
            result.detach().add_(NUMBER)
        return result

    def changed(self, name, func, args, kwargs):
        before, values, guess = self.of(args[0]), None, False
        if name in _INDEXES:
            self._masks(name, args, kwargs)
        if self.fits(args[0]) and (before is not None or name in _SETS):
            taken = _Operands(self, args[1:], kwargs)
            guess = taken.guess or (name not in _SETS and before.guess)
            if taken.whole and (not guess or before is not None):
                changes = self.torch.empty(args[0].shape, dtype=args[0].dtype) if before is None else before.values.clone()
                answer = self._beside(func, (changes, *taken.args), taken.kwargs)
                values = changes if answer is not None or name == "__setitem__" else None
        result = func(*args, **kwargs)
        if values is not None:
            self._keep(args[0], values, guess)
        return result

    def _size(self, name, args, kwargs):
        """What an operator reads from the card for the size of its result; None: nothing, or it is not known."""
        Tensor = self.torch.Tensor
        if name == "masked_select":
            chosen = args[1] if len(args) > 1 else kwargs["mask"]
        elif name == "repeat_interleave":
            chosen = args[1] if len(args) > 1 else kwargs.get("repeats", args[0])
        else:
            chosen = args[0]
        shadow = self.of(chosen) if isinstance(chosen, Tensor) else None
        if shadow is None or shadow.guess or not shadow.values.numel():
            return None
        if name == "masked_select":
            return int(shadow.values.expand(self.torch.broadcast_shapes(args[0].shape, chosen.shape)).sum())
        if name == "repeat_interleave":
            return int(shadow.values.sum())
        if name in ("bincount", "one_hot"):
            return int(shadow.values.max())
        return None

    def _masks(self, name, args, kwargs):
        """How many elements count of each tensor whose elements that are not zero this call looks for: known, or not."""
        if name in _INDEXES:
            chosen = args[1] if len(args) > 1 else kwargs.get("indices", ())
            chosen = chosen if isinstance(chosen, (list, tuple)) else (chosen,)
            chosen = [part for part in chosen if isinstance(part, self.torch.Tensor) and part.dtype is self.torch.bool]
        else:
            chosen = args[:1] if name != "where" or len(args) + len(kwargs) == 1 else ()
        for mask in chosen:
            if mask.is_cuda and mask.layout is self.torch.strided and type(mask) in self._plain:
                shadow = self.of(mask)
                count = -1 if shadow is None or shadow.guess else int(shadow.values.count_nonzero())
                try:
                    self._library.simcuda_mask(mask.data_ptr(), mask.numel(), count)
                except RuntimeError:  # a tensor of vmap() has no memory
                    pass

    def called(self, name, func, args, kwargs):
        size = None
        if name in _LOOKS:
            self._masks(name, args, kwargs)
        elif name in ("masked_select", "repeat_interleave", "bincount", "one_hot") and self._shadows:
            size = self._size(name, args, kwargs)
        if size is None:
            result = func(*args, **kwargs)
        else:
            self._library.simcuda_answer(size)
            try:
                result = func(*args, **kwargs)
            finally:
                self._library.simcuda_answer(-1)
        if self._is_small(result):
            self._follow(name, func, args, kwargs, result)
        return result

    def _follow(self, name, func, args, kwargs, result):
        Tensor = self.torch.Tensor
        if name == "randint":
            # The largest: it may be a length.
            numbers = [arg for arg in args if type(arg) is int]
            if numbers:
                self._keep(result, self.torch.full(result.shape, numbers[min(1, len(numbers) - 1)] - 1, dtype=result.dtype), True)
            return
        arrives = name in ("to", "cuda") and not args[0].is_cuda
        if name in _ASKS and self.of(args[0]) is None:
            self._keep(result, self.torch.full(result.shape, name == "isfinite"), True)
            return
        taken = _Operands(self, args, kwargs)
        known = taken.found or arrives or name in _MAKERS or name in _LIKE
        if name in _COMPARES and not known:
            known = not any(isinstance(arg, Tensor) and arg.is_floating_point() for arg in args)
        elif name in _ORDERS and not known:
            known = result.numel() == 1
        if not known or not taken.whole:
            return
        guess = taken.guess and not arrives and not (name in _LIKE and len(args) < 3)
        values = taken.args[0] if name == "cuda" else self._beside(func, taken.args, taken.kwargs)
        for tensor, value in [(result, values)] if isinstance(result, Tensor) else zip(result, values or ()):
            if value is not None:
                self._keep(tensor, value, guess)

    def handle(self, name, func, args, kwargs):
        first = args[0] if args else None
        of_card = isinstance(first, self.torch.Tensor) and first.is_cuda
        if name in _READS:
            return self.read(name, func, args, kwargs)
        if name in _CHANGES:
            return self.changed(name, func, args, kwargs) if of_card else func(*args, **kwargs)
        if of_card and (name == "cpu" or name == "to" and len(args) > 1 and str(args[1]) == "cpu"):
            return self.copied(func, args, kwargs)
        return self.called(name, func, args, kwargs)


number_read = "0"  # as text: what the tensor reads as that is being read, if nobody computed it


def reading(func, args, kwargs):
    """Calls what reads a tensor."""
    global number_read
    if getattr(func, "__name__", None) == "__bool__" or str(args[0].dtype) == "torch.bool":
        number_read = "False"
    elif NUMBER and args[0].is_floating_point():
        number_read = str(NUMBER)
    else:
        return func(*args, **kwargs)
    try:
        return func(*args, **kwargs)
    finally:
        number_read = "0"


_OTHER = 300.0  # what other numbers are larger by, where the command asks for other ones: above most limits, and its exponential is a number
_SCALER = os.path.join("torch", "amp", "grad_scaler.py")


def _is_of_scaler():
    """Whether GradScaler reads it: 0, as no gradient is infinite. Else it would skip each step."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return any(code.co_filename.endswith(_SCALER) for code in (frame.f_code, frame.f_back.f_code if frame.f_back is not None else frame.f_code))


_conditions = 0  # that changed_number() was asked for


def _is_check():
    """Whether the line that reads a value only stops the program for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    name, number = frame.f_code.co_filename, frame.f_lineno
    line, after = (linecache.getline(name, number + more).strip() for more in (0, 1))
    return re.match(r"assert\b|self\.assert", line) is not None or re.match(r"(raise|assert|sys\.exit|exit|quit)\b", after) is not None or \
        re.search(r":\s*raise\b", line) is not None


def changed_number(value, more):
    """Another one in the place of a number that nobody computed: a size is larger; every other condition or so, in no order, holds if it did not."""
    global _conditions
    if isinstance(value, list):
        return [changed_number(part, more) for part in value]
    if type(value) is bool:
        _conditions += bool(more)
        return value if not more or _is_check() or hashlib.md5(b"%d" % _conditions).digest()[0] & 1 else not value
    if type(value) is int:
        return value + more
    return value + NUMBER + (_OTHER if more and not _is_of_scaler() else 0) if type(value) is float else value


def _hide(torch):
    """
    Functions and modules of PyTorch that are written in Python take other ways where functions are overridden, and then keep their arguments
    longer. Our mode alone is no reason for that.
    """
    disabled, deep = torch._C._disabled_torch_function_impl, getattr(torch._C, "_len_torch_function_stack", lambda: 2)

    def without_us(original, operands_of):
        def has(*given):
            if deep() > 1:
                return original(*given)
            return any(getattr(type(operand), "__torch_function__", disabled) is not disabled and type(operand) is not torch.Tensor
                       for operand in operands_of(given))
        return has

    for module in (torch.overrides, torch.functional, torch.nn.functional):
        for name, operands_of in (("has_torch_function", lambda given: given[0]), ("has_torch_function_unary", lambda given: given),
                                  ("has_torch_function_variadic", lambda given: given)):
            original = getattr(module, name, None)
            if original is not None:
                ours = without_us(original, operands_of)
                setattr(module, name, ours)
                # TorchScript knows them by their identity.
                torch.jit._builtins._register_builtin(ours, "aten::has_torch_function")


def install_reads(torch, told_times, counted, more):
    """For a device that computes small tensors itself: only numbers that it did not compute are looked at, which it tells while they are read."""
    reads, integers = _READS | {"cpu", "to"}, (torch.int64, torch.int32)

    class Reads(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", None) not in reads:
                return func(*args, **kwargs or {})
            before = told_times()
            value = reading(func, args, kwargs or {})
            integer = args[0].dtype in integers
            if told_times() == before:
                return value
            if isinstance(value, torch.Tensor) and not integer:
                if NUMBER and value.numel() <= ELEMENTS_MAX and value.is_floating_point():
                    value.detach().add_(NUMBER)
                return value
            counted(integer)
            if not more and not NUMBER:
                return value
            return value.add_(more) if isinstance(value, torch.Tensor) else changed_number(value, more)

    Reads().__enter__()
    _hide(torch)


def install(torch, library, *listeners):
    small, data = Small(torch, library, *listeners), torch.Tensor.data.__get__
    tracing, Tensor = torch._C._get_tracing_state, torch.Tensor

    class SmallTensors(torch.overrides.TorchFunctionMode):
        """The functions of PyTorch that lines of Python call, in this thread."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            name = getattr(func, "__name__", None)
            if name not in _NAMES:
                if name == "__get__" and func == data:
                    # It shares the values, and not the count.
                    small.forget(args[0])
                return func(*args, **kwargs or {})
            if not kwargs and args and isinstance(args[0], Tensor) and not args[0].is_cuda and name not in ("to", "cuda") or tracing() is not None:
                return func(*args, **kwargs or {})
            return small.handle(name, func, args, kwargs or {})

    SmallTensors().__enter__()
    _hide(torch)
