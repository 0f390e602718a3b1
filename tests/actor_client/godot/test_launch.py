"""Tests how games are started, when they have failed, and the flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actor_client.builds.executables import find_build
from actor_client.cli import build_parser
from actor_client.command_line import flags_of
from actor_client.connection.session import RunInfo
from actor_client.envs.errors import EnvironmentFailed
from actor_client.exits import ActorError, ExitCode
from actor_client.godot.agent_roles import PolicyRoles
from actor_client.godot.app import GODOT, GodotLaunch
from actor_client.godot.game import Game
from actor_client.rollout.link import ChunkLimits
from actor_client.settings.godot import GodotSettings
from actor_client.settings.loading import load
from tests.clock import Clock


def given(*words: str) -> GodotSettings:
    """Returns the settings of a command line."""
    return load(GodotSettings, flags_of(build_parser().parse_args(["godot", *words])), {})


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ((), ("--port=5", "--env_seed=9", "--disable-render-loop", "--headless")),
        (("--viz",), ("--port=5", "--env_seed=9")),
        (
            (
                "--speedup",
                "8",
                "--action-repeat",
                "4",
                "--fixed-fps",
                "2000",
                "--viz",
                "--env-args",
                "--level=2",
                "--x",
            ),
            *(
                (
                    "--port=5",
                    "--env_seed=9",
                    "--fixed-fps",
                    "2000",
                    "--action_repeat=4",
                    "--speedup=8",
                    "--level=2",
                    "--x",
                ),
            ),
        ),
    ],
)
def test_a_game_is_started_as_by_the_plug_ins_trainer(words: tuple[str, ...], command: tuple[str, ...]) -> None:
    """The words are those that the plug-in reads; the user's own come last."""
    launch = GodotLaunch(Path("/b/Game.x86_64"), given("--env", "Game", *words), 9)
    assert launch.command(3, 5) == ["/b/Game.x86_64", *command]


def test_spellings_of_gdrl_are_accepted() -> None:
    """Command lines of its example scripts need no other flags."""
    theirs = [
        "--env_path",
        "G",
        "--n_parallel",
        "4",
        "--speedup",
        "8",
        "--action_repeat",
        "2",
        "--show_window",
        "--seed",
        "3",
        "--port",
        "12000",
    ]
    ours = [
        "--env",
        "G",
        "--num-envs",
        "4",
        "--speedup",
        "8",
        "--action-repeat",
        "2",
        "--viz",
        "--env-seed",
        "3",
        "--base-port",
        "12000",
    ]
    assert given(*theirs) == given(*ours)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--trainer", "sb3"), "behaviors.NAME.trainer_type is a setting of the learner's run"),
        (("--timesteps", "9"), "behaviors.NAME.max_steps is a setting of the learner's run"),
    ],
)
def test_flags_of_its_trainers_are_refused_with_advice(words: tuple[str, ...], said: str) -> None:
    """What belongs to the learner is named with the key of the run file."""
    with pytest.raises(ActorError, match=said):
        build_parser().parse_args(["godot", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--num-envs", "2"), "num_envs needs a build to start: give --env"),
        (("--speedup", "8"), "speedup needs a build to start"),
        (("--env", "G", "--speedup", "nan"), "--speedup"),
        (("--env", "G", "--num-envs", "2", "--base-port", "65535"), "need ports above 65535"),
        (("--env", "G", "--behavior", "a=b/c"), "the behavior 'b/c' contains"),
        (("--env", "G", "--team", "a=red"), "team 'red' is not a number"),
    ],
)
def test_a_wrong_value_is_one_line(words: tuple[str, ...], said: str) -> None:
    """The line names the flag."""
    with pytest.raises(ActorError, match=said) as error:
        given(*words)
    assert error.value.exit_code is ExitCode.USAGE


def test_the_editor_needs_no_flags() -> None:
    """One game is what the editor has."""
    assert given("--num-envs", "1").env is None


def test_what_is_no_build_is_named_in_godots_words(tmp_path: Path) -> None:
    """A project and a run file have their own advice."""
    (tmp_path / "project.godot").touch()
    for asked, words in {
        str(tmp_path): "is a Godot project, and --env names the executable that Godot exported from it",
        "run.yaml": "is a run file, which is for the learner: rollcast serve run.yaml",
        str(tmp_path / "Nope"): "name the executable that Godot exported",
    }.items():
        with pytest.raises(ActorError, match=words):
            find_build(asked, GODOT, "linux")


class Silent:
    """A process and a port of a game that says nothing."""

    number, message, fault, is_connected = 7, None, "", False
    ended: str | None = None

    def how_it_ended(self) -> str | None:
        """Returns how the process ended."""
        return self.ended

    def last_words(self) -> str:
        """Returns its last output."""
        return "no display"

    def start(self) -> None:
        """Starts nothing."""

    def close(self) -> None:
        """Closes nothing."""


def silent(clock: Clock) -> tuple[Game, Silent]:
    """Returns a game that was just started."""
    both: Any = Silent()
    info = RunInfo("first", 1, 0, 7, (), ChunkLimits(1, 1, 1.0, 1), 10.0)
    game = Game(
        0, lambda: both, lambda *_: both, PolicyRoles((), (), info), timeout_seconds=60.0, max_failures=3, clock=clock
    )
    assert game.is_ready
    assert game.advance() == []
    assert not game.is_ready
    return game, both


def test_a_game_that_never_connects_has_failed() -> None:
    """The line has the usual causes."""
    clock = Clock()
    game, both = silent(clock)
    clock.now += 59.0
    assert not game.is_ready
    clock.now += 2.0
    assert game.is_ready
    with pytest.raises(EnvironmentFailed, match=r"the game has not connected to port 7 within 60 s.*no Sync node"):
        game.advance()
    both.is_connected = True
    with pytest.raises(EnvironmentFailed, match="is connected, but has sent nothing for 60 s"):
        game.advance()


def test_a_game_that_ends_is_named_by_its_process() -> None:
    """A connection ends moments before its process, which says more."""
    clock = Clock()
    game, both = silent(clock)
    both.fault = "closed the connection"
    assert not game.is_ready
    both.ended = "ended with exit code 3"
    assert game.is_ready
    with pytest.raises(EnvironmentFailed, match="the game ended with exit code 3; its last output: no display"):
        game.advance()
    both.ended = None
    clock.now += 2.0
    with pytest.raises(EnvironmentFailed, match="the game closed the connection"):
        game.advance()
