"""The settings of one behavior: which trainer, which network, which rewards, how long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator

from learner.settings.base import (
    Fraction,
    LenientSettings,
    NonNegativeReal,
    NonNegativeWhole,
    PositiveWhole,
    Real,
    SettingsModel,
    Value,
    Whole,
    invalid_as_told,
)
from learner.settings.hyperparameters import (
    DEFAULT_TRAINER,
    HyperparameterSettings,
    Traits,
    build_hyperparameters,
    built_trainers,
    hyperparameters_of,
    trainers_with,
    unknown_trainer_message,
)
from learner.settings.network import NetworkSettings
from learner.settings.rewards import ExtrinsicSettings, RewardSignals

MAX_HORIZON_STEPS = 2**31 - 1


class BehavioralCloningSettings(LenientSettings):
    """Imitation of recorded demonstrations beside the rewards."""

    demo_path: str
    """demonstration file or folder"""
    steps: NonNegativeWhole = 0
    """steps over which the strength falls to zero; 0 keeps it"""
    strength: NonNegativeReal = 1.0
    """factor of the imitation's learning rate"""
    samples_per_update: NonNegativeWhole = 0
    """demonstrated steps that an update takes in each pass; 0 takes all"""
    num_epoch: PositiveWhole | None = None
    """passes in each update; null is 3"""
    batch_size: PositiveWhole | None = None
    """demonstrated steps in a minibatch; null is the trainer's batch_size"""


def _five_times_save_steps(values: dict[str, object]) -> int:
    save_steps = values.get("save_steps")
    return 5 * save_steps if isinstance(save_steps, int) else 100000


class SelfPlaySettings(LenientSettings):
    """Play against earlier versions of the own policy."""

    save_steps: PositiveWhole = 20000
    """not built yet"""
    team_change: PositiveWhole = Field(default_factory=_five_times_save_steps)
    """not built yet"""
    swap_steps: PositiveWhole = 2000
    """not built yet"""
    window: PositiveWhole = 10
    """not built yet"""
    play_against_latest_model_ratio: Fraction = 0.5
    """not built yet"""
    initial_elo: Real = 1200.0
    """not built yet"""


def _is_threaded(values: dict[str, object]) -> bool:
    """Returns the default of ``threaded``, a trait of the trainer."""
    hyperparameters = values.get("hyperparameters")
    return isinstance(hyperparameters, HyperparameterSettings) and hyperparameters.traits.threaded


class TrainerSettings(SettingsModel):
    """One behavior of the run file, complete.

    ``checkpoint_interval`` comes after the fields it is computed from when ``even_checkpoints`` is set.
    """

    ignored_keys: ClassVar[Mapping[str, str]] = {"framework": "is ignored: PyTorch is the only framework"}
    removed_keys: ClassVar[Mapping[str, str]] = {
        "output_path": "is a setting of very old files; set checkpoint_settings.results_dir instead",
        "summary_path": "is a setting of very old files; set checkpoint_settings.results_dir instead",
        "trainer": "is the old name of trainer_type",
        "use_recurrent": "is a setting of very old files; write network_settings: {memory: {}} instead",
    }

    trainer_type: str = Field(
        default=DEFAULT_TRAINER,
        description=f"what trains it: {', '.join(built_trainers())}, or an entry point's name",
    )
    hyperparameters: SerializeAsAny[HyperparameterSettings] = Field(default={}, validate_default=True)
    """those of the trainer"""
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """the network of the policy"""
    reward_signals: SerializeAsAny[RewardSignals] = Field(
        default_factory=lambda: RewardSignals(extrinsic=ExtrinsicSettings())
    )
    """what steps are worth; a map without extrinsic leaves the environment's reward out"""
    init_path: str | None = None
    """checkpoint whose weights the behavior starts from"""
    keep_checkpoints: Whole = 5
    """checkpoints kept; 0 or less keeps all"""
    even_checkpoints: bool = False
    """spread keep_checkpoints evenly over max_steps"""
    max_steps: PositiveWhole = 500000
    """steps after which the behavior is done"""
    checkpoint_interval: PositiveWhole = Field(default=500000, validate_default=True)
    """steps between checkpoints; with even_checkpoints it is max_steps / keep_checkpoints"""
    time_horizon: PositiveWhole = Field(default=64, le=MAX_HORIZON_STEPS)
    """longest segment of one agent, in steps"""
    summary_freq: PositiveWhole = 50000
    """steps between summaries"""
    threaded: bool = Field(
        default_factory=_is_threaded,
        description="collect while updating, with data up to max_policy_lag versions old; "
        f"{trainers_with(lambda model: model.traits.threaded)} do",
    )
    self_play: SelfPlaySettings | None = None
    """play against earlier versions of the policy; not built yet, and refused"""
    behavioral_cloning: BehavioralCloningSettings | None = None
    """imitation of demonstrations beside the rewards; null has none"""

    @property
    def traits(self) -> Traits:
        """Properties of the trainer's algorithm."""
        return self.hyperparameters.traits

    @classmethod
    def annotation_for(cls, key: str, raw: Mapping[str, Value]) -> object:
        """Returns the type of a field; that of the hyperparameters depends on the trainer type."""
        if key == "hyperparameters":
            trainer_type = raw.get("trainer_type", DEFAULT_TRAINER)
            return hyperparameters_of(str(trainer_type)) or object  # an unknown trainer is reported at its own key
        return super().annotation_for(key, raw)

    @field_validator("trainer_type")
    @classmethod
    def _trainer_exists(cls, value: str) -> str:
        if hyperparameters_of(value) is None:
            raise invalid_as_told(unknown_trainer_message(value))
        return value

    @field_validator("hyperparameters", mode="before")
    @classmethod
    def _of_this_trainer(cls, value: object, info: ValidationInfo) -> object:
        # Without a trainer, which is reported at trainer_type, nothing can be said about its hyperparameters.
        return build_hyperparameters(str(info.data.get("trainer_type")), value) or HyperparameterSettings()

    @field_validator("reward_signals", mode="before")
    @classmethod
    def _with_those_of_packages(cls, value: object) -> object:
        return RewardSignals.model_for(value).model_validate(value) if isinstance(value, dict) else value

    @field_validator("checkpoint_interval")
    @classmethod
    def _spread_evenly(cls, value: int, info: ValidationInfo) -> int:
        keep = info.data.get("keep_checkpoints", 0)
        if info.data.get("even_checkpoints") and keep > 0 and "max_steps" in info.data:
            return max(1, int(info.data["max_steps"] / keep))
        return value

    @model_validator(mode="after")
    def _sequence_fits_batch(self) -> Self:
        memory, hyper = self.network_settings.memory, self.hyperparameters
        if memory is not None and memory.sequence_length > hyper.part_steps:
            parts = hyper.batch_size // hyper.part_steps
            raise invalid_as_told(
                f"network_settings.memory.sequence_length is {memory.sequence_length}, more than "
                f"hyperparameters.batch_size {hyper.batch_size}{f' in {parts} parts' if parts > 1 else ''}: lower the "
                "one or raise the other"
            )
        if memory is not None and self.traits.replay and memory.sequence_length > hyper.buffer_size:
            raise invalid_as_told(
                f"network_settings.memory.sequence_length is {memory.sequence_length}, more than "
                f"hyperparameters.buffer_size {hyper.buffer_size}, so that the replay memory would hold no whole sequence: "
                "lower the one or raise the other"
            )
        return self
