"""`RunOptions`, the whole run file as one immutable tree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, field_validator

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.base import SettingsModel, invalid_as_told
from learner.shared.settings.environment import CheckpointSettings, EngineSettings, EnvironmentSettings, TorchSettings
from learner.shared.settings.names import name_problem, without_team
from learner.shared.settings.parameters import ParameterSettings, as_curriculum
from learner.shared.settings.service import ServiceSettings
from learner.shared.settings.trainer import TrainerSettings


class UnknownBehaviorError(UserError):
    """Raised if an actor declares a behavior that is not in the run file."""


class RunOptions(SettingsModel):
    """A run: ML-Agents' own blocks, and the service's under ``rollcast``."""

    default_settings: TrainerSettings | None = None
    """settings of behaviors that are not listed"""
    behaviors: dict[str, TrainerSettings] = Field(default_factory=dict)
    """settings of each behavior"""
    env_settings: EnvironmentSettings = Field(default_factory=EnvironmentSettings)
    """environments that gateways start"""
    engine_settings: EngineSettings = Field(default_factory=EngineSettings)
    """settings of the Unity engine"""
    environment_parameters: dict[str, ParameterSettings] | None = None
    """parameters of the environment: constants, samplers, lessons"""
    checkpoint_settings: CheckpointSettings = Field(default_factory=CheckpointSettings)
    """where the run is saved, and what it starts from"""
    torch_settings: TorchSettings = Field(default_factory=TorchSettings)
    """settings of torch"""
    debug: bool = False
    """log at debug level"""
    rollcast: ServiceSettings = Field(default_factory=ServiceSettings)
    """addresses, limits and pace of the learner"""

    @property
    def log_level(self) -> Literal["debug", "info", "warning", "error"]:
        """The lowest level of the lines on the console: ML-Agents' ``debug`` counts first."""
        return "debug" if self.debug else self.rollcast.log_level

    @field_validator("behaviors")
    @classmethod
    def _usable_names(cls, value: dict[str, TrainerSettings]) -> dict[str, TrainerSettings]:
        for name in value:
            problem = name_problem(name)
            if problem is not None:
                hint = " (write the name without ?team=)" if "?team=" in name else ""
                raise invalid_as_told(f"the behavior name {name!r} {problem}{hint}")
        return value

    @field_validator("environment_parameters", mode="before")
    @classmethod
    def _one_spelling(cls, value: object) -> object:
        if isinstance(value, Mapping):
            return {name: as_curriculum(str(name), settings) for name, settings in value.items()}
        return value

    @property
    def plays_games(self) -> bool:
        """True if all behaviors that the run file allows have self-play."""
        allowed = [*self.behaviors.values(), *([self.default_settings] if self.default_settings is not None else [])]
        return bool(allowed) and all(each.self_play is not None for each in allowed)

    def settings_for(self, behavior_id: str) -> TrainerSettings:
        """Returns the settings of a behavior that an actor declares.

        A behavior that is not listed gets ``default_settings``; a run without a run file accepts every behavior, with
        ML-Agents' PPO defaults.

        Raises:
            UnknownBehaviorError: The run file lists other behaviors and has no ``default_settings``.
        """
        name = without_team(behavior_id)
        if name in self.behaviors:
            return self.behaviors[name]
        if self.default_settings is not None:
            return self.default_settings
        if not self.behaviors:
            return TrainerSettings()
        known = ", ".join(sorted(self.behaviors))
        message = f"the run file lists no behavior {name!r}, only {known}; add it there, or add default_settings"
        raise UnknownBehaviorError(ExitCode.RUN_FILE, message)
