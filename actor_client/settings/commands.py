"""Settings of the commands of an actor."""

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict
from rollcast.addresses import is_loopback, split_address
from rollcast.limits import SCRIPT_PATTERN
from rollcast.tls import ClientSecurity, IdentityError, read_token

from actor_client.joining import AUTHORITY, CLIENT_CERT, CLIENT_KEY, TOKEN, joined_address
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
    split_hosts,
)

DEFAULT_METRICS_ADDRESS: Final = "127.0.0.1:9465"
NO_METRICS: Final = "off"

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LearnerSettings(BaseSettings):
    """Settings of every command that connects to a learner as an actor does; the flags of the same names explain them."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_ignore_empty=True)

    learner: str = "127.0.0.1:50051"
    insecure: bool = False
    certs: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    server_name: str | None = Field(default=None, min_length=1)
    connect_timeout: Seconds | None = None
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"

    @model_validator(mode="before")
    @classmethod
    def _read_address(cls, values: object) -> object:
        """Takes the learner's address from the folder of `join`, if none is given."""
        if isinstance(values, dict) and values.get("certs") is not None and "learner" not in values:
            return {**values, "learner": joined_address(Path(values["certs"]))}
        return values

    @field_validator("learner")
    @classmethod
    def _check_address(cls, value: str) -> str:
        split_address(value, least_port=1)
        return value

    @property
    def security(self) -> ClientSecurity:
        """Certificates, token and server name for the connection. Files of `certs` that do not exist are not used."""

        def path(given: Path | None, name: str) -> Path | None:
            if given is not None or self.certs is None:
                return given
            found = self.certs / name
            return found if found.exists() or name == AUTHORITY else None

        return ClientSecurity(
            path(self.tls_ca, AUTHORITY),
            path(self.tls_cert, CLIENT_CERT),
            path(self.tls_key, CLIENT_KEY),
            path(self.token_file, TOKEN),
            self.server_name,
        )

    @model_validator(mode="after")
    def _check_identity(self) -> Self:
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together; give both, or neither")
        security = self.security
        if security.ca is None and (security.cert is not None or security.server_name is not None):
            raise ValueError(
                "a certificate or server_name needs TLS; give --certs DIR, made by rollcast join DIR, or --tls-ca FILE"
            )
        try:
            security.check()
        except IdentityError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _check_exposure(self) -> Self:
        host, _ = split_address(self.learner)
        if not self.insecure and self.security.ca is None and not is_loopback(host):
            raise ValueError(
                f"learner {self.learner} is another machine, and the connection would be in plain text; give --certs or "
                "--tls-ca, or pass --insecure if you trust the network between them"
            )
        return self


class CommonSettings(LearnerSettings):
    """Settings of every command that acts; the flags of the same names explain them."""

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    outage_bytes: int = Field(default=0, ge=0, le=2**40)
    max_wall_seconds: Seconds | None = None
    metrics_address: str = DEFAULT_METRICS_ADDRESS
    metrics_token_file: Path | None = None
    heartbeat_file: Path | None = None
    record: Path | None = None
    record_episodes: int = Field(default=0, ge=0)

    @field_validator("metrics_address")
    @classmethod
    def _check_metrics_address(cls, value: str) -> str:
        if value != NO_METRICS:
            split_address(value)
        return value

    @property
    def metrics_endpoint(self) -> tuple[str, int] | None:
        """Host and port of the metrics; None if they are off."""
        return None if self.metrics_address == NO_METRICS else split_address(self.metrics_address)

    @property
    def may_move_metrics(self) -> bool:
        """True if another port may be used, because the user did not choose this one."""
        return "metrics_address" not in self.model_fields_set

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        metrics = self.metrics_endpoint
        has_token = self.metrics_token_file is not None
        if not self.insecure and not has_token and metrics is not None and not is_loopback(metrics[0]):
            raise ValueError(
                f"metrics_address {self.metrics_address} can be reached from other machines without a password; give "
                "--metrics-token-file, pass --insecure if you trust the network, or serve metrics on 127.0.0.1"
            )
        try:
            if self.metrics_token_file is not None:
                read_token(self.metrics_token_file)
        except IdentityError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _check_recording(self) -> Self:
        if self.record_episodes and self.record is None:
            raise ValueError(f"record_episodes {self.record_episodes} needs a file: add --record FILE.demo")
        return self


MAX_ENVS: Final = 65536
MAX_FRAMES: Final = 1024
"""Most frames to stack or to skip; a larger number is a typing error."""


def split_names(value: object) -> object:
    """Splits a variable's text at its commas into names; flags already give a list."""
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


