"""What `rollcast-actor unity` can be told beside what all commands can."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from actor_client.settings.addresses import is_loopback, split_address
from actor_client.settings.common import CommonSettings, Seconds
from actor_client.unity.ports import (
    BUILD_PORT,
    DEFAULT_LISTEN,
    DEFAULT_MAX_MESSAGE_BYTES,
    EDITOR_PORT,
    LEAST_MAX_MESSAGE_BYTES,
    MAX_PLAYERS,
    MOST_MAX_MESSAGE_BYTES,
    Ports,
    split_hosts,
)

_LARGEST_PORT: Final = 65535


class UnitySettings(CommonSettings):
    """Settings of `rollcast-actor unity`; the flags of the same names say what each one does.

    None leaves a value to the run file of the learner, whose session brings it.
    """

    env: str | None = Field(default=None, min_length=1)
    num_envs: int = Field(default=1, ge=1, le=MAX_PLAYERS)
    base_port: int | None = Field(default=None, ge=1, le=_LARGEST_PORT)
    listen: str = DEFAULT_LISTEN
    env_args: Annotated[tuple[str, ...] | None, NoDecode] = None
    no_graphics: bool | None = None
    no_graphics_monitor: bool | None = None
    timeout_wait: Seconds | None = None
    max_lifetime_restarts: int | None = Field(default=None, ge=-1)
    restarts_rate_limit_n: int | None = Field(default=None, ge=-1)
    restarts_rate_limit_period_s: Seconds | None = None
    log_dir: Path | None = None
    max_player_message_bytes: int = Field(
        default=DEFAULT_MAX_MESSAGE_BYTES, ge=LEAST_MAX_MESSAGE_BYTES, le=MOST_MAX_MESSAGE_BYTES
    )
    quiet_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    error_file: Path | None = None
    side_channel: Annotated[tuple[str, ...], NoDecode] = ()

    @field_validator("env_args", mode="before")
    @classmethod
    def _read_words(cls, value: object) -> object:
        """A variable holds words as a shell reads them, or a JSON list."""
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value.lstrip().startswith("[") else shlex.split(value)
        except ValueError as error:
            raise ValueError(f"is no list of arguments: {error}") from None

    @field_validator("side_channel", mode="before")
    @classmethod
    def _read_names(cls, value: object) -> object:
        return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value

    @field_validator("side_channel")
    @classmethod
    def _check_names(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            module, _, attribute = name.partition(":")
            if not module or not attribute:
                raise ValueError(f"{name!r} names nothing to call; write module:callable")
        return value

    @field_validator("listen")
    @classmethod
    def _check_hosts(cls, value: str) -> str:
        if not split_hosts(value):
            raise ValueError("names no address; write one or more, as in 127.0.0.1,::1")
        for host in split_hosts(value):
            split_address(f"[{host}]:1")
        return value

    @model_validator(mode="after")
    def _check_players(self) -> Self:
        if self.env is None and self.num_envs > 1:
            raise ValueError(
                f"num_envs {self.num_envs} needs a build to start: give --env, or leave it out for the editor"
            )
        if self.first_port + self.num_envs - 1 > _LARGEST_PORT:
            raise ValueError(
                f"base_port {self.first_port} and num_envs {self.num_envs} ask for ports over {_LARGEST_PORT}; "
                "choose a smaller --base-port"
            )
        open_hosts = [host for host in self.hosts if not is_loopback(host)]
        if open_hosts and not self.insecure:
            raise ValueError(
                f"listen {open_hosts[0]} can be reached from other machines, in plain text and without a password, and "
                "Unity players call localhost only; pass --insecure if you trust the network, or leave --listen out"
            )
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses where players are awaited."""
        return split_hosts(self.listen)

    @property
    def first_port(self) -> int:
        """The port of worker 0; the others follow it."""
        return self.base_port or (EDITOR_PORT if self.env is None else BUILD_PORT)

    @property
    def ports(self) -> Ports:
        """Where players are awaited."""
        return Ports(
            self.hosts, self.first_port, self.num_envs, self.max_player_message_bytes, is_editor=self.env is None
        )
