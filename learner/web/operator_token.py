"""The secret that tells an operator from a reader: whoever knows it may press the page's buttons."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Final

from learner.common.exits import ExitCode, UserError
from learner.common.files import atomic_file, open_regular

TOKEN_FILE: Final = "operator_token"  # noqa: S105 - the name of the file
TOKEN_BYTES: Final = 32
MAX_FILE_BYTES: Final = 4096
_FORM: Final = re.compile(r"[\x21-\x7e]{16,512}")
"""What may be a token: it goes into a header, and a short one can be guessed."""


class OperatorToken:
    """A token; it compares, and never shows itself by accident."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "OperatorToken(...)"

    def reveal(self) -> str:
        """Returns the token itself."""
        return self._value

    def is_that_of(self, header: str | None) -> bool:
        """Says whether an ``Authorization`` header carries this token, in a time that does not depend on where they differ."""
        scheme, _, given = (header or "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._value.encode())
        return same and scheme.lower() == "bearer"


def token_from_file(path: Path) -> OperatorToken:
    """Reads a token that the user gave in a file, such as a Docker secret.

    Raises:
        UserError: the file cannot be read, or holds no token.
    """
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.operator_token_file: {path} cannot be read: {error.strerror or error}; name a file with a "
            "token, or none, and one is made",
        ) from None
    text = content.decode("utf-8", "replace").strip()
    if len(content) > MAX_FILE_BYTES or _FORM.fullmatch(text) is None:
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.operator_token_file: {path} must hold one token of 16 to 512 printable characters without "
            "spaces; make one with: openssl rand -hex 32",
        )
    return OperatorToken(text)


def token_of_run(folder: Path) -> OperatorToken:
    """Returns the token of a run folder, the same one over restarts; makes it where there is none that is private.

    Raises:
        WriteFailed: a new one cannot be kept there.
    """
    kept = read_token(folder)
    if kept is not None:
        return kept
    made = OperatorToken(secrets.token_urlsafe(TOKEN_BYTES))
    with atomic_file(folder / TOKEN_FILE) as stream:
        os.fchmod(stream.fileno(), 0o600)  # before there is anything to read in it
        stream.write(made.reveal().encode() + b"\n")
    return made


def read_token(folder: Path) -> OperatorToken | None:
    """Returns the token that a run folder keeps; None if there is none, or others could have read or written it."""
    try:
        stream = open_regular(folder / TOKEN_FILE, os.O_NOFOLLOW)
    except OSError:
        return None
    with stream:
        if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) & 0o077:
            return None
        text = stream.read(MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    return OperatorToken(text) if _FORM.fullmatch(text) else None


def forget_token(folder: Path) -> None:
    """Removes the token of a run folder: another one holds now."""
    with contextlib.suppress(OSError):
        (folder / TOKEN_FILE).unlink()


def unkept_token() -> OperatorToken:
    """Returns a token that nobody knows: where none can be kept, nobody is an operator."""
    return OperatorToken(secrets.token_urlsafe(TOKEN_BYTES))