def check_callables(names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the names if each is a `module:callable`.

    Raises:
        ValueError: A name has another form.
    """
    for name in names:
        module, _, attribute = name.partition(":")
        if not module or not attribute:
            raise ValueError(f"{name!r} names no callable; write module:callable")
    return names


def check_script(name: str) -> str:
    """Returns the name of a scripted opponent if it is a `module:callable`.

    Raises:
        ValueError: It has another form.
    """
    if SCRIPT_PATTERN.fullmatch(name) is None:
        raise ValueError("is not module:callable, of at most 128 letters, digits, '_' and '.'")
    return name


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_names)]
"""Several words."""
Callables = Annotated[Names, AfterValidator(check_callables)]
"""Several names of callables."""
Script = Annotated[str, AfterValidator(check_script)]
"""Name of a scripted opponent."""


def read_json(value: object) -> object:
    """Returns the object that a text in JSON is; flags and variables are texts.

    Raises:
        ValueError: The text is none.
    """
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError('is not a JSON object; write one, as in {"render_mode": "rgb_array"}')  # noqa: TRY004 - pydantic
    return found


def read_words(value: object) -> object:
    """Returns the words of a variable, which are separated as in a shell, or are a JSON list.

    Raises:
        ValueError: The text has another form.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value) if value.lstrip().startswith("[") else shlex.split(value)
    except ValueError as error:
        raise ValueError(f"is not a list of arguments: {error}") from None


class SteppingSettings(CommonSettings):
    """Settings of every command that calls environments in its own process."""

    num_envs: int = Field(default=1, ge=1, le=MAX_ENVS)
    max_env_failures: int = Field(default=3, ge=1)
    step_timeout: Seconds | None = None


class EnvironmentSettings(SteppingSettings):
    """Settings of every command that makes the environments that a user names."""

    env: str = Field(min_length=1)
    env_kwargs: Annotated[dict[str, Any], BeforeValidator(read_json)] = Field(default_factory=dict)


class GymSettings(EnvironmentSettings):
    """Settings of `rollcast act gym`; the flags of the same names explain them."""

    vector: bool = False
    behavior: str | None = Field(default=None, min_length=1)
    policy: str | None = Field(default=None, min_length=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    wrap: Callables = ()
    frame_stack: int = Field(default=1, ge=1, le=MAX_FRAMES)
    frame_skip: int = Field(default=1, ge=1, le=MAX_FRAMES)
    max_episode_steps: int | None = Field(default=None, ge=1)
    video: Path | None = None
    video_every: int = Field(default=100, ge=1)

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if self.policy is not None and self.record is None:
            raise ValueError(
                f"policy {self.policy} acts without a learner and only for recordings: add --record FILE.demo"
            )
        if self.policy is None and "seed" in self.model_fields_set:
            raise ValueError("seed is only for policy; with a learner, the run's seed is used")
        if self.policy is not None and self.step_timeout is not None:
            raise ValueError("step_timeout needs a learner; leave it out with policy")
        if self.video is None and "video_every" in self.model_fields_set:
            raise ValueError(f"video_every {self.video_every} needs a folder for the videos: add --video DIR")
        return self


LARGEST_PORT: Final = 65535


class UnitySettings(CommonSettings):
    """Settings of `rollcast act unity`; the flags of the same names explain them.

    None means the value of the learner's run file, which arrives with the session.
    """

    env: str | None = Field(default=None, min_length=1)
    num_envs: int = Field(default=1, ge=1, le=MAX_PLAYERS)
    base_port: int | None = Field(default=None, ge=1, le=LARGEST_PORT)
    player_address: str = DEFAULT_LISTEN
    env_args: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(read_words)] = None
    allow_env_args: Names = ()
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
    side_channel: Callables = ()
    opponent: Script | None = None

    @field_validator("player_address")
    @classmethod
    def _check_hosts(cls, value: str) -> str:
        if not split_hosts(value):
            raise ValueError("has no address; write one or more, as in 127.0.0.1,::1")
        for host in split_hosts(value):
            split_address(f"[{host}]:1")
        return value

    @model_validator(mode="after")
    def _check_players(self) -> Self:
        if self.env is None and self.num_envs > 1:
            raise ValueError(
                f"num_envs {self.num_envs} needs a build to start: give --env, or leave --num-envs out for the editor"
            )
        if self.first_port + self.num_envs - 1 > LARGEST_PORT:
            raise ValueError(
                f"base_port {self.first_port} and num_envs {self.num_envs} need ports above {LARGEST_PORT}; "
                "choose a smaller --base-port"
            )
        open_hosts = [host for host in self.hosts if not is_loopback(host)]
        if open_hosts and not self.insecure:
            raise ValueError(
                f"player_address {open_hosts[0]} can be reached from other machines, in plain text and without a "
                "password, but Unity players connect only to localhost; leave --player-address out, or pass --insecure "
                "if you trust the network"
            )
        return self

    @property
    def hosts(self) -> tuple[str, ...]:
        """Addresses to listen on for players."""
        return split_hosts(self.player_address)

    @property
    def first_port(self) -> int:
        """The port of worker 0; the others follow it."""
        return self.base_port or (EDITOR_PORT if self.env is None else BUILD_PORT)

    @property
    def ports(self) -> Ports:
        """The ports to listen on for players."""
        return Ports(
            self.hosts, self.first_port, self.num_envs, self.max_player_message_bytes, is_editor=self.env is None
        )
