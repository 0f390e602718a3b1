"""Draws the same random numbers on every device.

A CUDA generator and a CPU generator of one seed draw different numbers, so that two devices would learn from different
minibatches. Inside `HostRandom` every draw from a generator comes from its twin on the host, and is then taken to where
it was asked for. Trainers notice nothing of it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class HostRandom(TorchFunctionMode):
    """Draws the numbers of every generator on the host, from a twin of the generator's seed."""

    def __init__(self) -> None:
        super().__init__()
        self._twins: dict[int, tuple[torch.Generator, torch.Generator]] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Calls a function of torch; of one that draws, with a twin."""
        given = dict(kwargs or {})
        generator = given.get("generator")
        if not isinstance(generator, torch.Generator):
            return func(*args, **given)
        device = given.pop("device", None)
        found = func(*args, **{**given, "generator": self._twin(generator)})
        return found if device is None else found.to(device)

    def _twin(self, generator: torch.Generator) -> torch.Generator:
        # The generator is kept next to its twin: otherwise another one could get its id.
        if id(generator) not in self._twins:
            self._twins[id(generator)] = generator, torch.Generator().manual_seed(generator.initial_seed())
        return self._twins[id(generator)][1]
