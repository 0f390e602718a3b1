"""Hyperparameters of each kind of trainer, and the table that says which kinds there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal

from pydantic import Field

from learner.settings.base import NonNegativeReal, PositiveReal, PositiveWhole, Real, Schedule, SettingsModel


class HyperparameterSettings(SettingsModel):
    """What every trainer's hyperparameters have; defaults are those of ML-Agents' PPO."""

    removed_keys: ClassVar[Mapping[str, str]] = {"gamma": "belongs under reward_signals.extrinsic"}

    batch_size: PositiveWhole = Field(default=1024, description="steps in one minibatch")
    buffer_size: PositiveWhole = Field(default=10240, description="steps collected before an update")
    learning_rate: PositiveReal = Field(default=3e-4, description="Adam's step size at the start")
    learning_rate_schedule: Schedule = Field(
        default="linear", description="linear to 1e-10 over max_steps, or constant"
    )


def _schedule_of_learning_rate(values: dict[str, object]) -> Schedule:
    """Copies the learning rate's schedule, whose default is the default of the others too."""
    return "constant" if values.get("learning_rate_schedule") == "constant" else "linear"


class PPOHyperparameters(HyperparameterSettings):
    """PPO (Schulman et al. 2017, arXiv:1707.06347) with ML-Agents' keys and defaults, and a few keys of Rollcast."""

    beta: NonNegativeReal = Field(default=5e-3, description="weight of the entropy bonus")
    epsilon: PositiveReal = Field(default=0.2, description="clipping range of the ratio")
    lambd: Real = Field(default=0.95, ge=0, le=1, description="lambda of generalized advantage estimation")
    num_epoch: PositiveWhole = Field(default=3, description="passes over the buffer in one update")
    shared_critic: bool = Field(default=False, description="one body for policy and values")
    beta_schedule: Schedule = Field(
        default_factory=_schedule_of_learning_rate, description="linear to 1e-5, or constant"
    )
    epsilon_schedule: Schedule = Field(
        default_factory=_schedule_of_learning_rate, description="linear to 0.1, or constant"
    )
    max_grad_norm: PositiveReal | None = Field(
        default=None, description="largest norm of a gradient; null does not clip"
    )
    ratio: Literal["per_action", "joint"] = Field(
        default="per_action", description="clip the ratio of each action factor (as ML-Agents) or of the whole action"
    )
    adam_epsilon: PositiveReal = Field(default=1e-8, description="Adam's epsilon")


HYPERPARAMETERS: Mapping[str, type[HyperparameterSettings]] = MappingProxyType({"ppo": PPOHyperparameters})
"""Hyperparameter model of each trainer type. A new trainer adds one entry."""


def unknown_trainer_message(trainer_type: str) -> str:
    """Says which trainer types there are, for a name that is not one of them."""
    known = ", ".join(sorted(HYPERPARAMETERS))
    return f"there is no trainer {trainer_type!r}; trainers that exist: {known}"
