"""Hyperparameters of each kind of trainer, and the table that says which kinds there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from learner.settings.base import (
    Fraction,
    NonNegativeReal,
    NonNegativeWhole,
    PositiveReal,
    PositiveWhole,
    Real,
    Schedule,
    SettingsModel,
    invalid_as_told,
)
from learner.settings.extensions import TRAINERS, built, declared, settings_model
from learner.settings.problems import did_you_mean

MAX_EPSILON = 1e6
"""Wider than any ratio, and 1 + epsilon is still a number of single precision."""
MIN_STEPS_PER_UPDATE = 1e-6
MAX_STEPS_PER_UPDATE = 1e9
"""Between these the steps and updates that are owed stay whole numbers of 64 bits."""
MAX_UPDATE_DEBT = 10**9
MAX_SIGNAL_UPDATES = 1000
"""Of the reward signals beside one of the policy: a stop of the learner waits for the end of an update."""


class HyperparameterSettings(SettingsModel):
    """What every trainer's hyperparameters have; defaults are those of ML-Agents' PPO."""

    removed_keys: ClassVar[Mapping[str, str]] = {"gamma": "belongs under reward_signals.extrinsic"}

    @classmethod
    def hint_for(cls, key: str) -> str | None:
        """Names the trainers that have a hyperparameter which this one lacks."""
        owners = [
            name for name, model in HYPERPARAMETERS.items() if name in BUILT_TRAINERS and key in model.model_fields
        ]
        named = " and ".join(part for part in (", ".join(owners[:-1]), *owners[-1:]) if part)
        return f"it is a hyperparameter of {named}" if owners else None

    batch_size: PositiveWhole = Field(default=1024, description="steps in one minibatch")
    buffer_size: PositiveWhole = Field(default=10240, description="steps collected before an update")
    learning_rate: NonNegativeReal = Field(default=3e-4, description="Adam's step size at the start")
    learning_rate_schedule: Schedule = Field(
        default="linear", description="linear to 1e-10 over max_steps, or constant"
    )

    @property
    def part_steps(self) -> int:
        """Steps of a minibatch that are computed at once."""
        return self.batch_size


def _schedule_of_learning_rate(values: dict[str, object]) -> Schedule:
    """Copies the learning rate's schedule, whose default is the default of the others too."""
    return "constant" if values.get("learning_rate_schedule") == "constant" else "linear"


class AccumulatingHyperparameters(HyperparameterSettings):
    """What trainers share that can compute a minibatch in parts."""

    gradient_accumulation: PositiveWhole = Field(
        default=1, description="parts that a minibatch is computed in, one after another, where it does not fit at once"
    )

    @model_validator(mode="after")
    def _parts_are_whole(self) -> Self:
        if self.batch_size % self.gradient_accumulation:
            raise invalid_as_told(
                f"batch_size {self.batch_size} cannot be divided into gradient_accumulation "
                f"{self.gradient_accumulation} equal parts: change the one or the other"
            )
        return self

    @property
    def part_steps(self) -> int:
        """Steps of a minibatch that are computed at once."""
        return self.batch_size // self.gradient_accumulation


class ActorCriticHyperparameters(AccumulatingHyperparameters):
    """What the trainers with one actor and one critic share: ML-Agents' keys and defaults, and some of Rollcast."""

    beta: NonNegativeReal = Field(default=5e-3, description="weight of the entropy bonus")
    num_epoch: PositiveWhole = Field(
        default=3, description="passes over the buffer in one update, which a stop of the learner waits for"
    )
    beta_schedule: Schedule = Field(
        default_factory=_schedule_of_learning_rate, description="linear to 1e-5, or constant"
    )
    max_grad_norm: PositiveReal | None = Field(
        default=None, description="largest norm of a gradient; null does not clip"
    )
    ratio: Literal["per_action", "joint"] = Field(
        default="per_action", description="clip the ratio of each action factor (as ML-Agents) or of the whole action"
    )
    adam_epsilon: PositiveReal = Field(default=1e-8, description="Adam's epsilon")


class OnPolicyHyperparameters(ActorCriticHyperparameters):
    """What ``ppo`` and ``poca`` share."""

    epsilon: PositiveReal = Field(default=0.2, le=MAX_EPSILON, description="clipping range of the ratio")
    lambd: Real = Field(default=0.95, ge=0, le=1, description="lambda of generalized advantage estimation")
    epsilon_schedule: Schedule = Field(
        default_factory=_schedule_of_learning_rate, description="linear to 0.1, or constant"
    )


class SharedCriticHyperparameters(ActorCriticHyperparameters):
    """What the trainers have whose critic may be a head on the policy's body."""

    shared_critic: bool = Field(default=False, description="one body for policy and values")


class PPOHyperparameters(SharedCriticHyperparameters, OnPolicyHyperparameters):
    """PPO (Schulman et al. 2017, arXiv:1707.06347)."""


class POCAHyperparameters(OnPolicyHyperparameters):
    """MA-POCA (Cohen et al. 2022, arXiv:2111.05992); its critic sees the whole group and shares nothing."""


class VTraceHyperparameters(SharedCriticHyperparameters):
    """What ``appo`` and ``impala`` share: trainers whose experience may be many versions old."""

    ratio: Literal["per_action", "joint"] = Field(
        default="joint", description="take the ratio of the whole action, or of each action factor (as ML-Agents' ppo)"
    )
    rho_bar: PositiveReal = Field(default=1.0, description="largest ratio in the temporal differences of V-trace")
    c_bar: PositiveReal = Field(default=1.0, description="largest ratio in the traces of V-trace; at most rho_bar")

    @model_validator(mode="after")
    def _traces_are_truncated_first(self) -> Self:
        if self.c_bar > self.rho_bar:
            raise invalid_as_told(
                f"c_bar is {self.c_bar:g}, more than rho_bar {self.rho_bar:g}: V-trace converges with c_bar of at most "
                "rho_bar; lower the one or raise the other"
            )
        return self


