"""The gate of a game in turns: the last policy of self-play against players that search one and two plies, and a random one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pettingzoo
from numpy.typing import NDArray
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

from tests.tools.gates.gate import SHIPPED, Arm, Gate, Results, Rule, Trained, Verdict
from tests.tools.gates.training import behavior_of, train

GAMES = 200
ROWS, COLUMNS, LINE = 6, 7, 4
Planes = NDArray[np.bool_]
"""A position ``[2, 6, 7]``: pieces of the player to move, and of the other; the first row is the highest."""
Move = Callable[[Planes, Planes], int]
"""Returns the column to play for a position and the columns that are not full, ``[7]``."""


def greedy_model(path: Path) -> Move:
    """Returns the most likely moves of a model as Unity loads it."""
    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def move(planes: Planes, free: Planes) -> int:
        rows = planes[:, ::-1]  # OpenSpiel's first row is the lowest, and its last plane has the empty fields
        board = np.concatenate([rows, ~rows.any(0, keepdims=True)])
        feeds = {"obs_0": board[None].astype(np.float32), "action_masks": free[None].astype(np.float32)}
        return int(np.asarray(session.run(["deterministic_discrete_actions"], feeds)[0]).item())

    return move


def searching(depth: int, random: np.random.Generator) -> Move:
    """Returns the moves of a player that draws among the moves which a search does not refute.

    Args:
        depth: 0 draws any move; with 1 it takes a win; with 2 it also prevents the other's win, where it can.
        random: Draws.
    """

    def move(planes: Planes, free: Planes) -> int:
        columns = np.flatnonzero(free)
        for player in range(depth):
            winning = [column for column in columns if has_line(drop(planes[player], planes, int(column)))]
            if winning:
                return int(winning[0])
        return int(random.choice(columns))

    return move


def drop(pieces: Planes, position: Planes, column: int) -> Planes:
    """Returns a player's pieces ``[6, 7]`` after a move to a column that is not full in a position ``[2, 6, 7]``."""
    after = pieces.copy()
    after[np.flatnonzero(~position[:, :, column].any(0))[-1], column] = True
    return after


def has_line(pieces: Planes) -> bool:
    """Returns whether four of a player's pieces ``[6, 7]`` are in a line."""
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        board = pieces if right >= 0 else pieces[:, ::-1]
        height, width = ROWS - (LINE - 1) * down, COLUMNS - (LINE - 1) * abs(right)
        parts = [board[step * down : step * down + height, step * abs(right) :][:, :width] for step in range(LINE)]
        if np.logical_and.reduce(parts).any():
            return True
    return False


def score(first: Move, second: Move, games: int = GAMES) -> float:
    """Returns the share of games that the first player wins, with a draw as half; it moves first in every second game."""
    env: Any = pettingzoo.make("aec", "classic/connect_four-v3")
    total = 0.0
    for game in range(games):
        env.reset(seed=game)
        players = dict(zip(env.possible_agents, (first, second) if game % 2 == 0 else (second, first), strict=True))
        for agent in env.agent_iter():
            observation, _, terminated, truncated, _ = env.last()
            if terminated or truncated:
                mine = next(name for name, player in players.items() if player is first)
                total += (1.0 + env.rewards[mine]) / 2.0
                break
            planes = np.asarray(observation["observation"], np.bool_).transpose(2, 0, 1)
            env.step(players[agent](planes, np.asarray(observation["action_mask"], np.bool_)))
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
