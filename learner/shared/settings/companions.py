"""The companions of a behavior, which train further models beside its policy, and the data that they share."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from learner.shared.settings.base import NonNegativeReal, PositiveBytes, PositiveWhole, Real, SettingsModel
from learner.shared.settings.extensions import COMPANIONS, ExtensionBlock

EXPERIENCE: Final = "experience"
"""The data buffer that each behavior with companions has."""
MAX_BUFFERS: Final = 16
MAX_BUFFER_STEPS: Final = 2**31 - 1
MAX_SHARE: Final = 0.9
"""Largest share of all companions together."""

BufferName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class DataBufferSettings(SettingsModel):
    """A data buffer: the newest steps of a behavior, for its companions."""

    max_steps: PositiveWhole = Field(default=100000, le=MAX_BUFFER_STEPS)
    """most steps; a new one replaces the oldest"""
    max_bytes: PositiveBytes = 64 * 2**20
    """memory for them; the buffer holds fewer steps if max_steps need more"""


class CompanionSettings(SettingsModel):
    """Settings of every companion."""

    data: BufferName = EXPERIENCE
    """data buffer whose steps decide when it trains"""
    min_buffer_size: PositiveWhole = 1000
    """steps in the buffer before it trains"""
    min_new_data_count: PositiveWhole = 256
    """new steps between two trainings"""
    max_share: Annotated[Real, Field(gt=0, le=MAX_SHARE)] = 0.2
    """largest share of time in which it trains; lock-step has no clock and does not use it"""
    learning_rate: NonNegativeReal = 3e-4
    """step size of its Adam, unless it has optimizers of its own"""


class Companions(ExtensionBlock):
    """The companions of a behavior, by the names of their classes."""

    _setting: ClassVar = "companions"
    _group: ClassVar = COMPANIONS
    _kind: ClassVar = CompanionSettings
