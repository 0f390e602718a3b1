"""Tests that exit codes are documented and within their ranges."""

from __future__ import annotations

import pytest

from learner.common.exits import ExitCode, UserError


@pytest.mark.parametrize("code", ExitCode)
def test_every_code_has_one_line_of_help(code: ExitCode) -> None:
    """Every code has one line of help."""
    assert code.help
    assert "\n" not in code.help


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ExitCode.OK, 0), (ExitCode.RUN_FILE, 11), (ExitCode.PORT_IN_USE, 20), (ExitCode.TRAINER_FAILED, 40)],
)
def test_codes_are_numbers_for_the_shell(code: ExitCode, expected: int) -> None:
    """The numbers of exit codes do not change."""
    assert expected == int(code)


def test_a_user_error_is_its_message() -> None:
    """A user error is one line with all its problems."""
    error = UserError(ExitCode.USAGE, "wrong (and 1 more)", ["wrong", "also wrong"])
    assert str(error) == "wrong (and 1 more)"
    assert error.details == ("wrong", "also wrong")
