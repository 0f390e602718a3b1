"""Identities of clients: roles, tokens and the learner's token file, and the names in client certificates.

A token file has one token a line; lines that begin with ``#`` are comments:

    # principal  role      hash of the token    limits
    lab-3        actor     sha256:9f86d081...   max_sessions=8 behaviors=Walker,Crawler not_after=2027-01-31T00:00:00Z
    ops          operator  sha256:60303ae2...

A principal may have several tokens, so that an old and a new one are valid during a rotation. The file has hashes and no
secrets: a token has 256 random bits, so its SHA-256 cannot be reversed.
"""

import base64
import enum
import hashlib
import hmac
import json
import re
import secrets
import ssl
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

AUTHORIZATION: Final = "authorization"
"""Metadata key and HTTP header of a token."""
HASH_PREFIX: Final = "sha256:"
MAX_TOKENS: Final = 4096
MAX_FILE_BYTES: Final = 2**20
MAX_SESSIONS: Final = 10**6
TOKEN_FORM: Final = re.compile(r"[\x21-\x7e]{16,512}")
"""Form of a token: it must fit into a header, and a short one can be guessed."""
_TOKEN_BYTES: Final = 32
_HASH_FORM: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = r"(?=\.*[A-Za-z0-9_-])[A-Za-z0-9._-]{1,64}"
"""Form of a principal's name, which also names a folder of `certs client`: not only dots."""
_NAME_FORM: Final = re.compile(_NAME)
_ADDRESS_FORM: Final = re.compile(r"[\x21-\x7e]{1,300}")
_URI_FORM: Final = re.compile(rf"rollcast://([a-z]+)/({_NAME})")


class Role(enum.StrEnum):
    """What a principal may do."""

    ACTOR = "actor"
    """Open sessions, send experience and receive policies."""
    VIEWER = "viewer"
    """Read the status, the page and the metrics."""
    OPERATOR = "operator"
    """Everything a viewer may, and pause, resume, save and end the run."""
    TRAINER = "trainer"
    """Train the run's policies, as a process on another machine."""
    CLIENT = "client"
    """Play at a gateway for clients (`rollcast act clients`)."""

    def includes(self, needed: "Role") -> bool:
        """Returns whether this role may do what another one may."""
        return self is needed or (self is Role.OPERATOR and needed is Role.VIEWER)


@dataclass(frozen=True, slots=True)
class Principal:
    """A client as the learner knows it.

    Attributes:
        name: Its name; sessions belong to it.
        role: What it may do.
        max_sessions: Most sessions at once; None for the run's own limit.
        behaviors: Behaviors that it may declare; None for all.
    """

    name: str
    role: Role
    max_sessions: int | None = None
    behaviors: frozenset[str] | None = None

    @property
    def uri(self) -> str:
        """The name in a certificate, as a URI."""
        return f"rollcast://{self.role}/{self.name}"


def principal_of_uri(uri: str) -> Principal | None:
    """Returns the principal that a certificate's URI names; None for another URI."""
    found = _URI_FORM.fullmatch(uri)
    if found is None or found[1] not in list(Role):
        return None
    return Principal(found[2], Role(found[1]))


def check_name(name: str) -> str:
    """Returns the name of a principal.

    Raises:
        ValueError: It has another form.
    """
    if _NAME_FORM.fullmatch(name) is None:
        raise ValueError("a principal's name has 1 to 64 letters, digits, dots, dashes and underscores, not only dots")
    return name


