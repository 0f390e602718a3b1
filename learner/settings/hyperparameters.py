"""Hyperparameters and traits of each kind of trainer, and the table of the trainers that come with Rollcast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

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


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an algorithm that the rest of the learner depends on.

    A settings model declares them; its subclasses inherit them, those of other packages included.

    Attributes:
        on_policy: ``on_policy: strict`` keeps its experience to the version that is updated.
        max_policy_lag: default of ``rollcast.max_policy_lag``; 0 sets no limit.
        threaded: default of ``threaded``.
        replay: updates draw from a replay memory of ``buffer_size`` steps, in which no step is too old.
        squashed: the policy squashes continuous actions, and is saved beside critics.
        repeatable: a round in lock-step ends in one state only: with one update of all its steps, or all updates it owes.
        recurrent: policies may have a memory.
        imitates: demonstrations can be imitated beside the rewards.
        first_update: hyperparameters that say how many steps the first update needs; empty if unknown.
    """

    on_policy: bool = False
    max_policy_lag: int = 0
    threaded: bool = False
    replay: bool = False
    squashed: bool = False
    repeatable: bool = False
    recurrent: bool = True
    imitates: bool = True
    first_update: tuple[str, ...] = ()


class HyperparameterSettings(SettingsModel):
    """Base of every trainer's hyperparameters; defaults are those of ML-Agents' PPO."""

    traits: ClassVar[Traits] = Traits()
    """Of the trainers that have these hyperparameters."""

    removed_keys: ClassVar[Mapping[str, str]] = {"gamma": "belongs under reward_signals.extrinsic"}

    @classmethod
    def hint_for(cls, key: str) -> str | None:
        """Names the trainers that have a hyperparameter which this one lacks."""
        owners = trainers_with(lambda model: key in model.model_fields)
        return f"it is a hyperparameter of {owners}" if owners else None

    batch_size: PositiveWhole = 1024
    """steps in one minibatch"""
    buffer_size: PositiveWhole = 10240
    """steps collected before an update"""
    learning_rate: NonNegativeReal = 3e-4
    """Adam's step size at the start"""
    learning_rate_schedule: Schedule = "linear"
    """linear to 1e-10 over max_steps, or constant"""

    @property
    def part_steps(self) -> int:
        """Steps of a minibatch that are computed at once."""
        return self.batch_size


def _schedule_of_learning_rate(values: dict[str, object]) -> Schedule:
    """Copies the learning rate's schedule, whose default is the default of the others too."""
    return "constant" if values.get("learning_rate_schedule") == "constant" else "linear"


class AccumulatingHyperparameters(HyperparameterSettings):
    """What trainers share that can compute a minibatch in parts."""

    gradient_accumulation: PositiveWhole = 1
    """parts that a minibatch is computed in, one after another, where it does not fit at once"""

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

    beta: NonNegativeReal = 5e-3
    """weight of the entropy bonus"""
    num_epoch: PositiveWhole = 3
    """passes over the buffer in one update, which a stop of the learner waits for"""
    beta_schedule: Schedule = Field(default_factory=_schedule_of_learning_rate)
    """linear to 1e-5, or constant"""
    max_grad_norm: PositiveReal | None = None
    """largest norm of a gradient; null does not clip"""
    ratio: Literal["per_action", "joint"] = "per_action"
    """clip the ratio of each action factor (as ML-Agents) or of the whole action"""
    adam_epsilon: PositiveReal = 1e-8
    """Adam's epsilon"""


class OnPolicyHyperparameters(ActorCriticHyperparameters):
    """Shared by trainers that clip the ratio. Without an off-policy correction they bear little lag."""

    traits = Traits(on_policy=True, max_policy_lag=4, repeatable=True, first_update=("buffer_size",))

    epsilon: PositiveReal = Field(default=0.2, le=MAX_EPSILON)
    """clipping range of the ratio"""
    lambd: Real = Field(default=0.95, ge=0, le=1)
    """lambda of generalized advantage estimation"""
    epsilon_schedule: Schedule = Field(default_factory=_schedule_of_learning_rate)
    """linear to 0.1, or constant"""


