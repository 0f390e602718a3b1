"""Tests that a resumed run names the flags of its last start that it was resumed without."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rollcast.parsers import subparsers_of

from learner.checkpoints.names import CONFIGURATION, SOURCES
from learner.cli import _flags, build_parser
from learner.commands.last_start import left_out, starting_again, with_flags
from learner.commands.train import prepare
from learner.settings.load import LoadedRun, effective_document, load_run_options, to_yaml

PARSERS = {name: subparsers_of(build_parser())[name] for name in ("serve", "train")}
WORDS = {
    "N": "7", "S": "7", "X": "7.5", "R": "7", "CODE": "9", "ID": "x", "BUILD": "Build", "DIR": "some", "FILE": "some",
    "HOST:PORT": "127.0.0.1:7", "JSON": '{"a": 1}', "MODULE:CALLABLE": "a:b", "DEVICE": "cpu", "FORMAT": "json",
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
        assert left_out(tmp_path, loaded(tmp_path, command), command) == [flag]
        return
    beside = BESIDE.get(flag, ()) if command == "serve" else ()
    words = _words(parser._option_string_actions[flag], flag)
    given = loaded(tmp_path, command, *beside, *words)
    keep(tmp_path, given)
    assert left_out(tmp_path, given, command) == []
    if flag in {"--tls-cert", "--tls-key"}:  # neither goes without the other
        beside = ()
    name = "--set rollcast.max_sessions" if flag == "--set" else flag
    assert name in left_out(tmp_path, loaded(tmp_path, command, *beside), command)


def test_what_the_run_file_has_now_is_not_named(tmp_path: Path) -> None:
    """A flag whose value has moved into the run file changes nothing; variables are named like flags."""
    run = tmp_path / "run.yaml"
    text = "behaviors: {CartPole: {trainer_type: ppo}}\n"
    run.write_text(text)
    cli, items = {"target_return": "30"}, ["behaviors.CartPole.max_steps=5000"]
    keep(tmp_path, load_run_options(run, cli=cli, set_items=items, environ={"ROLLCAST_ADDRESS": "127.0.0.1:9"}))
    assert left_out(tmp_path, load_run_options(run), "serve") == [
        "--set behaviors.CartPole.max_steps",
        "ROLLCAST_ADDRESS",
        "--target-return",
    ]
    otherwise = load_run_options(run, set_items=["rollcast.target_return=40"], environ={"ROLLCAST_ADDRESS": "[::1]:9"})
    assert left_out(tmp_path, otherwise, "serve") == ["--set behaviors.CartPole.max_steps"]
    run.write_text(
        text.replace("ppo", "ppo, max_steps: 5000") + "rollcast: {target_return: 30, address: 127.0.0.1:9}\n"
    )
    assert left_out(tmp_path, load_run_options(run), "serve") == []


@pytest.mark.parametrize("content", [None, "", "[]", '{"rollcast.address": 3}', '{"--env": "train"}', "\x00"])
def test_a_folder_without_its_sources_is_no_error(content: str | None, tmp_path: Path) -> None:
    """A run of an earlier release, or a damaged file, names nothing."""
    if content is not None:
        (tmp_path / SOURCES).write_text(content)
    assert left_out(tmp_path, load_run_options(None), "serve") == []
    (tmp_path / CONFIGURATION).write_text("behaviors: {A: {}}\n")
    assert left_out(tmp_path, load_run_options(None), "serve") == []


def test_the_advised_command_is_that_of_the_run(tmp_path: Path) -> None:
    """A run of `train` is continued by `train`, with the flags that it had."""
    folder = tmp_path / "run"
    folder.mkdir()
    assert starting_again("run", Path("results")) == "rollcast serve RUN.yaml --run-id run --resume=auto"
    keep(folder, loaded(tmp_path, "train", "--num-envs", "8", "--target-return", "30", "--seed", "3"))
    said = starting_again("run", tmp_path)
    assert said.startswith(f"rollcast train --env ID --run-id run --results-dir {tmp_path} --resume=auto, with ")
    assert said.endswith("had: --target-return, --num-envs")
