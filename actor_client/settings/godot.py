"""Settings of `rollcast act godot`."""

from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from actor_client.settings.addresses import MAX_PLAYERS
from actor_client.settings.agents import RuleSettings
from actor_client.settings.commands import LARGEST_PORT, Seconds, read_words

EDITOR_PORT: Final = 11008
"""The port to which a game without `--port` connects, as one that the editor starts."""
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
_OF_BUILD: Final = ("num_envs", "env_seed", "speedup", "action_repeat", "fixed_fps", "viz", "env_args")


class GodotSettings(RuleSettings):
    """Settings of `rollcast act godot`; the flags of the same names explain them."""

    env: str | None = Field(default=None, min_length=1)
    num_envs: int = Field(default=1, ge=1, le=MAX_PLAYERS)
    base_port: int | None = Field(default=None, ge=1, le=LARGEST_PORT)
    env_seed: int | None = Field(default=None, ge=0, lt=2**31)
    speedup: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    action_repeat: int | None = Field(default=None, ge=1)
    fixed_fps: int | None = Field(default=None, ge=1)
    viz: bool = False
    env_args: Annotated[tuple[str, ...], NoDecode, BeforeValidator(read_words)] = ()
    timeout_wait: Seconds = DEFAULT_TIMEOUT_SECONDS
    max_env_failures: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _check_games(self) -> Self:
        changed = [name for name in _OF_BUILD if getattr(self, name) != type(self).model_fields[name].default]
        if self.env is None and changed:
            raise ValueError(
                f"{changed[0]} needs a build to start: give --env; a game that the editor starts has its own settings, in its "
                "Sync node"
            )
        if self.base_port is not None and self.base_port + self.num_envs - 1 > LARGEST_PORT:
            raise ValueError(
                f"base_port {self.base_port} and num_envs {self.num_envs} need ports above {LARGEST_PORT}; choose a smaller "
                "--base-port, or leave it out: each build is given a free port"
            )
        return self
