"""Hyperparameters and traits of each type of trainer, and the table of the built-in trainers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from learner.shared.settings.base import (
    Fraction,
    Live,
    NonNegativeReal,
    NonNegativeWhole,
    PositiveReal,
    PositiveRealOrAuto,
    PositiveWhole,
    Real,
    RealOrAuto,
    Schedule,
    SettingsModel,
    invalid_as_told,
)
from learner.shared.settings.extensions import TRAINERS, built, declared, settings_model
from learner.shared.settings.problems import did_you_mean

LearningRateSchedule: TypeAlias = Literal["linear", "constant", "cosine", "adaptive"]
"""Change of the learning rate; adaptive only for trainers that measure a divergence."""
MAX_EPSILON = 1e6
"""Wider than any ratio, and small enough that 1 + epsilon is a single-precision number."""
MIN_STEPS_PER_UPDATE = 1e-6
MAX_STEPS_PER_UPDATE = 1e9
"""Within these limits the owed steps and updates are 64-bit integers."""
MAX_UPDATE_DEBT = 10**9
MAX_SIGNAL_UPDATES = 1000
"""Updates of the reward signals per update of the policy at most; a stop of the learner waits for an update's end."""


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of an algorithm on which the rest of the learner depends.

    A settings model declares them; its subclasses inherit them, including those of other packages.

    Attributes:
        on_policy: Whether ``on_policy: strict`` limits its experience to the version that is updated.
        max_policy_lag: Default of ``rollcast.max_policy_lag``; 0 sets no limit.
        threaded: Default of ``threaded``.
        replay: Whether updates sample from a replay memory of ``buffer_size`` steps, in which no step is too old.
        squashed: Whether the policy squashes continuous actions and is saved with critics.
        repeatable: Whether a lock-step round has only one possible result: one update of all its steps, or all owed
            updates.
        recurrent: Policies may have a memory.
        plays: Whether policies can play against earlier versions of themselves.
        imitates: Whether demonstrations can be imitated in addition to the rewards.
        grouped: Whether group mates are trained together, with the rewards of all.
        first_update: Hyperparameters that determine how many steps the first update needs; empty if unknown.
    """

    on_policy: bool = False
    max_policy_lag: int = 0
    threaded: bool = False
    replay: bool = False
    squashed: bool = False
    repeatable: bool = False
    recurrent: bool = True
    plays: bool = False
    imitates: bool = True
    grouped: bool = False
    first_update: tuple[str, ...] = ()


class HyperparameterSettings(SettingsModel):
    """Base of every trainer's hyperparameters; defaults are those of ML-Agents' PPO."""

    traits: ClassVar[Traits] = Traits()
    """Traits of the trainers with these hyperparameters."""

    removed_keys: ClassVar[Mapping[str, str]] = {"gamma": "belongs under reward_signals.extrinsic"}

    @classmethod
    def hint_for(cls, key: str) -> str | None:
        """Names the trainers that have a hyperparameter this one lacks."""
        owners = trainers_with(lambda model: key in model.model_fields)
        return f"it is a hyperparameter of {owners}" if owners else None

    batch_size: PositiveWhole = 1024
    """steps in one minibatch"""
    buffer_size: PositiveWhole = 10240
    """steps collected before an update"""
    learning_rate: Live[NonNegativeReal] = 3e-4
    """Adam's step size at the start"""
    learning_rate_schedule: Live[LearningRateSchedule] = "linear"
    """linear or cosine to 1e-10 over max_steps, or constant"""

    @property
    def part_steps(self) -> int:
        """Steps of a minibatch that are computed together."""
        return self.batch_size

    def memory_stride(self, sequence_length: int) -> int:
        """Returns the number of steps between two records of a policy's memory."""
        return sequence_length


def _schedule_of_learning_rate(values: dict[str, object]) -> Schedule:
    """Copies the learning rate's schedule, which is also the default of the other schedules; adaptive is constant."""
    schedules: dict[object, Schedule] = {"constant": "constant", "adaptive": "constant", "cosine": "cosine"}
    return schedules.get(values.get("learning_rate_schedule"), "linear")


