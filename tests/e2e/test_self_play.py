"""Tests self-play with learners, gateways and scripted players as processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from actor_client.exits import ExitCode
from learner.shared.runfolder.snapshots import SnapshotFiles
from tests.e2e.books import check_books
from tests.e2e.duel import rival
from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.unity import Gateway

SELF_PLAY = {"save_steps": 256, "team_change": 1024, "swap_steps": 500, "window": 4}
SCRIPT = "tests.e2e.toys:to_the_middle"


def saved(folder: Path) -> dict[str, Any]:
    """Returns the self-play in the newest run state."""
    state: dict[str, Any] = torch.load(folder / "run_state.pt", weights_only=True)
    return dict(state["extra"]["self_play"])


def number(learner: LearnerProcess, behavior: str, name: str) -> float:
    """Returns a number of a behavior's status; -1 if it is not known."""
    numbers = learner.behavior(behavior).numbers
    return float(numbers[name]) if name in numbers else -1.0


def gateway(processes: Processes, learner: LearnerProcess, name: str, *options: str, task: str = "duel") -> Gateway:
    """Starts a gateway with a player."""
    return Gateway(processes, learner.address, *options, play=("--task", task, "--agents", "4"), name=name)


def games_against(learner: LearnerProcess, name: str) -> float:
    """Returns the number of rated games against a frozen or scripted opponent."""
    return sum(max(0.0, number(learner, "Duel", f"games_{end}_against/{name}")) for end in ("won", "drawn", "lost"))


def test_pool_ratings_and_team_survive_a_killed_learner(processes: Processes) -> None:
    """Three actors play; after one of them and the learner are killed, everything continues from the run state.

    A frozen model plays in half of the matches, and a script is the opponent of one actor.
    """
    play = {**SELF_PLAY, "frozen_opponents": {"rival": rival(processes.folder)}, "frozen_opponents_ratio": 0.5}
    run_file = write_run(processes.folder, {"Duel": small(self_play=play)}, checkpoint_seconds=1.5)
    learner = processes.learner(run_file)
    gateways = {name: gateway(processes, learner, name) for name in ("one", "gone")}
    gateways["two"] = gateway(processes, learner, "two", "--opponent", SCRIPT)
    children = [gateways[name].child for name in ("one", "two", "gone")]
    learner.wait_for(lambda: number(learner, "Duel", "pool_snapshots") == 4, "a full pool", *children)
    learner.wait_for(lambda: games_against(learner, "rival") > 0, "a game against the model", *children)
    learner.wait_for(lambda: games_against(learner, SCRIPT) > 0, "a game against the script", *children)
    learner.wait_for(lambda: number(learner, "Duel", "learning_team") == 1, "a change of the team", *children)
    check_books(learner.status())
    gateways["gone"].child.kill()
    learner.wait_for(
        lambda: saved(learner.folder)["queue"]["teams"][0] == 1, "a run state with the team", *children[:2]
    )
    port = int(learner.address.rpartition(":")[2])
    learner.kill()
    before = saved(learner.folder)
    league = before["leagues"]["Duel"]
    files = {key.sha256.hex() for key in SnapshotFiles(learner.folder).keys("Duel")}
    assert {each["sha256"] for each in league["pool"]["snapshots"]} <= files
    (frozen,) = (key for key in SnapshotFiles(learner.folder).keys("Duel") if key.generation == 0)

    again = processes.learner(run_file, "--resume", port=port)
    again.wait_for(lambda: number(again, "Duel", "pool_snapshots") == 4, "the pool", *children[:2])
    assert number(again, "Duel", "elo") == pytest.approx(league["elo"]["values"][-1], abs=5.0)
    assert number(again, "Duel", "ghost_steps") >= league["ghost_steps"]
    for name in ("rival", SCRIPT):
        kind = "?frozen=" if name == "rival" else "?script="
        (row,) = (row for row in league["fixed"]["opponents"] if kind in row[0])
        assert games_against(again, name) >= sum(row[2:])
    assert frozen in SnapshotFiles(again.folder).keys("Duel")
    again.wait_for_version("Duel", again.behavior("Duel").version + 3, *children[:2])
    again.wait_for(lambda: saved(again.folder)["random"]["drawn"] > before["random"]["drawn"], "a later run state")
    after = saved(again.folder)["leagues"]["Duel"]
    assert after["ghost_steps"] >= league["ghost_steps"]
    assert after["pool"]["saved"] >= league["pool"]["saved"]
    again.wait_for(lambda: number(again, "Duel", "learning_team") == 0, "the next team's turn", *children[:2])
    check_books(again.status())
    broken = gateway(processes, again, "broken", "--opponent", "tests.e2e.toys:resigns").child
    assert broken.wait() == ExitCode.OPPONENT_FAILED, broken.said()
    assert "--opponent tests.e2e.toys:resigns failed: RuntimeError: mate in one (tests/e2e/toys.py:" in broken.said()
    assert "in resigns" in broken.said()  # the user's traceback


def test_a_finished_behavior_plays_on_as_opponent(processes: Processes) -> None:
    """In an asymmetric game each behavior learns against the other's pool, also after the other has finished."""
    play = {**SELF_PLAY, "swap_steps": 200}
    behaviors = {
        "Striker": small(self_play=play, max_steps=1500),
        "Goalie": small(self_play=play, max_steps=4000),
    }
    learner = processes.learner(write_run(processes.folder, behaviors))
    player = gateway(processes, learner, "one", task="asymmetric")
    assert learner.wait() == 0, learner.said()
    summary = json.loads((learner.folder / "summary.json").read_text())
    steps = {name: row["env_steps_trained"] for name, row in summary["behaviors"].items()}
    assert steps["Striker"] >= 1024  # the rest of the last team's steps is in no full buffer
    assert steps["Goalie"] >= 3500
    status = json.loads((learner.folder / "run_logs" / "training_status.json").read_text())
    assert all(status[name]["elo"] != 1200.0 for name in behaviors)
    assert (learner.folder / "Goalie.onnx").exists()
    assert player.child.wait() == 0
    assert all(SnapshotFiles(learner.folder).keys(name) for name in behaviors)


@pytest.mark.parametrize("trainer", ["appo", "impala", "poca", "sac"])
def test_other_trainers_play(processes: Processes, trainer: str) -> None:
    """A run of another trainer with self-play makes updates, snapshots and rated games."""
    hyperparameters = {"batch_size": 64, "buffer_size": 512 if trainer != "sac" else 5000}
    if trainer == "sac":
        hyperparameters["buffer_init_steps"] = 256
    settings = {**small(self_play=SELF_PLAY), "trainer_type": trainer, "hyperparameters": hyperparameters}
    learner = processes.learner(write_run(processes.folder, {"Duel": settings}))
    player = gateway(processes, learner, "one").child
    learner.wait_for(lambda: number(learner, "Duel", "pool_snapshots") >= 2, "two snapshots", player)
    learner.wait_for(lambda: number(learner, "Duel", "games_won/0") > 0, "a rated game", player)
    check_books(learner.status())
