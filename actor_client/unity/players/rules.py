"""Settings of players: restart limits, start options and the folder of log files.

The flags of this machine's user take precedence over the run file, which takes precedence over ML-Agents' defaults.
"""

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog
from rollcast.v1 import session_pb2

from actor_client.connection.errors import one_line
from actor_client.connection.session import RunInfo
from actor_client.exits import ActorError, ExitCode
from actor_client.settings.commands import UnitySettings
from actor_client.unity.players.launch import Launch, flags_of

Value = TypeVar("Value")

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
DEFAULT_LIFETIME_RESTARTS: Final = 10
DEFAULT_RATE_LIMIT: Final = 1
DEFAULT_PERIOD_SECONDS: Final = 60.0
NO_LIMIT: Final = -1
_PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_. -]{0,127}(/[A-Za-z0-9_][A-Za-z0-9_. -]{0,127}){0,7}")


class RestartQuota:
    """Limits the restarts of one player.

    Args:
        max_lifetime_restarts: Restarts allowed in total; `NO_LIMIT` for any number.
        rate_limit: Restarts allowed within `period_seconds`; `NO_LIMIT` for any number.
        period_seconds: The period of the rate limit.
        clock: Monotonic seconds.

    Attributes:
        restarts: Number of restarts so far.
    """

    def __init__(
        self,
        max_lifetime_restarts: int,
        rate_limit: int,
        period_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        self._most = max_lifetime_restarts
        self._rate_limit = rate_limit
        self._period_seconds = period_seconds
        self._clock = clock
        self._recent: deque[float] = deque()

    def refusal(self) -> str | None:
        """Returns why the player may not be restarted, with the limit and its key; None if it may."""
        if self._most != NO_LIMIT and self.restarts >= self._most:
            return f"it was restarted {self.restarts} times, and max_lifetime_restarts is {self._most}"
        self._forget()
        if self._rate_limit != NO_LIMIT and len(self._recent) >= self._rate_limit:
            return (
                f"it was restarted {len(self._recent)} times within {self._period_seconds:g} s, and "
                f"restarts_rate_limit_n is {self._rate_limit}"
            )
        return None

    def count(self) -> None:
        """Counts a restart."""
        self.restarts += 1
        if self._rate_limit != NO_LIMIT:
            self._recent.append(self._clock())

    def _forget(self) -> None:
        """Drops restarts older than the period."""
        begin = self._clock() - self._period_seconds
        while self._recent and self._recent[0] < begin:
            self._recent.popleft()


@dataclass(frozen=True, slots=True)
class PlayerRules:
    """Limits and start options of the players of one actor.

    Attributes:
        timeout_seconds: Seconds a player may take for a message.
        max_lifetime_restarts: See `RestartQuota`.
        rate_limit: See `RestartQuota`.
        period_seconds: See `RestartQuota`.
        env_args: The user's arguments for the build.
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
        """Returns the start options of a build's players."""
        return Launch(executable, self.env_args, self.no_graphics, self.no_graphics_monitor, log_dir, log_prefix)

    def quota(self) -> RestartQuota:
        """Returns the restart limits of one player, with no restarts counted."""
        return RestartQuota(self.max_lifetime_restarts, self.rate_limit, self.period_seconds)


def resolve_rules(settings: UnitySettings, run: RunInfo) -> PlayerRules:
    """Resolves the settings of the players.

    Args:
        settings: The settings of this machine's user.
        run: The learner's answer; without settings in it, ML-Agents' defaults apply.

    Raises:
        ActorError: The learner has arguments for the build that this machine's user does not allow (USAGE).
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
        env_args=_first(
            settings.env_args, lambda: _allowed(told.env_args if settings.env else (), settings.allow_env_args)
        ),
        no_graphics=_first(settings.no_graphics, lambda: engine.no_graphics),
        no_graphics_monitor=_first(settings.no_graphics_monitor, lambda: engine.no_graphics_monitor),
    )


def _allowed(words: Sequence[str], allowed: Sequence[str]) -> tuple[str, ...]:
    """Returns arguments that come from the learner, which decides nothing about this machine, such as a log's path.

    Unity reads flags in any case.

    Args:
        words: The arguments.
        allowed: The flags that they may have.

    Raises:
        ActorError: They have another one (USAGE).
    """
    known = {flag.lower() for flag in allowed}
    foreign = dict.fromkeys(one_line(flag) for flag in flags_of(words) if flag.lower() not in known)
    if foreign:
        raise ActorError(
            ExitCode.USAGE,
            f"the learner's run file (env_settings.env_args) starts the build with {', '.join(foreign)}, which this machine's "
            f"user has not allowed: start rollcast act unity with --allow-env-args={','.join([*allowed, *foreign])}, or give "
            "the arguments here with --env-args",
        )
    return tuple(words)


def _first(said: Value | None, otherwise: Callable[[], Value]) -> Value:
    return otherwise() if said is None else said


class LogPlace(NamedTuple):
    """Folder and name prefix of player logs.

    Attributes:
        folder: An existing folder, as an absolute path, since players have their own working directories. None lets
            Unity choose it.
        prefix: Prefix of the number in each name; empty for the first actor of a run, whose logs have ML-Agents' names.
    """

    folder: Path | None
    prefix: str


def log_place(log_dir: Path | None, run: RunInfo) -> LogPlace:
    """Returns the folder and prefix of the players' logs; creates the folder.

    Args:
        log_dir: The user's folder; None means `results/<run>/run_logs`, if that can be created.
        run: The learner's answer; its texts are not trusted as paths.

    Raises:
        ActorError: The user's folder cannot be created or written to (NOT_WRITTEN).
    """
    prefix = f"{run.actor_index}-" if run.actor_index else ""
    if log_dir is None and not _PLAIN.fullmatch(run.run_id):
        return LogPlace(None, prefix)
    folder = (log_dir or Path("results") / run.run_id / "run_logs").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".rollcast-{prefix}probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        if log_dir is not None:
            raise ActorError(
                ExitCode.NOT_WRITTEN,
                f"the players' logs cannot be written to {log_dir} ({error.strerror}): choose another folder with "
                "rollcast act unity --log-dir, or rollcast unity --results-dir",
            ) from None
        structlog.get_logger().warning(
            "player_logs_elsewhere",
            folder=str(folder),
            reason=error.strerror,
            next="choose a folder with rollcast act unity --log-dir",
        )
        return LogPlace(None, prefix)
    return LogPlace(folder, prefix)
