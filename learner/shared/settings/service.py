"""The ``rollcast:`` block: settings of the service in addition to ML-Agents'."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from rollcast.addresses import split_address
from rollcast.limits import MAX_CHUNK_BYTES, MAX_STREAMS, TARGET_CHUNK_BYTES

from learner.shared.settings.addresses import (
    AUTHORITY,
    SERVER_CERT,
    SERVER_KEY,
    TOKENS,
    IdentityFiles,
    host_names,
    is_local,
)
from learner.shared.settings.base import (
    Live,
    PositiveBytes,
    PositiveReal,
    PositiveWhole,
    Real,
    SettingsModel,
    Whole,
    invalid,
    invalid_as_told,
)
from learner.shared.settings.hyperparameters import OWN_TRAINERS, built_trainers, trainers_with

MIN_CHUNK_BYTES = 64 * 1024
MAX_BUCKETS = 100
MIN_SECONDS = 0.1
"""A shorter lease would expire before an answer; a shorter interval would keep the learner busy with itself."""
DAY_SECONDS = 86400.0
MAX_SECONDS = 1e9
"""Thirty years; stands for an event that should never happen."""
MAX_THREADS = 1024
MAX_TRAINERS = 64
MAX_SESSIONS = 10**6
SPARE_CONNECTIONS = 64
MAX_STEPS = 2**31 - 1
MAX_BYTES = 2**50
MAX_EPISODES = 10**6
MAX_LOCKSTEP_ACTORS = 4096
MAX_ACTOR_NAME_CHARACTERS = 256
MAX_SILENT_SECONDS = 31 * DAY_SECONDS
MAX_INTERVAL_STEPS = 2**53
MAX_OPPONENTS = 16
"""Most opponents of an evaluation, each of which plays two matches."""
OWN_STATS_WRITERS: Final = ("tensorboard", "csv", "wandb", "mlflow")
"""Names of the built-in statistics writers."""
DEFAULT_HTTP_ADDRESS = "127.0.0.1:9464"


def _default_lags() -> str:
    """Lists the built-in trainers with their defaults of ``max_policy_lag``."""
    named: dict[int, list[str]] = {}
    for name in built_trainers(lambda model: model.traits.max_policy_lag > 0):
        named.setdefault(OWN_TRAINERS[name].settings_model.traits.max_policy_lag, []).append(name)
    return ", ".join(f"{' and '.join(names)} {lag}" for lag, names in named.items())


class LockstepSettings(SettingsModel):
    """A barrier over all behaviors: every round uses the same steps of the same actors, in the same order."""

    actors: PositiveWhole = Field(default=1, le=MAX_LOCKSTEP_ACTORS)
    """actors of a round, with the indices 0, 1, ...; training waits for all of them"""
    actor_names: tuple[str, ...] | None = None
    """names of the actors (--name) in the order of their indices; null assigns indices in the order of arrival"""
    quota_steps: PositiveWhole | None = Field(
        default=None,
        le=MAX_STEPS,
        description="steps each agent takes in a round, which is one update; null takes just enough to reach buffer_size "
        f"({trainers_with(lambda model: model.traits.replay)}: time_horizon)",
    )
    checkpoint_updates: PositiveWhole = Field(default=50, le=MAX_STEPS)
    """rounds between recovery checkpoints; environments are reset at each"""
    max_wait_seconds: PositiveReal = Field(default=3600.0, le=MAX_SILENT_SECONDS)
    """seconds that actors which ended their round wait for another one before rounds go on without it"""

    @field_validator("actor_names")
    @classmethod
    def _names_of_actors(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in value or ():
            if not 1 <= len(name) <= MAX_ACTOR_NAME_CHARACTERS or not name.isprintable():
                raise invalid(f"must be names of 1 to {MAX_ACTOR_NAME_CHARACTERS} printable characters")
        if value is not None and len(set(value)) != len(value):
            raise invalid("must be different names")
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
    """Whole episodes that some actors play with one policy and that are not trained on."""

    interval_steps: PositiveWhole | None = Field(default=None, le=MAX_INTERVAL_STEPS)
    """trainer steps between evaluations; null disables them"""
    episodes: Live[PositiveWhole] = Field(default=10, le=MAX_EPISODES)
    """episodes of one evaluation, of each behavior"""
    deterministic: bool = True
    """act by the mode of the distribution instead of a sample"""
    actors: PositiveWhole = Field(default=1, le=MAX_EPISODES)
    """actors that play, in equal shares, at least two of different principals if there are several; the others continue to train"""
    max_silent_seconds: PositiveReal = Field(default=600.0, le=MAX_SILENT_SECONDS)
    """seconds without a finished episode after which an evaluation is abandoned; must exceed any episode's duration"""
    opponents: tuple[str, ...] = Field(default=(), max_length=MAX_OPPONENTS)
    """plays these instead, each for `episodes` games: random, MODEL.onnx, or RUN@STEP, RUN@last, RUN@best; needs self_play"""


