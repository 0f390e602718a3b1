"""Ends every actor command: closes the session with a reason, logs the books, returns the exit code."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from rollcast.text import MAX_ERROR_CHARS, printable
from rollcast.v1 import session_pb2

from actor_client import logs
from actor_client.connection.link import LearnerLink
from actor_client.envs.errors import one_line
from actor_client.envs.tracebacks import place_of, traceback_of
from actor_client.exits import ActorError, ExitCode
from actor_client.heartbeat import Heartbeat
from actor_client.logs import LogFormat, indented
from actor_client.rollout.vector.environments import CLOSE, DONE
from actor_client.rollout.vector.watch import EnvironmentWatch, OneCall, WatchedCalls
from actor_client.settings.commands import CommonSettings, LearnerSettings, SteppingSettings

_OF_ENVIRONMENTS: Final = frozenset({ExitCode.ENVIRONMENT_FAILED, ExitCode.ENVIRONMENT_HANGS})


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor that runs, for its adapter.

    Attributes:
        settings: The command's settings.
        link: The connection to the learner.
        heartbeat: Beats with the stepping thread.
        abandon: Ends the actor with an error, when its stepping thread cannot, in a call that does not return.
    """

    settings: CommonSettings
    link: LearnerLink
    heartbeat: Heartbeat
    abandon: Callable[[ActorError], object]


def run_command(
    act: Callable[[], None], settings: LearnerSettings, on_error: Callable[[ActorError], bool] = lambda _: False
) -> ExitCode:
    """Configures the log, calls `act`, logs the error that ends it in one line, and returns the exit code.

    Args:
        act: Runs the actor. Raises `ActorError` for faults that a user can correct; any other exception is logged with
            its traceback.
        settings: The command's settings. If they ask for a JSON log, the last line is JSON too.
        on_error: Reports the error that ends `act` elsewhere; returns whether it did, so that it is not logged.
    """
    logs.configure(settings.log_format, settings.log_level)
    # numpy warns of values that float32 cannot hold. The learner refuses such rows, and the log reports it.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"actor_client\.")
    log = structlog.get_logger()
    try:
        act()
    except ActorError as error:
        return error.exit_code if on_error(error) else say_end(error, settings.log_format)
    except (KeyboardInterrupt, SystemExit) as error:  # from the user's code; signals have a handler
        place = place_of(error)
        where = f" at {place}" if place else ""
        message = (
            f"the environment's code tried to end the program ({one_line(error)}){where}; raise another error instead"
        )
        return say_end(ActorError(ExitCode.ENVIRONMENT_FAILED, message, traceback_of(error)), settings.log_format)
    except Exception:
        log.exception("actor_failed", exit_code=ExitCode.INTERNAL.value)
        return ExitCode.INTERNAL
    return ExitCode.OK


def say_end(error: ActorError, log_format: LogFormat) -> ExitCode:
    """Logs the error that ended the actor, below the traceback of the user's code if there is one; returns its code."""
    log = structlog.get_logger()
    if error.exit_code is ExitCode.OK:
        log.info("stopped", reason=error.message)
    elif log_format == "json":
        shown = {"exception": error.traceback} if error.traceback else {}
        log.error("actor_ended", error=error.message, exit_code=error.exit_code.value, **shown)
    else:
        shown_lines = f"{indented(error.traceback)}\n" if error.traceback else ""
        with suppress(OSError):  # the output is closed or the disk is full; the exit code reports the error too
            sys.stderr.write(
                f"{shown_lines}error: {printable(error.message, MAX_ERROR_CHARS)} (exit code {error.exit_code.value})\n"
            )
    return error.exit_code


@contextmanager
def closing(link: LearnerLink) -> Iterator[None]:
    """Closes the session when the block ends, with the reason for the end, and logs the books."""
    cause: BaseException | None = None
    try:
        yield
    except BaseException as error:
        cause = error
        raise
    finally:
        close_session(link, cause)


def close_session(link: LearnerLink, cause: BaseException | None) -> None:
    """Closes the session and logs the books.

    Args:
        link: The session's link.
        cause: The error that ends the actor; None if it has completed its task.
    """
    reason, message = session_pb2.CLOSE_REASON_DONE, ""
    if isinstance(cause, ActorError):
        if cause.exit_code in _OF_ENVIRONMENTS:
            reason, message = session_pb2.CLOSE_REASON_ENVIRONMENT_FAILED, cause.message
        elif cause.exit_code is not ExitCode.OK:
            reason, message = session_pb2.CLOSE_REASON_ERROR, cause.message
    elif cause is not None:
        reason, message = session_pb2.CLOSE_REASON_ERROR, type(cause).__name__
    link.close(reason, message or link.stop_reason)
    _say_books(link)


@contextmanager
def limited(settings: SteppingSettings, actor: Actor, close: Callable[[], None]) -> Iterator[None]:
    """Calls `close` when the block ends, for no longer than an environment may close at the actor's end.

    Args:
        settings: The command's settings.
        actor: The actor.
        close: Closes all environments.
    """
    try:
        yield
    finally:
        end = str(sys.exception() or DONE)
        with watching(settings, actor, OneCall(settings.num_envs, CLOSE, end)):
            close()


def watching(settings: SteppingSettings, actor: Actor, environments: WatchedCalls) -> EnvironmentWatch:
    """Returns the watch that abandons the actor if a call of an environment does not return."""
    link = actor.link

    def give_up(error: ActorError) -> None:
        if link.has_started:
            close_session(link, error)
        actor.abandon(error)

    return EnvironmentWatch(
        environments,
        link.counts,
        is_stopping=lambda: link.stopping,
        give_up=give_up,
        timeout_seconds=settings.step_timeout,
    )


def _say_books(link: LearnerLink) -> None:
    """Logs the step accounting of the last session."""
    log = structlog.get_logger()
    for name, books in link.books().items():
        log.info(
            "books",
            behavior=name,
            produced=books.produced,
            acked=books.acked,
            unacked=books.unacked,
            open=books.open,
            spooled=books.spooled,
            discarded=dict(books.discarded),
            dropped=dict(books.dropped),
        )
    if link.rejected:  # of all behaviors; their books count these rows as acked
        log.info("rejected", rows=link.rejected)
