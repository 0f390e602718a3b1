"""What holds for players: what this machine's user said over what the run file says over ML-Agents' defaults."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from rollcast.v1 import session_pb2

from actor_client.connection.session import RunInfo
from actor_client.settings.commands import UnitySettings
from actor_client.unity.players.launch import Launch
from actor_client.unity.players.quota import RestartQuota

Value = TypeVar("Value")

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
DEFAULT_LIFETIME_RESTARTS: Final = 10
DEFAULT_RATE_LIMIT: Final = 1
DEFAULT_PERIOD_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class PlayerRules:
    """What holds for the players of one actor.

    Attributes:
        timeout_seconds: How long a player may take for a message.
        max_lifetime_restarts: See `RestartQuota`.
        rate_limit: See `RestartQuota`.
        period_seconds: See `RestartQuota`.
        env_args: The user's arguments of the build.
        no_graphics: Start without graphics.
        no_graphics_monitor: Start all but the first without graphics.
    """

    timeout_seconds: float
    max_lifetime_restarts: int
    rate_limit: int
    period_seconds: float
    env_args: tuple[str, ...]
    no_graphics: bool
    no_graphics_monitor: bool

    def launch(self, executable: Path, log_dir: Path | None, log_prefix: str = "") -> Launch:
        """Returns how the players of a build are started."""
        return Launch(executable, self.env_args, self.no_graphics, self.no_graphics_monitor, log_dir, log_prefix)

    def quota(self) -> RestartQuota:
        """Returns the restarts of one player, none of them used."""
        return RestartQuota(self.max_lifetime_restarts, self.rate_limit, self.period_seconds)


def resolve_rules(settings: UnitySettings, run: RunInfo) -> PlayerRules:
    """Returns what holds for the players.

    Args:
        settings: What the user of this machine said.
        run: What the learner answered; a learner that sends no settings leaves ML-Agents' defaults.
    """
    told, engine = run.environment_settings, run.engine_settings
    if told == session_pb2.EnvironmentSettings():
        told = session_pb2.EnvironmentSettings(
            timeout_wait_seconds=DEFAULT_TIMEOUT_SECONDS,
            max_lifetime_restarts=DEFAULT_LIFETIME_RESTARTS,
            restarts_rate_limit_n=DEFAULT_RATE_LIMIT,
            restarts_rate_limit_period_seconds=DEFAULT_PERIOD_SECONDS,
        )
    return PlayerRules(
        timeout_seconds=_first(settings.timeout_wait, lambda: told.timeout_wait_seconds or DEFAULT_TIMEOUT_SECONDS),
        max_lifetime_restarts=_first(settings.max_lifetime_restarts, lambda: told.max_lifetime_restarts),
        rate_limit=_first(settings.restarts_rate_limit_n, lambda: told.restarts_rate_limit_n),
        period_seconds=_first(settings.restarts_rate_limit_period_s, lambda: told.restarts_rate_limit_period_seconds),
        env_args=_first(settings.env_args, lambda: tuple(told.env_args)),
        no_graphics=_first(settings.no_graphics, lambda: engine.no_graphics),
        no_graphics_monitor=_first(settings.no_graphics_monitor, lambda: engine.no_graphics_monitor),
    )


def _first(said: Value | None, otherwise: Callable[[], Value]) -> Value:
    return otherwise() if said is None else said
