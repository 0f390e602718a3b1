"""Tests that a resumed run names the flags of its last start that it was resumed without."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rollcast.parsers import subparsers_of

from learner.cli.cli import _flags, build_parser
from learner.shared.runfolder.names import CONFIGURATION, SOURCES
from learner.shared.settings.load import LoadedRun, effective_document, load_run_options, to_yaml
from learner.start.last_start import left_out, starting_again, with_flags
from learner.start.train import prepare

PARSERS = {name: subparsers_of(build_parser())[name] for name in ("serve", "train")}
WORDS = {
    "N": "7", "S": "7", "X": "7.5", "R": "7", "CODE": "9", "ID": "x", "BUILD": "Build", "DIR": "some", "FILE": "some",
    "HOST:PORT": "127.0.0.1:7", "JSON": '{"a": 1}', "MODULE:CALLABLE": "a:b", "DEVICE": "cpu", "FORMAT": "json", "LEVEL": "debug",
    "TYPE": "ppo", "NAME": "CartPole", "KEY=VALUE": "rollcast.max_sessions=7", "...": "--map",
}  # fmt: skip
"""A value of each kind that is not the default."""
BESIDE = {
    "--num-envs": ("--env", "Build"),
    "--tls-cert": ("--tls-key", "key"),
    "--tls-key": ("--tls-cert", "cert"),
    "--tls-client-ca": ("--tls-key", "key", "--tls-cert", "cert"),
}
"""What a flag of `serve` needs, at both starts."""
OF_ONE_START = {"--help", "--help-unity", "--run-id", "--results-dir", "--resume", "--checkpoint", "--force"} | {
    "--initialize-from", "--inference",  # how one start begins, or what it does in place of training
    "--seed",  # which a resumed run keeps
    "--drop-in", "--stepped-by-caller",  # which say that another command or program starts the learner
    "--restarts",  # of the process around the learner, which the learner does not see
}  # fmt: skip


def _cases() -> Iterator[tuple[str, str]]:
    for name, parser in PARSERS.items():
        for action in parser._actions:
            if action.option_strings and not (name == "train" and action.option_strings[-1] == "--env"):
                yield name, action.option_strings[-1]


def loaded(folder: Path, command: str, *words: str) -> LoadedRun:
    """Returns the settings of a start, with its flags."""
    run = folder / "run.yaml"
    run.write_text("behaviors: {CartPole: {trainer_type: ppo}}\n")
    own = ("--env", "CartPole-v1") if command == "train" else ()
    parser = build_parser()
    parsed = parser.parse_args([command, str(run), *own, *words])
    if command == "train":
        return with_flags(prepare(parsed)[0], PARSERS[command], parsed)
    given = load_run_options(run, cli=_flags(parsed), set_items=parsed.set_items, environ=dict(os.environ))
    return with_flags(given, PARSERS[command], parsed)


def keep(folder: Path, settings: LoadedRun) -> None:
    """Writes what a start leaves in the run folder."""
    (folder / CONFIGURATION).write_text(to_yaml(effective_document(settings)))
    (folder / SOURCES).write_text(json.dumps(dict(settings.sources)))


def _words(action: argparse.Action, flag: str) -> list[str]:
    if action.nargs == 0:
        return [flag]
    return [flag, WORDS[str(action.metavar)]]


@pytest.mark.parametrize(("command", "flag"), sorted(_cases()))
def test_each_flag_is_named(command: str, flag: str, tmp_path: Path) -> None:
    """Every flag of serve and train is named if the next start lacks it, unless it says how one start begins."""
    if flag in OF_ONE_START:
        return
    parser = PARSERS[command]
    if command == "train" and flag == "--trainer":  # instead of a run file
        parsed = build_parser().parse_args([command, "--env", "x", flag, "ppo"])
        keep(tmp_path, with_flags(loaded(tmp_path, command), parser, parsed))
        assert left_out(tmp_path, loaded(tmp_path, command)) == [flag]
        return
    beside = BESIDE.get(flag, ()) if command == "serve" else ()
    words = _words(parser._option_string_actions[flag], flag)
    given = loaded(tmp_path, command, *beside, *words)
    keep(tmp_path, given)
    assert left_out(tmp_path, given) == []
    if flag in {"--tls-cert", "--tls-key"}:  # neither goes without the other
        beside = ()
    name = "--set rollcast.max_sessions" if flag == "--set" else flag
    assert name in left_out(tmp_path, loaded(tmp_path, command, *beside))


def test_what_the_run_file_has_now_is_not_named(tmp_path: Path) -> None:
    """A flag whose value has moved into the run file changes nothing; variables are named like flags."""
    run = tmp_path / "run.yaml"
    text = "behaviors: {CartPole: {trainer_type: ppo}}\n"
    run.write_text(text)
    cli, items = {"target_return": "30"}, ["behaviors.CartPole.max_steps=5000"]
    keep(tmp_path, load_run_options(run, cli=cli, set_items=items, environ={"ROLLCAST_ADDRESS": "127.0.0.1:9"}))
    assert left_out(tmp_path, load_run_options(run)) == [
        "--set behaviors.CartPole.max_steps",
        "ROLLCAST_ADDRESS",
        "--target-return",
    ]
    otherwise = load_run_options(run, set_items=["rollcast.target_return=40"], environ={"ROLLCAST_ADDRESS": "[::1]:9"})
    assert left_out(tmp_path, otherwise) == ["--set behaviors.CartPole.max_steps"]
    run.write_text(
        text.replace("ppo", "ppo, max_steps: 5000") + "rollcast: {target_return: 30, address: 127.0.0.1:9}\n"
    )
    assert left_out(tmp_path, load_run_options(run)) == []


def test_a_pipe_in_place_of_the_settings_does_not_block(tmp_path: Path) -> None:
    """Whatever lies in a run folder, a start neither waits for it nor fails."""
    for name in (CONFIGURATION, SOURCES):
        os.mkfifo(tmp_path / name)
    assert left_out(tmp_path, load_run_options(None)) == []


@pytest.mark.parametrize(
    "content", [None, "", "[]", '{"rollcast.address": 3}', '{"command": "train", "--env": "train"}', "\x00"]
)
def test_a_folder_without_its_sources_is_no_error(content: str | None, tmp_path: Path) -> None:
    """A run of an earlier release, or a damaged file, names nothing."""
    if content is not None:
        (tmp_path / SOURCES).write_text(content)
    assert left_out(tmp_path, load_run_options(None)) == []
    (tmp_path / CONFIGURATION).write_text("behaviors: {A: {}}\n")
    assert left_out(tmp_path, load_run_options(None)) == []


def test_the_advised_command_is_that_of_the_run(tmp_path: Path) -> None:
    """A run of `train` is continued by `train`, with the flags that it had."""
    folder = tmp_path / "run"
    folder.mkdir()
    assert starting_again("run", Path("results")) == "rollcast serve RUN.yaml --run-id run --resume=auto"
    keep(folder, loaded(tmp_path, "train", "--num-envs", "8", "--target-return", "30", "--seed", "3"))
    said = starting_again("run", tmp_path)
    assert said.startswith(f"rollcast train --env ID --run-id run --results-dir {tmp_path} --resume=auto, with ")
    assert said.endswith("had: --target-return, --num-envs")


UNITY = ("--env", "Build", "--address=127.0.0.1:7", "--log-format=mlagents", "--drop-in=--address,--log-format")
"""What `rollcast unity --env Build` gives the learner."""


@pytest.mark.parametrize(
    ("last", "now"),
    [
        (("serve", "--http-address", "127.0.0.1:9"), ("serve", *UNITY)),
        (("serve", *UNITY), ("serve",)),
        (("serve", *UNITY), ("serve", "--drop-in=")),  # what it adds is not of the user
        (("train", "--actors", "2"), ("serve",)),
        (("serve", "--trainers", "2"), ("train",)),
    ],
)
def test_only_what_the_user_can_type_is_named(last: tuple[str, ...], now: tuple[str, ...], tmp_path: Path) -> None:
    """Another command has other flags, and `rollcast unity` gives the learner some of its own."""
    keep(tmp_path, loaded(tmp_path, *last))
    found = left_out(tmp_path, loaded(tmp_path, *now))
    assert found == (["--env"] if now[-1] == "--drop-in=" else [])


def test_the_advised_command_of_players_is_unity(tmp_path: Path) -> None:
    """A run of `rollcast unity` is continued by it, without the flags that the user did not type."""
    (tmp_path / "run").mkdir()
    keep(tmp_path / "run", loaded(tmp_path, "serve", *UNITY))
    said = starting_again("run", tmp_path)
    assert said.startswith("rollcast unity RUN.yaml --run-id run ")
    assert said.endswith("had: --env")


def test_a_file_of_many_sources_makes_one_short_line(tmp_path: Path) -> None:
    """The first names are named, and the others counted; a terminal obeys none."""
    sources = {f"--{place}\x1b{'x' * 200}": "serve" for place in range(50_000)}
    keep(tmp_path, replace(loaded(tmp_path, "serve"), sources={"command": "serve"}))
    (tmp_path / SOURCES).write_text(json.dumps({"command": "serve", **dict(list(sources.items())[:4000])}))
    found = left_out(tmp_path, loaded(tmp_path, "serve"))
    assert (len(found), found[-1]) == (11, "3990 more")
    assert all(len(name) <= 90 and name.isprintable() for name in found)
    assert len(starting_again(tmp_path.name, tmp_path.parent)) < 2000
