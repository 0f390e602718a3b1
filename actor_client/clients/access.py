"""The tokens of clients, from a file that is read again when it changes."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog
from rollcast.auth import TOKEN_FORM, Role, TokenTable, parse_tokens
from rollcast.tls import IdentityError, read_file

POLL_SECONDS: Final = 5.0
"""Shortest time between two looks at the file."""

_log = structlog.get_logger(__name__)


class ClientAccess:
    """Says who may be a client.

    Args:
        token_file: The file with the hashes of tokens, in the form of `rollcast.auth`; None lets everyone in.
        clock: Returns seconds since 1970.
        poll_seconds: Shortest time between two looks at the file.

    Raises:
        IdentityError: The file cannot be used.
    """

    def __init__(
        self,
        token_file: Path | None,
        *,
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._path = token_file
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._looked_at = time.monotonic()
        self._problem = ""
        self._table = TokenTable() if token_file is None else _read(token_file)

    def fault(self, token: str) -> str:
        """Returns why the sender of a token may not be a client, in one line; empty if it may."""
        if self._path is None:
            return ""
        self._poll(self._path)
        if not token:
            return "this gateway needs a token: put one of its --clients-auth file into hello.token"
        found = self._table.find(token, self._clock()) if TOKEN_FORM.fullmatch(token) else None
        if found is None:
            return "the token in hello is unknown, was revoked, or has expired: ask for a new one"
        if found.role is not Role.CLIENT:
            return f"the token in hello is of the role {found.role}; a client needs one of the role {Role.CLIENT}"
        return ""

    def _poll(self, path: Path) -> None:
        """Reads the file again if the last look is long enough ago; the old tokens stay valid if it cannot be used."""
        now = time.monotonic()
        if now - self._looked_at < self._poll_seconds:
            return
        self._looked_at = now
        try:
            self._table, self._problem = _read(path), ""
        except IdentityError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.error("token_file_not_read", error=self._problem, action="the previous tokens stay valid")


def _read(path: Path) -> TokenTable:
    """Returns the tokens of a file.

    Raises:
        IdentityError: It cannot be used.
    """
    try:
        return parse_tokens(read_file(path).decode("utf-8", "replace"))
    except ValueError as error:
        raise IdentityError(f"{path}: {error}") from None
