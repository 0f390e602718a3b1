"""The trainers there are, by the names that run files use."""

from __future__ import annotations

from learner.common import plugins
from learner.common.exits import ExitCode, UserError
from learner.settings.extensions import TRAINERS
from learner.trainers.appo.trainer import APPOTrainer
from learner.trainers.base import Trainer
from learner.trainers.context import TrainerContext
from learner.trainers.impala.trainer import IMPALATrainer
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.sac.trainer import SACTrainer

_TRAINERS: dict[str, type[Trainer]] = {
    "appo": APPOTrainer,
    "impala": IMPALATrainer,
    "ppo": PPOTrainer,
    "sac": SACTrainer,
}


def own_trainers() -> frozenset[str]:
    """Returns the names of the trainers that come with Rollcast."""
    return frozenset(_TRAINERS)


def build(context: TrainerContext) -> Trainer:
    """Builds the trainer that the settings of a behavior name: one of ours, or an installed package's.

    Raises:
        UserError: there is no such trainer, or its settings do not fit the behavior.
    """
    trainer_type = context.behavior.settings.trainer_type
    setting = f"behaviors.{context.behavior.name}.trainer_type"
    kind = plugins.find(setting, trainer_type, TRAINERS, _TRAINERS)
    if trainer_type in _TRAINERS:
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