def make_token() -> str:
    """Returns a new token of 256 random bits."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def token_hash(token: str) -> str:
    """Returns the hash of a token as it is written in a token file."""
    return HASH_PREFIX + hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def proof_of(side: str, hashed: str, nonce: bytes, port: int) -> bytes:
    """Returns what proves to the other side of a connection in plain text that this one knows a token.

    It is the HMAC-SHA256, with the token's hash as the key, of "rollcast ", the side, " ", the port in decimal, " ", and the
    nonce. A caller sends its nonce and its proof (`claim`), and gets that of the learner.

    Args:
        side: "caller" or "learner".
        hashed: Hash of the token, as in a token file.
        nonce: 32 random bytes that the caller has drawn.
        port: The learner's port, so that nobody passes on what another port proves.
    """
    return hmac.digest(hashed.encode(), b"rollcast %b %d %b" % (side.encode(), port, nonce), "sha256")


def authorization(token: str) -> tuple[tuple[str, str], ...]:
    """Returns the metadata that carries a token."""
    return ((AUTHORIZATION, f"Bearer {token}"),)


def bearer(headers: Iterable[str | bytes]) -> str | None:
    """Returns the token of the only ``authorization`` header; None without exactly one well-formed header."""
    values = list(headers)
    if len(values) != 1 or not isinstance(values[0], str):
        return None
    scheme, _, token = values[0].partition(" ")
    token = token.strip()
    return token if scheme.lower() == "bearer" and TOKEN_FORM.fullmatch(token) else None


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One line of a token file.

    Attributes:
        principal: Whom the token identifies.
        hash: Hash of the token.
        not_after: When it expires, in seconds since 1970; None for never.
    """

    principal: Principal
    hash: str
    not_after: float | None = None

    def is_valid(self, now: float) -> bool:
        """Returns whether the token has not expired."""
        return self.not_after is None or now < self.not_after

    def line(self) -> str:
        """Returns the row as a line of a token file."""
        who = self.principal
        parts = [who.name, str(who.role), self.hash]
        if who.max_sessions is not None:
            parts.append(f"max_sessions={who.max_sessions}")
        if who.behaviors is not None:
            parts.append(f"behaviors={','.join(sorted(who.behaviors))}")
        if self.not_after is not None:
            parts.append(f"not_after={datetime.fromtimestamp(self.not_after, UTC).isoformat().replace('+00:00', 'Z')}")
        return " ".join(parts)


class TokenTable:
    """The valid tokens, by their hashes.

    Args:
        rows: The lines of a token file.
    """

    def __init__(self, rows: Iterable[TokenRow] = ()) -> None:
        self.rows = tuple(rows)
        self._by_hash = {row.hash: row for row in self.rows}

    def find(self, token: str, now: float) -> Principal | None:
        """Returns the principal of a token; None if it is unknown or has expired.

        The search is by hash, so its duration reveals nothing about the tokens.

        Args:
            token: The token.
            now: Seconds since 1970.
        """
        row = self._by_hash.get(token_hash(token))
        return row.principal if row is not None and row.is_valid(now) else None

    def proof(self, nonce: bytes, claim: bytes, port: int, now: float) -> bytes | None:
        """Returns the learner's proof for a caller; None if its claim is of no valid token.

        Args:
            nonce: What the caller has drawn.
            claim: Its own proof.
            port: The learner's port.
            now: Seconds since 1970.
        """
        for row in self.rows:
            if row.is_valid(now) and hmac.compare_digest(proof_of("caller", row.hash, nonce, port), claim):
                return proof_of("learner", row.hash, nonce, port)
        return None

    def holds(self, name: str, needed: Role, now: float) -> bool:
        """Returns whether a principal has a valid token of a role that includes the needed one."""
        return any(
            row.principal.name == name and row.principal.role.includes(needed) and row.is_valid(now)
            for row in self.rows
        )


def parse_tokens(text: str) -> TokenTable:
    """Reads a token file.

    Raises:
        ValueError: A line is wrong; the message names the line and never shows it, because it may hold a token by
            mistake.
    """
    rows: dict[str, TokenRow] = {}
    roles: dict[str, Role] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            row = _row(words)
            if roles.setdefault(row.principal.name, row.principal.role) is not row.principal.role:
                raise ValueError(f"principal {row.principal.name} has two roles; give each role its own principal")
            if row.hash in rows:
                raise ValueError("the same token is in another line; give each line its own")
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        rows[row.hash] = row
        if len(rows) > MAX_TOKENS:
            raise ValueError(f"more than {MAX_TOKENS} tokens")
    return TokenTable(rows.values())


