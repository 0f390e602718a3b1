"""The messages with which the service and a rank on another machine begin; see `learner.start.rank_handshake`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from learner.shared.exits import ExitCode, UserError

PROTOCOL: Final = 1
"""Version of the messages between a service and ranks on other machines, which must be of one release."""
INTRODUCTION_BYTES: Final = 4096
READY: Final = b"ready"
"""Begins the answer of a rank, which ends with the address at which the others reach it, if there are others."""
APART: Final = b"apart"
"""Answer of a rank 0 that does not see the run folder, in place of `READY`."""


class RefusedError(UserError):
    """Raised if the service does not take a rank; the message says why.

    Args:
        message: The reason.
        exit_code: Exit code of the rank.
    """

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.NOT_ALLOWED) -> None:
        super().__init__(exit_code, message)


@dataclass(frozen=True, slots=True)
class Introduction:
    """The introduction of a rank to the service.

    Attributes:
        rank: Its number, from 0.
        ranks: How many there are, as it was told.
        release: Version of its package.
        token: Its token; None for none.
    """

    rank: int
    ranks: int
    release: str
    token: str | None = None

    def encode(self) -> bytes:
        """Returns it as bytes."""
        return json.dumps([PROTOCOL, self.rank, self.ranks, self.release, self.token]).encode()

    @classmethod
    def decode(cls, content: bytes) -> Introduction:
        """Reads it.

        Raises:
            RefusedError: It has another form.
        """
        try:
            protocol, rank, ranks, release, token = json.loads(content)
        except (ValueError, TypeError, RecursionError):
            raise RefusedError("this is not a rank of rollcast trainer") from None
        if protocol != PROTOCOL or type(rank) is not int or type(ranks) is not int or not isinstance(release, str):
            raise RefusedError("this rank is of another release: install the learner's")
        return cls(rank, ranks, release, token if isinstance(token, str) else None)


def not_seen(folder: Path) -> str:
    """Returns what to do about a rank 0 that does not see the run folder."""
    return (
        f"rank 0 does not see the run folder {folder}, into which it saves: start it on the learner's machine (--rank 0), or "
        "share the folder"
    )
