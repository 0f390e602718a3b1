"""Builds trainers by the names that run files use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from learner.common import plugins
from learner.common.exits import ExitCode, UserError
from learner.settings.extensions import TRAINERS
from learner.settings.hyperparameters import OWN_TRAINERS
from learner.trainers.base import Trainer, TrainerContext


def own_trainers() -> dict[str, str]:
    """Returns the trainers that come with Rollcast, as ``module:class`` by name."""
    return {name: own.trainer for name, own in OWN_TRAINERS.items() if own.trainer is not None}


def find(trainer_type: str, setting: str = "trainer_type") -> Callable[..., Any]:
    """Imports what the name of a trainer stands for.

    Args:
        trainer_type: one of ours, or of an installed package.
        setting: where the name stands, for messages.

    Raises:
        UserError: there is no such trainer, or it cannot be imported.
    """
    return plugins.find(setting, trainer_type, TRAINERS, own_trainers())


def build(context: TrainerContext) -> Trainer:
    """Builds the trainer that the settings of a behavior name: one of ours, or an installed package's.

    Raises:
        UserError: there is no such trainer, or its settings do not fit the behavior.
    """
    trainer_type = context.behavior.settings.trainer_type
    setting = f"behaviors.{context.behavior.name}.trainer_type"
    kind = find(trainer_type, setting)
    if trainer_type in own_trainers():
        trainer: Trainer = kind(context)
        return trainer
    trainer = plugins.make(setting, trainer_type, lambda: kind(context))
    if not isinstance(trainer, Trainer):
        raise UserError(
            ExitCode.RUN_FILE,
            f"{setting} names {trainer_type!r}, which makes {type(trainer).__name__}: it must be a Trainer, see "
            "learner/trainers/base.py",
        )
    return trainer
