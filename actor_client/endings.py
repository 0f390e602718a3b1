"""The end of every command of an actor: closes the session with a reason, logs the books, returns the exit code."""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import structlog
from rollcast.v1 import session_pb2

from actor_client import logs
from actor_client.connection.link import LearnerLink
from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode
from actor_client.logs import LogFormat
from actor_client.settings.commands import CommonSettings


def run_command(act: Callable[[], None], settings: CommonSettings) -> ExitCode:
    """Configures the log, acts, logs in one line what ended it, and returns the exit code.

    Args:
        act: Raises `ActorError` for what a user can mend; what else it raises is logged with its traceback.
        settings: Of the command. Where they ask for a log in JSON, the last line is JSON, too.
    """
    logs.configure(settings.log_format, settings.log_level)
    # numpy's remarks on values that float32 cannot hold: the learner refuses such rows, and the log says so.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"actor_client\.")
    log = structlog.get_logger()
    try:
        act()
    except ActorError as error:
        return _said(error, settings.log_format)
    except (KeyboardInterrupt, SystemExit) as error:  # not of a signal, which has a handler: of the user's code
        message = f"the environment ended the program ({one_line(error)}); have it raise another error"
        return _said(ActorError(ExitCode.ENVIRONMENT_FAILED, message), settings.log_format)
    except Exception:
        log.exception("actor_failed", exit_code=ExitCode.INTERNAL.value)
        return ExitCode.INTERNAL
    return ExitCode.OK


def _said(error: ActorError, log_format: LogFormat) -> ExitCode:
    """Says what ended the actor, and returns its code."""
    log = structlog.get_logger()
    if error.exit_code is ExitCode.OK:
        log.info("stopped", reason=error.message)
    elif log_format == "json":
        log.error("actor_ended", error=error.message, exit_code=error.exit_code.value)
    else:
        with suppress(OSError):  # nobody reads it any more, or the disk is full; the code says it too
            sys.stderr.write(f"error: {error.message} (exit code {error.exit_code.value})\n")
    return error.exit_code


@contextmanager
def closing(link: LearnerLink) -> Iterator[None]:
    """Closes the session when the block ends, with the reason it ended for, and says the books."""
    reason, message = session_pb2.CLOSE_REASON_DONE, ""
    try:
        yield
    except ActorError as error:
        if error.exit_code is ExitCode.ENVIRONMENT_FAILED:
            reason, message = session_pb2.CLOSE_REASON_ENVIRONMENT_FAILED, error.message
        elif error.exit_code is not ExitCode.OK:
            reason, message = session_pb2.CLOSE_REASON_ERROR, error.message
        raise
    except BaseException as error:
        reason, message = session_pb2.CLOSE_REASON_ERROR, type(error).__name__
        raise
    finally:
        link.close(reason, message or link.stop_reason)
        _say_books(link)


def _say_books(link: LearnerLink) -> None:
    """Says what became of the steps of the last session."""
    log = structlog.get_logger()
    for name, books in link.books().items():
        log.info(
            "books",
            behavior=name,
            produced=books.produced,
            acked=books.acked,
            unacked=books.unacked,
            open=books.open,
            discarded=dict(books.discarded),
            dropped=dict(books.dropped),
        )
    if link.rejected:  # of all behaviors; in their books these rows are acked
        log.info("rejected", rows=link.rejected)
