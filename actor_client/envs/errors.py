"""Errors of environments. Each ends the actor with a documented code, unless the rollout recovers."""

from typing import Any, Final

from actor_client.exits import ActorError, ExitCode

STEP_VALUES: Final = ("observation", "reward", "terminated", "truncated", "info")
RESET_VALUES: Final = ("observation", "info")

_LONGEST_CAUSE = 300


class UnknownEnvironment(ActorError):  # noqa: N818 - says what the environment is
    """The environment does not exist, or cannot be imported or made."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.UNKNOWN_ENVIRONMENT, message)


class UnsupportedSpace(ActorError):  # noqa: N818 - says what the space is
    """The environment has a space that cannot be sent or learned from; the message names it and what can be."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.UNKNOWN_ENVIRONMENT, message)


class EnvironmentFailed(ActorError):  # noqa: N818 - says what the environment did
    """An environment raised, or returned what its spaces do not allow.

    Args:
        index: Which environment of the batch; None if that cannot be told.
        cause: What it raised, or one line that says what is wrong.
    """

    def __init__(self, index: int | None, cause: Exception | str) -> None:
        self.index = index
        self.cause = cause if isinstance(cause, str) else one_line(cause)
        which = "the environment batch" if index is None else f"environment {index}"
        super().__init__(ExitCode.ENVIRONMENT_FAILED, f"{which} failed: {self.cause}")


class EnvironmentFailedTooOften(ActorError):  # noqa: N818 - says what the environment did
    """Every attempt to make and step the environment anew failed as well."""

    def __init__(self, failures: int, last: EnvironmentFailed) -> None:
        self.failures = failures
        message = f"{failures} failures in a row without a good step between; the last: {last.message}. Run the environment alone to find the fault"
        super().__init__(ExitCode.ENVIRONMENT_FAILED, message)


def count_fault(method: str, result: Any, names: tuple[str, ...]) -> str | None:
    """Returns one line if a method returned the wrong number of values, or None.

    Args:
        method: Its name.
        result: What it returned.
        names: Of the values that it must return.
    """
    got = len(result) if isinstance(result, tuple | list) else type(result).__name__
    if got == len(names):
        return None
    return f"{method} must return {', '.join(names)} ({len(names)} values); got {got}"


def info_fault(method: str, info: object) -> str:
    """Returns one line for an info that is no dictionary."""
    return f"{method} must return a dictionary as info; got {type(info).__name__}"


def one_line(error: BaseException) -> str:
    """Returns the type and the first line of the text of an exception, cut to a readable length."""
    text = str(error).strip().split("\n", 1)[0]
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= _LONGEST_CAUSE else line[: _LONGEST_CAUSE - 3] + "..."
