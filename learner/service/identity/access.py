"""Decides who a caller is and what it may do, by a token file that is read again when it changes."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from pathlib import Path
from typing import Final

import structlog
from rollcast.auth import Principal, Role, TokenRow, TokenTable, parse_tokens, principal_of_uri, token_hash
from rollcast.errors import NotAllowed, Unauthenticated
from rollcast.server_tls import POLL_SECONDS
from rollcast.tls import IdentityError, read_file

from learner.shared.exits import ExitCode, UserError

ANYONE: Final = Principal("", Role.ACTOR)
"""Every actor of a learner that identifies no actors."""

OPERATOR: Final = "operator"
"""Name of the principal of the operator's token in the run folder."""

CALLER: ContextVar[Principal] = ContextVar("caller", default=ANYONE)
"""The principal whose call is being answered."""

SETTLE_SECONDS: Final = 1.0
"""A file that was changed less than so long ago may still be being written."""

_UNKNOWN: Final = (
    "the token is unknown, was revoked, or has expired: ask for a new one; one just made is known within seconds"
)

_log = structlog.get_logger(__name__)


class Access:
    """The principals of a run.

    Args:
        token_file: The token file; None for none.
        takes_certificates: Whether clients have certificates, each of which names its principal.
        own: Tokens of the learner's own machine, such as the operator's in the run folder.
        clock: Returns seconds since 1970.
        poll_seconds: Shortest time between two looks at the file.

    Raises:
        UserError: The token file cannot be used (RUN_FILE).
    """

    def __init__(
        self,
        token_file: Path | None = None,
        *,
        takes_certificates: bool = False,
        own: Iterable[TokenRow] = (),
        clock: Callable[[], float] = time.time,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._path = token_file
        self.takes_certificates = takes_certificates
        self._own = TokenTable(own)
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._look_at = time.monotonic() + poll_seconds
        self._problem = ""
        self._content = b""
        self._table = TokenTable()
        if token_file is not None:
            try:
                self._content = read_file(token_file)
                self._table = _parse(token_file, self._content)
            except IdentityError as error:
                raise UserError(
                    ExitCode.RUN_FILE,
                    f"rollcast.token_file: {error}; rollcast certs init {shlex.quote(str(token_file.parent))} makes it, if "
                    "that is the folder of the learner's --certs",
                ) from None

    @property
    def identifies_actors(self) -> bool:
        """True if actors need a token or a certificate."""
        return self._path is not None or self.takes_certificates

    @property
    def has_tokens(self) -> bool:
        """True if there is a token file."""
        return self._path is not None

    def poll(self) -> bool:
        """Reads the token file again if the last look is long enough ago; returns whether other tokens are valid now.

        A file counts a second after its last change: whoever writes it in its place empties it first. One that cannot be
        used changes nothing, and is reported once: while it is being replaced, it may be missing.
        """
        now = time.monotonic()
        if self._path is None or now < self._look_at:
            return False
        self._look_at = now + self._poll_seconds
        try:
            content = read_file(self._path)
            if content == self._content:
                self._problem = ""
                return False
            if _may_be_incomplete(self._path):
                self._look_at = now + min(self._poll_seconds, SETTLE_SECONDS)
                return False
            table = _parse(self._path, content)
        except IdentityError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.error("token_file_not_read", error=self._problem, action="the previous tokens stay valid")
            return False
        self._content, self._table, self._problem = content, table, ""
        _log.info("token_file_read", tokens=len(table.rows))
        return True

    def by_token(self, token: str | None) -> Principal | None:
        """Returns the principal of a token; None if the caller's certificate alone names it.

        Raises:
            Unauthenticated: The caller has no valid token, and needs one.
        """
        if token is None:
            if self._path is None and self.takes_certificates:
                return None
            raise Unauthenticated("the learner requires a token: give --token-file FILE")
        found = self._find(token)
        if found is None:
            raise Unauthenticated(_UNKNOWN)
        return found

    def prove(self, nonce: bytes, claim: bytes, port: int) -> bytes:
        """Returns what proves to a caller that this learner knows its token.

        Args:
            nonce: What the caller has drawn.
            claim: What proves that it knows a token.
            port: The port that it has dialed.

        Raises:
            Unauthenticated: Its token is not valid.
        """
        now = self._clock()
        found = self._own.proof(nonce, claim, port, now) or self._table.proof(nonce, claim, port, now)
        if found is None:
            raise Unauthenticated(_UNKNOWN)
        return found

    def agree(self, principal: Principal | None, names: Iterable[str]) -> Principal:
        """Returns the principal that both the token and the certificate name.

        Args:
            principal: The principal of the token; None without a token.
            names: The alternative names in the caller's certificate.

        Raises:
            Unauthenticated: There is neither a token nor a certificate of a principal.
            NotAllowed: They name two principals.
        """
        certified = next((found for found in map(principal_of_uri, names) if found is not None), None)
        if certified is None:
            if principal is None or self.takes_certificates:
                raise Unauthenticated(
                    "the certificate names no principal by a URI rollcast://ROLE/NAME: make one with rollcast "
                    "certs client"
                )
            return principal
        if principal is None:
            return certified
        if self.takes_certificates and (certified.name, certified.role) != (principal.name, principal.role):
            raise NotAllowed(
                f"the certificate is of {certified.role} {certified.name}, and the token of {principal.role} "
                f"{principal.name}: use those of one principal"
            )
        return principal

    def is_valid(self, token: str | None, needed: Role) -> bool:
        """Returns whether a call that began with this token, and needs this role, may continue."""
        if token is None:
            return True
        found = self._find(token)
        return found is not None and found.role.includes(needed)

    def knows(self, name: str) -> bool:
        """Returns whether the sessions of a principal may continue: it still has the token of an actor."""
        if self._path is None or not name:
            return True
        now = self._clock()
        return self._own.holds(name, Role.ACTOR, now) or self._table.holds(name, Role.ACTOR, now)

    def _find(self, token: str) -> Principal | None:
        now = self._clock()
        return self._own.find(token, now) or self._table.find(token, now)


def require(principal: Principal, needed: Role) -> None:
    """Checks a role.

    Raises:
        NotAllowed: The principal has another role.
    """
    if not principal.role.includes(needed):
        raise NotAllowed(
            f"{principal.name} is {with_article(principal.role)}, and this call needs {with_article(needed)}: use a token of that role",
            metadata={"principal": principal.name, "role": principal.role.value, "needed": needed.value},
        )


def check_behavior(principal: Principal, behavior: str) -> None:
    """Checks that a principal may play a behavior.

    Raises:
        NotAllowed: Its token is limited to others.
    """
    if principal.behaviors is not None and behavior not in principal.behaviors:
        raise NotAllowed(
            f"{principal.name} may not play {behavior!r}: add it to behaviors= in the learner's token file",
            metadata={"principal": principal.name, "behavior": behavior},
        )


def with_article(role: Role) -> str:
    """Returns a role as words: ``an actor``."""
    return f"{'an' if role in {Role.ACTOR, Role.OPERATOR} else 'a'} {role}"


def own_row(name: str, role: Role, token: str) -> TokenRow:
    """Returns the row of a token that the learner keeps in the run folder."""
    return TokenRow(Principal(name, role), token_hash(token))


def _may_be_incomplete(path: Path) -> bool:
    """Returns whether a file that was just read may have been read while it was written."""
    try:
        return 0.0 <= time.time() - path.stat().st_mtime < SETTLE_SECONDS
    except OSError:
        return True


def _parse(path: Path, content: bytes) -> TokenTable:
    try:
        return parse_tokens(content.decode("utf-8-sig"))  # editors on Windows write a mark first
    except UnicodeDecodeError:
        raise IdentityError(f"{path} is not text in UTF-8") from None
    except ValueError as error:
        raise IdentityError(f"{path}, {error}") from None