class AccumulatingHyperparameters(HyperparameterSettings):
    """Hyperparameters of trainers that can compute a minibatch in parts."""

    gradient_accumulation: PositiveWhole = 1
    """parts of a minibatch that are computed one after another, if it does not fit in memory at once"""

    @model_validator(mode="after")
    def _parts_are_whole(self) -> Self:
        if self.batch_size % self.gradient_accumulation:
            raise invalid_as_told(
                f"batch_size {self.batch_size} cannot be divided into gradient_accumulation "
                f"{self.gradient_accumulation} equal parts: change one of them"
            )
        return self

    @property
    def part_steps(self) -> int:
        """Steps of a minibatch that are computed together."""
        return self.batch_size // self.gradient_accumulation


class ActorCriticHyperparameters(AccumulatingHyperparameters):
    """Hyperparameters of trainers with one actor and one critic: ML-Agents' keys and defaults, and some of Rollcast."""

    learning_rate_schedule: LearningRateSchedule = "linear"
    """linear or cosine to 1e-10 over max_steps, constant, or adaptive: follow desired_kl"""
    learning_rate_warmup: Live[NonNegativeWhole] = 0
    """steps over which the learning rate rises from 0 to its schedule"""
    desired_kl: Live[PositiveReal] = 0.01
    """divergence that the adaptive learning rate aims at"""
    target_kl: Live[PositiveReal | None] = None
    """an update ends at a minibatch with a divergence above 1.5 times this; null takes all passes"""
    weight_decay: NonNegativeReal = Field(default=0.0, le=1.0)
    """decay of weights, of AdamW; 0 is Adam"""
    beta: Live[Real] = 5e-3
    """weight of the entropy bonus"""
    num_epoch: Live[PositiveWhole] = 3
    """passes over the buffer in one update; a stop of the learner waits for all of them"""
    beta_schedule: Live[Schedule] = Field(default_factory=_schedule_of_learning_rate)
    """linear or cosine to 1e-5, or constant"""
    max_grad_norm: Live[PositiveReal | None] = None
    """largest norm of a gradient; null does not clip"""
    ratio: Literal["per_action", "joint"] = "per_action"
    """clip the ratio of each action factor (as ML-Agents) or of the whole action"""
    adam_epsilon: PositiveReal = 1e-8
    """Adam's epsilon"""
    value_coefficient: Live[NonNegativeReal] = 0.5
    """weight of the value loss"""
    normalize_values: bool = True
    """train the critic on targets divided by their root mean square (PopArt), whatever the scale of rewards is"""
    normalize_advantages: bool = True
    """normalize the advantages of each update to mean 0 and standard deviation 1"""

    @model_validator(mode="after")
    def _adaptive_rate_does_not_warm_up(self) -> Self:
        if self.learning_rate_schedule == "adaptive" and self.learning_rate_warmup:
            raise invalid_as_told(
                f"learning_rate_warmup is {self.learning_rate_warmup}, but learning_rate_schedule is adaptive, which "
                "chooses the learning rate itself: take one of them out"
            )
        return self


class OnPolicyHyperparameters(ActorCriticHyperparameters):
    """Hyperparameters of trainers that clip the ratio. Without an off-policy correction they tolerate little lag."""

    traits = Traits(on_policy=True, max_policy_lag=4, repeatable=True, plays=True, first_update=("buffer_size",))

    epsilon: Live[Real] = Field(default=0.2, ge=0, le=MAX_EPSILON)
    """clipping range of the ratio"""
    lambd: Live[Real] = 0.95
    """lambda of generalized advantage estimation"""
    epsilon_schedule: Live[Schedule] = Field(default_factory=_schedule_of_learning_rate)
    """linear or cosine to 0.1, or constant"""


class SharedCriticHyperparameters(ActorCriticHyperparameters):
    """Hyperparameters of trainers whose critic may be a head on the policy's body."""

    shared_critic: bool = False
    """one body for policy and values"""


class PPOHyperparameters(SharedCriticHyperparameters, OnPolicyHyperparameters):
    """PPO (Schulman et al. 2017, arXiv:1707.06347)."""


class POCAHyperparameters(OnPolicyHyperparameters):
    """MA-POCA (Cohen et al. 2022, arXiv:2111.05992); its critic sees the whole group and shares nothing."""

    traits = replace(OnPolicyHyperparameters.traits, grouped=True)


