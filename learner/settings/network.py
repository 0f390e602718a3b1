"""Network settings: encoders, body and memory of one behavior or reward signal."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from learner.settings.base import LenientSettings, PositiveWhole, invalid, invalid_as_told
from learner.settings.extensions import ENCODERS, declared

VISUAL_ENCODERS = ("simple", "nature_cnn", "resnet", "match3", "fully_connected")
MAX_WIDTH = 2**20
MAX_LAYERS = 1000


class MemorySettings(LenientSettings):
    """A recurrent memory; an empty map turns it on with these defaults."""

    sequence_length: PositiveWhole = 64
    """steps trained in one sequence"""
    memory_size: PositiveWhole = Field(default=128, le=MAX_WIDTH)
    """numbers in the memory; even, for it holds two halves"""

    @field_validator("memory_size")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise invalid("must be an even number")
        return value


class TowerSettings(LenientSettings):
    """A residual tower over planes of a board; an empty map turns it on with these defaults."""

    depth: PositiveWhole = Field(default=5, le=MAX_LAYERS)
    """residual blocks, of two convolutions each"""
    width: PositiveWhole = Field(default=64, le=MAX_WIDTH)
    """planes of each convolution"""
    policy_planes: PositiveWhole = Field(default=2, le=MAX_WIDTH)
    """planes that the policy head looks at"""
    value_planes: PositiveWhole = Field(default=1, le=MAX_WIDTH)
    """planes that the value head looks at"""


class NetworkSettings(LenientSettings):
    """The network of a behavior or of a reward signal."""

    normalize: bool = False
    """normalize vector observations by their running mean and variance"""
    hidden_units: PositiveWhole = Field(default=128, le=MAX_WIDTH)
    """width of each layer"""
    num_layers: PositiveWhole = Field(default=2, le=MAX_LAYERS)
    """layers of the body"""
    vis_encode_type: str = "simple"
    """encoder of visual observations: simple, nature_cnn, resnet, match3, fully_connected, or an entry point's name"""
    memory: MemorySettings | None = None
    """recurrent memory; null has none"""
    tower: TowerSettings | None = None
    """residual tower for boards, in place of encoders and layers; null has none"""
    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """how goal observations enter"""
    deterministic: bool = False
    """take the most likely action instead of a sample"""
    activation: Literal["swish", "tanh", "relu"] = "tanh"
    """activation of the body's layers; ML-Agents has swish"""
    initialization: Literal["kaiming", "lecun", "orthogonal"] = "orthogonal"
    """initial weights; lecun is what ML-Agents draws"""

    def without_memory(self) -> NetworkSettings:
        """Returns the settings of a network that sees single transitions, as reward signals do in ML-Agents."""
        return self.model_copy(update={"memory": None})

    @field_validator("vis_encode_type")
    @classmethod
    def _encoder_exists(cls, value: str) -> str:
        if value not in VISUAL_ENCODERS and value not in (added := declared(ENCODERS)):
            *names, last = (repr(name) for name in (*VISUAL_ENCODERS, *sorted(added)))
            raise invalid(f"must be {', '.join(names)} or {last}")
        return value

    @model_validator(mode="after")
    def _tower_has_no_memory(self) -> Self:
        if self.tower is not None and self.memory is not None:
            raise invalid_as_told("network_settings has a tower and a memory, which do not go together: take one out")
        return self
