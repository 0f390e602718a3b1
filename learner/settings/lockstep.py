"""Lock-step: the settings of a run that can be repeated bit by bit, and what cannot go together with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Self

from pydantic import Field, field_validator, model_validator

from learner.settings.base import Path, PositiveWhole, SettingsModel, invalid, invalid_as_told
from learner.settings.hyperparameters import SACHyperparameters

if TYPE_CHECKING:
    from learner.settings.options import RunOptions
    from learner.settings.trainer import TrainerSettings

MAX_ACTORS: Final = 4096
MAX_QUOTA_STEPS: Final = 2**31 - 1
MAX_NAME_CHARACTERS: Final = 256
REPEATABLE_TRAINERS: Final = frozenset({"ppo", "appo", "impala", "sac"})
"""Trainers that make of a round what follows from it alone: one update of all of it, or all updates that it owes."""


class LockstepSettings(SettingsModel):
    """One barrier over all behaviors: every round takes the same steps of the same actors, in the same order."""

    actors: PositiveWhole = Field(
        default=1, le=MAX_ACTORS, description="actors of a round, with the indices 0, 1, ...; training waits for all"
    )
    actor_names: tuple[str, ...] | None = Field(
        default=None, description="their names (--name) in the order of their indices; null goes by who came first"
    )
    quota_steps: PositiveWhole | None = Field(
        default=None,
        le=MAX_QUOTA_STEPS,
        description="steps each agent takes in a round, which is one update; null takes just enough to pass buffer_size (sac: time_horizon)",
    )
    checkpoint_updates: PositiveWhole = Field(
        default=50,
        le=MAX_QUOTA_STEPS,
        description="rounds between recovery checkpoints; environments begin anew at each",
    )

    @field_validator("actor_names")
    @classmethod
    def _names_of_actors(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if not 1 <= len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
                raise invalid(f"must be names of 1 to {MAX_NAME_CHARACTERS} printable characters")
        if value is not None and len(set(value)) != len(value):
            raise invalid("must be names of which no two are the same")
        return value

    @model_validator(mode="after")
    def _as_many_names(self) -> Self:
        if self.actor_names is not None and len(self.actor_names) != self.actors:
            raise invalid_as_told(
                f"actor_names has {len(self.actor_names)} names for {self.actors} actors: give each actor one, or leave "
                "actor_names out"
            )
        return self


def conflicts(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields what keeps a run in lock-step from being repeatable: the path of a setting, and what to do about it."""
    if options.rollcast.lockstep is None:
        return
    if options.rollcast.evaluation.interval_steps is not None:
        yield (
            ("rollcast", "evaluation"),
            "an evaluation takes actors out of the rounds: evaluate the checkpoints instead",
        )
    if options.checkpoint_settings.inference:
        yield ("checkpoint_settings", "inference"), "nothing is trained under it, in lock-step or otherwise: remove one"
    named: list[tuple[Path, TrainerSettings]] = [
        (("behaviors", name), settings) for name, settings in options.behaviors.items()
    ]
    if options.default_settings is not None:
        named.append((("default_settings",), options.default_settings))
    for path, settings in named:
        yield from _of_behavior(path, settings)
    if options.rollcast.device_ring_steps is not None:
        yield (
            ("rollcast", "device_ring_steps"),
            "a ring of fixed size may be too small for a round of rollcast.lockstep: remove it, the ring then grows",
        )


def _of_behavior(path: Path, settings: TrainerSettings) -> Iterator[tuple[Path, str]]:
    if settings.threaded:
        text = "is true, and rollcast.lockstep takes turns: set it to false, or remove rollcast.lockstep"
        yield (*path, "threaded"), text
    if settings.trainer_type not in REPEATABLE_TRAINERS:
        known = ", ".join(sorted(REPEATABLE_TRAINERS))
        text = f"{settings.trainer_type} cannot be trained in lock-step, only {known}: take one, or remove rollcast.lockstep"
        yield (*path, "trainer_type"), text


def cautions(options: RunOptions) -> Iterator[tuple[Path, str]]:
    """Yields what can go together with lock-step, and should be known."""
    if options.rollcast.lockstep is None:
        return
    if options.env_settings.seed < 0:
        yield (
            ("env_settings", "seed"),
            "is not set, so that each new run in lock-step draws another one: set it, or runs will differ",
        )
    named: list[tuple[Path, TrainerSettings]] = [
        (("behaviors", name), settings) for name, settings in options.behaviors.items()
    ]
    if options.default_settings is not None:
        named.append((("default_settings",), options.default_settings))
    for path, settings in named:
        hyper = settings.hyperparameters
        if isinstance(hyper, SACHyperparameters) and not hyper.save_replay_buffer:
            text = "is false: a run in lock-step that is stopped and resumed repeats itself with its replay memory only; set it"
            yield (*path, "hyperparameters", "save_replay_buffer"), f"{text} to true, unless the run is never stopped"


def explanation(options: RunOptions) -> list[str]:
    """Returns what lock-step makes of a run, for people; nothing where it is off."""
    lockstep = options.rollcast.lockstep
    if lockstep is None:
        return []
    names = "" if lockstep.actor_names is None else f" ({', '.join(lockstep.actor_names)})"
    quota = (
        "as many steps as pass buffer_size (sac: time_horizon)"
        if lockstep.quota_steps is None
        else f"{lockstep.quota_steps} steps"
    )
    lines = (
        f"training waits for {lockstep.actors} actors{names}; in each round every agent takes {quota}",
        "one update trains all steps of a round (sac: it makes all updates that they owe); checkpoint_seconds, max_policy_lag and on_policy have no effect",
        f"every {lockstep.checkpoint_updates} rounds the run is saved and all environments begin anew; a restart goes on there",
        "torch works with deterministic algorithms, and with one thread unless torch_threads says otherwise",
    )
    return [f"lock-step: {line}" for line in lines]
