"""Network settings: encoders, body and memory of one behavior or reward signal."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from learner.shared.settings.base import (
    LenientSettings,
    PositiveReal,
    PositiveWhole,
    Real,
    invalid,
    invalid_as_told,
    to_whole,
)
from learner.shared.settings.extensions import BODIES, ENCODERS, POLICIES, declared, exists

VISUAL_ENCODERS = ("simple", "nature_cnn", "resnet", "match3", "fully_connected")
MAX_WIDTH = 2**20
MAX_LAYERS = 1000
MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0

Activation: TypeAlias = Literal["swish", "tanh", "relu", "elu", "selu", "leaky_relu", "gelu"]


def _to_widths(value: object) -> object:
    """Reads the width of all layers, or a list with the width of each.

    Raises:
        PydanticCustomError: A width is not a whole number within its limits, or the list is empty or too long.
    """
    if not isinstance(value, list | tuple):
        return _to_width(value)
    if not 1 <= len(value) <= MAX_LAYERS:
        raise invalid(f"must have 1 to {MAX_LAYERS} widths")
    return tuple(_to_width(each) for each in value)


def _to_width(value: object) -> object:
    width = to_whole(value)
    if isinstance(width, int) and width < 1:
        raise invalid("must be greater than or equal to 1")
    if isinstance(width, int) and width > MAX_WIDTH:
        raise invalid(f"must be less than or equal to {MAX_WIDTH}")
    return width


_Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
Widths = Annotated[_Width | tuple[_Width, ...], BeforeValidator(_to_widths)]
"""Width of all layers, or of each."""


class MemorySettings(LenientSettings):
    """A recurrent memory; an empty map turns it on with these defaults."""

    sequence_length: PositiveWhole = 64
    """steps trained in one sequence"""
    memory_size: PositiveWhole = Field(default=128, le=MAX_WIDTH)
    """numbers in the memory; must be even, because it has two halves"""

    @field_validator("memory_size")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise invalid("must be an even number")
        return value


class TowerSettings(LenientSettings):
    """A residual tower over the planes of a board; an empty map turns it on with these defaults."""

    depth: PositiveWhole = Field(default=5, le=MAX_LAYERS)
    """residual blocks, of two convolutions each"""
    width: PositiveWhole = Field(default=64, le=MAX_WIDTH)
    """planes of each convolution"""
    policy_head: Literal["linear", "conv"] = "linear"
    """linear: a score for each choice from all squares; conv: choices are planes of squares, each kind scored alike"""
    policy_planes: PositiveWhole = Field(default=2, le=MAX_WIDTH)
    """planes in the linear policy head"""
    value_planes: PositiveWhole = Field(default=1, le=MAX_WIDTH)
    """planes in the value head"""
    value_units: PositiveWhole | None = Field(default=None, le=MAX_WIDTH)
    """units of a layer between these planes and the value; null: no layer"""


class NetworkSettings(LenientSettings):
    """The network of a behavior or of a reward signal."""

    normalize: bool = False
    """normalize vector observations by their running mean and variance; not images, nor lists of entities"""
    observation_clip: PositiveReal = 5.0
    """largest size of a normalized observation, in standard deviations"""
    hidden_units: Widths = 128
    """width of each layer; a list, such as [256, 128], has a width for each"""
    num_layers: PositiveWhole = Field(default=2, le=MAX_LAYERS)
    """layers of the body; with a list of hidden_units its length"""
    vis_encode_type: str = "simple"
    """encoder of images: simple (small images: one that fits), nature_cnn, resnet, match3, fully_connected, or yours"""
    body: str | None = None
    """your module (module:Class) in place of encoders and layers; null is Rollcast's"""
    policy: str | None = None
    """your policy network (module:Class), with heads of its own; null is the trainer's"""
    memory: MemorySettings | None = None
    """recurrent memory; null disables it"""
    tower: TowerSettings | None = None
    """residual tower for boards, in place of encoders and layers; null disables it"""
    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """how goal observations enter the network"""
    deterministic: bool = False
    """take the most likely action instead of a sample"""
    activation: Activation = "tanh"
    """activation of the body's layers; ML-Agents uses swish"""
    initialization: Literal["kaiming", "lecun", "orthogonal"] = "orthogonal"
    """initial weights; ML-Agents uses lecun"""
    log_std_init: Real | None = Field(default=None, ge=MIN_LOG_STD, le=MAX_LOG_STD)
    """log of the initial deviation of continuous actions, in half-ranges; null: of 1/2, 1/3 for players, 1 with tanh"""
    std: Literal["free", "state"] | None = None
    """standard deviation of continuous actions: one for all states, or by state; null: free, or state with tanh"""
    critic_only: tuple[str, ...] = ()
    """names of observations that critics see, but the policy and its files do not"""

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each layer."""
        units = self.hidden_units
        return units if isinstance(units, tuple) else (units,) * self.num_layers

    def without_memory(self) -> NetworkSettings:
        """Returns the settings of a network for single transitions, as reward signals use in ML-Agents."""
        return self.model_copy(update={"memory": None})

    @model_validator(mode="before")
    @classmethod
    def _count_listed_layers(cls, values: object) -> object:
        if not isinstance(values, dict) or not isinstance(values.get("hidden_units"), list | tuple):
            return values
        return {"num_layers": len(values["hidden_units"]), **values}

    @field_validator("vis_encode_type")
    @classmethod
    def _encoder_exists(cls, value: str) -> str:
        if value not in VISUAL_ENCODERS and not exists(value, ENCODERS):
            *names, last = (repr(name) for name in (*VISUAL_ENCODERS, *sorted(declared(ENCODERS))))
            raise invalid(f"must be {', '.join(names)} or {last}")
        return value

    @field_validator("body", "policy")
    @classmethod
    def _code_exists(cls, value: str | None, info: ValidationInfo) -> str | None:
        group = BODIES if info.field_name == "body" else POLICIES
        if value is not None and not exists(value, group):
            known = "".join(f", or {name!r}" for name in sorted(declared(group)))
            raise invalid(f"must be module:Class, with a module beside the run file or an installed one{known}")
        return value

    @model_validator(mode="after")
    def _layers_are_counted_once(self) -> Self:
        if isinstance(self.hidden_units, tuple) and self.num_layers != len(self.hidden_units):
            raise invalid_as_told(
                f"network_settings.num_layers is {self.num_layers}, but hidden_units has {len(self.hidden_units)} widths: "
                "take num_layers out"
            )
        return self

    @model_validator(mode="after")
    def _body_is_the_only_one(self) -> Self:
        if self.tower is not None and self.body is not None:
            raise invalid_as_told("network_settings has a tower and a body, which exclude each other: remove one")
        return self

    @model_validator(mode="after")
    def _tower_has_no_memory(self) -> Self:
        if self.tower is not None and self.memory is not None:
            raise invalid_as_told("network_settings has a tower and a memory, which exclude each other: remove one")
        return self
