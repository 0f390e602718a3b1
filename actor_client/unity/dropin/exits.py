"""Exit codes of `rollcast unity`: the learner's own, and some for failures of the players."""

from typing import Final

from rollcast.exits import CodeWithHelp

from actor_client.exits import ExitCode as ActorCode


class ExitCode(CodeWithHelp):
    """The exit code of `rollcast unity`; `help` says in one line what it means."""

    OK = 0, "the run is over, or was stopped normally: everything is saved"

    USAGE = 10, "the command line is wrong"
    MISSING_EXTRA = 14, "an optional part of Rollcast that this command needs is not installed"
    SHADOWED = 19, "another package called learner or actor_client hides Rollcast's, or one that it needs is too old"
    PORT_IN_USE = 20, "a port is taken, or not allowed"

    GATEWAY_FAILED = 60, "the gateway ended (the last line says why); the learner saved its state"
    UNKNOWN_ENVIRONMENT = 61, "the Unity player to start does not exist"
    ENVIRONMENT_FAILED = (
        62,
        "players failed more often than allowed (the last line says how); the learner saved its state",
    )

    LEARNER_KILLED = 70, "the learner was killed; continue with --resume=auto"

    INTERRUPTED = 130, "a third signal ended everything at once, or a signal arrived before the run had started"


STOPPED_EARLY: Final = "stopped before the run had started: nothing was trained or saved"

LEARNERS: Final = "Other codes from 10 to 49 are the learner's; rollcast serve --help lists them."

_OF_GATEWAY: Final = {
    ActorCode.USAGE: ExitCode.USAGE,
    ActorCode.UNKNOWN_ENVIRONMENT: ExitCode.UNKNOWN_ENVIRONMENT,
    ActorCode.MISSING_EXTRA: ExitCode.MISSING_EXTRA,
    ActorCode.PORT_IN_USE: ExitCode.PORT_IN_USE,
    ActorCode.SHADOWED: ExitCode.SHADOWED,
    ActorCode.ENVIRONMENT_FAILED: ExitCode.ENVIRONMENT_FAILED,
}


def of_gateway(code: int) -> ExitCode:
    """Returns the code for a gateway that ended by itself with an exit code of `rollcast act`."""
    try:
        known = ActorCode(code)  # type: ignore[call-arg]  # a look-up, as mypy does not know of enumerations with a text
    except ValueError:
        return ExitCode.GATEWAY_FAILED
    return _OF_GATEWAY.get(known, ExitCode.GATEWAY_FAILED)


class DropInError(Exception):
    """Ends the command with a documented exit code; only the message is shown.

    Args:
        exit_code: The exit code; a learner's code need not be in `ExitCode`.
        message: One line; empty if a child has already printed it.
    """

    def __init__(self, exit_code: int, message: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
