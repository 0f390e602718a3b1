"""Tests the operators' token."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from learner.service.web.operator_token import (
    TOKEN_FILE,
    OperatorToken,
    forget_token,
    read_token,
    token_from_file,
    token_of_run,
)
from learner.shared.exits import ExitCode, UserError


def test_a_token_of_a_run(tmp_path: Path) -> None:
    """The token is long, its file is private, and a restart reuses it."""
    token = token_of_run(tmp_path)
    file = tmp_path / TOKEN_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(token.reveal()) >= 43
    assert file.read_text().strip() == token.reveal()
    assert token_of_run(tmp_path).reveal() == token.reveal()
    assert [path.name for path in tmp_path.iterdir()] == [TOKEN_FILE]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o604])
def test_a_token_others_could_see_is_replaced(tmp_path: Path, mode: int) -> None:
    """A token file that others can read or write is replaced."""
    known = token_of_run(tmp_path).reveal()
    (tmp_path / TOKEN_FILE).chmod(mode)
    assert read_token(tmp_path) is None
    assert token_of_run(tmp_path).reveal() != known
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a token", b"\xff" * 40, b"x" * 513])
def test_a_spoilt_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    """An invalid token file is replaced."""
    file = tmp_path / TOKEN_FILE
    file.touch(0o600)
    file.write_bytes(content)
    assert read_token(tmp_path) is None
    assert read_token(tmp_path) is None
    assert len(token_of_run(tmp_path).reveal()) >= 43


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A link in the place of the file is replaced, and its target is unchanged."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch(0o600)
    elsewhere.write_text("chosen-by-somebody-else")
    (tmp_path / TOKEN_FILE).symlink_to(elsewhere)
    assert token_of_run(tmp_path).reveal() != "chosen-by-somebody-else"
    assert not (tmp_path / TOKEN_FILE).is_symlink()
    assert elsewhere.read_text() == "chosen-by-somebody-else"


@pytest.mark.parametrize("content", [b"", b"0123456789abcde", b"0123 456789abcdef", b"x" * 5000, b"\x00" * 20])
def test_what_is_no_token_of_the_user(tmp_path: Path, content: bytes) -> None:
    """An invalid token of the user is refused without showing it, and a missing file by name; the line end is no part."""
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"16 to 512 printable|the limit is 4096") as caught:
        token_from_file(file)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert "0123" not in caught.value.message
    with pytest.raises(UserError, match="No such file"):
        token_from_file(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="not a regular file"):
        token_from_file(tmp_path / "pipe")
    file.write_text("0123456789abcdef\n")
    assert token_from_file(file).reveal() == "0123456789abcdef"


def test_a_forgotten_token(tmp_path: Path) -> None:
    """With a user's token, the generated one is removed."""
    token_of_run(tmp_path)
    forget_token(tmp_path)
    forget_token(tmp_path)
    assert read_token(tmp_path) is None


def test_a_token_does_not_show_itself() -> None:
    """The token appears neither in logs nor in tracebacks."""
    token = OperatorToken("0123456789abcdef")
    assert "0123" not in f"{token!r} {token!s} {vars(OperatorToken)}"


@pytest.mark.parametrize(
    ("header", "fits"),
    [
        ("Bearer 0123456789abcdef", True),
        ("bearer  0123456789abcdef ", True),
        ("Bearer 0123456789abcdeF", False),
        ("Bearer 0123456789abcde", False),
        ("Basic 0123456789abcdef", False),
        ("0123456789abcdef", False),
        ("Bearer", False),
        ("Bearer \udcff\u20ac", False),
        ("", False),
        (None, False),
    ],
)
def test_comparing(header: str | None, fits: bool) -> None:
    """Only the whole token with its scheme matches."""
    assert OperatorToken("0123456789abcdef").is_that_of(header) is fits


def test_a_pipe_is_no_token(tmp_path: Path) -> None:
    """A pipe in the place of the token file is replaced without waiting."""
    os.mkfifo(tmp_path / TOKEN_FILE, 0o600)
    assert read_token(tmp_path) is None
    made = token_of_run(tmp_path)
    kept = read_token(tmp_path)
    assert kept is not None
    assert kept.reveal() == made.reveal()