class SharedCriticHyperparameters(ActorCriticHyperparameters):
    """What the trainers have whose critic may be a head on the policy's body."""

    shared_critic: bool = False
    """one body for policy and values"""


class PPOHyperparameters(SharedCriticHyperparameters, OnPolicyHyperparameters):
    """PPO (Schulman et al. 2017, arXiv:1707.06347)."""


class POCAHyperparameters(OnPolicyHyperparameters):
    """MA-POCA (Cohen et al. 2022, arXiv:2111.05992); its critic sees the whole group and shares nothing."""

    traits = replace(OnPolicyHyperparameters.traits, repeatable=False, recurrent=False, imitates=False)


class VTraceHyperparameters(SharedCriticHyperparameters):
    """Shared by trainers with V-trace, whose experience may be many versions old."""

    traits = Traits(max_policy_lag=32, threaded=True, repeatable=True, first_update=("buffer_size",))

    ratio: Literal["per_action", "joint"] = "joint"
    """take the ratio of the whole action, or of each action factor (as ML-Agents' ppo)"""
    rho_bar: PositiveReal = 1.0
    """largest ratio in the temporal differences of V-trace"""
    c_bar: PositiveReal = 1.0
    """largest ratio in the traces of V-trace; at most rho_bar"""

    @model_validator(mode="after")
    def _traces_are_truncated_first(self) -> Self:
        if self.c_bar > self.rho_bar:
            raise invalid_as_told(
                f"c_bar is {self.c_bar:g}, more than rho_bar {self.rho_bar:g}: V-trace converges with c_bar of at most "
                "rho_bar; lower the one or raise the other"
            )
        return self


class APPOHyperparameters(VTraceHyperparameters, OnPolicyHyperparameters):
    """Asynchronous PPO: the defaults of PPO, but for the ratio."""

    lambd: Fraction = 0.95
    """lambda of V-trace"""


class IMPALAHyperparameters(VTraceHyperparameters):
    """The V-trace actor-critic (Espeholt et al. 2018, arXiv:1802.01561)."""

    batch_size: PositiveWhole = 256
    """steps in one minibatch"""
    buffer_size: PositiveWhole = 2048
    """steps collected before an update"""
    num_epoch: PositiveWhole = 1
    """passes over the buffer in one update"""
    lambd: Fraction = 0.95
    """lambda of V-trace"""
    max_grad_norm: PositiveReal | None = 0.5
    """largest norm of a gradient; null does not clip"""


def _steps_per_update(values: dict[str, object]) -> float:
    """Copies ``steps_per_update``, which the reward signals follow unless they have their own."""
    steps = values.get("steps_per_update")
    return float(steps) if isinstance(steps, int | float) else 1.0


class ReplayHyperparameters(AccumulatingHyperparameters):
    """Shared by trainers that learn from a replay memory."""

    traits = Traits(replay=True, repeatable=True, first_update=("batch_size", "buffer_init_steps"))

    batch_size: PositiveWhole = 128
    """steps in one minibatch"""
    buffer_size: PositiveWhole = 50000
    """steps the replay memory holds"""
    buffer_init_steps: NonNegativeWhole = 0
    """steps collected before the first update"""
    steps_per_update: Real = Field(default=1.0, ge=MIN_STEPS_PER_UPDATE, le=MAX_STEPS_PER_UPDATE)
    """steps collected for each update"""
    save_replay_buffer: bool = False
    """keep the replay memory over a restart"""
    reward_signal_steps_per_update: Real = Field(
        default_factory=_steps_per_update, ge=MIN_STEPS_PER_UPDATE, le=MAX_STEPS_PER_UPDATE
    )
    """steps for each update of the reward signals"""
    max_update_debt: NonNegativeWhole | None = Field(default=None, le=MAX_UPDATE_DEBT)
    """updates that may be owed when more steps are taken in; null: those of one chunk"""
    max_grad_norm: PositiveReal | None = None
    """largest norm of a gradient, of each network by itself; null does not clip"""
    adam_epsilon: PositiveReal = 1e-8
    """Adam's epsilon"""

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


