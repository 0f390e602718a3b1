"""Looks a few plies ahead for wins and losses, over the likeliest moves of a policy.

The search knows results of games only: a line that ends in none has the value 0, and among moves of equal value the
policy's order decides. So it plays the policy's move unless that loses within the horizon or another one wins.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from actor_client.boards.positions import Position

_LOST: Final = -0.5
"""Values below are losses."""
_PER_PLY: Final = 1e-3
"""Value that a result loses with each ply, so that wins are taken soon and losses late."""


LogProbs = Callable[[list[Position]], list[NDArray[np.float32]]]
"""Returns log-probabilities of the legal moves of positions; see `actor_client.boards.play.model.Model`."""


class Found(NamedTuple):
    """Result of a search.

    Attributes:
        number: The best move.
        value: Its value for the mover: about 1 for a win, -1 for a loss, 0 for a draw or an unknown end.
        plies: Plies of the deepest search that was completed; 0 if none was.
        positions: Positions that were looked at.
    """

    number: int
    value: float
    plies: int
    positions: int


class OutOfTime(Exception):  # noqa: N818 - says what happened
    """The time is over within a search."""


def ordered(position: Position, log_probs: NDArray[np.float32]) -> list[int]:
    """Returns the legal moves, the likeliest first."""
    return [int(number) for number in position.legal[np.argsort(-log_probs, kind="stable")]]


class Search:
    """Searches one ply deeper each time, up to a number of plies or the end of the time.

    Args:
        log_probs: The policy.
        plies: Most plies.
        width: Likeliest moves of each position that are looked at. If they all lose, the others of the first position
            are looked at as well.
        is_over: Returns whether the time is over.

    Attributes:
        losing: Moves of the first position that are known to lose.
    """

    def __init__(
        self, log_probs: LogProbs, *, plies: int, width: int, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._log_probs = log_probs
        self._plies = plies
        self._width = width
        self._is_over = is_over
        self._moves: dict[tuple[int, ...], list[int]] = {}
        self._looked_at = 0
        self._seat = 0
        self.losing: frozenset[int] = frozenset()

    def run(self, position: Position, each: Callable[[Found, float], None] | None = None) -> Found:
        """Returns the best move found.

        Args:
            position: A position that is not over.
            each: Called with the result of each completed depth, and the seconds since the start.
        """
        began = time.monotonic()
        self._seat = position.mover
        found = Found(self._likeliest(position, ())[0], 0.0, 0, 0)
        for plies in range(1, self._plies + 1):
            try:
                number, value = self._root(position, plies)
            except OutOfTime:
                break
            found = Found(number, value, plies, self._looked_at)
            if each is not None:
                each(found, time.monotonic() - began)
            if abs(value) > 1 - _PER_PLY * (plies + 1) or len(position.legal) == 1:
                break  # deeper searches find the same end
        return found

    def _root(self, position: Position, plies: int) -> tuple[int, float]:
        moves = self._likeliest(position, ())
        best, most = moves[0], -2.0
        for place, number in enumerate(moves):
            if place >= self._width and most > -1 + _PER_PLY * (plies + 1):
                break
            least = most if most > 0 or most < _LOST else _LOST  # where it matters, every loss is to be known
            value = self._value(self._after(position, number), (number,), plies - 1, least, 2.0)
            if value <= _LOST:
                self.losing |= {number}
            if value > most:
                best, most = number, value
        return best, most

    def _value(self, position: Position, path: tuple[int, ...], plies: int, low: float, high: float) -> float:
        """Returns the value of a position for the seat that searches, by alpha-beta search.

        Either player may move twice in a row, so that values are not negated from ply to ply.
        """
        if position.returns is not None:
            return position.returns[self._seat] * (1 - _PER_PLY * len(path))
        if not plies:
            return 0.0
        is_mine = position.mover == self._seat
        best = -2.0 if is_mine else 2.0
        for number in self._likeliest(position, path)[: self._width]:
            value = self._value(self._after(position, number), (*path, number), plies - 1, low, high)
            if is_mine:
                best = max(best, value)
                low = max(low, best)
            else:
                best = min(best, value)
                high = min(high, best)
            if low >= high:
                break
        return best

    def _after(self, position: Position, number: int) -> Position:
        if self._is_over():
            raise OutOfTime
        after = position.copy()
        after.play(number)
        self._looked_at += 1
        return after

    def _likeliest(self, position: Position, path: tuple[int, ...]) -> list[int]:
        moves = self._moves.get(path)
        if moves is None:
            if self._is_over() and path:
                raise OutOfTime
            moves = self._moves[path] = ordered(position, self._log_probs([position])[0])
        return moves
