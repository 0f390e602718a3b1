"""Pretends to be a device: computes on the CPU and finds what would fail or wait on a GPU.

`PRETENDED` is the CPU under another name. Inside `PretendedDevice` torch's functions remember which tensors were made on
it or taken to it, and follow the rules of a GPU: tensors of both sides do not meet in one operation, numpy sees none of
the device, and whoever reads a value from it waits.

What it cannot find: mistakes inside torch's own backward passes, generators of the wrong device, orders of streams, and
operations that a GPU lacks.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

PRETENDED: Final = torch.device("cpu", 0)

_READS: Final = frozenset(
    {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "is_nonzero", "equal", "allclose", "nonzero"}
    | {"unique", "masked_select", "argwhere"}
)
_FREE: Final = frozenset(
    {"__get__", "__set__", "_has_compatible_shallow_copy_type", "detach", "__repr__", "size", "stride"}
)
"""Neither compute nor read values."""
_FROM_DATA: Final = frozenset({"tensor", "as_tensor"})


class MixedDevicesError(RuntimeError):
    """An operation got tensors of the host and of the device."""


class WaitError(RuntimeError):
    """The host waits for the device where it must not."""


class PretendedDevice(TorchFunctionMode):
    """Pretends that `PRETENDED` is a separate device.

    Attributes:
        waits: How often the host would have waited, by the name of torch's function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: dict[str, int] = {}
        self._forbids = False

    @contextmanager
    def waits_are_errors(self) -> Iterator[None]:
        """Makes every wait inside the block raise."""
        before, self._forbids = self._forbids, True
        try:
            yield
        finally:
            self._forbids = before

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls a function of torch by the rules of the device."""
        given = dict(kwargs or {})
        name = getattr(func, "__name__", str(func))
        if func == torch.Tensor.device.__get__:
            return PRETENDED if is_there(args[0]) else func(*args)
        if func == torch.Tensor.data.__set__:  # type: ignore[attr-defined]
            func(*args)
            _mark(args[0], is_there(args[1]))
            return None
        if name in {"to", "cpu", "pin_memory", "numpy", "copy_"}:
            return getattr(self, f"_{name.strip('_')}")(func, *args, **given)
        if name == "lstm" and isinstance(args[1], Tensor) and args[1].dim() == 1:
            if is_there(args[1]):
                raise MixedDevicesError("the batch sizes of packed sequences must be on the host")
            return _marked(func(*args, **given), is_there(args[0]))
        return self._call(name, func, args, given)

    def _call(self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        tensors = [found for found in pytree.tree_leaves((args, kwargs)) if isinstance(found, Tensor)]
        there = [is_there(found) for found in tensors]
        if (
            name not in _FREE
            and any(there)
            and any(not found and one.dim() for one, found in zip(tensors, there, strict=True))
        ):
            shapes = [
                f"{list(one.shape)} {'device' if found else 'host'}" for one, found in zip(tensors, there, strict=True)
            ]
            raise MixedDevicesError(f"{name} was given tensors of both sides: {', '.join(shapes)}")
        if any(there) and (name in _READS or (name == "__getitem__" and _reads_an_index(args[1]))):
            self._wait(name)
        made_there = kwargs.get("device") == PRETENDED
        if made_there and name in _FROM_DATA:
            self._wait(name)
        return _marked(func(*args, **kwargs), any(there) or made_there)

    def _to(self, func: Callable[..., Any], tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Copies a tensor to the other side, in new memory."""
        if args and isinstance(args[0], Tensor):
            args = (torch.device(PRETENDED if is_there(args[0]) else "cpu"), args[0].dtype, *args[1:])
        device, _, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        goes_there = is_there(tensor) if device is None else device == PRETENDED
        found: Tensor = func(tensor, *args, **kwargs)
        if goes_there != is_there(tensor):
            if not (goes_there and non_blocking):
                self._wait("to")
            found = found.clone() if found is tensor else found
        _mark(found, goes_there)
        return found

    def _cpu(self, func: Callable[..., Any], tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not is_there(tensor):
            found: Tensor = func(tensor, *args, **kwargs)
            return found
        self._wait("cpu")
        return tensor.clone()

    def _pin_memory(self, func: Callable[..., Any], tensor: Tensor, *_: Any, **__: Any) -> Tensor:
        return tensor.clone()

    def _numpy(self, func: Callable[..., Any], tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        # On a CPU the ring itself is filled; a GPU has another way of staging.
        if is_there(tensor) and not sys._getframe(2).f_code.co_filename.endswith("staging.py"):
            raise MixedDevicesError("numpy cannot see a tensor on the device")
        return func(tensor, *args, **kwargs)

    def _copy(self, func: Callable[..., Any], target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        if is_there(target) != is_there(source) and not (non_blocking and is_there(target)):
            self._wait("copy_")
        func(target, source, non_blocking)
        return target

    def _wait(self, name: str) -> None:
        if self._forbids:
            raise WaitError(f"{name} waits for the device")
        self.waits[name] = self.waits.get(name, 0) + 1


def is_there(tensor: Tensor) -> bool:
    """Returns whether a tensor is on the pretended device."""
    return bool(getattr(tensor, "_is_there", False))


def _mark(tensor: Tensor, there: bool) -> None:
    tensor._is_there = there  # type: ignore[attr-defined]


def _marked(found: Any, there: bool) -> Any:
    if there:
        for each in pytree.tree_leaves(found):
            if isinstance(each, Tensor):
                _mark(each, there)
    return found


def _reads_an_index(index: Any) -> bool:
    """Returns whether a subscript reads a number or a mask of the device."""
    return any(
        isinstance(part, Tensor) and (part.dim() == 0 or part.dtype in {torch.bool, torch.uint8})
        for part in (index if isinstance(index, tuple) else (index,))
    )