class SACHyperparameters(ReplayHyperparameters):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) with ML-Agents' keys and defaults."""

    traits = replace(ReplayHyperparameters.traits, squashed=True)

    learning_rate_schedule: Schedule = "constant"
    """linear to 1e-10 over max_steps, or constant"""
    tau: Fraction = 0.005
    """share of the newest values in the target network"""
    init_entcoef: NonNegativeReal = 1.0
    """entropy coefficient at the start"""


class OwnTrainer(NamedTuple):
    """A trainer that comes with Rollcast.

    Attributes:
        settings_model: its hyperparameters.
        trainer: ``module:class``, imported when it is made, for settings are read without torch; None if it is not built
            yet, and the run file can only be read.
    """

    settings_model: type[HyperparameterSettings]
    trainer: str | None


OWN_TRAINERS: Mapping[str, OwnTrainer] = MappingProxyType(
    {
        "ppo": OwnTrainer(PPOHyperparameters, "learner.trainers.ppo.trainer:PPOTrainer"),
        "appo": OwnTrainer(APPOHyperparameters, "learner.trainers.appo.trainer:APPOTrainer"),
        "impala": OwnTrainer(IMPALAHyperparameters, "learner.trainers.impala.trainer:IMPALATrainer"),
        "poca": OwnTrainer(POCAHyperparameters, None),
        "sac": OwnTrainer(SACHyperparameters, "learner.trainers.sac.trainer:SACTrainer"),
    }
)
"""The trainers that come with Rollcast, by the name in run files: the only place where these names stand."""

DEFAULT_TRAINER: Final = "ppo"


_Selected: TypeAlias = Callable[[type[HyperparameterSettings]], bool]


def built_trainers(has: _Selected = lambda _: True) -> tuple[str, ...]:
    """Returns the names of our trainers that can be trained, and whose hyperparameters are as asked for."""
    return tuple(name for name, own in OWN_TRAINERS.items() if own.trainer and has(own.settings_model))


def trainers_with(has: _Selected) -> str:
    """Returns the same names for texts, as in ``a, b and c``; empty if there is none."""
    *names, last = ("", *built_trainers(has))
    return " and ".join(part for part in (", ".join(names[1:]), last) if part)


def hyperparameters_of(trainer_type: str) -> type[HyperparameterSettings] | None:
    """Returns the model of a trainer type, ours or an installed package's; None if there is no such trainer.

    Raises:
        UserError: it is a package's, which cannot be imported.
    """
    own = OWN_TRAINERS.get(trainer_type)
    return own.settings_model if own else settings_model("trainer_type", trainer_type, TRAINERS, HyperparameterSettings)


def build_hyperparameters(trainer_type: str, value: object) -> HyperparameterSettings | None:
    """Builds the hyperparameters of a trainer type from what is written; None if there is no such trainer.

    Raises:
        ValidationError: a value is wrong.
        UserError: it is a package's trainer, which cannot be imported, or whose settings fail by themselves.
    """
    model = hyperparameters_of(trainer_type)
    if model is None:
        return None
    if trainer_type in OWN_TRAINERS:
        return model.model_validate(value)
    return built("trainer_type", trainer_type, lambda: model.model_validate(value))


def unknown_trainer_message(trainer_type: str) -> str:
    """Says which trainer types there are, for a name that is not one of them."""
    known = sorted({*built_trainers(), *declared(TRAINERS)})
    return f"there is no trainer {trainer_type!r}{did_you_mean(trainer_type, known)}; trainers that exist: {', '.join(known)}"
