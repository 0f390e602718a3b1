"""What the learner's exit codes mean, and the one exception a user sees without a traceback.

The codes are in ranges, so that a script or a restart policy can tell the kinds apart: 10-19 the configuration,
20-29 the network, 30-39 the protocol, 40-49 the training; 130 is the shell's number for Ctrl-C. A run stopped by ``rollcast.max_wall_seconds`` ends with
``OK``: it did what it was asked to do, and its last summary line says that the time limit ended it.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Self


class ExitCode(enum.IntEnum):
    """The exit code of a ``rollcast-learner`` command; ``help`` says in one line what it means."""

    help: str

    OK = 0, "the command did what it was asked to do (a run that reached its time limit included)"

    USAGE = 10, "the command line is wrong"
    RUN_FILE = 11, "the run file or a setting is missing or invalid"
    RUN_FOLDER_EXISTS = 12, "the run folder already holds a run: resume it, force a new one, or choose another run id"
    NOTHING_TO_RESUME = 13, "there is no run of this name to resume"
    MISSING_EXTRA = 14, "an optional part of Rollcast that this command needs is not installed"
    BAD_CHECKPOINT = 15, "a checkpoint cannot be read or does not match the run file"

    PORT_IN_USE = 20, "an address to listen on is taken or not allowed"
    UNREACHABLE = 21, "the learner did not answer, or does not serve"

    PROTOCOL_MISMATCH = 30, "the other side answers, but is no learner of this version of the protocol"

    TRAINER_FAILED = 40, "a trainer raised an error; the last checkpoint is kept"
    POLICY_CHECK_FAILED = 41, "the exported policy does not compute what the trained one computes"
    EVALUATION_CUT_SHORT = 42, "an evaluation ended before all its episodes were played; what was played is printed"
    NOT_SAVED = 43, "something is not on the disk: a checkpoint, a run's last model or summary, a command's output"

    INTERRUPTED = 130, "a signal ended the learner at once: while it started, or a third one while it stopped"

    def __new__(cls, value: int, help_text: str) -> Self:
        """Makes a member from its number and its help text."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.help = help_text
        return member


class UserError(Exception):
    """Something the user can put right; shown as its message alone, without a traceback.

    Args:
        exit_code: the code the process ends with.
        message: one line that states the value, the limit and the next step.
        details: every problem found, one line each, where there is more than one.
    """

    def __init__(self, exit_code: ExitCode, message: str, details: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.details = tuple(details)
