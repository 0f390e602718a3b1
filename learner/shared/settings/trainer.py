"""The settings of one behavior: trainer, network, rewards and length of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator, model_validator
from rollcast.demonstrations import Pairing

from learner.shared.settings.base import (
    Fraction,
    LenientSettings,
    Live,
    NonNegativeReal,
    NonNegativeWhole,
    PositiveWhole,
    Real,
    SettingsModel,
    Value,
    Whole,
    invalid_as_told,
)
from learner.shared.settings.companions import (
    EXPERIENCE,
    MAX_BUFFERS,
    MAX_SHARE,
    BufferName,
    Companions,
    DataBufferSettings,
)
from learner.shared.settings.extensions import ExtensionBlock
from learner.shared.settings.hyperparameters import (
    DEFAULT_TRAINER,
    HyperparameterSettings,
    ReplayHyperparameters,
    SharedCriticHyperparameters,
    Traits,
    build_hyperparameters,
    built_trainers,
    hyperparameters_of,
    trainers_with,
    unknown_trainer_message,
)
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.rewards import ExtrinsicSettings, RewardSignals

MAX_HORIZON_STEPS = 2**31 - 1
OpponentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
"""Name of an opponent in statistics and metrics."""
MAX_FROZEN_OPPONENTS = 64
MAX_WINDOW = 1000
"""Every rating of a window is estimated together, which takes seconds with more."""


class BehavioralCloningSettings(LenientSettings):
    """Imitation of recorded demonstrations in addition to the rewards."""

    demo_path: str
    """demonstration file or folder"""
    demo_pairing: Pairing = "auto"
    """which record has an action: that of its observation, the next one (Unity's recorder), or as the recording shows"""
    steps: NonNegativeWhole = 0
    """steps over which the strength falls to zero; 0 keeps it"""
    strength: NonNegativeReal = 1.0
    """factor of the imitation's learning rate"""
    samples_per_update: NonNegativeWhole = 0
    """demonstrated steps used in each pass of an update; 0 uses all"""
    num_epoch: PositiveWhole | None = None
    """passes in each update; null is 3"""
    batch_size: PositiveWhole | None = None
    """demonstrated steps in a minibatch; null is the trainer's batch_size"""


def _five_times_save_steps(values: dict[str, object]) -> int:
    save_steps = values.get("save_steps")
    return 5 * save_steps if isinstance(save_steps, int) else 100000


MOST_ELO: Final = 1e6
"""Largest rating at the start. Ratings differ by some thousand points, and far larger numbers swallow the differences."""


class SelfPlaySettings(LenientSettings):
    """Self-play against earlier versions of the policy."""

    save_steps: PositiveWhole = 20000
    """trained steps between two snapshots of the policy"""
    team_change: PositiveWhole = Field(default_factory=_five_times_save_steps)
    """trained steps of a team before the next team learns"""
    swap_steps: PositiveWhole = 2000
    """steps of opponents, over all actors, between two draws of opponents"""
    window: Annotated[PositiveWhole, Field(le=MAX_WINDOW)] = 10
    """newest snapshots that can be drawn"""
    play_against_latest_model_ratio: Fraction = 0.5
    """probability that the newest policy plays instead of a snapshot"""
    initial_elo: Annotated[Real, Field(ge=-MOST_ELO, le=MOST_ELO)] = 1200.0
    """rating at the start"""
    draw: Literal["uniform", "pfsp"] = "uniform"
    """draw of snapshots: all alike, or (pfsp) more often those that win more often"""
    frozen_opponents: dict[OpponentName, str] = Field(default_factory=dict, max_length=MAX_FROZEN_OPPONENTS)
    """exported models (.onnx) of this behavior that also play as opponents, by names of your choice"""
    frozen_opponents_ratio: Fraction = 0.25
    """probability that one of frozen_opponents plays; no effect without any"""


def _is_threaded(values: dict[str, object]) -> bool:
    """Returns the default of ``threaded``, which is a trait of the trainer."""
    hyperparameters = values.get("hyperparameters")
    return isinstance(hyperparameters, HyperparameterSettings) and hyperparameters.traits.threaded


class TrainerSettings(SettingsModel):
    """The complete settings of one behavior.

    ``checkpoint_interval`` follows the fields from which ``even_checkpoints`` computes it.
    """

    ignored_keys: ClassVar[Mapping[str, str]] = {"framework": "is ignored: PyTorch is the only framework"}
    removed_keys: ClassVar[Mapping[str, str]] = {
        "output_path": "is an obsolete setting; set checkpoint_settings.results_dir instead",
        "summary_path": "is an obsolete setting; set checkpoint_settings.results_dir instead",
        "trainer": "is the old name of trainer_type",
        "use_recurrent": "is an obsolete setting; write network_settings: {memory: {}} instead",
    }

    trainer_type: str = Field(
        default=DEFAULT_TRAINER,
        description=f"the trainer: {', '.join(built_trainers())}, or yours (module:Class, or an entry point's name)",
    )
    hyperparameters: SerializeAsAny[HyperparameterSettings] = Field(default={}, validate_default=True)
    """hyperparameters of the trainer"""
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings)
    """the network of the policy"""
    reward_signals: SerializeAsAny[RewardSignals] = Field(
        default_factory=lambda: RewardSignals(extrinsic=ExtrinsicSettings())
    )
    """rewards for steps; a map without extrinsic omits the environment's reward"""
    companions: SerializeAsAny[Companions] = Field(default_factory=Companions)
    """trainers of further models beside the policy, by module:Class or an entry point's name"""
    data_buffers: dict[BufferName, DataBufferSettings] = Field(default_factory=dict, max_length=MAX_BUFFERS)
    """steps that companions share, by names of your choice; experience exists without being listed"""
    init_path: str | None = None
    """checkpoint whose weights the behavior starts from"""
    keep_checkpoints: Whole = 5
    """checkpoints kept; 0 or less keeps all"""
    even_checkpoints: bool = False
    """spread keep_checkpoints evenly over max_steps"""
    max_steps: Live[PositiveWhole] = 500000
    """steps after which the behavior is finished"""
    checkpoint_interval: PositiveWhole = Field(default=500000, validate_default=True)
    """steps between checkpoints; with even_checkpoints it is max_steps / keep_checkpoints"""
    time_horizon: PositiveWhole = Field(default=64, le=MAX_HORIZON_STEPS)
    """longest segment of one agent, in steps"""
    summary_freq: PositiveWhole = 50000
    """steps between summaries"""
    threaded: bool = Field(
        default_factory=_is_threaded,
        description="collect while updating, with data up to max_policy_lag versions old; "
        f"true by default for {trainers_with(lambda model: model.traits.threaded)}",
    )
    self_play: SelfPlaySettings | None = None
    """play against earlier versions of the policy; null disables it"""
    behavioral_cloning: BehavioralCloningSettings | None = None
    """imitation of demonstrations in addition to the rewards; null disables it"""

    @property
    def traits(self) -> Traits:
        """Traits of the trainer's algorithm."""
        return self.hyperparameters.traits

    @property
    def buffers(self) -> Mapping[str, DataBufferSettings]:
        """Settings of the data buffers by name; none without companions."""
        return {EXPERIENCE: DataBufferSettings(), **self.data_buffers} if self.companions.active() else {}

    @property
    def memory_stride(self) -> int:
        """Steps between two records of the policy's memory; 0 without memory."""
        memory = self.network_settings.memory
        return 0 if memory is None else self.hyperparameters.memory_stride(memory.sequence_length)

    @classmethod
    def annotation_for(cls, key: str, raw: Mapping[str, Value]) -> object:
        """Returns the type of a field; the type of the hyperparameters depends on the trainer type."""
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
        # Without a valid trainer, an error recorded at trainer_type, its hyperparameters cannot be checked.
        return build_hyperparameters(str(info.data.get("trainer_type")), value) or HyperparameterSettings()

    @field_validator("reward_signals", "companions", mode="before")
    @classmethod
    def _with_those_of_packages(cls, value: object, info: ValidationInfo) -> object:
        block: type[ExtensionBlock] = RewardSignals if info.field_name == "reward_signals" else Companions
        return block.model_for(value).model_validate(value) if isinstance(value, dict) else value

    @field_validator("checkpoint_interval")
    @classmethod
    def _spread_evenly(cls, value: int, info: ValidationInfo) -> int:
        keep = info.data.get("keep_checkpoints", 0)
        if info.data.get("even_checkpoints") and keep > 0 and "max_steps" in info.data:
            return max(1, int(info.data["max_steps"] / keep))
        return value

    @model_validator(mode="after")
    def _companions_have_data_and_time(self) -> Self:
        active = self.companions.active()
        for name, settings in active.items():
            if settings.data not in self.buffers:
                raise invalid_as_told(
                    f"companions.{name}.data is {settings.data!r}, which is no data buffer (known: {', '.join(self.buffers)}): "
                    "list it under data_buffers"
                )
        share = sum(settings.max_share for settings in active.values())
        if share > MAX_SHARE:
            raise invalid_as_told(
                f"max_share of all companions together is {share:g}, more than {MAX_SHARE:g}, so little time would be left "
                "for the policy: lower it"
            )
        return self

    @model_validator(mode="after")
    def _squashed_depends_on_state(self) -> Self:
        if self.traits.squashed and self.network_settings.std == "free":
            raise invalid_as_told(
                f"network_settings.std is free, but the standard deviation of {self.trainer_type} depends on the state: "
                "take it out"
            )
        return self

    @model_validator(mode="after")
    def _critic_sees_more(self) -> Self:
        hyper = self.hyperparameters
        if self.network_settings.critic_only and isinstance(hyper, SharedCriticHyperparameters) and hyper.shared_critic:
            raise invalid_as_told(
                "network_settings.critic_only needs a critic with its own body, but hyperparameters.shared_critic is "
                "true: set shared_critic to false, or take critic_only out"
            )
        return self

    @model_validator(mode="after")
    def _burn_in_precedes_steps(self) -> Self:
        memory, hyper = self.network_settings.memory, self.hyperparameters
        if not isinstance(hyper, ReplayHyperparameters) or not hyper.burn_in:
            return self
        told = f"hyperparameters.burn_in is {hyper.burn_in}, but"
        if memory is None:
            raise invalid_as_told(f"{told} the policy has no memory: take it out, or set network_settings.memory")
        if hyper.burn_in >= memory.sequence_length:
            raise invalid_as_told(
                f"{told} network_settings.memory.sequence_length is {memory.sequence_length}, so nothing would be trained: "
                "lower burn_in or raise sequence_length"
            )
        if self.time_horizon <= memory.sequence_length:
            raise invalid_as_told(
                f"{told} time_horizon is {self.time_horizon} and network_settings.memory.sequence_length "
                f"{memory.sequence_length}, so no sequence has steps before it: raise time_horizon to several sequences"
            )
        return self

    @model_validator(mode="after")
    def _sequence_fits_batch(self) -> Self:
        memory, hyper = self.network_settings.memory, self.hyperparameters
        if memory is not None and memory.sequence_length > hyper.part_steps:
            parts = hyper.batch_size // hyper.part_steps
            raise invalid_as_told(
                f"network_settings.memory.sequence_length is {memory.sequence_length}, more than "
                f"hyperparameters.batch_size {hyper.batch_size}{f' in {parts} parts' if parts > 1 else ''}: lower "
                "sequence_length or raise batch_size"
            )
        if memory is not None and self.traits.replay and memory.sequence_length > hyper.buffer_size:
            raise invalid_as_told(
                f"network_settings.memory.sequence_length is {memory.sequence_length}, more than "
                f"hyperparameters.buffer_size {hyper.buffer_size}, so the replay memory would hold no whole sequence: "
                "lower sequence_length or raise buffer_size"
            )
        return self
