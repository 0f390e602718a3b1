"""Evaluation with real processes: beside training, of a finished run, and acting without training."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from learner.checkpoints.status import TrainingStatus
from learner.commands.status_text import render_status
from learner.common.exits import ExitCode
from tests.e2e.processes import Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.unity import Gateway, run_for_any_behavior

VOLATILE = frozenset({".lock", "generation", "learner.jsonl", "operator_token"})
"""What a start of a learner may touch that trains nothing."""


def digests(folder: Path) -> dict[str, str]:
    """The files of a run, but for those that say that a learner was started."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in VOLATILE
    }


def told(learner: LearnerProcess | Child, event: str) -> list[dict[str, Any]]:
    """Lines of the log."""
    return learner.events(event)


def evaluate(processes: Processes, *arguments: str) -> tuple[Child, str]:
    """Starts `rollcast-learner evaluate`, and returns where it waits for actors."""
    options = ["--address", "127.0.0.1:0", "--log-format", "json"]
    child = processes.python("evaluate", "-m", "learner", "evaluate", *arguments, *options)
    wait_until(lambda: told(child, "waiting_for_actors") or not child.is_running, "it waits", said=child.said)
    return child, told(child, "waiting_for_actors")[0]["address"]


@pytest.mark.slow
def test_a_run_evaluates_and_can_be_evaluated(processes: Processes, tmp_path: Path) -> None:
    """Beside training, and afterwards by two actors from its best checkpoint."""
    run_file = write_run(
        tmp_path, {"CartPole": cartpole(max_steps=6000)}, evaluation={"interval_steps": 2000, "episodes": 5}, http=False
    )
    learner = processes.learner(run_file)
    actors = [processes.actor(learner.address, "CartPole-v1", "--num-envs", "4", name=name) for name in ("a", "b")]
    assert learner.wait() == 0
    assert [actor.wait() for actor in actors] == [0, 0]
    made = told(learner, "evaluation")
    assert made, learner.said()
    assert next(line["episodes"] for line in made if "cut_short" not in line) == 5
    best = TrainingStatus.load(learner.folder / "run_logs" / "training_status.json").best("CartPole")
    assert best is not None
    assert best.measure == "evaluation"
    assert best.entry.reward == max(line["mean_return"] for line in made if "cut_short" not in line)
    _evaluates_the_best(processes, learner.folder, best.entry.steps)


def _evaluates_the_best(processes: Processes, folder: Path, step: int) -> None:
    before = digests(folder)
    out = processes.folder / "result.json"
    arguments = ["--episodes", "7", "--actors", "2", "--stochastic", "--checkpoint", "best", "--json", str(out)]
    child, address = evaluate(processes, str(folder), *arguments)
    stranger = processes.actor(address, "MountainCar-v0", "--behavior", "CartPole", name="stranger")
    assert "declared differently" in stranger.fails_with(32)
    assert child.is_running
    players = [processes.actor(address, "CartPole-v1", "--num-envs", n, name=f"player-{n}") for n in ("1", "3")]
    assert child.wait() == ExitCode.OK, child.said()
    assert [player.wait() for player in players] == [0, 0]
    (found,) = json.loads(out.read_text())["behaviors"]
    assert (found["episodes"], found["is_deterministic"], found["is_complete"]) == (7, False, True)
    assert abs(found["step"] - step) <= 1024 + 64  # steps that were collected and not trained are not in a checkpoint
    assert found["lengths"]["mean"] == found["returns"]["mean"]
    assert "CartPole: 7 episodes at step" in child.out()
    assert digests(folder) == before


def _acts_without_training(processes: Processes, run_file: Path) -> None:
    before = digests(processes.folder / "results" / "run")
    learner = processes.learner(run_file, "--inference", "--resume", "--set", "rollcast.summary_seconds=0.2")
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4", name="shown")
    learner.wait_for(
        lambda: any(line["episodes"] > 3 for line in told(learner, "acting")), "episodes without training", actor
    )
    row = learner.behavior("CartPole")
    assert row.books.trained == 0
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    assert digests(processes.folder / "results" / "run") == before


@pytest.mark.slow
def test_a_run_goes_on_from_its_best_checkpoint(processes: Processes, tmp_path: Path) -> None:
    """--resume --checkpoint=best begins at its step; without --resume the flag is an error; a wrong word lists steps."""
    settings = cartpole(max_steps=4000)
    run_file = write_run(tmp_path, {"CartPole": settings}, reward_buffer_episodes=5, http=False)
    learner = processes.learner(run_file)
    processes.actor(learner.address, "CartPole-v1", "--num-envs", "8")
    assert learner.wait() == 0
    best = TrainingStatus.load(learner.folder / "run_logs" / "training_status.json").best("CartPole")
    assert best is not None
    assert best.measure == "training"
    more = "behaviors.CartPole.max_steps=5e3"
    again = processes.learner(run_file, "--resume", "--checkpoint", "best", "--set", more)
    processes.actor(again.address, "CartPole-v1", "--num-envs", "8")
    assert again.wait() == 0
    (line,) = told(again, "resumed_from")
    assert (line["checkpoint"], line["step"]) == ("best", best.entry.steps)
    alone = processes.learner(run_file, "--checkpoint", "best", run="other")
    assert "--resume" in alone.fails_with(ExitCode.USAGE)


def test_a_finished_run_is_evaluated_for_a_second_and_shown(processes: Processes, tmp_path: Path) -> None:
    """An evaluation that is not over in time has an exit code of its own; --inference acts and changes no file."""
    run_file = write_run(tmp_path, {"CartPole": cartpole(max_steps=300)}, http=False)
    learner = processes.learner(run_file)
    processes.actor(learner.address, "CartPole-v1")
    assert learner.wait() == 0
    child, _ = evaluate(processes, str(learner.folder), "--max-wall-seconds", "1", "--json", "-")
    assert child.wait() == ExitCode.EVALUATION_CUT_SHORT
    assert json.loads(child.out())["behaviors"] == []
    missing = processes.python("missing", "-m", "learner", "evaluate", "nowhere")
    assert "nowhere" in missing.fails_with(ExitCode.NOTHING_TO_RESUME)
    _acts_without_training(processes, run_file)


@pytest.mark.slow
def test_unity_players_are_evaluated_beside_training(processes: Processes, tmp_path: Path) -> None:
    """A gateway with teams and groups plays whole episodes of every behavior id, trains before and after, and balances."""
    rollcast = {"lease_seconds": 2.0, "drain_seconds": 2.0, "torch_threads": 1, "http": False}
    evaluation = {"interval_steps": 1500, "episodes": 3}
    learner = processes.learner(run_for_any_behavior(tmp_path, rollcast={**rollcast, "evaluation": evaluation}))
    gateway = Gateway(processes, learner.address, play=("--task", "everything", "--agents", "4"), players=2)

    def results() -> dict[str, dict[str, Any]]:
        return {line["behavior"]: line for line in told(learner, "evaluation")}

    learner.wait_for(lambda: {"CartPole", "Groups", "Teams"} <= results().keys(), "evaluations", gateway.child)
    made = results()
    assert made["Teams"]["episodes"] == 2 * evaluation["episodes"]  # two teams
    assert made["CartPole"]["episodes"] == evaluation["episodes"]
    assert learner.behavior("CartPole").HasField("best_return")
    assert "evaluated, best" in render_status(learner.status())
    versions = {name: learner.behavior(name).version for name in made}
    for name, version in versions.items():
        learner.wait_for_version(name, version + 1, gateway.child)
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert gateway.books()
    learner.wait_for(lambda: not learner.actor("gateway").connected, "the gateway has gone")