class ServiceSettings(SettingsModel):
    """Addresses, limits and pace of the learner."""

    address: str = "127.0.0.1:50051"
    """address for actors; port 0 takes any free port"""
    insecure: bool = False
    """allow plain text on an address that other machines can reach"""
    certs: str | None = None
    """folder of rollcast certs init; the source of tls_cert, tls_key, tls_ca and token_file"""
    tls_cert: str | None = None
    """the learner's certificate, followed by those of intermediate authorities; null is plain text without certs"""
    tls_key: str | None = None
    """private key of tls_cert"""
    tls_ca: str | None = None
    """authority of tls_cert, for commands on the learner's own machine"""
    tls_client_ca: str | None = None
    """authority of clients' certificates; null accepts clients without a certificate"""
    token_file: str | None = None
    """hashes of the tokens of actors, viewers, operators and trainers; null asks actors for none"""
    http: bool = True
    """serve the status page, the operators' commands, /metrics and /healthz"""
    http_address: str = DEFAULT_HTTP_ADDRESS
    """address of the status page, the operators' commands and metrics; if this default is in use, a free port is taken"""
    page_address: str | None = None
    """address of the page in links, host:port, if people reach it at another one than http_address, as at a container's published port"""
    http_hosts: str | None = None
    """further host names of the page, separated by commas; localhost and, beyond loopback, IP addresses are always accepted"""
    operator_token_file: str | None = None
    """file with the token for the page's buttons; null creates one in the run folder"""
    reflection: bool = False
    """serve gRPC server reflection"""
    max_sessions: PositiveWhole = Field(default=1024, le=MAX_SESSIONS)
    """actors connected at once"""
    max_streams: PositiveWhole = Field(default=MAX_STREAMS, le=MAX_SESSIONS)
    """calls and streams at once in one connection; raise it for a proxy that passes many actors through one"""
    lease_seconds: PositiveReal = Field(default=15.0, ge=MIN_SECONDS, le=DAY_SECONDS)
    """seconds of silence after which an actor is away (see resume_grace_seconds); with more than 250 actors at least 60 ms for each"""
    resume_grace_seconds: Real = Field(default=300.0, ge=0, le=MAX_SILENT_SECONDS)
    """seconds after a lease, or after a restart of the learner, in which an actor may return to its session; lock-step has none"""
    drain_seconds: PositiveReal = Field(default=5.0, le=DAY_SECONDS)
    """seconds for actors to send their remaining steps at the end"""
    keep_actors: bool = False
    """actors wait for the next learner at the address when the run is over, as between the trials of a sweep, instead of exiting"""

    queue_bytes: PositiveBytes = Field(default=256 * 2**20, le=MAX_BYTES)
    """bytes of chunks waiting for the trainers"""
    max_chunk_bytes: PositiveBytes = Field(default=MAX_CHUNK_BYTES, ge=MIN_CHUNK_BYTES, le=MAX_CHUNK_BYTES)
    """largest chunk accepted"""
    target_chunk_bytes: PositiveBytes = TARGET_CHUNK_BYTES
    """an actor sends a chunk of this size"""
    max_chunk_age_seconds: PositiveReal = Field(default=0.025, le=DAY_SECONDS)
    """an actor sends a chunk this old, however small"""
    max_chunk_steps: PositiveWhole | None = Field(default=None, le=MAX_STEPS)
    """largest number of steps in a chunk; null lets the learner decide"""

    on_policy: Literal["relaxed", "strict"] = Field(
        default="relaxed",
        description=f"strict: {trainers_with(lambda model: model.traits.on_policy)} trains only steps of the version it updates; relaxed: up to max_policy_lag",
    )
    max_policy_lag: Whole | None = Field(
        default=None,
        ge=0,
        le=MAX_STEPS,
        description=f"largest number of versions between acting and learning; null is the trainer's default ({_default_lags()})",
    )
    device_ring_steps: PositiveWhole | None = Field(default=None, le=2**40)
    """steps that the ring on the training device holds; null lets the trainer decide"""
    max_training_bytes: PositiveBytes | None = Field(default=None, le=MAX_BYTES)
    """memory for rings and networks, of all trainer processes together; null is half of the free memory at the start"""

    lockstep: LockstepSettings | None = None
    """a run that is reproducible bit by bit on one type of CPU; null lets actors run freely"""

    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    """periodic whole episodes that are not trained on"""
    resume_checkpoint: str = "last"
    """checkpoint from which a run resumes: last, best, a step, or a .pt file"""
    checkpoint_seconds: PositiveReal = Field(default=60.0, ge=MIN_SECONDS, le=MAX_SECONDS)
    """seconds between recovery checkpoints"""
    target_return: Live[Real | None] = None
    """stop once the mean return reaches this, in the last lesson of each environment parameter"""
    target_rating: Real | None = None
    """stop once the ELO of a behavior with self-play reaches this, in the last lesson of each environment parameter"""
    reward_buffer_episodes: PositiveWhole = Field(default=100, le=MAX_EPISODES)
    """episodes in the mean return"""
    return_buckets: tuple[Real, ...] | None = None
    """bounds of the histogram buckets of episode returns; null is -1000 to 1000"""
    max_wall_seconds: PositiveReal | None = Field(default=None, le=MAX_SECONDS)
    """seconds after which training stops with success; the current update finishes first"""

    stats_writers: tuple[str, ...] = ("tensorboard", "csv")
    """writers of statistics: tensorboard, csv, wandb, mlflow, an entry point's name, or module:callable"""
    video: str | None = None
    """folder in which actors of this machine film episodes (--video), which are passed on to the writers of statistics"""
    callbacks: tuple[str, ...] = ()
    """your code that is called on updates and other events: an entry point's name, or module:callable"""

    trainer_process: bool = True
    """train in a process of its own, whose work does not wait for the service's; false trains in threads of the service"""
    trainers: PositiveWhole = Field(default=1, le=MAX_TRAINERS)
    """processes that train together, each with a part of the agents; one if a replay memory trains"""
    collective_seconds: PositiveReal = Field(default=60.0, ge=MIN_SECONDS, le=MAX_SECONDS)
    """seconds that such a process waits for the others before all start again"""
    trainer_address: str | None = None
    """address for trainers on other machines (rollcast trainer); null starts them here"""
    torch_threads: PositiveWhole | None = Field(default=None, le=MAX_THREADS)
    """threads of torch; null: half of the cores, divided by the ranks of a machine; in lock-step 1"""
    log_format: Literal["auto", "console", "json", "mlagents"] = "auto"
    """auto depends on whether the output is a terminal; mlagents prints mlagents-learn's line per summary"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """lowest level of the lines on the console; the log in the run folder has those of info too"""
    summary_seconds: PositiveReal = Field(default=5.0, ge=MIN_SECONDS, le=MAX_SECONDS)
    """seconds between summary lines on the console"""

    def full_chunk_steps(self, step_bytes: int) -> int:
        """Returns the steps of a full chunk.

        Args:
            step_bytes: Size of a step on the wire.
        """
        return self.max_chunk_steps or -(-self.target_chunk_bytes // step_bytes)

    @property
    def session_limit(self) -> tuple[int, str]:
        """Largest number of concurrent actors, and the setting that limits it."""
        if self.lockstep is not None:
            return self.lockstep.actors, "rollcast.lockstep.actors"
        return self.max_sessions, "rollcast.max_sessions"

    @property
    def connection_limit(self) -> int:
        """Largest number of connections of actors: two each, and some that are being closed or belong to no actor."""
        return 2 * self.session_limit[0] + SPARE_CONNECTIONS

    @field_validator("address", "http_address", "page_address", "http_hosts", "trainer_address")
    @classmethod
    def _well_formed(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.field_name in {"page_address", "trainer_address"}:
            return None
        try:
            _ = host_names(value) if info.field_name == "http_hosts" else split_address(value or "")
        except ValueError as error:
            raise invalid(str(error)) from None
        return value

    @field_validator("return_buckets")
    @classmethod
    def _ascends(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if value is not None and (not 1 <= len(value) <= MAX_BUCKETS or list(value) != sorted(set(value))):
            raise invalid(f"must be 1 to {MAX_BUCKETS} numbers, each larger than the one before")
        return value

    @property
    def has_ranks(self) -> bool:
        """True if there are several trainers, here or on other machines, or one elsewhere."""
        return self.trainers > 1 or self.trainer_address is not None

    @property
    def identity_files(self) -> IdentityFiles:
        """The files of the learner's and the clients' identities: those of `certs`, where no others are given."""

        def path(given: str | None, name: str) -> Path | None:
            if given is not None:
                return Path(given)
            return None if self.certs is None else Path(self.certs, name)

        return IdentityFiles(
            path(self.tls_cert, SERVER_CERT),
            path(self.tls_key, SERVER_KEY),
            path(self.tls_ca, AUTHORITY),
            None if self.tls_client_ca is None else Path(self.tls_client_ca),
            path(self.token_file, TOKENS),
        )

    @model_validator(mode="after")
    def _whole_identity(self) -> Self:
        files = self.identity_files
        if (files.cert is None) is not (files.key is None):
            given, missing = ("tls_key", "tls_cert") if files.cert is None else ("tls_cert", "tls_key")
            raise invalid_as_told(f"{given} needs {missing}: give both, or neither")
        if files.client_ca is not None and files.cert is None:
            raise invalid_as_told("tls_client_ca needs a certificate of the learner: give tls_cert and tls_key")
        return self

    @model_validator(mode="after")
    def _plain_text_stays_here(self) -> Self:
        files = self.identity_files
        served = {"address": self.address, **({"http_address": self.http_address} if self.http else {})}
        if self.trainer_address is not None:
            served["trainer_address"] = self.trainer_address
        for name, address in served.items():
            if self.insecure or is_local(address):
                continue
            if files.cert is None:
                raise invalid_as_told(
                    f"{name} {address} can be reached from other machines, and the connection is plain text: make "
                    "certificates with rollcast certs init certs and give --certs certs, or give --insecure "
                    "(rollcast.insecure: true) on a network you trust, or listen on 127.0.0.1"
                )
            if not files.identifies_clients:
                raise invalid_as_told(
                    f"{name} {address} can be reached from other machines, and clients need not prove who they are: give "
                    "token_file or tls_client_ca, or --insecure (rollcast.insecure: true) on a network you trust"
                )
        return self

    @model_validator(mode="after")
    def _trainers_have_an_address(self) -> Self:
        others = {"address": self.address}
        if self.http and self.http_address != DEFAULT_HTTP_ADDRESS:  # without that, the page takes a free port
            others["http_address"] = self.http_address
        for name, address in others.items() if self.trainer_address is not None else ():
            if split_address(address) == split_address(self.trainer_address or "") and not address.endswith(":0"):
                raise invalid_as_told(
                    f"trainer_address {self.trainer_address} is that of {name}, too: choose another port"
                )
        return self

    @model_validator(mode="after")
    def _sizes_nest(self) -> Self:
        if self.target_chunk_bytes > self.max_chunk_bytes:
            raise invalid_as_told(
                f"target_chunk_bytes {self.target_chunk_bytes} exceeds max_chunk_bytes {self.max_chunk_bytes}: lower it"
            )
        if self.max_chunk_bytes > self.queue_bytes:
            raise invalid_as_told(
                f"max_chunk_bytes {self.max_chunk_bytes} exceeds queue_bytes {self.queue_bytes}: lower it, or raise queue_bytes"
            )
        return self
