"""The actor's exit codes, and the exception that users see without Rollcast's own traceback.

The codes are in ranges, so that a script or a restart policy can distinguish the kinds: 10-19 the command line, the
environment and the installation, 20-29 the network, 30-39 the protocol, 40-49 failures of running environments.
"""

from typing import Final

from rollcast.exits import CodeWithHelp, RollcastError

WORKER_THREADS: Final = "rollcast-policy"
"""Beginning of the names of threads that load policies, and that the end of a command does not wait for."""


class ExitCode(CodeWithHelp):
    """The exit code of a command of the actor; `help` explains it in one line."""

    OK = 0, "normal end: the run is over, --max-wall-seconds has passed, or the actor was asked to stop"

    USAGE = 10, "the command line or a ROLLCAST_ACTOR_ variable is wrong, or a file that it names cannot be read"
    UNKNOWN_ENVIRONMENT = 11, "the environment does not exist, or cannot be imported or created"
    MISSING_EXTRA = 12, "an optional part of Rollcast that this command needs is not installed"
    NOT_WRITTEN = 13, "a demonstration, video, game record or the folder of join cannot be written, or exists"

    SHADOWED = 19, "another package called actor_client hides Rollcast's, or one that it needs is too old"

    UNREACHABLE = 20, "the learner did not answer within --connect-timeout"
    UNAUTHENTICATED = 21, "the learner could not authenticate this actor"
    NOT_ALLOWED = 22, "the learner does not allow this actor to take part"
    UNTRUSTED = 24, "the certificate of the learner or of this actor is refused, or only one side uses TLS"
    PORT_IN_USE = 23, "a port for players or metrics is taken, or this machine has no such address"

    NOT_A_LEARNER = 30, "the server at --learner answers, but does not speak Rollcast's protocol"
    MALFORMED = 31, "the learner could not read a message of this actor: a bug of the actor"
    SPEC_MISMATCH = 32, "the environment's observations or actions differ from those of the run"
    PROTOCOL_TOO_OLD = 33, "actor and learner have no common revision of the protocol"
    SUPERSEDED = 34, "a newer process took over this actor's session"
    UNKNOWN_BEHAVIOR = 35, "the run file has no behavior of this name"
    REFUSED = 36, "the learner cannot train this behavior with its present settings"

    ENVIRONMENT_FAILED = (
        40,
        "the environment failed too often (--max-env-failures), or a Unity player exceeded its restart limits",
    )

    POLICY_FAILED = 41, "the policy cannot act on the environment's observations"

    DATA_REFUSED = 42, "the learner refused all recent steps of this actor: NaN, or values outside the spaces"
    STUCK = 43, "healthcheck: the actor has not started, or neither steps nor waits for its learner"

    ENVIRONMENT_HANGS = 44, "a call of the environment did not return within --step-timeout, or after a request to stop"

    OPPONENT_FAILED = 45, "the script of --opponent failed, or returned no actions"

    INTERNAL = 50, "a bug in Rollcast; the log has the traceback"

    INTERRUPTED = 130, "a signal ended the actor at once: while it started, or a second one"


class ActorError(RollcastError):
    """Ends the actor with a documented exit code; only the message is shown, without Rollcast's own traceback.

    Args:
        exit_code: The code the process ends with.
        message: One line that states the value, the limit and the next step.
        traceback: Traceback of the user's code, if it failed; shown above the message.
    """

    exit_code: ExitCode

    def __init__(self, exit_code: ExitCode, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.traceback = traceback
