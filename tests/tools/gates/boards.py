"""The gate of shogi: an hour of training, after which the last policy plays 200 games against random moves."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from tests.ports import reserve_ports
from tests.tools.bench.processes import Child
from tests.tools.bench.rollcast_run import wait
from tests.tools.gates.gate import SHIPPED, Arm, Gate, Results, Rule, Trained, Verdict
from tests.tools.gates.training import train

GAMES = 200
GAMES_SECONDS = 1800.0
HOUR_SECONDS = 3600.0
_SHARE = 0.85


def train_board(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains over gRPC, and lets the last policy, which draws its moves, play against random moves.

    Raises:
        MeasurementFailed: The run or the tournament failed.
    """
    trained = train(arm, seed, kept)
    return replace(trained, against=(score_against_random(arm, kept),))


def score_against_random(arm: Arm, folder: Path) -> float:
    """Returns the share of games that the last policy of a run wins in a tournament, with a draw as half.

    Raises:
        MeasurementFailed: The tournament or its actor failed.
    """
    address, output = f"127.0.0.1:{reserve_ports()}", folder.parent / f"{folder.name}-tournament"
    logs = folder.parent / "logs"
    command = [
        sys.executable,
        "-m",
        "learner",
        "tournament",
        str(folder),
        "--address",
        address,
        "--output",
        str(output),
    ]
    command += ["--checkpoints", "1", "--against", "random", "--interval", "1", "--games", str(GAMES), "--force"]
    plays = [
        sys.executable,
        "-m",
        "actor_client",
        "boards",
        "--game",
        arm.env,
        "--num-envs",
        "20",
        "--learner",
        address,
    ]
    with (
        Child("the tournament", command, logs / f"{folder.name}-tournament.log") as tournament,
        Child("its actor", plays, logs / f"{folder.name}-tournament-actor.log") as actor,
    ):
        wait(tournament, [actor], GAMES_SECONDS)
    players = json.loads((output / "ratings.json").read_text(encoding="utf-8"))["players"]
    (score,) = (player["score"] for player in players if player["kind"] == "model")
    return float(score)


def _beats_random(share: float) -> Rule:
    def rule(results: Results) -> Verdict:
        (runs,) = results.values()
        shown = "; ".join(f"seed {run.seed}: {run.against[0]:.1%} after {run.steps:,} moves" for run in runs)
        return Verdict(all(run.against[0] >= share for run in runs), f"asked for {share:.0%}; {shown}")

    return rule


def shogi() -> Gate:
    """Returns the gate."""
    arm = Arm(
        "ppo", SHIPPED / "shogi.yaml", "shogi", 6_000_000, actor="boards", actors=1, envs=64, wall_seconds=HOUR_SECONDS,
        trained_by=train_board,
    )  # fmt: skip
    asks = (
        f"after an hour with one actor: {_SHARE:.0%} of {GAMES} sampled games against random moves, with a draw as half"
    )
    return Gate("shogi", "Shogi of OpenSpiel, `ppo` + self-play", asks, (arm,), _beats_random(_SHARE), seeds=(1,))
