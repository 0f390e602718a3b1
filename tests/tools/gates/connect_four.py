"""The gate of a game in turns: the last policy of self-play against players that search one and two plies, and a random one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from actor_client.boards.catalog import make_game
from actor_client.boards.play.model import Model
from actor_client.boards.positions import Position
from tests.tools.gates.gate import SHIPPED, Arm, Gate, Results, Rule, Trained, Verdict
from tests.tools.gates.training import behavior_of, train

GAMES = 200
GAME = make_game("connect_four")
Move = Callable[[Position], int]
"""Returns the column to play in a position that is not over."""


def greedy_model(path: Path) -> Move:
    """Returns the most likely moves of an exported model."""
    model = Model(path, GAME)
    return lambda position: int(position.legal[model.log_probs([position])[0].argmax()])


def searching(depth: int, random: np.random.Generator) -> Move:
    """Returns the moves of a player that draws among the moves which a search does not refute.

    Args:
        depth: 0 draws any move; with 1 it takes a win; with 2 it also prevents the other's win, where it can.
        random: Draws.
    """

    def move(position: Position) -> int:
        legal = position.legal.tolist()
        winning = [column for column in legal if depth and wins(position, column)]
        if depth > 1 and not winning and len(legal) > 1:
            # Where the other would win does not depend on what is played in another column.
            passed = [after(position, legal[column == legal[0]]) for column in legal]
            winning = [column for column, other in zip(legal, passed, strict=True) if wins(other, column)]
        return int(winning[0] if winning else random.choice(position.legal))

    return move


def after(position: Position, column: int) -> Position:
    """Returns the position after a move."""
    found = position.copy()
    found.play(column)
    return found


def wins(position: Position, column: int) -> bool:
    """Returns whether a move wins."""
    returns = after(position, column).returns
    return returns is not None and returns[position.mover] > 0


def score(first: Move, second: Move, games: int = GAMES) -> float:
    """Returns the share of games that the first player wins, with a draw as half; it moves first in every second game."""
    total = 0.0
    for game in range(games):
        position, seat = GAME.start(), game % 2
        while position.returns is None:
            position.play((first if position.mover == seat else second)(position))
        total += (1.0 + position.returns[seat]) / 2.0
    return total / games


def train_connect_four(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains over gRPC, and lets the final model play against players that search 0, 1 and 2 plies.

    Raises:
        MeasurementFailed: The run failed.
    """
    trained = train(arm, seed, kept)
    model = greedy_model(kept / f"{behavior_of(arm.run_file)}.onnx")
    against = tuple(score(model, searching(depth, np.random.default_rng(depth))) for depth in range(3))
    return replace(trained, against=against)


def _beats_searches(arm: str, random: float, two_plies: float) -> Rule:
    def rule(results: Results) -> Verdict:
        runs = results[arm]
        passed = all(run.against[0] >= random and run.against[2] >= two_plies for run in runs)
        shown = "; ".join(
            f"seed {run.seed}: random {run.against[0]:.1%}, one ply {run.against[1]:.1%}, two plies {run.against[2]:.1%}"
            for run in runs
        )
        return Verdict(passed, f"asked for {random:.0%} and {two_plies:.0%}; {shown}")

    return rule


def connect_four() -> Gate:
    """Returns the gate."""
    arm = Arm(
        "ppo", SHIPPED / "connect-four.yaml", "connect_four", 2_000_000, actor="boards", actors=1, envs=128,
        trained_by=train_connect_four,
    )  # fmt: skip
    asks = "greedy, after 2,000,000 moves: 95 % of 200 games against random moves, 60 % against a search of two plies"
    rule = _beats_searches("ppo", 0.95, 0.6)
    return Gate("connect-four", "Connect Four of OpenSpiel, `ppo` + self-play", asks, (arm,), rule, seeds=(1,))
