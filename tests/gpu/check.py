"""What a check of the GPU suite is: something that must hold on a device as it does on a CPU, or a figure of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True, slots=True)
class Setup:
    """What a check is given.

    Attributes:
        device: where it looks.
        folder: for its files; empty and its own.
        rounds: how often a speed is measured.
        seconds: how long each time, at least.
        shrinks: whether trainings are too short to learn anything, so that only their way is tried.
    """

    device: torch.device
    folder: Path
    rounds: int = 5
    seconds: float = 5.0
    shrinks: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a check found.

    Attributes:
        held: whether it is as it must be; a measurement alone always holds.
        text: one line, the most important figure first.
        figures: numbers, for the JSON file.
    """

    held: bool
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        name: one word, for the command line.
        asks: what must hold, or what is measured.
        run: looks.
    """

    name: str
    asks: str
    run: Callable[[Setup], Outcome]
