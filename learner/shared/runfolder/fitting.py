"""Turns the errors of a run state that does not fit into one with the name of its file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from rollcast.errors import WireError

from learner.shared.exits import ExitCode, UserError
from learner.shared.saved_values import reason

NO_SENSE: Final = (
    ArithmeticError, AttributeError, DecodeError, LookupError, RuntimeError, TypeError, ValueError, WireError
)  # fmt: skip
"""Errors raised for a readable run state that no learner wrote."""


@contextmanager
def must_fit(run_state: Path) -> Iterator[None]:
    """Reports in one line what is wrong with a run state loaded inside the block.

    Raises:
        UserError: The run state does not fit the run file or is damaged.
    """
    try:
        yield
    except NO_SENSE as error:
        raise UserError(
            ExitCode.BAD_CHECKPOINT,
            f"{run_state} is inconsistent ({reason(error)}); restore another copy of it, or start over with --force",
        ) from error
