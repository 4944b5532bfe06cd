"""A dispatch mode under which a step fails where the host would wait for the device."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.cuda.device import pinned

ASKING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount"}
ASKING |= {"_unique", "_unique2", "unique_dim", "unique_consecutive"}
"""Operators whose kernels ask the device for a number, such as the size of what they return."""
COPIES = {"_to_copy", "copy_"}


class HostWaits(AssertionError):
    """The host would wait for the device."""


class Watch(TorchDispatchMode):
    """Raise HostWaits at an operator that waits; count all operators with a tensor on the device, by name.

    `windows` counts the operators that may have a window, by name and window; (-1, -1) is no window.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.windows: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs, name = kwargs or {}, func._schema.name.split("::")[1]
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        if any(tensor.is_cuda for tensor in given) and (name in ASKING or asks(name, func, args, kwargs)):
            raise HostWaits(f"{name} asks the device for a number")
        out = func(*args, **kwargs)
        made = [value for value in tree_leaves(out) if isinstance(value, Tensor)]
        if any(tensor.is_cuda for tensor in given + made):
            self.counts[name] += 1
            names = [argument.name for argument in func._schema.arguments]
            if "window_size" in names:
                window = (dict(zip(names, args)) | kwargs).get("window_size")
                self.windows[name, tuple(window or (-1, -1))] += 1
            refuse_copies(name, args, kwargs, made)
        return out


def asks(name: str, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> bool:
    """Whether an operator asks the device for a number because of how it is called."""
    # A mask is turned into indices, whose number must be known.
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name == "segment_reduce":  # the lengths are checked
        return not kwargs.get("unsafe", False)
    return False


def refuse_copies(name: str, args: tuple, kwargs: dict[str, Any], made: list[Tensor]) -> None:
    """Raise HostWaits for a copy that waits, and for one to the device that is not from page-locked memory."""
    if name not in COPIES:
        return
    source, target = (args[1], args[0]) if name == "copy_" else (args[0], made[0])
    waits = not (kwargs.get("non_blocking", False) or name == "copy_" and args[2:] == (True,))
    if source.is_cuda and not target.is_cuda and waits:
        raise HostWaits(f"{name} of {tuple(source.shape)} from the device")
    if target.is_cuda and not source.is_cuda and (waits or all(source is not tensor for tensor in pinned)):
        raise HostWaits(f"{name} of {tuple(source.shape)} from pageable memory, or with a wait, to the device")
