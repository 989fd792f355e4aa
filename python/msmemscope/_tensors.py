# SPDX-License-Identifier: Apache-2.0
"""Where a tensor lies: what all code that tells the collector of tensors shares. Needs no framework to be imported."""
import sys

from ._api import C10_CPU as CPU, C10_CUDA as CUDA, C10_ASCEND as PRIVATE  # torch_npu's tensors are PrivateUse1

KINDS = {"cpu": CPU, "cuda": CUDA, "npu": PRIVATE, "privateuseone": PRIVATE}


def current_index(kind):
    """The device of that kind that this thread works with at the moment; 0 where the framework does not say, or uses none yet: to ask
    would make it ready, and children that are forked then could not use it."""
    try:
        module = getattr(sys.modules.get("torch"), kind)
        return module.current_device() if module.is_initialized() else 0
    except Exception:  # a framework that is only half there
        return 0


def device_number(device):
    """A torch.device as the collector takes it: c10's type above bit 8, its own number below. None: of a kind that is not known.

    A device without a number is the one that the thread works with now, so the answer must not be kept.
    """
    kind = KINDS.get(device.type)
    if kind is None:
        name = getattr(getattr(sys.modules.get("torch"), "_C", None), "_get_privateuse1_backend_name", None)
        if name is None or name() != device.type:
            return None
        kind = PRIVATE
    if kind == CPU:
        return kind
    return kind << 8 | (current_index(device.type) if device.index is None else device.index)


def used_device():
    """The accelerator that PyTorch uses; None: none so far."""
    torch = sys.modules.get("torch")
    for kind in ("npu", "cuda"):
        try:
            if getattr(torch, kind).is_initialized():
                return KINDS[kind] << 8 | current_index(kind)
        except Exception:  # not there, or only half
            continue
    return None


def present_device():
    """The accelerator that an address belongs to when the host cannot read it."""
    device, torch = used_device(), sys.modules.get("torch")
    if device is not None:
        return device
    # PyTorch uses none yet. Whether it was built for CUDA is known without asking the driver, which would begin.
    built_for_cuda = getattr(getattr(torch, "version", None), "cuda", None) is not None
    return (CUDA if built_for_cuda and not hasattr(torch, "npu") else PRIVATE) << 8


def is_tensor(value):
    return all(hasattr(value, name) for name in ("data_ptr", "element_size", "device"))


def extent(tensor):
    """Bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (last + 1) * tensor.element_size()
