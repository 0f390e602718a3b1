r"""Estimates strengths and the draw parameter of Davidson's model from games.

R. R. Davidson, On extending the Bradley-Terry model to accommodate ties in paired comparison experiments, Journal of the
American Statistical Association 65, 1970, equations 2.1 and 2.2. With strengths :math:`\pi` and the draw parameter
:math:`\nu`, player i beats, draws with and loses to player j in proportion to :math:`\pi_i`, :math:`\nu \sqrt{\pi_i
\pi_j}` and :math:`\pi_j`. In logarithms, the score of a game (1, 1/2, 0) is the sufficient statistic of the strengths.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learner.training.matches.elo import DRAW, SCALE

Float = NDArray[np.float64]

ELO_PER_UNIT: Final = SCALE / math.log(10.0)
"""Points per unit of a logarithmic strength."""
INTERVAL: Final = 1.959963984540054
"""Standard deviations on each side of a 95 % interval."""
PRIOR_DRAWS: Final = 1.0
"""Evidence for the draw parameter in addition to the games: this many draws in three times as many equal games."""
_MAX_ROUNDS: Final = 100
_CLOSE: Final = 1e-10
_MAX_STEP: Final = 2.0


class Prior(NamedTuple):
    """A normal distribution of logarithmic strengths: precision ``[N, N]``, and precision times mean ``[N]``."""

    precision: Float
    towards: Float


class Games(NamedTuple):
    """Games as arrays; `P` pairs.

    Attributes:
        first, second: Place of each player among the estimated ones, ``[P]``; -1 for a fixed second player.
        fixed: Logarithmic strength of fixed second players, ``[P]``.
        scores, draws, totals: Score of the first player, and numbers of draws and of games, ``[P]``.
        advantage: Place, among the estimated strengths, of what the first seat adds to a player's strength (R. R. Davidson and
            R. J. Beaver, On extending the Bradley-Terry model to incorporate within-pair order effects, 1977); -1 for none.
    """

    first: NDArray[np.intp]
    second: NDArray[np.intp]
    fixed: Float
    scores: Float
    draws: Float
    totals: Float
    advantage: int = -1


class Estimate(NamedTuple):
    """Strengths as logarithms.

    Attributes:
        values: Estimated strengths, ``[N]``.
        covariance: Covariance of their errors, ``[N, N]``: the inverse of the information matrix.
        log_draw: Logarithm of the draw parameter.
    """

    values: Float
    covariance: Float
    log_draw: float


def maximize(prior: Prior, games: Games, start: Float) -> Estimate:
    """Returns the mode of the posterior distribution, and the covariance of its normal approximation.

    Newton's method with limited steps: the logarithm of the posterior is concave in these parameters (Davidson, section
    3), and the last parameter is the logarithm of the draw parameter.

    Args:
        prior: Prior of the strengths.
        games: Results.
        start: First guess, ``[N]``.
    """
    parameters = np.append(start, 0.0)
    for _ in range(_MAX_ROUNDS):
        gradient, curvature = _derivatives(prior, games, parameters)
        step = np.linalg.solve(curvature, gradient)
        size = float(np.abs(step).max())
        parameters += step * min(1.0, _MAX_STEP / max(size, _MAX_STEP))
        if size < _CLOSE:
            break
    _, curvature = _derivatives(prior, games, parameters)
    covariance: Float = np.linalg.inv(curvature)[:-1, :-1].astype(np.float64)
    return Estimate(parameters[:-1], covariance, float(parameters[-1]))


def probabilities(differences: Float, log_draw: float) -> tuple[Float, Float]:
    """Returns the probabilities of a win and of a draw of a player over another, ``[P]`` each.

    Args:
        differences: Its logarithmic strength minus that of the other, ``[P]``.
        log_draw: Logarithm of the draw parameter.
    """
    half = differences / 2.0
    weights = np.stack([half, np.full_like(half, log_draw), -half])
    weights = np.exp(weights - weights.max(0))
    win, draw, _ = weights / weights.sum(0)
    return win, draw


def information(win: Float, draw: Float) -> Float:
    """Returns the variance of a game's score (1, 1/2, 0), which is what one game tells of the difference, ``[P]``."""
    return win + 0.25 * draw - (win + DRAW * draw) ** 2


def _derivatives(prior: Prior, games: Games, parameters: Float) -> tuple[Float, Float]:
    """Returns the gradient of the logarithm of the posterior, ``[N + 1]``, and its negative Hessian."""
    players, log_draw = parameters[:-1], parameters[-1]
    size = len(players)
    gradient, curvature = np.zeros(size + 1), np.zeros((size + 1, size + 1))
    gradient[:-1], curvature[:-1, :-1] = prior.towards - prior.precision @ players, prior.precision
    share = 1.0 / (1.0 + 2.0 * math.exp(-float(log_draw)))  # of draws between equal players
    gradient[-1], curvature[-1, -1] = PRIOR_DRAWS * (1.0 - 3.0 * share), PRIOR_DRAWS * 3.0 * share * (1.0 - share)
    others = np.where(games.second < 0, games.fixed, players[games.second])
    added = 0.0 if games.advantage < 0 else players[games.advantage]
    win, draw = probabilities(players[games.first] - others + added, float(log_draw))
    score = win + DRAW * draw
    surplus, spread = games.scores - games.totals * score, games.totals * information(win, draw)
    with_draw = games.totals * draw * (DRAW - score)
    # Each pair enters as the difference of two players: +1 in the place of the first, -1 in that of the second.
    sides = np.zeros((len(win), size + 1))
    rows = np.arange(len(win))
    sides[rows, games.first] = 1.0
    estimated = games.second >= 0
    sides[rows[estimated], games.second[estimated]] = -1.0
    if games.advantage >= 0:
        sides[:, games.advantage] = 1.0
    gradient += surplus @ sides
    gradient[-1] += (games.draws - games.totals * draw).sum()
    curvature += sides.T @ (spread[:, None] * sides)
    curvature[-1] += with_draw @ sides
    curvature[:, -1] += with_draw @ sides
    curvature[-1, -1] += (games.totals * draw * (1.0 - draw)).sum()
    return gradient, curvature
