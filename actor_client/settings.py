"""What an actor can be told: flags over ROLLCAST_ACTOR_ variables over defaults, in one frozen value."""

import difflib
import ipaddress
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from actor_client.exits import ActorError, ExitCode
from actor_client.logs import LogFormat, LogLevel

PREFIX: Final = "ROLLCAST_ACTOR_"
MAX_ENVS: Final = 65536
DEFAULT_METRICS_ADDRESS: Final = "127.0.0.1:9465"
NO_METRICS: Final = "off"

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ActorSettings(BaseSettings):
    """Settings of `rollcast-actor gym`; the flags of the same names say what each one does."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_prefix=PREFIX, env_ignore_empty=True)

    env: str = Field(min_length=1)
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    num_envs: int = Field(default=1, ge=1, le=MAX_ENVS)
    vector: bool = False
    behavior: str | None = Field(default=None, min_length=1)
    learner: str = "127.0.0.1:50051"
    insecure: bool = False
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    connect_timeout: Seconds | None = None
    max_seconds: Seconds | None = None
    max_env_failures: int = Field(default=3, ge=1)
    metrics_address: str = DEFAULT_METRICS_ADDRESS
    heartbeat_file: Path | None = None
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"

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
        """Whether another port will do as well: nobody asked for this one."""
        return "metrics_address" not in self.model_fields_set

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


def load(flags: Mapping[str, object], environ: Mapping[str, str] | None = None) -> ActorSettings:
    """Returns the settings that flags and variables resolve to.

    Args:
        flags: What the command line gave, by field.
        environ: The process's variables; searched for names that nobody reads.

    Raises:
        ActorError: Something is wrong; the message names the flag or variable.
    """
    _refuse_strangers(os.environ if environ is None else environ)
    try:
        return ActorSettings(**dict(flags))  # type: ignore[arg-type]
    except ValidationError as error:
        problems = "; ".join(_explain(problem, flags) for problem in error.errors())
        raise ActorError(ExitCode.USAGE, problems) from None
    except SettingsError as error:  # a variable that shall hold JSON and does not
        raise ActorError(ExitCode.USAGE, f"a {PREFIX} variable cannot be read: {error}") from None


def split_address(address: str, *, may_be_zero: bool = False) -> tuple[str, int]:
    """Returns host and port of HOST:PORT; an IPv6 address stands in brackets.

    Args:
        address: The text.
        may_be_zero: Port 0 is allowed, which means any free one to whoever listens.

    Raises:
        ValueError: It is something else.
    """
    host, _, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} has no clear port; write [ADDRESS]:PORT")
    if not host or not host.isprintable() or " " in host or "/" in host:
        raise ValueError(f"{address!r} names no host; write HOST:PORT, as in 127.0.0.1:50051")
    try:
        host.encode("idna")  # as the system's look-up does, which would raise what no caller expects
    except UnicodeError:
        raise ValueError(f"{address!r} names no host: write a name whose parts have 1 to 63 characters") from None
    smallest = 0 if may_be_zero else 1
    if not port.isascii() or not port.isdigit() or not smallest <= int(port) < 65536:
        raise ValueError(f"{address!r} has no port from {smallest} to 65535; write HOST:PORT, as in 127.0.0.1:50051")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine for sure."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_strangers(environ: Mapping[str, str]) -> None:
    """Refuses variables that look like settings and are none: a typing error would be ignored in silence."""
    known = {PREFIX + name.upper() for name in ActorSettings.model_fields}
    for variable in sorted(environ):
        if variable.upper().startswith(PREFIX) and variable.upper() not in known:
            near = difflib.get_close_matches(variable.upper(), known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ActorError(ExitCode.USAGE, f"{variable} is no setting of the actor; {hint}")


def _explain(problem: ErrorDetails, flags: Mapping[str, object]) -> str:
    """Returns one problem with the flag or variable that it came from."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return message
    name = str(problem["loc"][0])
    flag = "--" + name.replace("_", "-")
    if problem["type"] == "missing":
        return f"{flag} is missing"
    source = flag if name in flags else PREFIX + name.upper()
    return f"{source} {problem['input']!r}: {message[:1].lower()}{message[1:]}"