class VTraceHyperparameters(SharedCriticHyperparameters):
    """Hyperparameters of trainers with V-trace, whose experience may be many versions old."""

    traits = Traits(max_policy_lag=32, threaded=True, repeatable=True, plays=True, first_update=("buffer_size",))

    ratio: Literal["per_action", "joint"] = "joint"
    """take the ratio of the whole action, or of each action factor (as ML-Agents' ppo)"""
    rho_bar: Live[PositiveReal] = 1.0
    """largest ratio in the temporal differences of V-trace"""
    c_bar: Live[PositiveReal] = 1.0
    """largest ratio in the traces of V-trace; at most rho_bar"""

    @model_validator(mode="after")
    def _traces_are_truncated_first(self) -> Self:
        if self.c_bar > self.rho_bar:
            raise invalid_as_told(
                f"c_bar is {self.c_bar:g}, more than rho_bar {self.rho_bar:g}: V-trace converges only if c_bar is at most "
                "rho_bar; lower c_bar or raise rho_bar"
            )
        return self


class APPOHyperparameters(VTraceHyperparameters, OnPolicyHyperparameters):
    """Asynchronous PPO: the defaults of PPO, except for the ratio."""

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
    lambd: Live[Fraction] = 0.95
    """lambda of V-trace"""
    max_grad_norm: PositiveReal | None = 0.5
    """largest norm of a gradient; null does not clip"""
    normalize_advantages: bool = False
    """normalize the advantages of each update to mean 0 and standard deviation 1; off, as in the paper"""


def _steps_per_update(values: dict[str, object]) -> float:
    """Copies ``steps_per_update``, the default of the reward signals."""
    steps = values.get("steps_per_update")
    return float(steps) if isinstance(steps, int | float) else 1.0


class ReplayHyperparameters(AccumulatingHyperparameters):
    """Hyperparameters of trainers that learn from a replay memory."""

    traits = Traits(replay=True, repeatable=True, plays=True, first_update=("batch_size", "buffer_init_steps"))

    batch_size: PositiveWhole = 128
    """steps in one minibatch"""
    buffer_size: PositiveWhole = 50000
    """steps the replay memory holds"""
    buffer_init_steps: NonNegativeWhole = 0
    """steps collected before the first update"""
    buffer_init_actions: Literal["policy", "uniform"] = "policy"
    """actions in the first buffer_init_steps of a run: the untrained policy's, or uniform within their bounds"""
    steps_per_update: Real = Field(default=1.0, ge=MIN_STEPS_PER_UPDATE, le=MAX_STEPS_PER_UPDATE)
    """steps collected for each update"""
    learning_rate_schedule: Schedule = "linear"
    """linear or cosine to 1e-10 over max_steps, or constant"""
    save_replay_buffer: bool = False
    """save the replay memory, so that a restart continues with it"""
    reward_signal_steps_per_update: Real = Field(
        default_factory=_steps_per_update, ge=MIN_STEPS_PER_UPDATE, le=MAX_STEPS_PER_UPDATE
    )
    """steps for each update of the reward signals; at least a thousandth of steps_per_update"""
    max_update_debt: NonNegativeWhole | None = Field(default=None, le=MAX_UPDATE_DEBT)
    """largest number of outstanding updates with which a chunk is still accepted; null is those of the newest chunk"""
    max_grad_norm: Live[PositiveReal | None] = None
    """largest norm of a gradient, of each network by itself; null does not clip"""
    adam_epsilon: PositiveReal = 1e-8
    """Adam's epsilon"""
    burn_in: NonNegativeWhole = 0
    """first steps of a sequence that only warm the memories, without training; less than sequence_length"""

    def memory_stride(self, sequence_length: int) -> int:
        """Returns the number of steps between two records of a policy's memory: sequences overlap by ``burn_in``."""
        return sequence_length - self.burn_in

    @model_validator(mode="after")
    def _uniform_actions_end(self) -> Self:
        if self.buffer_init_actions == "uniform" and not self.buffer_init_steps:
            raise invalid_as_told(
                "buffer_init_actions is uniform, but buffer_init_steps is 0, so no step has such actions: set "
                "buffer_init_steps"
            )
        return self

    @field_validator("reward_signal_steps_per_update")
    @classmethod
    def _signals_learn_a_few_times(cls, value: float, info: ValidationInfo) -> float:
        least: float = info.data.get("steps_per_update", value) / MAX_SIGNAL_UPDATES
        return max(value, least)


