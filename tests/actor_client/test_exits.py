"""Tests that exit codes are documented and within their ranges."""

from __future__ import annotations

import pytest

from actor_client.cli import build_parser
from actor_client.exits import ExitCode


@pytest.mark.parametrize("code", list(ExitCode))
def test_each_code_is_documented(code: ExitCode) -> None:
    """Every exit code has one line of help, which --help shows."""
    assert code.help
    assert "\n" not in code.help
    assert f"{code.value:3d}  {code.help}" in build_parser().format_help()


def test_codes_are_distinct_and_fit_a_byte() -> None:
    """Exit codes are distinct and fit a byte."""
    assert len({code.value for code in ExitCode}) == len(ExitCode)
    assert all(0 <= code.value < 256 for code in ExitCode)
