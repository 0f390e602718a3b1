"""Settings of `rollcast act boards` and `rollcast play`."""

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from actor_client.settings import PREFIX
from actor_client.settings.commands import CommonSettings, Script

MAX_GAMES: Final = 8192
"""Most games of a process; the rollout knows at most 16384 agents of one simulator."""
GAME_PATTERN: Final = r"^[a-z][a-z0-9_]{0,63}(\([A-Za-z0-9_=.,-]{0,200}\))?$"


class BoardsSettings(CommonSettings):
    """Settings of `rollcast act boards`; the flags of the same names explain them."""

    game: str = Field(pattern=GAME_PATTERN)
    num_envs: int = Field(default=64, ge=1, le=MAX_GAMES)
    behavior: str | None = Field(default=None, min_length=1)
    max_plies: int | None = Field(default=None, ge=1)
    random_plies: int = Field(default=0, ge=0, le=1000)
    records: Path | None = None
    records_every: int = Field(default=1000, ge=1)
    opponent: Script | None = None

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.records is None and "records_every" in self.model_fields_set:
            raise ValueError(f"records_every {self.records_every} needs a folder for the games: add --records DIR")
        return self


class PlaySettings(BaseSettings):
    """Settings of `rollcast play`; the flags of the same names explain them."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_ignore_empty=True)

    model: Path
    game: str = Field(pattern=GAME_PATTERN)
    usi: bool = False
    side: Literal["first", "second", "random"] = "first"
    temperature: float = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    search: int = Field(default=0, ge=0, le=64)
    search_width: int = Field(default=8, ge=1, le=1024)
    max_plies: int | None = Field(default=None, ge=1)
    records: Path | None = None
    seed: int | None = Field(default=None, ge=0)
