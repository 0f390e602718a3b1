"""Measures the difference between two trainers that trained equally on two devices."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

State = Mapping[str, Any]


def numbers(state: State, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors of real numbers in a saved state, with where they are, on the CPU in float64.

    The states of generators are tensors of bytes and left out: each kind of device has its own.
    """
    for key, value in state.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{key}/")
        elif isinstance(value, Tensor) and value.is_floating_point():
            yield f"{prefix}{key}", value.detach().cpu().double()


def deviations(reference: State, found: State, start: State) -> dict[str, float]:
    """Returns how far two states are apart, part by part.

    Of all numbers of a part together: the length of the difference, by the length of what training has changed in the
    reference. A number by number comparison would say more of numbers that are almost 0 than of the rest: Adam divides
    each gradient by its own size, so that one that is rounding alone moves its parameter as far as any other.

    Args:
        reference: Of the trainer on the CPU.
        found: Of the other one.
        start: Of both, before anything was learned.

    Raises:
        ValueError: They have different parts.
    """
    ours, theirs, first = (dict(numbers(state)) for state in (found, reference, start))
    if ours.keys() != theirs.keys():
        raise ValueError(f"the states differ in {', '.join(sorted(ours.keys() ^ theirs.keys()))}")
    parts: dict[str, list[str]] = {}
    for name in theirs:
        parts.setdefault(_part(name), []).append(name)
    result = {}
    for part, names in parts.items():
        apart = _length([ours[name] - theirs[name] for name in names])
        moved = _length([theirs[name] - first.get(name, torch.zeros(())) for name in names])
        result[part] = apart / moved if moved else apart
    return result


def _part(name: str) -> str:
    """Returns the first two levels of a name; each network is one part."""
    levels = name.split("/")
    return levels[0] if levels[0].startswith("network") else "/".join(levels[:2])


def _length(values: list[Tensor]) -> float:
    return float(torch.cat([value.reshape(-1) for value in values]).norm())
