"""The ``rollcast:`` block: what the service needs beyond ML-Agents' settings."""

from __future__ import annotations

import ipaddress
from typing import Final, Literal, Self

from pydantic import Field, field_validator, model_validator
from rollcast.limits import MAX_CHUNK_BYTES, TARGET_CHUNK_BYTES

from learner.settings.base import (
    PositiveBytes,
    PositiveReal,
    PositiveWhole,
    Real,
    SettingsModel,
    Whole,
    invalid,
    invalid_as_told,
)
from learner.settings.hyperparameters import OWN_TRAINERS, built_trainers, trainers_with

MIN_CHUNK_BYTES = 64 * 1024
MAX_BUCKETS = 100
MIN_SECONDS = 0.1
"""A shorter lease or interval would run out before a message is answered, or keep the learner busy with itself."""
DAY_SECONDS = 86400.0
MAX_SECONDS = 1e9
"""Thirty years: what shall never happen may be written as this."""
MAX_THREADS = 1024
MAX_SESSIONS = 10**6
MAX_STEPS = 2**31 - 1
MAX_BYTES = 2**50
MAX_EPISODES = 10**6
MAX_LOCKSTEP_ACTORS = 4096
MAX_ACTOR_NAME_CHARACTERS = 256
MAX_SILENT_SECONDS = 31 * DAY_SECONDS
MAX_INTERVAL_STEPS = 2**53
OWN_STATS_WRITERS: Final = ("tensorboard", "csv", "wandb")
"""Names of statistics writers that come with Rollcast."""
DEFAULT_HTTP_ADDRESS = "127.0.0.1:9464"


def split_address(address: str) -> tuple[str, int]:
    """Splits ``host:port`` (``[::1]:50051`` for IPv6) into its parts; port 0 means any free port.

    Raises:
        ValueError: the text is no such address.
    """
    host, separator, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise ValueError("must be host:port with a port from 0 to 65535")
    if ":" in host and not bracketed:
        raise ValueError("must have its IPv6 address in brackets, as in [::1]:50051")
    if not _can_be_looked_up(host):
        raise ValueError("must have an IP address or a host name, whose parts have 1 to 63 characters")
    return host.strip("[]"), int(port)


def _can_be_looked_up(host: str) -> bool:
    """Says whether a host can be put to the system: it would raise what no caller expects."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return host.isprintable() and " " not in host


def is_loopback(address: str) -> bool:
    """Says whether only this machine can reach an address ``host:port``."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # another host name: it may resolve to anything


def _default_lags() -> str:
    """Names our trainers with the default of ``max_policy_lag`` of each."""
    named: dict[int, list[str]] = {}
    for name in built_trainers(lambda model: model.traits.max_policy_lag > 0):
        named.setdefault(OWN_TRAINERS[name].settings_model.traits.max_policy_lag, []).append(name)
    return ", ".join(f"{' and '.join(names)} {lag}" for lag, names in named.items())


