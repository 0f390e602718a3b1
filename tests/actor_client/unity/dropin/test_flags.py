"""Tests how rollcast unity reads the command lines of mlagents-learn."""

from __future__ import annotations

import argparse

import pytest

from actor_client.unity.dropin.exits import DropInError, ExitCode
from actor_client.unity.dropin.flags import build_parser, parse
from learner.cli.cli import build_parser as build_learner_parser

OF_MLAGENTS = (
    *("env", "resume", "deterministic", "force", "run-id", "initialize-from", "seed", "inference", "base-port"),
    *("num-envs", "num-areas", "debug", "env-args", "max-lifetime-restarts", "restarts-rate-limit-n"),
    *("restarts-rate-limit-period-s", "results-dir", "timeout-wait", "width", "height", "quality-level", "time-scale"),
    *("target-frame-rate", "capture-frame-rate", "no-graphics", "no-graphics-monitor", "torch-device"),
    *("load", "train", "torch", "tensorflow"),
)


def _options(parser: argparse.ArgumentParser) -> set[str]:
    return {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("flag", OF_MLAGENTS)
def test_every_flag_is_there(flag: str) -> None:
    """All flags of known mlagents-learn versions are accepted."""
    assert f"--{flag}" in _options(build_parser())


def test_the_learner_takes_all_that_it_is_handed() -> None:
    """All forwarded arguments are flags of `serve` and `check-config` with the same names."""
    switches = [f"--{flag}" for flag in ("force", "deterministic", "inference", "no-graphics", "no-graphics-monitor")]
    values = [f"--{flag}=1" for flag in OF_MLAGENTS if flag not in {"load", "train", "torch", "tensorflow", "env-args"}]
    values = [word for word in values if word.removesuffix("=1") not in {*switches, "--resume", "--debug"}]
    own = ["--address=a:1", "--http-address=a:2", "--target-return=1", "--target-rating=2", "--max-wall-seconds=9"]
    own.append("--log-format=json")
    given = parse([*switches, "--debug", "--insecure", "--set", "a=1", "--set=b=2", *values, *own])
    for command in ("serve", "check-config"):
        parsed = vars(build_learner_parser().parse_args([command, *given.learner]))
        assert parsed["insecure"] == "true"
        assert parsed["set_items"] == ["a=1", "b=2"]
        assert parsed["time_scale"] == "1"
        assert parsed["debug"] == "true"
    assert len(given.learner) == len(switches) + 1 + 1 + 2 + len(values) + len(own)


def test_only_what_was_given_is_passed_on() -> None:
    """Only flags that were given are forwarded, even with default values."""
    assert parse(["run.yaml"]).learner == ()
    assert parse(["run.yaml", "--num-envs", "1"]).learner == ("--num-envs=1",)


@pytest.mark.parametrize(
    "line", ["--resume run.yaml --run-id x", "run.yaml --resume --run-id=x", "--run-id x --resume run.yaml"]
)
def test_the_run_file_may_stand_anywhere(line: str) -> None:
    """The run file may be anywhere among the flags; --resume takes no value."""
    given = parse(line.split())
    assert given.run_file == "run.yaml"
    assert sorted(given.learner) == ["--resume=true", "--run-id=x"]


def test_resume_auto_is_for_who_does_not_know_of_a_checkpoint() -> None:
    """`--resume auto` may precede the run file and contradicts --force."""
    assert parse(["--resume=auto", "run.yaml"]).learner == ("--resume=auto",)
    assert parse(["--resume=auto", "run.yaml"]).run_file == "run.yaml"
    assert parse(["--resume", "--resume=auto"]).learner == ("--resume=true",)
    assert parse(["--load", "--resume=auto"]).learner == ("--resume=auto",)
    assert build_learner_parser().parse_args(["serve", "--resume=auto"]).resume == "auto"


def test_arguments_of_the_players_are_the_rest() -> None:
    """All arguments after --env-args are the player's."""
    given = parse(["run.yaml", "--env", "B", "--env-args", "--seed", "3", "run2.yaml", "--env-args"])
    assert given.env_args == ("--seed", "3", "run2.yaml", "--env-args")
    assert given.learner == ("--env=B",)
    assert parse(["run.yaml"]).env_args is None


def test_negative_numbers_are_values() -> None:
    """-1 is a value and not a flag."""
    assert parse(["--seed", "-1", "--max-lifetime-restarts=-1"]).learner == ("--seed=-1", "--max-lifetime-restarts=-1")


def test_old_flags_are_taken_with_a_word() -> None:
    """--load is --resume; other old flags have no effect; each is reported."""
    given = parse(["--load", "--train", "--torch", "--tensorflow"])
    assert given.learner == ("--resume=true",)
    assert [note.split()[0] for note in given.notes] == ["--load", "--train", "--torch", "--tensorflow"]
    assert parse(["--load", "--resume"]).learner == ("--resume=true",)


def test_what_is_the_gateways_goes_there() -> None:
    """Flags of the gateway are forwarded to it."""
    given = parse(
        ["--player-address", "127.0.0.1", "--side-channel", "a:b", "--side-channel", "c:d", "--metrics-address=off"]
    )
    assert given.gateway == (
        "--player-address=127.0.0.1",
        "--metrics-address=off",
        "--side-channel=a:b",
        "--side-channel=c:d",
    )
    assert given.learner == ()


@pytest.mark.parametrize("line", ["--num-env-s 3", "run.yaml more.yaml", "--run-id"])
def test_a_wrong_command_line(line: str) -> None:
    """A wrong command line is one line with its exit code."""
    with pytest.raises(DropInError, match="--help") as caught:
        parse(line.split())
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in caught.value.message
