"""The secret that distinguishes operators from readers: it permits the page's buttons."""

from __future__ import annotations

import contextlib
import hmac
import re
import secrets
from pathlib import Path
from typing import Final

from rollcast.files import read_regular

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import atomic_file, open_regular
from learner.shared.platform import is_private, make_private

TOKEN_FILE: Final = "operator_token"  # noqa: S105 - the name of the file
COMMAND_HEADER: Final = "X-Rollcast-Command"
"""Header of the operators' commands: a script of another site cannot send it, because no answer allows it to."""
TOKEN_BYTES: Final = 32
MAX_FILE_BYTES: Final = 4096
_FORM: Final = re.compile(r"[\x21-\x7e]{16,512}")
"""Form of a token: it must fit into a header, and a short one can be guessed."""


class OperatorToken:
    """A token that can be compared and is never shown by accident."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "OperatorToken(...)"

    def reveal(self) -> str:
        """Returns the token itself."""
        return self._value

    def is_that_of(self, header: str | None) -> bool:
        """Returns whether an ``Authorization`` header carries this token; takes the same time for any difference."""
        scheme, _, given = (header or "").partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._value.encode())
        return same and scheme.lower() == "bearer"


def token_from_file(path: Path) -> OperatorToken:
    """Reads a token from a user's file, such as a Docker secret.

    Raises:
        UserError: The file cannot be read, or holds no token.
    """
    try:
        content = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.operator_token_file: {path} cannot be read: {error.strerror or error}; name a readable file, "
            "or remove the setting to create a token",
        ) from None
    text = content.decode("utf-8", "replace").strip()
    if _FORM.fullmatch(text) is None:
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.operator_token_file: {path} must hold one token of 16 to 512 printable characters without "
            "spaces; create one with: openssl rand -hex 32",
        )
    return OperatorToken(text)


def token_of_run(folder: Path) -> OperatorToken:
    """Returns the token of a run folder, which restarts keep; creates it if there is no private one.

    Raises:
        WriteFailed: A new token cannot be saved there.
    """
    kept = read_token(folder)
    if kept is not None:
        return kept
    made = OperatorToken(secrets.token_urlsafe(TOKEN_BYTES))
    with atomic_file(folder / TOKEN_FILE) as stream:
        make_private(stream.fileno())  # before the file has any content
        stream.write(made.reveal().encode() + b"\n")
    return made


def read_token(folder: Path) -> OperatorToken | None:
    """Returns the token of a run folder; None if there is none, or others could have read or written it."""
    try:
        stream = open_regular(folder / TOKEN_FILE, follow_links=False)
    except OSError:
        return None
    with stream:
        if not is_private(stream.fileno()):
            return None
        text = stream.read(MAX_FILE_BYTES).decode("utf-8", "replace").strip()
    return OperatorToken(text) if _FORM.fullmatch(text) else None


def forget_token(folder: Path) -> None:
    """Removes the token of a run folder because another token is used."""
    with contextlib.suppress(OSError):
        (folder / TOKEN_FILE).unlink()


def unkept_token() -> OperatorToken:
    """Returns an unknown token, for runs that cannot save one and so have no operators."""
    return OperatorToken(secrets.token_urlsafe(TOKEN_BYTES))
