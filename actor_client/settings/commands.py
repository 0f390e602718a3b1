"""Settings of the commands of an actor."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from actor_client.logs import LogFormat, LogLevel
from actor_client.settings import PREFIX
from actor_client.settings.addresses import (
    BUILD_PORT,
    DEFAULT_LISTEN,
    DEFAULT_MAX_MESSAGE_BYTES,
    EDITOR_PORT,
    LEAST_MAX_MESSAGE_BYTES,
    MAX_PLAYERS,
    MOST_MAX_MESSAGE_BYTES,
    Ports,
    is_loopback,
    split_address,
    split_hosts,
)

DEFAULT_METRICS_ADDRESS: Final = "127.0.0.1:9465"
NO_METRICS: Final = "off"

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CommonSettings(BaseSettings):
    """Settings of every command that acts; the flags of the same names say what each one does."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_ignore_empty=True)

    learner: str = "127.0.0.1:50051"
    insecure: bool = False
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    connect_timeout: Seconds | None = None
    max_seconds: Seconds | None = None
    metrics_address: str = DEFAULT_METRICS_ADDRESS
    heartbeat_file: Path | None = None
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"
    record: Path | None = None
    record_episodes: int = Field(default=0, ge=0)

    @field_validator("learner")
    @classmethod
    def _check_address(cls, value: str) -> str:
        split_address(value)
        return value

    @field_validator("metrics_address")
    @classmethod
    def _check_metrics_address(cls, value: str) -> str:
        if value != NO_METRICS:
            split_address(value, may_be_zero=True)
        return value

    @property
    def metrics_endpoint(self) -> tuple[str, int] | None:
        """Where metrics are served, host and port; None for nowhere."""
        return None if self.metrics_address == NO_METRICS else split_address(self.metrics_address, may_be_zero=True)

    @property
    def may_move_metrics(self) -> bool:
        """True if another port will do as well: nobody asked for this one."""
        return "metrics_address" not in self.model_fields_set

    @model_validator(mode="after")
    def _check_recording(self) -> Self:
        if self.record_episodes and self.record is None:
            raise ValueError(f"record_episodes {self.record_episodes} needs a file: add --record FILE.demo")
        return self

    @model_validator(mode="after")
    def _check_exposure(self) -> Self:
        metrics = self.metrics_endpoint
        if not self.insecure and metrics is not None and not is_loopback(metrics[0]):
            raise ValueError(
                f"metrics_address {self.metrics_address} can be reached from other machines, in plain text and without "
                "a password; pass --insecure if you trust the network, or serve metrics on 127.0.0.1"
            )
        host, _ = split_address(self.learner)
        if not self.insecure and not is_loopback(host):
            raise ValueError(
                f"learner {self.learner} is another machine, and the connection would be in plain text; "
                "pass --insecure if you trust the network between"
            )
        return self


MAX_ENVS: Final = 65536


class GymSettings(CommonSettings):
    """Settings of `rollcast-actor gym`; the flags of the same names say what each one does."""

    env: str = Field(min_length=1)
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    num_envs: int = Field(default=1, ge=1, le=MAX_ENVS)
    vector: bool = False
    behavior: str | None = Field(default=None, min_length=1)
    max_env_failures: int = Field(default=3, ge=1)
    policy: str | None = Field(default=None, min_length=1)
    seed: int = Field(default=0, ge=0, lt=2**31)

    @field_validator("env_kwargs", mode="before")
    @classmethod
    def _read_json(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            found = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError('is no JSON object; write one as in {"render_mode": "rgb_array"}')  # noqa: TRY004 - pydantic
        return found

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if self.policy is not None and self.record is None:
            raise ValueError(f"policy {self.policy} acts without a learner, for a recording: add --record FILE.demo")
        if self.policy is None and "seed" in self.model_fields_set:
            raise ValueError("seed goes with policy; where there is a learner, the seeds are its run's")
        return self


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
