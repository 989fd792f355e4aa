# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own callback for observers: operators are seen in C, on every thread, and the program is not changed.

What the collector needs of PyTorch lies in objects whose layout differs by version. It is searched for on a few tensors of ours, whose
facts are told here; none of them allocates memory. docs/decisions/0025-operators-by-callback.md has the whole story.
"""
import array
import ctypes

import torch

from ._native import collector

_META = 14  # c10's number of the device whose tensors have no memory
_WRAPPERS = ("Python", "FuncTorchBatched", "BatchedNestedTensor", "FuncTorchGradWrapper", "Functionalize", "Batched")
_UNREADABLE = ("NestedTensor",)
_PLAIN_KEYS = ("Python", "Functionalize", "Conjugate", "Negative", "ZeroTensor", "ADInplaceOrView", "PythonTLSSnapshot")

_state = None  # None: not tried yet; "": it works; else why not


_key = getattr(torch._C, "_parse_dispatch_key", None) or torch._C._dispatch_key_parse  # by its name; PyTorch 2.1 has the latter


def _bits(keys):
    """Bits of a set of dispatch keys as a tensor has them; None before PyTorch told them."""
    return keys.raw_repr() if hasattr(keys, "raw_repr") else None


def _keys(names):
    """The same of keys by their names; those that this PyTorch does not have are left out."""
    bits = 0
    for name in names:
        try:
            key = _key(name)
        except Exception:
            continue
        # The bits of 15 backends come first; tensors are searched for exactly these bits.
        one = _bits(torch._C.DispatchKeySet(key))
        bits |= 1 << (15 + int(key) - 1) if one is None else one
    return bits


def _backend(name):
    """The bit that tensors of a kind of device have in common; 0: unknown."""
    try:
        keys = [torch._C.DispatchKeySet(_key(kind + name)).raw_repr() for kind in ("", "Sparse")]
    except Exception:
        return 0
    return keys[0] & keys[1]


def _told_keys():
    """Dispatch keys in the order of enum torch_key."""
    backends = [_backend(name) for name in ("CPU", "CUDA", "PrivateUse1", "Meta")]
    known = all(bit and not bit & bit - 1 for bit in backends)
    return array.array("Q", (int(_key("CompositeImplicitAutograd")), _keys(_WRAPPERS), _keys(_UNREADABLE),
                             *(_keys((name,)) for name in ("Python", "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode")),
                             *((2 * backends[3] - 1, *backends[:3]) if known else (0, 0, 0, 0))))


class _Wrapper(torch.Tensor):
    """Stands for another tensor."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def _tell(tensor, device, flags=0, told=0):
    """Device: c10's number of its type. Flags: enum torch_flag of objects.h, and which of them are told."""
    keys = torch._C._dispatch_keys(tensor)
    bits, mask = _bits(keys), (1 << 64) - 1
    if bits is None:
        mask = _keys(_PLAIN_KEYS)
        bits = _keys(name for name in _PLAIN_KEYS if keys.has(_key(name)))
    # Storages of wrappers are no more than a name.
    storage = None if isinstance(tensor, _Wrapper) else tensor.untyped_storage()
    facts = array.array("Q", (tensor._cdata, 0 if storage is None else storage._cdata, 0 if storage is None else storage.data_ptr(),
                              tensor.storage_offset(), tensor.numel(), bits, mask, device, tensor.element_size(), flags, told, tensor.dim(),
                              *tensor.shape, *tensor.stride()))
    collector.mscope_torch_tensor(facts.buffer_info()[0], len(facts), str(tensor.dtype).encode())


def _tell_tensors():
    memory = bytearray(4 * 4096)
    flat = torch.frombuffer(memory, dtype=torch.float32)
    types = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    for dtype in sorted(types, key=str):
        # PyTorch warns of some when they are used first; that would be the program's.
        if dtype is not torch.complex32 and not str(dtype).startswith(("torch.q", "torch.bits")):
            _tell(torch.empty((), dtype=dtype, device="meta"), _META)
    for tensor in (flat.as_strided((3, 5, 7), (101, 13, 1), 11), flat.as_strided((2, 3, 2, 3, 2, 3), (401, 131, 53, 17, 7, 2), 23),
                   flat.view(torch.int64).as_strided((19, 17), (29, 1), 37)):
        _tell(tensor, 0)
    for shape, layout, flags in (((9, 4), torch.contiguous_format, 65), ((2, 3, 4, 5), torch.channels_last, 4 + 8 + 64),
                                 ((2, 3, 4, 5, 6), torch.channels_last_3d, 16 + 32 + 64)):
        _tell(torch.empty(shape, dtype=torch.float64, device="meta", memory_format=layout), _META, flags, 253)
    wrappers = [torch.Tensor._make_wrapper_subclass(_Wrapper, (3, 2)) for _ in range(4)]
    for wrapper in wrappers:
        _tell(wrapper, 0)


def _schemas():
    """Of all operators, as text."""
    lines = []
    for schema in torch._C._jit_get_all_schemas():
        line, name = str(schema), schema.name
        if name.endswith("_") and name.startswith("aten::"):
            tags = torch._C._get_operation_overload(name, schema.overload_name)[-1]
            if torch.Tag.inplace_view in tags:
                line = "-" + line
        lines.append(line)
    return "\n".join(lines).encode()


def _try():
    first, second = (torch.empty((0, 4), dtype=torch.int64, device="cpu") for _ in range(2))  # no memory at all
    keys = _told_keys()
    if collector.mscope_torch_open(first._cdata, second._cdata, keys.buffer_info()[0]) != 0:
        return "its functions"
    missing = ctypes.create_string_buffer(64)
    try:
        first.neg_()  # without inputs
        _tell_tensors()
        first.add_(second)
        torch.cat([first, second])
        first[:, second]  # pylint: disable=pointless-statement
        first.reshape(0)
        torch.empty_like(first, device="meta")
        collector.mscope_torch_schemas(_schemas())
    finally:
        failed = collector.mscope_torch_check(missing, len(missing))
    return missing.value.decode() or "something" if failed else ""


def why_not():
    """"" when operators can be seen this way, else what was not found. Tried once."""
    global _state
    if _state is None:
        try:
            with torch.no_grad(), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                _state = _try()
        except Exception as error:
            _state = f"{type(error).__name__}: {error}"
    return _state


def refresh():
    """There may be more operators."""
    if _state == "":
        collector.mscope_torch_schemas(_schemas())


def _device_count():
    """Of the kind that has most. Asked after the program has set them up: before, asking would do so, and forked children could not."""
    counts = [getattr(torch._C, "_cuda_getDeviceCount", None), getattr(getattr(torch, "npu", None), "device_count", None)]
    try:
        return max((count() for count in counts if count is not None), default=0)
    except Exception:
        return 2  # unknown


def observe(what, devices=False):
    """WANTS_OPS and WANTS_ACCESS; 0: nothing. `devices`: the program has set up those that it sees."""
    if _state == "":
        collector.mscope_torch_observe(what, what != 0 and (not devices or _device_count() <= 1))