class LockstepSettings(SettingsModel):
    """One barrier over all behaviors: every round takes the same steps of the same actors, in the same order."""

    actors: PositiveWhole = Field(default=1, le=MAX_LOCKSTEP_ACTORS)
    """actors of a round, with the indices 0, 1, ...; training waits for all"""
    actor_names: tuple[str, ...] | None = None
    """their names (--name) in the order of their indices; null goes by who came first"""
    quota_steps: PositiveWhole | None = Field(
        default=None,
        le=MAX_STEPS,
        description="steps each agent takes in a round, which is one update; null takes just enough to pass buffer_size "
        f"({trainers_with(lambda model: model.traits.replay)}: time_horizon)",
    )
    checkpoint_updates: PositiveWhole = Field(default=50, le=MAX_STEPS)
    """rounds between recovery checkpoints; environments begin anew at each"""

    @field_validator("actor_names")
    @classmethod
    def _names_of_actors(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if not 1 <= len(name) <= MAX_ACTOR_NAME_CHARACTERS or not name.isprintable():
                raise invalid(f"must be names of 1 to {MAX_ACTOR_NAME_CHARACTERS} printable characters")
        if value is not None and len(set(value)) != len(value):
            raise invalid("must be names of which no two are the same")
        return value

    @model_validator(mode="after")
    def _as_many_names(self) -> Self:
        if self.actor_names is not None and len(self.actor_names) != self.actors:
            raise invalid_as_told(
                f"actor_names has {len(self.actor_names)} names for {self.actors} actors: give each actor one, or leave "
                "actor_names out"
            )
        return self


class EvaluationSettings(SettingsModel):
    """Whole episodes that some actors play with one policy, and that nothing learns from."""

    interval_steps: PositiveWhole | None = Field(default=None, le=MAX_INTERVAL_STEPS)
    """trainer steps between evaluations; null makes none"""
    episodes: PositiveWhole = Field(default=10, le=MAX_EPISODES)
    """episodes of one evaluation, of each behavior"""
    deterministic: bool = True
    """the mode of the distribution acts, not a draw"""
    actors: PositiveWhole = Field(default=1, le=MAX_EPISODES)
    """actors that play, in equal shares; the others train on"""
    max_silent_seconds: PositiveReal = Field(default=600.0, le=MAX_SILENT_SECONDS)
    """an evaluation in which no episode ends for so long is given up; longer than any episode takes"""


class ServiceSettings(SettingsModel):
    """Addresses, limits and pace of the learner."""

    address: str = "127.0.0.1:50051"
    """where actors connect; port 0 takes any free port"""
    insecure: bool = False
    """allow plain text on an address other machines can reach"""
    control_address: str = "127.0.0.1:0"
    """where status, pause and stop commands connect; loopback"""
    http: bool = True
    """serve the status page, /metrics and /healthz"""
    http_address: str = DEFAULT_HTTP_ADDRESS
    """where they are; if this default is taken, a free port is"""
    operator_token_file: str | None = None
    """file with the token for the page's buttons; null makes one in the run folder"""
    reflection: bool = False
    """offer gRPC server reflection"""
    max_sessions: PositiveWhole = Field(default=1024, le=MAX_SESSIONS)
    """actors connected at once"""
    lease_seconds: PositiveReal = Field(default=15.0, ge=MIN_SECONDS, le=DAY_SECONDS)
    """a silent session ends after this long"""
    drain_seconds: PositiveReal = Field(default=5.0, le=DAY_SECONDS)
    """time for actors to send what they have at the end"""

    queue_bytes: PositiveBytes = Field(default=256 * 2**20, le=MAX_BYTES)
    """bytes of chunks waiting for the trainers"""
    max_chunk_bytes: PositiveBytes = Field(default=MAX_CHUNK_BYTES, ge=MIN_CHUNK_BYTES, le=MAX_CHUNK_BYTES)
    """largest chunk accepted"""
    target_chunk_bytes: PositiveBytes = TARGET_CHUNK_BYTES
    """an actor sends a chunk of this size"""
    max_chunk_age_seconds: PositiveReal = Field(default=0.025, le=DAY_SECONDS)
    """an actor sends a chunk this old, however small"""
    max_chunk_steps: PositiveWhole | None = Field(default=None, le=MAX_STEPS)
    """most steps in a chunk; null lets the learner say"""

    on_policy: Literal["relaxed", "strict"] = Field(
        default="relaxed",
        description=f"strict: {trainers_with(lambda model: model.traits.on_policy)} trains only steps of the version it updates; relaxed: up to max_policy_lag",
    )
    max_policy_lag: Whole | None = Field(
        default=None,
        ge=0,
        le=MAX_STEPS,
        description=f"most versions between acting and learning; null is the trainer's ({_default_lags()})",
    )
    device_ring_steps: PositiveWhole | None = Field(default=None, le=2**40)
    """steps the ring on the training device holds; null is the trainer's"""
    max_training_bytes: PositiveBytes | None = Field(default=None, le=MAX_BYTES)
    """memory that rings and networks may take; null is half of what is free at the start"""

    lockstep: LockstepSettings | None = None
    """a run that can be repeated bit by bit on one kind of CPU; null lets actors run freely"""

    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    """whole episodes now and then that nothing learns from"""
    resume_checkpoint: str = "last"
    """what a resumed run goes on from: last, best, a step, or a .pt file"""
    checkpoint_seconds: PositiveReal = Field(default=60.0, ge=MIN_SECONDS, le=MAX_SECONDS)
    """time between recovery checkpoints"""
    target_return: Real | None = None
    """stop once the mean return reaches this"""
    reward_buffer_episodes: PositiveWhole = Field(default=100, le=MAX_EPISODES)
    """episodes in the mean return"""
    return_buckets: tuple[Real, ...] | None = None
    """bounds of the metric of episode returns; null is -1000 to 1000"""
    max_wall_seconds: PositiveReal | None = Field(default=None, le=MAX_SECONDS)
    """stop, with success, after this long; an update that has begun is finished first"""

    stats_writers: tuple[str, ...] = ("tensorboard", "csv")
    """where statistics go: tensorboard, csv, wandb, an entry point's name, or module:callable"""
    callbacks: tuple[str, ...] = ()
    """code of yours that hears of updates and so on: an entry point's name, or module:callable"""

    torch_threads: PositiveWhole | None = Field(default=None, le=MAX_THREADS)
    """threads of torch; null takes the free cores"""
    log_format: Literal["auto", "console", "json", "mlagents"] = "auto"
    """auto goes by whether the output is a terminal; mlagents prints mlagents-learn's line per summary"""
    summary_seconds: PositiveReal = Field(default=5.0, ge=MIN_SECONDS, le=MAX_SECONDS)
    """time between summary lines on the console"""

    @property
    def session_limit(self) -> tuple[int, str]:
        """How many actors there may be at once, and which setting says so."""
        if self.lockstep is not None:
            return self.lockstep.actors, "rollcast.lockstep.actors"
        return self.max_sessions, "rollcast.max_sessions"

    @field_validator("address", "control_address", "http_address")
    @classmethod
    def _well_formed(cls, value: str) -> str:
        try:
            split_address(value)
        except ValueError as error:
            raise invalid(str(error)) from None
        return value

    @field_validator("control_address")
    @classmethod
    def _control_is_local(cls, value: str) -> str:
        if not is_loopback(value):
            raise invalid("must be a loopback address such as 127.0.0.1:0, for whoever reaches it can stop the run")
        return value

    @field_validator("return_buckets")
    @classmethod
    def _ascends(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (not 1 <= len(value) <= MAX_BUCKETS or list(value) != sorted(set(value))):
            raise invalid(f"must be 1 to {MAX_BUCKETS} numbers, each larger than the one before")
        return value

    @model_validator(mode="after")
    def _plain_text_stays_here(self) -> Self:
        if not self.insecure and not is_loopback(self.address):
            raise invalid_as_told(
                f"address {self.address} can be reached from other machines, and the connection is plain text: "
                "give --insecure (rollcast.insecure: true) on a network you trust, or listen on 127.0.0.1"
            )
        if self.http and not self.insecure and not is_loopback(self.http_address):
            raise invalid_as_told(
                f"http_address {self.http_address} can be reached from other machines, and the connection is plain "
                "text: give --insecure (rollcast.insecure: true) on a network you trust, or listen on 127.0.0.1"
            )
        return self

    @model_validator(mode="after")
    def _sizes_nest(self) -> Self:
        if self.target_chunk_bytes > self.max_chunk_bytes:
            raise invalid_as_told(
                f"target_chunk_bytes {self.target_chunk_bytes} exceeds max_chunk_bytes {self.max_chunk_bytes}"
            )
        if self.max_chunk_bytes > self.queue_bytes:
            raise invalid_as_told(f"max_chunk_bytes {self.max_chunk_bytes} exceeds queue_bytes {self.queue_bytes}")
        return self
