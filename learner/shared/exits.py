"""The learner's exit codes, and the one exception that users see without a traceback.

The codes are in ranges, so that a script or a restart policy can distinguish them: 10-19 configuration, 20-29 network,
30-39 protocol, 40-49 training; 130 is the shell's number for Ctrl-C. A run stopped by ``rollcast.max_wall_seconds``
ends with ``OK``, and its last summary line says that the time limit ended it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcast.exits import CodeWithHelp, RollcastError


class ExitCode(CodeWithHelp):
    """Exit code of a command of the learner; ``help`` describes it in one line."""

    OK = 0, "the command succeeded, which includes a run that reached its time limit"

    USAGE = 10, "the command line is wrong, or a file that it names cannot be read"
    RUN_FILE = 11, "the run file or a setting is missing or invalid"
    RUN_FOLDER_EXISTS = 12, "the run folder already holds a run: resume it, force a new one, or choose another run id"
    NOTHING_TO_RESUME = 13, "there is no run of this name, or none to resume"
    MISSING_EXTRA = 14, "an optional part of Rollcast that this command needs is not installed"
    BAD_CHECKPOINT = 15, "a checkpoint cannot be read or does not match the run file"
    SUPERSEDED = 16, "another learner was started in the run folder since; this one wrote nothing more"

    SHADOWED = 19, "another package named learner hides Rollcast's, or one that it needs is too old"

    PORT_IN_USE = 20, "an address to listen on is taken or not allowed"
    UNREACHABLE = (
        21,
        "the learner does not answer, or does not accept actors; or the hub of push and pull does not answer",
    )

    NOT_ALLOWED = (
        22,
        "the learner refused the command: an unknown token, a role that is not enough, no such actor, a run that ends; or the hub did",
    )

    PROTOCOL_MISMATCH = 30, "the server that answers is not a learner with this version of the protocol"

    TRAINER_FAILED = 40, "a trainer or the service raised an error; the last checkpoint is kept"
    POLICY_CHECK_FAILED = 41, "the exported policy and the trained one compute different results"
    EVALUATION_CUT_SHORT = 42, "an evaluation ended before all its episodes were played; the results so far are printed"
    NOT_SAVED = 43, "something could not be saved: a checkpoint, a run's last model or summary, or a command's output"
    DEVICE_FAILED = 44, "the training device or its driver failed; the last checkpoint is kept"
    OUT_OF_MEMORY = 45, "memory ran out, on the training device or in the machine; the last checkpoint is kept"

    TRAINER_DIED = 46, "the process of the trainers was killed or crashed; the last checkpoint is kept"

    ACTORS_FAILED = 47, "the actors of train were killed; if they ended with a code of their own, that is the code"

    INTERRUPTED = (
        130,
        "a signal ended it at once: a learner at its start (without --stopped-code) or at the third, a trainer on another machine",
    )


class UserError(RollcastError):
    """Raised for an error that the user can correct; shown as its message without a traceback.

    Args:
        exit_code: Exit code of the process.
        message: One line that states the value, the limit and the next step.
        details: Every problem found, one line each, if there are several.
        code: Exit code of a program that this one started, in place of `exit_code`.
    """

    exit_code: ExitCode

    def __init__(
        self, exit_code: ExitCode, message: str, details: Sequence[str] = (), *, code: int | None = None
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.details = tuple(details)
        self.code: int = exit_code if code is None else code


def refuse(code: ExitCode, summary: str, problems: Sequence[str]) -> None:
    """Raises an error if there are problems; a single one becomes the message.

    Raises:
        UserError: There are.
    """
    if len(problems) == 1:
        raise UserError(code, problems[0])
    if problems:
        raise UserError(code, summary, problems)
