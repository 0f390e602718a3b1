"""Keeps the secret of a run's session ids: `session_key` in the run folder, readable by its owner only."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

import structlog

from learner.shared.files import WriteFailed, open_regular, write_file
from learner.shared.platform import is_private

SESSION_KEY: Final = "session_key"
_KEY_BYTES: Final = 32

log = structlog.get_logger(__name__)


def session_key(folder: Path) -> bytes:
    """Returns the key of a run folder, which restarts keep; creates it if there is no private one.

    With a new key, ids of earlier starts are known only through the run state. A folder in which it cannot be saved gets
    a key for this start alone, which is logged.
    """
    kept = _read(folder / SESSION_KEY)
    if kept is not None:
        return kept
    made = secrets.token_bytes(_KEY_BYTES)
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
            found = bytes.fromhex(stream.read(4 * _KEY_BYTES).decode("ascii").strip())
    except (OSError, ValueError):
        return None
    return found if len(found) == _KEY_BYTES else None
