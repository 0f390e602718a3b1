"""Tic-tac-toe against a random opponent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

SIDE = 3
_LINES = (
    *((row * SIDE, row * SIDE + 1, row * SIDE + 2) for row in range(SIDE)),
    *((column, column + SIDE, column + 2 * SIDE) for column in range(SIDE)),
    (0, 4, 8),
    (2, 4, 6),
)
Planes = NDArray[np.float32]


class TicTacToe(gymnasium.Env[Planes, np.int64]):
    """One game per episode: 1 for a win, 0 for a draw, -1 for a loss. Either side starts.

    Observations are planes ``[2, 3, 3]``: own pieces, the opponent's. Taken fields are masked; a move to one loses.
    """

    def __init__(self) -> None:
        board = spaces.Box(0.0, 1.0, (2, SIDE, SIDE), np.float32)
        setattr(board, "layout", "CHW")  # noqa: B010 - says that it is a board, however small
        self.observation_space = board
        self.action_space = spaces.Discrete(SIDE * SIDE)
        self._pieces = np.zeros((2, SIDE * SIDE), np.bool_)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Planes, dict[str, Any]]:
        """Clears the board; the opponent starts half of the games."""
        super().reset(seed=seed)
        self._pieces[:] = False
        if self.np_random.random() < 0.5:
            self._reply()
        return self._view(), self._info()

    def step(self, action: np.int64) -> tuple[Planes, float, bool, bool, dict[str, Any]]:
        """Sets a piece, and lets the opponent do so."""
        reward, is_over = 0.0, True
        if self._taken()[action]:
            reward = -1.0
        else:
            self._pieces[0, action] = True
            if self._has_line(0):
                reward = 1.0
            elif not self._taken().all():
                self._reply()
                reward, is_over = (-1.0, True) if self._has_line(1) else (0.0, bool(self._taken().all()))
        return self._view(), reward, is_over, False, self._info()

    def _reply(self) -> None:
        self._pieces[1, self.np_random.choice(np.flatnonzero(~self._taken()))] = True

    def _taken(self) -> NDArray[np.bool_]:
        return np.asarray(self._pieces.any(0), np.bool_)

    def _has_line(self, side: int) -> bool:
        return any(self._pieces[side, list(line)].all() for line in _LINES)

    def _view(self) -> Planes:
        return self._pieces.reshape(2, SIDE, SIDE).astype(np.float32)

    def _info(self) -> dict[str, Any]:
        taken = self._taken()
        return {"action_mask": (~taken if not taken.all() else np.ones_like(taken)).astype(np.uint8)}
