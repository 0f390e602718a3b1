"""The trainers there are, by the names that run files use."""

from __future__ import annotations

from learner.exits import ExitCode, UserError
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.base import Trainer
from learner.trainers.context import TrainerContext
from learner.trainers.impala.trainer import IMPALATrainer
from learner.trainers.ppo.trainer import PPOTrainer

_TRAINERS: dict[str, type[Trainer]] = {"appo": APPOTrainer, "impala": IMPALATrainer, "ppo": PPOTrainer}


def own_trainers() -> frozenset[str]:
    """Returns the names of the trainers that come with Rollcast."""
    return frozenset(_TRAINERS)


def build(context: TrainerContext) -> Trainer:
    """Builds the trainer that the settings of a behavior name.

    Raises:
        UserError: there is no such trainer, or its settings do not fit the behavior.
    """
    trainer_type = context.behavior.settings.trainer_type
    kind = _TRAINERS.get(trainer_type)
    if kind is None:
        known = ", ".join(sorted(_TRAINERS))
        raise UserError(
            ExitCode.RUN_FILE,
            f"behaviors.{context.behavior.name}.trainer_type is {trainer_type!r}; trainers that exist: {known}",
        )
    return kind(context)
