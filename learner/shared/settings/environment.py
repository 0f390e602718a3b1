"""Settings of the environments, the engine, checkpoints and torch: ML-Agents' own blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from learner.shared.settings.base import (
    LenientSettings,
    PositiveWhole,
    Real,
    SettingsModel,
    Whole,
    invalid,
    invalid_as_told,
)
from learner.shared.settings.names import run_id_problem

MAX_NUMBER = 2**31 - 1
"""Largest value of the signed 32-bit integers of the protocol and of Unity."""
MAX_TIME_SCALE = 1e6
MAX_WAIT_SECONDS = 10**9


class EnvironmentSettings(SettingsModel):
    """The environments that the actors of this run start."""

    env_path: str | None = None
    """Unity player to start; null waits for the editor"""
    env_args: tuple[str, ...] | None = None
    """arguments for the player"""
    base_port: PositiveWhole = Field(default=5005, le=65535)
    """port of the first player"""
    num_envs: PositiveWhole = Field(default=1, le=MAX_NUMBER)
    """players started by one gateway"""
    num_areas: PositiveWhole = Field(default=1, le=MAX_NUMBER)
    """training areas in one player"""
    timeout_wait: PositiveWhole = Field(default=60, le=MAX_WAIT_SECONDS)
    """seconds to wait for a player"""
    seed: Whole = Field(default=-1, ge=-1, le=2**31 - 1)
    """seed of the run; -1 draws one"""
    max_lifetime_restarts: Whole = Field(default=10, ge=-1)
    """restarts of a player; -1 for no limit"""
    restarts_rate_limit_n: Whole = Field(default=1, ge=-1)
    """restarts within the period; -1 for no limit"""
    restarts_rate_limit_period_s: PositiveWhole = Field(default=60, le=MAX_WAIT_SECONDS)
    """the period, in seconds"""

    @field_validator("env_args", mode="before")
    @classmethod
    def _switches_are_text(cls, value: object) -> object:
        """Reads true and false, which YAML parses as booleans, as the text that ML-Agents passes to the player."""
        if not isinstance(value, list | tuple):
            return value
        return [str(item) if isinstance(item, bool) else item for item in value]

    @model_validator(mode="after")
    def _many_need_a_player(self) -> Self:
        if self.num_envs > 1 and self.env_path is None:
            raise invalid_as_told(f"num_envs is {self.num_envs}, but the editor is only one environment: set env_path")
        return self


class EngineSettings(SettingsModel):
    """Settings of the Unity engine."""

    width: PositiveWhole = Field(default=84, le=MAX_NUMBER)
    """width of the player's window, in pixels"""
    height: PositiveWhole = Field(default=84, le=MAX_NUMBER)
    """height of the player's window, in pixels"""
    quality_level: Whole = Field(default=5, ge=-MAX_NUMBER, le=MAX_NUMBER)
    """Unity's quality level"""
    time_scale: Real = Field(default=20.0, ge=-MAX_TIME_SCALE, le=MAX_TIME_SCALE)
    """speed of game time relative to the clock; Unity takes at least 1"""
    target_frame_rate: Whole = Field(default=-1, ge=-MAX_NUMBER, le=MAX_NUMBER)
    """frames drawn per second; -1 for the fastest"""
    capture_frame_rate: Whole = Field(default=60, ge=-MAX_NUMBER, le=MAX_NUMBER)
    """frames per second of game time, independent of the clock: steps are equally long"""
    no_graphics: bool = False
    """players draw nothing"""
    no_graphics_monitor: bool = False
    """only the first player draws"""


class CheckpointSettings(SettingsModel):
    """The folder of a run, and the checkpoint that it starts from."""

    warned_keys: ClassVar[Mapping[str, str]] = {
        "load_model": "is the old name of resume",
        "train_model": "is an old setting without effect: training is the default",
    }

    run_id: str = "ppo"
    """name of the run and of its folder in results_dir"""
    initialize_from: str | None = None
    """run whose weights this one starts from"""
    load_model: bool = False
    """old name of resume"""
    resume: bool | Literal["auto"] = False
    """resume the run; auto: if it exists"""
    force: bool = False
    """start over although the run folder exists"""
    train_model: bool = False
    """old name without effect"""
    inference: bool = False
    """act and measure, without training"""
    results_dir: str = "results"
    """folder of all runs"""

    @field_validator("run_id", "initialize_from")
    @classmethod
    def _names_a_folder(cls, value: str | None, info: ValidationInfo) -> str | None:
        problem = None if value is None else run_id_problem(value)
        if problem is not None:
            files = "; a checkpoint (.pt) is named by behaviors.NAME.init_path" if info.field_name != "run_id" else ""
            raise invalid(f"is not a valid folder name: it {problem}{files}")
        return value


class TorchSettings(LenientSettings):
    """Settings of torch."""

    device: str | None = None
    """cpu, cuda, cuda:1, ...; null is cuda if available, else cpu"""
