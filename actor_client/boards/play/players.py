"""Chooses moves with a model: the likeliest, a drawn one, or the result of a small search."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from actor_client.boards.play.model import Model
from actor_client.boards.play.search import Found, Search
from actor_client.boards.positions import Position


class Style(NamedTuple):
    """Describes how moves are chosen.

    Attributes:
        temperature: Moves are drawn in proportion to their probabilities to the power of 1 / temperature; 0 plays the
            likeliest.
        plies: Plies of the search; 0 searches none.
        width: Moves of each position that the search looks at.
    """

    temperature: float = 0.0
    plies: int = 0
    width: int = 8


class ModelPlayer:
    """Plays with a model.

    A search decides where it finds a win, or a loss to avoid; otherwise the temperature does.

    Args:
        model: The model.
        style: How moves are chosen; may be changed between two moves.
        seed: Seed of drawn moves; None = none.
    """

    def __init__(self, model: Model, style: Style, seed: int | None = None) -> None:
        self.style = style
        self._model = model
        self._random = np.random.default_rng(seed)

    def choose(
        self,
        position: Position,
        *,
        is_over: Callable[[], bool] = lambda: False,
        each: Callable[[Found, float], None] | None = None,
    ) -> Found:
        """Returns a move.

        Args:
            position: A position that is not over.
            is_over: Returns whether the time is over.
            each: Called during a search; see `Search.run`.
        """
        style = self.style
        search = Search(self._model.log_probs, plies=style.plies, width=style.width, is_over=is_over)
        found = search.run(position, each)
        if style.temperature and not found.value:
            return found._replace(number=self._draw(position, style.temperature, search.losing))
        return found

    def likeliest(self, position: Position, count: int) -> list[tuple[int, float]]:
        """Returns the likeliest moves and their probabilities."""
        (log_probs,) = self._model.log_probs([position])
        order = np.argsort(-log_probs, kind="stable")[:count]
        return [(int(position.legal[place]), float(np.exp(log_probs[place]))) for place in order]

    def _draw(self, position: Position, temperature: float, losing: frozenset[int]) -> int:
        """Draws a move, none of those that are known to lose."""
        (log_probs,) = self._model.log_probs([position])
        scaled = log_probs.astype(np.float64) / temperature
        scaled[np.isin(position.legal, list(losing))] = -np.inf
        chances = np.exp(scaled - scaled.max())
        return int(self._random.choice(position.legal, p=chances / chances.sum()))