def _row(words: list[str]) -> TokenRow:
    if len(words) < 3:
        raise ValueError(f"has {len(words)} words; write PRINCIPAL ROLE sha256:HASH")
    name, role, hashed, *options = words
    check_name(name)
    if role not in list(Role):
        raise ValueError(f"the role must be one of {', '.join(Role)}")
    if _HASH_FORM.fullmatch(hashed) is None:
        raise ValueError("the third word must be sha256: and 64 hexadecimal digits, the token's hash and not the token")
    limits: dict[str, str] = {}
    for option in options:
        key, separator, value = option.partition("=")
        if key not in {"max_sessions", "behaviors", "not_after"} or not separator or not value or key in limits:
            raise ValueError("each further word must be one of max_sessions=N, behaviors=A,B or not_after=DATE")
        limits[key] = value
    behaviors = frozenset(filter(None, limits["behaviors"].split(","))) if "behaviors" in limits else None
    if behaviors == frozenset():
        raise ValueError("behaviors= names none; leave it out to allow all")
    principal = Principal(name, Role(role), _sessions(limits.get("max_sessions")), behaviors)
    return TokenRow(principal, hashed, moment(limits["not_after"]) if "not_after" in limits else None)


def _sessions(value: str | None) -> int | None:
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,7}", value) is None or not 1 <= int(value) <= MAX_SESSIONS:
        raise ValueError(f"max_sessions must be a number from 1 to {MAX_SESSIONS}")
    return int(value)


def moment(text: str) -> float:
    """Returns a date and time of ISO 8601 as seconds since 1970; one without a zone is in UTC.

    Raises:
        ValueError: The text is not such a date.
    """
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC).timestamp()
    except (ValueError, OverflowError):  # at the ends of the calendar, a zone leads out of it
        raise ValueError("not_after must be a date such as 2027-01-31 or 2027-01-31T12:00:00Z") from None


_CODE_PREFIX: Final = "rollcast1."
_MAX_CODE_CHARACTERS: Final = 4000
"""A terminal accepts lines of 4,095 characters."""


@dataclass(frozen=True, slots=True)
class JoinCode:
    """What an actor needs to join a run, as one word.

    Attributes:
        address: Address of the learner.
        authority: Certificate of the learner's authority, in PEM form.
        token: The actor's token.
        name: Name of the actor's principal; empty if the code does not have it.
    """

    address: str
    authority: str
    token: str
    name: str = ""

    def __repr__(self) -> str:
        return f"JoinCode(address={self.address!r}, ...)"

    def encode(self) -> str:
        """Returns the code. It contains the token: treat it like a password."""
        named = [self.name] if self.name else []
        document = json.dumps([self.address, ssl.PEM_cert_to_DER_cert(self.authority).hex(), self.token, *named])
        return _CODE_PREFIX + base64.urlsafe_b64encode(zlib.compress(document.encode(), 9)).decode().rstrip("=")

    @classmethod
    def decode(cls, code: str) -> "JoinCode":
        """Reads a code.

        Raises:
            ValueError: It is not complete; the message does not show it.
        """
        text = "".join(code.split())
        try:
            if not text.startswith(_CODE_PREFIX) or len(text) > _MAX_CODE_CHARACTERS:
                raise ValueError
            packed = base64.urlsafe_b64decode(text[len(_CODE_PREFIX) :] + "==")
            unpacker = zlib.decompressobj()
            document = unpacker.decompress(packed, MAX_FILE_BYTES)
            address, authority, token, *further = json.loads(document)
            name = further[0] if further else ""
            if not unpacker.eof or not all(isinstance(each, str) for each in (address, authority, token, name)):
                raise ValueError
            pem = ssl.DER_cert_to_PEM_cert(bytes.fromhex(authority))
        except (ValueError, TypeError, zlib.error, RecursionError):
            raise ValueError("this is not a whole join code; copy all of it, from rollcast1. to its end") from None
        if TOKEN_FORM.fullmatch(token) is None or _ADDRESS_FORM.fullmatch(address) is None:
            raise ValueError("the join code holds no token, or no address")
        return cls(address, pem, token, check_name(name) if name else "")
