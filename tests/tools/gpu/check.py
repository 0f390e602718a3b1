"""Defines a check of the GPU suite: a property of the device, or a measured figure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Setup:
    """The inputs of a check.

    Attributes:
        device: Where it looks.
        folder: For its files; empty and its own.
        rounds: How often a speed is measured.
        seconds: How long each time, at least.
        shrinks: Whether trainings are too short to learn anything, so that only their way is tried.
    """

    device: torch.device
    folder: Path
    rounds: int = 5
    seconds: float = 5.0
    shrinks: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check.

    Attributes:
        held: Whether it is as it must be; a measurement alone always holds.
        text: One line, the most important figure first.
        figures: Numbers, for the JSON file.
    """

    held: bool
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One check."""

    name: str
    asks: str
    run: Callable[[Setup], Outcome]
