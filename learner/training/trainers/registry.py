"""Builds trainers by the names that run files use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.extensions import TRAINERS
from learner.shared.settings.hyperparameters import OWN_TRAINERS
from learner.training.trainers.base import Trainer, TrainerContext


def own_trainers() -> dict[str, str]:
    """Returns the trainers that come with Rollcast, as ``module:class`` by name."""
    return {name: own.trainer for name, own in OWN_TRAINERS.items()}


def find(trainer_type: str, setting: str = "trainer_type") -> Callable[..., Any]:
    """Imports the trainer class for a name.

    Args:
        trainer_type: Name of a built-in trainer or of one in an installed package.
        setting: Setting with the name, for messages.

    Raises:
        UserError: No such trainer exists, or it cannot be imported.
    """
    return plugins.find(setting, trainer_type, TRAINERS, own_trainers())


def build(context: TrainerContext) -> Trainer:
    """Builds the trainer named in a behavior's settings: a built-in one or one of an installed package.

    Raises:
        UserError: No such trainer exists, or its settings do not fit the behavior.
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
            "learner/training/trainers/base.py",
        )
    return trainer
