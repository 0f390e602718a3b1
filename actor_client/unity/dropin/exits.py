"""Exit codes of `rollcast-unity`: the learner's own, and a few for what happens to the players."""

from typing import Final

from actor_client.exits import CodeWithHelp
from actor_client.exits import ExitCode as ActorCode


class ExitCode(CodeWithHelp):
    """The exit code of `rollcast-unity`; `help` says in one line what it means."""

    OK = 0, "the run is over, or was stopped in good order: everything is saved"

    USAGE = 10, "the command line is wrong"
    MISSING_EXTRA = 14, "an optional part of Rollcast that this command needs is not installed"
    PORT_IN_USE = 20, "a port is taken, or not allowed"

    GATEWAY_FAILED = 60, "what serves the players ended, the last line says why; the learner saved what it had"
    UNKNOWN_ENVIRONMENT = 61, "there is no such player to start"
    ENVIRONMENT_FAILED = (
        62,
        "players failed more often than allowed, the last line says how; the learner saved what it had",
    )

    LEARNER_KILLED = 70, "the learner was ended from outside; go on with --resume=auto"

    INTERRUPTED = 130, "a third signal ended everything at once, or one came while the run still started"


STOPPED_EARLY: Final = "stopped while the run still started: nothing was trained, and nothing saved"

LEARNERS: Final = "Codes from 10 to 49 that are not listed are the learner's: rollcast-learner --help names them."

_OF_GATEWAY: Final = {
    ActorCode.USAGE: ExitCode.USAGE,
    ActorCode.UNKNOWN_ENVIRONMENT: ExitCode.UNKNOWN_ENVIRONMENT,
    ActorCode.MISSING_EXTRA: ExitCode.MISSING_EXTRA,
    ActorCode.PORT_IN_USE: ExitCode.PORT_IN_USE,
    ActorCode.ENVIRONMENT_FAILED: ExitCode.ENVIRONMENT_FAILED,
}


def of_gateway(code: int) -> ExitCode:
    """Returns the code for a gateway that ended by itself with one of `rollcast-actor`'s."""
    try:
        known = ActorCode(code)  # type: ignore[call-arg]  # a look-up, as mypy does not know of enumerations with a text
    except ValueError:
        return ExitCode.GATEWAY_FAILED
    return _OF_GATEWAY.get(known, ExitCode.GATEWAY_FAILED)


class DropInError(Exception):
    """Ends the command with a documented code; shown as its message alone.

    Args:
        exit_code: The code; a learner's own may be none of `ExitCode`.
        message: One line; empty where a child has said it already.
    """

    def __init__(self, exit_code: int, message: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
