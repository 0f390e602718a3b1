"""Tests evaluations with real processes."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode
from learner.shared.observe.terminal import render_status
from learner.shared.runfolder.status import TrainingStatus
from tests.e2e.processes import Child, LearnerProcess, Processes, wait_until
from tests.e2e.runs import cartpole, write_run
from tests.e2e.unity import Gateway, run_for_any_behavior

VOLATILE = frozenset({".lock", "generation", "learner.jsonl", "operator_token"})
"""Files that a start of a learner may change without training."""


def digests(folder: Path) -> dict[str, str]:
    """Returns digests of a run's files, without those that record starts."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in VOLATILE
    }


def told(learner: LearnerProcess | Child, event: str) -> list[dict[str, Any]]:
    """Returns lines of the log."""
    return learner.events(event)


def evaluate(processes: Processes, *arguments: str) -> tuple[Child, str]:
    """Starts `rollcast evaluate`, and returns where it waits for actors."""
    options = ["--address", "127.0.0.1:0", "--log-format", "json"]
    child = processes.python("evaluate", "-m", "learner", "evaluate", *arguments, *options)
    wait_until(lambda: told(child, "waiting_for_actors") or not child.is_running, "it waits", said=child.said)
    return child, told(child, "waiting_for_actors")[0]["address"]


def test_a_run_evaluates_and_can_be_evaluated(processes: Processes, tmp_path: Path) -> None:
    """A run is evaluated during training, and afterwards by two actors from its best checkpoint."""
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
    arguments = ["--episodes", "7", "--actors", "2", "--stochastic", "--checkpoint", "best", "--json"]
    child, address = evaluate(processes, str(folder), *arguments)
    stranger = processes.actor(address, "MountainCar-v0", "--behavior", "CartPole", name="stranger")
    assert "declared differently" in stranger.fails_with(32)
    assert child.is_running
    players = [processes.actor(address, "CartPole-v1", "--num-envs", n, name=f"player-{n}") for n in ("1", "3")]
    assert child.wait() == ExitCode.OK, child.said()
    assert [player.wait() for player in players] == [0, 0]
    (found,) = json.loads(child.out())["behaviors"]
    assert (found["episodes"], found["is_deterministic"], found["is_complete"]) == (7, False, True)
    assert abs(found["step"] - step) <= 1024 + 64  # steps that were collected and not trained are not in a checkpoint
    assert found["lengths"]["mean"] == found["returns"]["mean"]
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


def test_an_evaluation_starts_and_films_an_actor_of_its_own(processes: Processes, tmp_path: Path) -> None:
    """`evaluate --video` starts an actor and films every counted episode; an actor that fails ends it."""
    learner = processes.learner(write_run(tmp_path, {"CartPole": cartpole(max_steps=300)}))
    processes.actor(learner.address, "CartPole-v1")
    assert learner.wait() == 0
    folder, command = tmp_path / "videos", ["evaluate", str(learner.folder), "--episodes", "3", "--log-format", "json"]
    filming = ["--env", "CartPole-v1", "--json", "--video", str(folder)]
    child = processes.python("filming", "-m", "learner", *command, *filming)
    assert child.wait() == ExitCode.OK, child.said()
    (found,) = json.loads(child.out())["behaviors"]
    assert (found["episodes"], found["is_complete"]) == (3, True)
    ffmpeg = importlib.import_module("imageio_ffmpeg")
    frames = [ffmpeg.count_frames_and_secs(video)[0] for video in sorted(folder.iterdir())]
    assert len(frames) == 3
    assert sum(frames) / 3 - 1 == pytest.approx(found["lengths"]["mean"])  # the first frame is of no step
    wrong = processes.python(
        "wrong", "-m", "learner", *command, "--env", "CartPol-v1", "--actor-args", "--num-envs", "2"
    )
    assert "the actor of --env CartPol-v1 ended with exit code 11" in wrong.fails_with(ExitCode.EVALUATION_CUT_SHORT)
    assert [line["reason"] for line in wrong.events("stopping")] == ["error"]  # no trainer has failed
    assert "CartPole" in wrong.events("actor_ended")[0]["error"]