class APPOHyperparameters(VTraceHyperparameters, OnPolicyHyperparameters):
    """Asynchronous PPO: the defaults of ``ppo``, but for the ratio."""

    lambd: Fraction = Field(default=0.95, description="lambda of V-trace")


class IMPALAHyperparameters(VTraceHyperparameters):
    """The V-trace actor-critic (Espeholt et al. 2018, arXiv:1802.01561)."""

    batch_size: PositiveWhole = Field(default=256, description="steps in one minibatch")
    buffer_size: PositiveWhole = Field(default=2048, description="steps collected before an update")
    num_epoch: PositiveWhole = Field(default=1, description="passes over the buffer in one update")
    lambd: Fraction = Field(default=0.95, description="lambda of V-trace")
    max_grad_norm: PositiveReal | None = Field(
        default=0.5, description="largest norm of a gradient; null does not clip"
    )


def _steps_per_update(values: dict[str, object]) -> float:
    """Copies ``steps_per_update``, which the reward signals follow unless they have their own."""
    steps = values.get("steps_per_update")
    return float(steps) if isinstance(steps, int | float) else 1.0


class SACHyperparameters(AccumulatingHyperparameters):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) with ML-Agents' keys and defaults."""

    batch_size: PositiveWhole = Field(default=128, description="steps in one minibatch")
    buffer_size: PositiveWhole = Field(default=50000, description="steps the replay memory holds")
    learning_rate_schedule: Schedule = Field(
        default="constant", description="linear to 1e-10 over max_steps, or constant"
    )
    buffer_init_steps: NonNegativeWhole = Field(default=0, description="steps collected before the first update")
    tau: Fraction = Field(default=0.005, description="share of the newest values in the target network")
    steps_per_update: Real = Field(
        default=1.0, ge=MIN_STEPS_PER_UPDATE, le=MAX_STEPS_PER_UPDATE, description="steps collected for each update"
    )
    save_replay_buffer: bool = Field(default=False, description="keep the replay memory over a restart")
    init_entcoef: NonNegativeReal = Field(default=1.0, description="entropy coefficient at the start")
    reward_signal_steps_per_update: Real = Field(
        default_factory=_steps_per_update,
        ge=MIN_STEPS_PER_UPDATE,
        le=MAX_STEPS_PER_UPDATE,
        description="steps for each update of the reward signals",
    )
    max_update_debt: NonNegativeWhole | None = Field(
        default=None,
        le=MAX_UPDATE_DEBT,
        description="updates that may be owed when more steps are taken in; null: those of one chunk",
    )
    max_grad_norm: PositiveReal | None = Field(
        default=None, description="largest norm of a gradient, of policy and critics each; null does not clip"
    )
    adam_epsilon: PositiveReal = Field(default=1e-8, description="Adam's epsilon")

    @model_validator(mode="after")
    def _signals_learn_a_few_times(self) -> Self:
        if self.steps_per_update > MAX_SIGNAL_UPDATES * self.reward_signal_steps_per_update:
            raise invalid_as_told(
                f"reward_signal_steps_per_update is {self.reward_signal_steps_per_update:g} with steps_per_update "
                f"{self.steps_per_update:g}, so that reward signals would take "
                f"{self.steps_per_update / self.reward_signal_steps_per_update:.3g} updates beside each of the policy; at "
                f"most {MAX_SIGNAL_UPDATES} are allowed: raise the one or lower the other"
            )
        return self


HYPERPARAMETERS: Mapping[str, type[HyperparameterSettings]] = MappingProxyType(
    {
        "ppo": PPOHyperparameters,
        "appo": APPOHyperparameters,
        "impala": IMPALAHyperparameters,
        "poca": POCAHyperparameters,
        "sac": SACHyperparameters,
    }
)
"""Hyperparameter model of each trainer type that a run file may name; which can be trained, `unsupported` says."""


BUILT_TRAINERS = frozenset({"appo", "impala", "ppo", "sac"})
"""Trainer types of ours that can be trained; the others of the run file can be read."""


def hyperparameters_of(trainer_type: str) -> type[HyperparameterSettings] | None:
    """Returns the model of a trainer type, ours or an installed package's; None if there is no such trainer.

    Raises:
        UserError: it is a package's, which cannot be imported.
    """
    own = HYPERPARAMETERS.get(trainer_type)
    return own or settings_model("trainer_type", trainer_type, TRAINERS, HyperparameterSettings)


def build_hyperparameters(trainer_type: str, value: object) -> HyperparameterSettings | None:
    """Builds the hyperparameters of a trainer type from what is written; None if there is no such trainer.

    Raises:
        ValidationError: a value is wrong.
        UserError: it is a package's trainer, which cannot be imported, or whose settings fail by themselves.
    """
    model = hyperparameters_of(trainer_type)
    if model is None:
        return None
    if trainer_type in HYPERPARAMETERS:
        return model.model_validate(value)
    return built("trainer_type", trainer_type, lambda: model.model_validate(value))


def unknown_trainer_message(trainer_type: str) -> str:
    """Says which trainer types there are, for a name that is not one of them."""
    known = sorted({*BUILT_TRAINERS, *declared(TRAINERS)})
    return f"there is no trainer {trainer_type!r}{did_you_mean(trainer_type, known)}; trainers that exist: {', '.join(known)}"
