"""Tests training with scripted Godot games, with learners, actors and games as processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.processes import Child, LearnerProcess, Processes, processes_in, wait_until
from tests.e2e.runs import cartpole, small, write_run
from tests.ports import reserve_ports
from tests.tools import godot_game
from tests.tools.godot_game import make_game


def play(processes: Processes, learner: LearnerProcess, *arguments: str, name: str = "godot") -> Child:
    """Starts an actor."""
    options = ("--learner", learner.address, "--log-format", "json", "--metrics-address", "off")
    return processes.python(name, "-m", "actor_client", "godot", *options, *arguments)


def test_games_train_cartpole(tmp_path: Path) -> None:
    """A policy learns from the games of a build, and all end with 0 and balanced books."""
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, {"Pole": cartpole()}, target_return=100.0))
        build = make_game(tmp_path, "--agents=8")
        actor = play(processes, learner, "--env_path", str(build), "--n_parallel", "2")
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said() + actor.said()
        assert json.loads((learner.folder / "summary.json").read_text())["stop_reason"] == "target_return"
        (books,) = actor.events("books")
        assert books["open"] == books["unacked"] == 0
        assert not books["discarded"]
        assert (learner.folder / "Pole.onnx").exists()


def test_pictures_policies_and_restarts(tmp_path: Path) -> None:
    """Games with pictures and mixed actions, with two policies, and one that dies, train side by side."""
    steps = 1_000
    network = {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "fully_connected"}
    behaviors = {"Mixed": small(max_steps=steps, network_settings=network), **dict.fromkeys(("chaser", "runner"))}
    behaviors = {name: settings or small(max_steps=steps) for name, settings in behaviors.items()}
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, behaviors))
        mixed = make_game(tmp_path, "--task=mixed", "--agents=3", name="mixed")
        team = make_game(tmp_path, "--task=team", "--agents=4", "--dies_at=150", name="team")
        actors = [
            play(processes, learner, "--env", str(mixed), "--behavior", "Mixed", name="one"),
            play(processes, learner, "--env", str(team), "--num-envs", "2", name="two"),
        ]
        codes = [learner.wait(), *(actor.wait() for actor in actors)]
        assert codes == [0, 0, 0], learner.said() + "".join(actor.said() for actor in actors)
        failed = actors[1].events("environment_failed")
        assert failed
        assert "the game ended with exit code 7; its last output: out of lives" in failed[0]["error"]
        books = {each["behavior"]: each for each in actors[1].events("books")}
        assert set(books) == {"chaser", "runner"}
        assert all(each["discarded"]["env_error"] for each in books.values())


def test_the_editor_plays_and_stops_and_plays_again(tmp_path: Path) -> None:
    """The port is open before there is a learner; a game that leaves is followed by the next, until the actor is asked to stop."""
    port = reserve_ports()
    words = [sys.executable, str(Path(godot_game.__file__)), f"--port={port}", "--agents=2"]
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, {"Pole": small()}))
        actor = play(processes, learner, "--base-port", str(port))
        wait_until(lambda: actor.events("waiting_for_editor"), "the port", said=actor.said)
        for count in (1, 2):
            game = subprocess.Popen(words)
            wait_until(lambda count=count: len(actor.events("game_connected")) == count, "a game", said=actor.said)  # type: ignore[misc]
            if count == 1:
                game.kill()
                game.wait()
                wait_until(lambda: actor.events("editor_stopped"), "its end", said=actor.said)
        actor.signal(signal.SIGINT)
        assert actor.wait() == 0, actor.said()
        assert game.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--env", "Nope"), 11, "there is no such build in .*; name the executable that Godot exported"),
        (("--env", "run.yaml"), 11, "is a run file, which is for the learner: rollcast serve run.yaml"),
        (("--num-envs", "4"), 10, "num_envs needs a build to start: give --env"),
        (("--trainer", "sb3"), 10, "behaviors.NAME.trainer_type is a setting of the learner's run"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], code: int, message: str, tmp_path: Path) -> None:
    """A mistake in the command line ends the actor before it connects, with one line and its exit code."""
    with processes_in(tmp_path) as processes:
        actor = processes.python("godot", "-m", "actor_client", "godot", *arguments)
        assert re.search(message, actor.fails_with(code))


def test_a_game_that_always_fails_ends_the_actor(tmp_path: Path) -> None:
    """The last line has its last output."""
    with processes_in(tmp_path) as processes:
        learner = processes.learner(write_run(tmp_path, {"Pole": small()}))
        build = tmp_path / "Bad.x86_64"
        build.write_text("#!/bin/sh\necho no display\nexit 4\n")
        build.chmod(0o755)
        actor = processes.python(
            "godot",
            "-m",
            "actor_client",
            "godot",
            "--learner",
            learner.address,
            "--env",
            str(build),
            "--max-env-failures",
            "2",
        )
        said = actor.fails_with(40)
        assert "the game ended with exit code 4; its last output: no display" in said


def test_one_command_trains_and_another_evaluates(tmp_path: Path) -> None:
    """`train --godot` needs no run file; `evaluate --godot` counts whole episodes."""
    with processes_in(tmp_path, tmp_path) as processes:
        build = str(make_game(tmp_path, "--agents=4"))
        limit = ("--set", "default_settings.max_steps=500", "--num-envs", "2", "--http-address", "127.0.0.1:0")
        training = processes.python("train", "-m", "rollcast", "train", "--env", build, "--godot", *limit)
        assert training.wait() == 0, training.said()
        folder = tmp_path / "results" / "Game.x86_64"
        assert (folder / "shared_policy.onnx").exists(), training.said()
        words = ("-m", "learner", "evaluate", str(folder), "--env", build, "--godot", "--episodes", "8")
        evaluation = processes.python("evaluate", *words)
        assert evaluation.wait() == 0, evaluation.said()
        assert "shared_policy: 8 episodes" in evaluation.out()
