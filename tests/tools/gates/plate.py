"""Trains groups of agents with a scripted Unity player, the scene of `tests.tools.players.plate`."""

import json
import sys
from collections import deque
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.ports import reserve_ports
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.bench.processes import Child
from tests.tools.bench.rollcast_run import read_json, serving, wait
from tests.tools.gates.gate import OWN, Arm, Gate, Trained
from tests.tools.gates.rules import all_of, better_by, last_train, reaches
from tests.tools.gates.training import END_SECONDS, START_SECONDS, learner_command
from tests.tools.players.build import make_build

TARGET = 1.8
"""Mean score of a group; 2 is the most. The learner knows only returns of agents, and runs to the end of the budget."""
AGENTS = 48
EPISODES = 100
"""Scores of groups behind a point of the curve, and in the mean at the end."""


def train_groups(arm: Arm, seed: int, kept: Path) -> Trained:
    """Trains with a player of 16 groups behind a gateway; returns are the scores of groups, as the player counts them.

    Args:
        arm: What.
        seed: Of the run.
        kept: Not used: the scores are all that is kept.

    Raises:
        MeasurementFailed: A process could not be started, failed, or hung.
    """
    del kept
    with TemporaryDirectory() as temporary:
        folder, log = Path(temporary) / "run", Path(temporary) / "learner.log"
        scores = Path(temporary) / "scores.jsonl"
        build = make_build(
            Path(temporary) / "build", "--task", arm.env, "--agents", str(AGENTS), "--episodes", str(scores)
        )
        with serving(learner_command(arm, seed), folder, log, start_seconds=START_SECONDS) as (learner, address):
            gateway = [sys.executable, "-m", "actor_client", "unity", "--env", str(build), "--learner", address]
            gateway += ["--base-port", str(reserve_ports()), "--metrics-address", "off"]
            with Child("the gateway", gateway, Path(temporary) / "gateway.log") as actor:
                wait(learner, [actor], START_SECONDS + arm.wall_seconds + END_SECONDS)
        summary = read_json(folder / "summary.json")
        trained = read_scores(seed, scores)
        return replace(trained, stop_reason=str(summary["stop_reason"]), seconds=float(summary["wall_seconds"]))


def read_scores(seed: int, scores: Path) -> Trained:
    """Returns what the player wrote down of a training, whoever trained.

    Args:
        seed: Of the run.
        scores: The player's file of episodes.

    Raises:
        MeasurementFailed: No episode of a group ended.
    """
    lines = [json.loads(line) for line in scores.read_text(encoding="utf-8").splitlines()]
    episodes = [line for line in lines if "return" in line]
    if not episodes:
        raise MeasurementFailed("no episode of a group ended")
    newest: deque[float] = deque(maxlen=EPISODES)
    curve: list[tuple[int, float]] = []
    reached: int | None = None
    seconds_reached = None
    for number, episode in enumerate(episodes, 1):
        newest.append(float(episode["return"]))
        mean = sum(newest) / len(newest)
        if reached is None and len(newest) == EPISODES and mean >= TARGET:
            reached, seconds_reached = int(episode["decisions"]), float(episode["seconds"])
        if number % EPISODES == 0:
            curve.append((int(episode["decisions"]), round(mean, 3)))
    return Trained(
        seed=seed,
        stop_reason="max_steps",
        steps=int(episodes[-1]["decisions"]),
        seconds=float(episodes[-1]["seconds"]),
        episodes=len(episodes),
        train=round(sum(newest) / len(newest), 4),
        best=max((value for _, value in curve), default=None),
        steps_to_target=reached,
        seconds_to_target=seconds_reached,
        curve=tuple(curve),
    )


def poca() -> Gate:
    """Returns a gate that needs credit after an agent's end; ppo with the group's reward is its control."""
    run_file, budget = OWN / "plate.yaml", 100_000
    arm = Arm("poca", run_file, "plate", budget, trained_by=train_groups)
    ppo = replace(arm, name="ppo", settings=("trainer_type=ppo",))
    asks = f"a score of {TARGET:g} of 2 in {budget:,}, and 1.5 times that of `ppo` with the group's reward, every seed"
    reached = reaches("poca", TARGET, budget, far_off=TARGET, needed=3)
    rule = all_of(reached, better_by("poca", "ppo", 1.5, last_train))
    return Gate("poca", "The plate: groups of 3, `poca`", asks, (arm, ppo), rule)


def group_rewards() -> Gate:
    """Returns a gate that has no reward but the group's; without it, groups act at random."""
    arm = Arm("poca", OWN / "plate.yaml", "brief-plate", 100_000, trained_by=train_groups)
    without = replace(arm, name="without", settings=("reward_signals.extrinsic.strength=0.0",))
    asks = f"twice the score of groups without their reward after {arm.budget_steps:,}, every seed"
    rule = better_by("poca", "without", 2.0, last_train)
    return Gate("group-rewards", "The plate in 16 steps, `poca` with group rewards alone", asks, (arm, without), rule)