class SACHyperparameters(ReplayHyperparameters):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905) with ML-Agents' keys and defaults."""

    traits = replace(ReplayHyperparameters.traits, squashed=True)

    learning_rate_schedule: Schedule = "constant"
    """linear or cosine to 1e-10 over max_steps, or constant"""
    tau: Live[Fraction] = 0.005
    """share of the newest values in the target network"""
    init_entcoef: NonNegativeReal = 1.0
    """entropy coefficient at the start, if it is learned"""
    entcoef: PositiveRealOrAuto = "auto"
    """entropy coefficient of every part of the action: auto learns one for each, a number is fixed"""
    target_entropy: Live[RealOrAuto] = "auto"
    """entropy of the continuous action, in nats, that a learned coefficient keeps; auto is minus the number of axes"""
    policy_learning_rate: Live[NonNegativeReal | None] = None
    """step size of the policy; null is learning_rate"""
    critic_learning_rate: Live[NonNegativeReal | None] = None
    """step size of both critics; null is learning_rate"""
    temperature_learning_rate: Live[NonNegativeReal | None] = None
    """step size of learned entropy coefficients; null is learning_rate"""

    @model_validator(mode="after")
    def _fixed_coefficients_learn_nothing(self) -> Self:
        learning = {"target_entropy": self.target_entropy != "auto"}
        learning["temperature_learning_rate"] = self.temperature_learning_rate is not None
        for key, is_given in learning.items():
            if is_given and self.entcoef != "auto":
                raise invalid_as_told(
                    f"{key} is {getattr(self, key):g}, but entcoef is {self.entcoef:g} and not learned: take one of them "
                    "out"
                )
        return self


class OwnTrainer(NamedTuple):
    """A built-in trainer.

    Attributes:
        settings_model: Model of its hyperparameters.
        trainer: ``module:class``, imported only when a trainer is created, because settings are read without torch.
    """

    settings_model: type[HyperparameterSettings]
    trainer: str


OWN_TRAINERS: Mapping[str, OwnTrainer] = MappingProxyType(
    {
        "ppo": OwnTrainer(PPOHyperparameters, "learner.training.trainers.ppo.trainer:PPOTrainer"),
        "appo": OwnTrainer(APPOHyperparameters, "learner.training.trainers.appo.trainer:APPOTrainer"),
        "impala": OwnTrainer(IMPALAHyperparameters, "learner.training.trainers.impala.trainer:IMPALATrainer"),
        "poca": OwnTrainer(POCAHyperparameters, "learner.training.trainers.poca.trainer:POCATrainer"),
        "sac": OwnTrainer(SACHyperparameters, "learner.training.trainers.sac.trainer:SACTrainer"),
    }
)
"""The built-in trainers, by their names in run files; the only place with these names."""

DEFAULT_TRAINER: Final = "ppo"


_Selected: TypeAlias = Callable[[type[HyperparameterSettings]], bool]


def built_trainers(has: _Selected = lambda _: True) -> tuple[str, ...]:
    """Returns the names of the built-in trainers whose hyperparameters satisfy a condition."""
    return tuple(name for name, own in OWN_TRAINERS.items() if has(own.settings_model))


def trainers_with(has: _Selected) -> str:
    """Returns the names of `built_trainers` as text, as in ``a, b and c``; empty if there are none."""
    *names, last = ("", *built_trainers(has))
    return " and ".join(part for part in (", ".join(names[1:]), last) if part)


def hyperparameters_of(trainer_type: str, setting: str = "trainer_type") -> type[HyperparameterSettings] | None:
    """Returns the model of a trainer type, built-in or the user's; None if there is no such trainer.

    Args:
        trainer_type: Name of the trainer.
        setting: Setting with the name, for messages.

    Raises:
        UserError: The trainer is the user's, and cannot be imported.
    """
    own = OWN_TRAINERS.get(trainer_type)
    return own.settings_model if own else settings_model(setting, trainer_type, TRAINERS, HyperparameterSettings)


def build_hyperparameters(trainer_type: str, value: object) -> HyperparameterSettings | None:
    """Builds the hyperparameters of a trainer type from written values; None if there is no such trainer.

    Raises:
        ValidationError: A value is invalid.
        UserError: The trainer belongs to a package that cannot be imported or whose settings fail by themselves.
    """
    model = hyperparameters_of(trainer_type)
    if model is None:
        return None
    if trainer_type in OWN_TRAINERS:
        return model.model_validate(value)
    return built("trainer_type", trainer_type, lambda: model.model_validate(value))


def unknown_trainer_message(trainer_type: str) -> str:
    """Returns the message for an unknown trainer type, with the known ones."""
    known = sorted({*built_trainers(), *declared(TRAINERS)})
    return (
        f"there is no trainer {trainer_type!r}{did_you_mean(trainer_type, known)}; the trainers are {', '.join(known)}"
    )
