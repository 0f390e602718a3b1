"""The actor's exit codes, and the one exception that a user sees without a traceback.

The codes are in ranges, so that a script or a restart policy can tell the kinds apart: 10-19 the command line, the
environment and the installation, 20-29 the network, 30-39 the protocol, 40-49 the environment at work.
"""

import enum
from typing import Self


class CodeWithHelp(enum.IntEnum):
    """Exit codes of a command, each with one line of help."""

    help: str

    def __new__(cls, value: int, help_text: str) -> Self:
        """Makes a member from its number and its help text."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.help = help_text
        return member


class ExitCode(CodeWithHelp):
    """The exit code of a `rollcast-actor` command; `help` says in one line what it means."""

    OK = 0, "the actor did what it was asked to do: the run is over, its time is over, or it was asked to stop"

    USAGE = 10, "the command line or a ROLLCAST_ACTOR_ variable is wrong"
    UNKNOWN_ENVIRONMENT = 11, "the environment does not exist, or cannot be imported or made"
    MISSING_EXTRA = 12, "an optional part of Rollcast that this command needs is not installed"
    RECORDING_FAILED = 13, "a demonstration cannot be recorded: the file exists, or cannot be written"

    UNREACHABLE = 20, "the learner did not answer within --connect-timeout"
    UNAUTHENTICATED = 21, "the learner does not know who this actor is"
    NOT_ALLOWED = 22, "the learner does not let this actor take part"
    PORT_IN_USE = 23, "a port for players or metrics is taken, or this machine has no such address"

    NOT_A_LEARNER = 30, "the other side answers, but does not speak Rollcast's protocol"
    MALFORMED = 31, "the learner could not read what this actor sent: a fault of the actor"
    SPEC_MISMATCH = 32, "the environment does not look like the one the run began with"
    PROTOCOL_TOO_OLD = 33, "the learner asks for a newer revision of the protocol"
    SUPERSEDED = 34, "a newer process took over this actor's session"
    UNKNOWN_BEHAVIOR = 35, "the run file has no behavior of this name"
    REFUSED = 36, "the learner cannot train this behavior with its present settings"

    ENVIRONMENT_FAILED = 40, "the environment failed several times in a row, or a Unity player more often than it may"

    POLICY_FAILED = 41, "the policy cannot act on what the environment shows"

    DATA_REFUSED = 42, "for a while the learner refused everything this actor sent: NaN, or values outside the spaces"
    STUCK = 43, "healthcheck: the actor neither steps nor waits for its learner, or has not begun"

    INTERNAL = 50, "a fault of Rollcast itself; the log has the traceback"

    INTERRUPTED = 130, "a second signal ended the actor at once"


class ActorError(Exception):
    """Ends the actor with a documented code; shown as its message alone, without a traceback.

    Args:
        exit_code: The code the process ends with.
        message: One line that states the value, the limit and the next step.
    """

    def __init__(self, exit_code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
