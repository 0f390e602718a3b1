"""Acts for a learner from Python: `rollcast.act` steps environments in a thread of the caller's process.

Signals, log and exit of the process stay the caller's: the lines of the actor are those of the logger ``actor_client``, unless
the caller has configured structlog.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Self

import structlog

from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode
from actor_client.gym.app import GymAdapter, batch_maker
from actor_client.running import run_adapter
from actor_client.settings.commands import GymSettings
from actor_client.settings.loading import load

LOOK_SECONDS: Final = 0.25
"""Longest time in which Ctrl-C is noticed."""
_NAMELESS: Final = "Environment"


class ActorThread:
    """An actor in a thread of this process. `act` makes it.

    It is a context manager, which stops the actor at the end of the block.

    Args:
        env: See `act`.
        learner: See `act`.
        on_end: Called in another thread when the actor has ended, with its error.
        flags: See `act`.

    Raises:
        ActorError: A flag is wrong.
    """

    def __init__(
        self,
        env: str | Callable[..., Any],
        learner: str,
        flags: Mapping[str, Any],
        on_end: Callable[[ActorError | None], object] = lambda _: None,
    ) -> None:
        if not structlog.is_configured():
            structlog.configure(
                processors=[
                    structlog.stdlib.filter_by_level,
                    structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0),
                ],
                wrapper_class=structlog.stdlib.BoundLogger,
                logger_factory=lambda *_: logging.getLogger("actor_client"),
            )
        self.error: ActorError | None = None
        self._on_end = on_end
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._stop: Callable[[str], None] = self._stop_early
        self._is_stopped = False
        settings, made = _settings(env, {"metrics_address": "off", **flags, "learner": learner})
        self._adapter, self._settings = GymAdapter(settings, made), settings
        threading.Thread(target=self._run, name="rollcast-actor", daemon=True).start()

    @staticmethod
    def describe(env: str | Callable[..., Any], flags: Mapping[str, Any]) -> tuple[str, str]:
        """Returns the name of an environment, and whether its actions are ``continuous`` or ``discrete``, by making one.

        Raises:
            ActorError: It cannot be made, or a flag is wrong.
        """
        settings, made = _settings(env, flags)
        batch = batch_maker(settings.model_copy(update={"num_envs": 1, "video": None}), made)()
        try:
            return settings.env, "continuous" if batch.spec.action.continuous_size else "discrete"
        finally:
            batch.close()

    @property
    def is_running(self) -> bool:
        """True until the actor has ended."""
        return not self._ended.is_set()

    def wait(self, seconds: float | None = None) -> Self:
        """Waits for the end of the actor, and returns it. Ctrl-C stops the actor before it is raised.

        Args:
            seconds: Longest wait; None for no limit.

        Raises:
            TimeoutError: The actor has not ended in time; it goes on.
            ActorError: It failed.
        """
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while not self._ended.wait(LOOK_SECONDS):
                if until is not None and time.monotonic() >= until:
                    raise TimeoutError(f"the actor has not ended within {seconds:g} s")
        except KeyboardInterrupt:
            self.stop()
            raise
        if self.error is not None:
            raise self.error
        return self

    def stop(self) -> None:
        """Ends the actor, which sends what it has. Does nothing after the end."""
        with self._lock:
            self._is_stopped = True
            self._stop("the program has stopped it")
        self._ended.wait()  # an environment that does not return is abandoned

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        error: ActorError | None = None
        try:
            run_adapter(self._adapter, self._settings, self._stoppable, self._end)
        except ActorError as caught:
            error = caught if caught.exit_code is not ExitCode.OK else None
        except BaseException as caught:  # noqa: BLE001 - the caller's environment may raise anything; the thread ends
            error = ActorError(ExitCode.INTERNAL, f"the actor failed: {one_line(caught)}")
            error.__cause__ = caught
        self._end(error)

    @contextmanager
    def _stoppable(self, stop: Callable[[str], None], _cut: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._stop = stop
            if self._is_stopped:
                stop("the program has stopped it")
        try:
            yield
        finally:
            with self._lock:
                self._stop = self._stop_early

    def _stop_early(self, reason: str) -> None:
        """Does nothing: there is nothing to stop before the start and after the end."""

    def _end(self, error: ActorError | None) -> None:
        """Notes the end, once: a thread whose environment was abandoned may come back from it."""
        with self._lock:
            if self._ended.is_set():
                return
            self.error = error
            self._ended.set()
        self._on_end(error)


def act(
    env: str | Callable[..., Any], learner: str = "127.0.0.1:50051", *, wait: bool = True, **flags: Any
) -> ActorThread:
    """Steps environments for a learner, as ``rollcast act gym`` does, in a thread of this process.

        rollcast.act(Maze, "10.0.0.5:50051", num_envs=8, certs="lab")

    Args:
        env: A Gymnasium id, ``package:id``, ``module:callable``, or a callable that returns an environment.
        learner: Address of the learner, ``host:port``.
        wait: Whether to return after the end of the actor, instead of after its start.
        flags: Flags of ``rollcast act gym``: ``num_envs``, ``env_kwargs``, ``behavior``, ``certs``, ``connect_timeout``, ...

    Raises:
        RollcastError: A flag is wrong, or, with `wait`, the actor failed.
    """
    thread = ActorThread(env, learner, flags)
    return thread.wait() if wait else thread


def _settings(env: str | Callable[..., Any], flags: Mapping[str, Any]) -> tuple[GymSettings, Callable[..., Any] | None]:
    """Returns the settings of a command, and what makes an environment, if it is not its name in the settings."""
    if isinstance(env, str):
        return load(GymSettings, {**flags, "env": env}), None
    name = getattr(env, "__name__", type(env).__name__)
    return load(GymSettings, {**flags, "env": name if name.isidentifier() else _NAMELESS}), env
