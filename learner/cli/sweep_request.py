"""Defines what a sweep is asked for: the spaces in which it samples settings, its terms, and its result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from optuna import Trial

FINAL, BEST, TARGET_STEPS = "final", "best", "target-steps"
"""Objectives."""
PRUNERS: Final = ("median", "hyperband", "none")


@dataclass(frozen=True, slots=True)
class Space:
    """The values of a setting.

    Attributes:
        kind: ``log``, ``uniform``, ``int`` or ``choice``.
        low: Smallest number.
        high: Largest number.
        step: Distance of whole numbers.
        values: The choice.
    """

    kind: str
    low: float = 0.0
    high: float = 0.0
    step: int = 1
    values: tuple[bool | int | float | str | None, ...] = ()

    def sample(self, trial: Trial, name: str) -> Any:
        """Returns a value for a trial."""
        if self.kind == "choice":
            return trial.suggest_categorical(name, self.values)
        if self.kind == "int":
            return trial.suggest_int(name, int(self.low), int(self.high), step=self.step)
        return trial.suggest_float(name, self.low, self.high, log=self.kind == "log")

    def __str__(self) -> str:
        if self.kind == "choice":
            return f"choice:{json.dumps(self.values)[1:-1]}"
        return f"{self.kind}:{self.low:g}:{self.high:g}{f':{self.step}' if self.kind == 'int' else ''}"


@dataclass(frozen=True, slots=True)
class Request:
    """A sweep.

    Attributes:
        command: Command of a trial: ``train`` with actors of its own, or ``serve`` for actors elsewhere.
        words: Its arguments.
        last_words: Arguments that must follow all others.
        folder: Folder of the study; its name is that of the study.
        space: Space of each setting, by its name.
        trials: Trials of the study.
        parallel: Trials at once.
        objective: `FINAL`, `BEST` or `TARGET_STEPS`.
        pruner: One of `PRUNERS`.
        behavior: Behavior whose returns count; None for the first.
        seed: Seed of the samples; None for another one each time.
        is_forced: Whether to start over.
        address: Address of the learner of ``serve``; those of parallel trials follow. None for trials with their own actors.
    """

    command: str
    words: Sequence[str]
    last_words: Sequence[str]
    folder: Path
    space: Mapping[str, Space]
    trials: int
    parallel: int
    objective: str
    pruner: str
    behavior: str | None
    seed: int | None
    is_forced: bool
    address: str | None

    @property
    def terms(self) -> dict[str, object]:
        """What all trials of a study share."""
        return {"objective": self.objective, "space": {name: str(space) for name, space in self.space.items()}}


@dataclass(frozen=True, slots=True)
class Study:
    """The result of a sweep.

    Attributes:
        folder: Its folder, with a run folder for each trial.
        best_settings: Settings of the best trial, by the names of the spaces; empty if no trial has ended.
        best_value: Its objective: a mean return, or steps.
        best_run: Its run folder.
        importance: Share of each setting in reaching the best tenth of the objective, by PED-ANOVA; empty before four trials have ended.
        trials: Arrays ``[N]`` by column, with a row for each trial: ``number``, ``state``, ``value``, ``run``, and each setting.
            ``pandas.DataFrame(study.trials)`` is their table.
    """

    folder: Path
    best_settings: Mapping[str, Any]
    best_value: float | None
    best_run: Path | None
    importance: Mapping[str, float]
    trials: Mapping[str, NDArray[Any]]


def space_of(text: str) -> tuple[str, Space]:
    """Returns the setting and the space of ``KEY=SPACE``.

    Raises:
        ValueError: It has another form.
    """
    name, _, spec = text.partition("=")
    kind, _, values = spec.partition(":")
    try:
        if not name.strip():
            raise ValueError("it names no setting")
        return name.strip(), _parsed(kind, values)
    except ValueError as error:
        raise ValueError(
            f"{text!r}: {error}; the form is KEY=log:LOW:HIGH, uniform:LOW:HIGH, int:LOW:HIGH[:STEP] or choice:A,B,C"
        ) from None


def _parsed(kind: str, text: str) -> Space:
    """Returns a space.

    Raises:
        ValueError: It is none.
    """
    if kind == "choice":
        return Space(kind, values=_choices(text))
    if kind not in {"log", "uniform", "int"}:
        raise ValueError(f"there is no space {kind!r}")
    number: Callable[[str], float] = int if kind == "int" else float
    low, high, *more = map(number, text.split(":"))
    if not -math.inf < low < high < math.inf:
        raise ValueError(f"{low:g} is not below {high:g}")
    if kind == "log" and low <= 0:
        raise ValueError(f"log needs a number above 0, not {low:g}")
    step = int(more[0]) if more and kind == "int" else 1
    if step < 1 or len(more) > (kind == "int"):
        raise ValueError("the step is a number from 1 on, of int alone")
    return Space(kind, low, high, step)


def _choices(text: str) -> tuple[bool | int | float | str | None, ...]:
    """Returns the values of a choice: a list of JSON without its brackets, or words, of which those in JSON's form are values."""
    try:
        found = json.loads(f"[{text}]")
    except ValueError:
        found = [_value(word.strip()) for word in text.split(",")]
    if not all(each is None or isinstance(each, bool | int | float | str) for each in found):
        raise ValueError("a choice is of numbers, words, true, false or null")
    if len({json.dumps(each) for each in found}) < max(2, len(found)):
        raise ValueError("a choice has two or more different values")
    return tuple(found)


def _value(word: str) -> object:
    try:
        return json.loads(word)
    except ValueError:
        return word
