"""Errors of environments. Each ends the actor with a documented code, unless the rollout recovers."""

from typing import Any, Final

from rollcast.text import printable

from actor_client.envs.tracebacks import place_of, traceback_of
from actor_client.exits import ActorError, ExitCode

STEP_VALUES: Final = ("observation", "reward", "terminated", "truncated", "info")
RESET_VALUES: Final = ("observation", "info")

_LONGEST_CAUSE = 300


class UnknownEnvironment(ActorError):  # noqa: N818 - says what the environment is
    """The environment does not exist, or cannot be imported or made.

    Args:
        message: One line.
        cause: The error of the user's code; its place is added to the message, and its traceback is shown.
    """

    def __init__(self, message: str, cause: Exception | None = None) -> None:
        place = "" if cause is None else place_of(cause)
        said = f"{message} ({place})" if place else message
        super().__init__(ExitCode.UNKNOWN_ENVIRONMENT, said, "" if cause is None else traceback_of(cause))


class UnsupportedSpace(ActorError):  # noqa: N818 - says what the space is
    """The environment has a space that is not supported; the message names it and the supported spaces."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.UNKNOWN_ENVIRONMENT, message)


class EnvironmentFailed(ActorError):  # noqa: N818 - says what the environment did
    """An environment raised an error, or returned a value that its spaces do not allow.

    Args:
        index: The environment's index in the batch; None if unknown.
        cause: The error that it raised, or one line that describes the fault.
        place: `FILE:LINE` of the method that returned a wrong value; not needed for a raised error.
        traceback: Traceback of the user's code if `cause` is a line.
    """

    def __init__(self, index: int | None, cause: Exception | str, place: str = "", traceback: str = "") -> None:
        self.index = index
        self.cause = cause if isinstance(cause, str) else one_line(cause)
        if not isinstance(cause, str):
            place, traceback = place_of(cause) or place, traceback_of(cause)
        which = "the environment batch" if index is None else f"environment {index}"
        where = f" ({place})" if place else ""
        super().__init__(ExitCode.ENVIRONMENT_FAILED, f"{which} failed: {self.cause}{where}", traceback)

    def forget(self) -> None:
        """Lets go of the frames of the environment's code, which keep the environment alive."""
        self.__cause__ = self.__context__ = self.__traceback__ = None


class EnvironmentFailedTooOften(ActorError):  # noqa: N818 - says what the environment did
    """The environments failed more often than allowed.

    Args:
        failures: Number of recent failures.
        steps: Steps of each environment in that time.
        last: The newest failure.
        traceback: The traceback of the newest failure, unless it was logged.
    """

    def __init__(self, failures: int, steps: int, last: EnvironmentFailed, traceback: str = "") -> None:
        self.failures = failures
        said = (
            f"{failures} failures {f'in {steps} steps' if steps else 'in a row without a successful step in between'}"
        )
        alone = (
            ". Run the environment alone to find the fault" if last.traceback else ""
        )  # else it returned a wrong value
        message = f"{said}; the last one: {last.message}{alone}"
        super().__init__(ExitCode.ENVIRONMENT_FAILED, message, traceback)


def count_fault(method: str, result: Any, names: tuple[str, ...]) -> str | None:
    """Returns one line if a method returned the wrong number of values, or None.

    Args:
        method: The method's name.
        result: Its return value.
        names: Names of the values that it must return.
    """
    got = len(result) if isinstance(result, tuple | list) else type(result).__name__
    if got == len(names):
        return None
    return f"{method} must return {', '.join(names)} ({len(names)} values); got {got}"


def info_fault(method: str, info: object) -> str:
    """Returns the fault of an info that is not a dictionary, in one line."""
    return f"{method} must return a dictionary as info; got {type(info).__name__}"


def one_line(error: BaseException) -> str:
    """Returns the type and the first line of an exception's text, printable and shortened."""
    text = printable(str(error).strip().split("\n", 1)[0].strip())
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= _LONGEST_CAUSE else line[: _LONGEST_CAUSE - 3] + "..."
