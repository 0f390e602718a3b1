"""What every command of an actor can be told: its learner, its metrics, its logs, its end."""

from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from actor_client.logs import LogFormat, LogLevel
from actor_client.settings import PREFIX
from actor_client.settings.addresses import is_loopback, split_address

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
        """Whether another port will do as well: nobody asked for this one."""
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
