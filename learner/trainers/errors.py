"""What ends a training."""

from __future__ import annotations

from learner.common.exits import ExitCode, UserError


class TrainerFailedError(UserError):
    """A trainer cannot go on; the learner ends with exit code TRAINER_FAILED.

    Args:
        message: one line that states the value, the limit and the next step.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.TRAINER_FAILED, message)
