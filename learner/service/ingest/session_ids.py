"""Makes ids of sessions that only this run can make, and short names of them for logs and errors.

An id is a secret: who knows it can act as that session's actor. It is therefore never written to a log or an error.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from learner.shared.files import WriteFailed, open_regular, write_file
from learner.shared.platform import is_private

NONCE_BYTES: Final = 16
_TIME_BYTES: Final = 5
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32
_SHORT_DIGITS: Final = 12
SESSION_KEY: Final = "session_key"
log = structlog.get_logger(__name__)


class SessionIds:
    """Makes and recognizes the ids of one run: the time and a random number, and their HMAC over the principal and the run.

    An actor reports what it sent in a session that the learner does not know after a restart. The signature shows that
    the learner opened this session for that principal.

    Args:
        key: The run's secret.
        run_id: Name of the run.
        clock: Returns the seconds since the epoch.
    """

    def __init__(self, key: bytes, run_id: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._key = key
        self._run = run_id.encode()

    def make(self, principal: str) -> str:
        """Returns the id of a new session of a principal."""
        now = max(0, int(self._clock())).to_bytes(_TIME_BYTES, "big")
        nonce = now + secrets.token_bytes(NONCE_BYTES - _TIME_BYTES)
        return (nonce + self._tag(nonce, principal)).hex()

    def age_seconds(self, session_id: str) -> float:
        """Returns the age of an id that this run made; 0 for one that is no id, or of the future."""
        try:
            made_at = int.from_bytes(bytes.fromhex(session_id[: 2 * _TIME_BYTES]), "big")
        except ValueError:
            return 0.0
        return max(0.0, self._clock() - made_at)

    def is_own(self, session_id: str, principal: str) -> bool:
        """Returns whether this run made an id for a principal."""
        if len(session_id) != 2 * (NONCE_BYTES + TAG_BYTES):
            return False
        try:
            given = bytes.fromhex(session_id)
        except ValueError:
            return False
        return hmac.compare_digest(given[NONCE_BYTES:], self._tag(given[:NONCE_BYTES], principal))

    def _tag(self, nonce: bytes, principal: str) -> bytes:
        # The lengths come first, so that no two triples make the same message.
        parts = (nonce, self._run, principal.encode("utf-8", "surrogatepass"))
        message = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
        return hmac.digest(self._key, message, "sha256")[:TAG_BYTES]


def short_id(session_id: str) -> str:
    """Returns a short name of a session for logs and errors: 12 digits of a SHA-256, from which no id can be computed."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_DIGITS]


def session_key(folder: Path) -> bytes:
    """Returns the key of a run folder, which restarts keep; creates it if there is no private one.

    With a new key, ids of earlier starts are known only through the run state. A folder in which it cannot be saved gets
    a key for this start alone, which is logged.
    """
    kept = _read(folder / SESSION_KEY)
    if kept is not None:
        return kept
    made = secrets.token_bytes(KEY_BYTES)
    try:
        write_file(folder / SESSION_KEY, f"{made.hex()}\n".encode("ascii"), private=True)
    except WriteFailed as error:
        log.warning("session_key_not_kept", error=str(error))
    return made


def _read(path: Path) -> bytes | None:
    """Returns the key in a file; None if there is none, or others could have read or written it."""
    try:
        with open_regular(path, follow_links=False) as stream:
            if not is_private(stream.fileno()):
                return None
            found = bytes.fromhex(stream.read(4 * KEY_BYTES).decode("ascii").strip())
    except (OSError, ValueError):
        return None
    return found if len(found) == KEY_BYTES else None
