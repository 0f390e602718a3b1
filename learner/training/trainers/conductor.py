"""Tells the other ranks what the trainers of rank 0 do."""

from __future__ import annotations

from collections.abc import Callable, Collection

from learner.link.turns import Turn, TurnKind


class Conductor:
    """Numbers the turns of rank 0. Use it in the trainers' thread.

    Args:
        send: Sends a message to the service, which passes it on; None for a single learner, or for another rank.
    """

    def __init__(self, send: Callable[[Turn], object] | None = None) -> None:
        self._send = send
        self._number = 0

    def tell(
        self,
        behavior: int,
        kind: TurnKind,
        through: int = 0,
        players: Collection[str] = (),
        settings: str = "",
    ) -> None:
        """Tells the other ranks what this one does next; see `Turn` for the arguments."""
        if self._send is not None:
            self._number += 1
            self._send(Turn(self._number, behavior, kind, through, frozenset(players), settings))