def test_a_run_goes_on_from_its_best_checkpoint(processes: Processes, tmp_path: Path) -> None:
    """--resume --checkpoint=best continues from its step; other uses of the flag are errors."""
    settings = cartpole(max_steps=4000)
    run_file = write_run(tmp_path, {"CartPole": settings}, reward_buffer_episodes=5)
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
    """An evaluation that exceeds its time has its own exit code; --inference changes no file."""
    run_file = write_run(tmp_path, {"CartPole": cartpole(max_steps=300)})
    learner = processes.learner(run_file)
    processes.actor(learner.address, "CartPole-v1")
    assert learner.wait() == 0
    child, _ = evaluate(processes, str(learner.folder), "--max-wall-seconds", "1", "--json")
    assert child.wait() == ExitCode.EVALUATION_CUT_SHORT
    assert json.loads(child.out())["behaviors"] == []
    missing = processes.python("missing", "-m", "learner", "evaluate", "nowhere")
    assert "nowhere" in missing.fails_with(ExitCode.NOTHING_TO_RESUME)
    _acts_without_training(processes, run_file)


def test_unity_players_are_evaluated_beside_training(processes: Processes, tmp_path: Path) -> None:
    """A gateway with teams and groups plays whole episodes during training, and the books balance."""
    rollcast = {"lease_seconds": 2.0, "drain_seconds": 2.0, "torch_threads": 1}
    evaluation = {"interval_steps": 1500, "episodes": 3}
    learner = processes.learner(run_for_any_behavior(tmp_path, rollcast={**rollcast, "evaluation": evaluation}))
    gateway = Gateway(processes, learner.address, play=("--task", "everything", "--agents", "4"), players=2)

    def results() -> dict[str, dict[str, Any]]:
        return {line["behavior"]: line for line in told(learner, "evaluation")}

    learner.wait_for(lambda: {"CartPole", "Groups", "Teams"} <= results().keys(), "evaluations", gateway.child)
    made = results()
    assert made["Teams"]["episodes"] == 2 * evaluation["episodes"]  # two teams
    assert made["CartPole"]["episodes"] == evaluation["episodes"]
    learner.wait_for(lambda: learner.behavior("CartPole").best_return is not None, "its status", gateway.child)
    assert re.search(r"  measured  evaluation -?[0-9.,]+   best checkpoint", render_status(learner.operator.status()))
    versions = {name: learner.behavior(name).version for name in made}
    for name, version in versions.items():
        learner.wait_for_version(name, version + 1, gateway.child)
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert gateway.books()
    learner.wait_for(lambda: not learner.actor("gateway").connected, "the gateway has gone")


@pytest.mark.nightly
def test_a_limit_of_training_ends_no_evaluation(processes: Processes, tmp_path: Path) -> None:
    """The run file's max_wall_seconds limits training only; the flag limits the evaluation."""
    run_file = write_run(tmp_path, {"CartPole": cartpole()}, max_wall_seconds=10.0)
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    assert learner.wait() == ExitCode.OK, learner.said()
    assert actor.wait() == 0
    begun = time.monotonic()
    child, address = evaluate(processes, str(learner.folder), "--episodes", "3")
    acting = processes.learner(run_file, "--inference", "--resume")
    assert acting.address
    time.sleep(max(0.0, begun + 11.0 - time.monotonic()))
    assert child.is_running, child.said()
    assert acting.is_running, acting.said()
    processes.actor(address, "CartPole-v1", "--num-envs", "4")
    assert child.wait() == ExitCode.OK, child.said()
    acting.signal(signal.SIGTERM)
    assert acting.wait() == ExitCode.OK
    hasty, _ = evaluate(processes, str(learner.folder), "--max-wall-seconds", "0.5")
    assert hasty.wait() == ExitCode.EVALUATION_CUT_SHORT, hasty.said()
