"""Tests that exit codes are documented and within their ranges."""

from __future__ import annotations

import pytest

from learner.common.exits import ExitCode


@pytest.mark.parametrize("code", ExitCode)
def test_every_code_has_one_line_of_help(code: ExitCode) -> None:
    """Every code has one line of help."""
    assert code.help
    assert "\n" not in code.help
