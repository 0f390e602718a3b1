"""Records who changed a run: `audit.jsonl` in the run folder, one JSON object per line, readable by its owner only.

A line has `time`, `action` (pause, resume, save, set, undo, drain, release, stop, revoke), `principal` and `role` (null for a signal, which has
none), `via` (http, signal, token_file), `peer` (address, or name of the signal) and `result` (`ok`, or the
reason of an error).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from rollcast.auth import Principal
from rollcast.errors import WireError

from learner.shared.observe.journal import EventLines

AUDIT_FILE: Final = "audit.jsonl"
OK: Final = "ok"


@dataclass(frozen=True, slots=True)
class Requester:
    """The origin of a request.

    Attributes:
        via: ``http``, ``signal`` or ``token_file``.
        peer: Address of the caller, or name of the signal.
        principal: The caller; None for a signal.
    """

    via: str
    peer: str
    principal: Principal | None = None


class Audit:
    """Appends lines; thread-safe.

    Args:
        folder: The run folder; None keeps nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._lines = None if folder is None else EventLines(folder / AUDIT_FILE, private=True)

    def note(self, action: str, source: Requester, result: str = OK, **details: object) -> None:
        """Adds a line."""
        if self._lines is None:
            return
        who = source.principal
        self._lines.add(
            {
                "action": action,
                "principal": None if who is None else who.name,
                "role": None if who is None else who.role.value,
                "via": source.via,
                "peer": source.peer,
                "result": result,
                **details,
            }
        )

    @contextlib.contextmanager
    def noting(self, action: str, source: Requester, **details: object) -> Iterator[dict[str, object]]:
        """Adds a line when the block ends, with its result. The block may add details.

        A caller that leaves early has the result `CANCELLED`; what it asked for may still happen.
        """
        result = OK
        try:
            yield details
        except BaseException as error:
            result = _reason(error)
            raise
        finally:
            self.note(action, source, result, **details)

    def close(self) -> None:
        """Closes the file; a later line reopens it."""
        if self._lines is not None:
            self._lines.close()


def grpc_address(peer: str) -> str:
    """Returns the address of a gRPC peer without its scheme: ``127.0.0.1:5000`` for ``ipv4:127.0.0.1:5000``."""
    scheme, _, rest = peer.partition(":")
    return unquote(rest) if scheme in {"ipv4", "ipv6"} else peer


def _reason(error: BaseException) -> str:
    if isinstance(error, WireError):
        return error.reason
    if isinstance(error, TimeoutError):
        return "LATE"
    return "CANCELLED" if isinstance(error, asyncio.CancelledError) else "INTERNAL"
