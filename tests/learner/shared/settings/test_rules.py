"""Tests rules over a whole run file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from learner.shared.exits import UserError
from learner.shared.settings.addresses import host_names
from learner.shared.settings.load import load_run_options
from learner.shared.settings.options import RunOptions
from learner.shared.settings.rules import unsupported
from learner.shared.settings.service import ServiceSettings

from .conftest import WriteRun


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("behaviors: {A: {reward_signals: {}}}", "nothing would be learned"),
        (
            "behaviors: {A: }\nenvironment_parameters: {größe: 3}",
            "environment_parameters.größe: players read only ASCII names",
        ),
        (
            "behaviors: {A: }\nenvironment_parameters: {mass: -1.0e+39}",
            "-1e+39 in lesson 'mass' exceeds the largest number that players can hold",
        ),
    ],
)
def test_each_feature_that_is_not_built_is_named(write_run: WriteRun, text: str, expected: str) -> None:
    """Each unsupported feature is refused with one line."""
    lines = unsupported(load_run_options(write_run(text)).options)
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize(
    ("trainer", "trainers", "is_refused"), [("sac", 2, True), ("sac", 1, False), ("ppo", 2, False)]
)
def test_a_replay_trainer_trains_in_one_process(trainer: str, trainers: int, is_refused: bool) -> None:
    """A trainer with a replay memory is refused by name with several trainer processes."""
    document = {"behaviors": {"A": {"trainer_type": trainer}}, "rollcast": {"trainers": trainers}}
    found = unsupported(RunOptions.model_validate(document))
    assert [line.split("; ")[0] for line in found] == (
        ["behaviors.A.trainer_type: sac trains in one process"] if is_refused else []
    )


def run_file(folder: Path, behavior: dict[str, Any] | None = None, **rollcast: Any) -> Path:
    """Returns a run file with a seed."""
    path = folder / "run.yaml"
    document = {
        "behaviors": {"CartPole": {"trainer_type": "ppo", **(behavior or {})}},
        "env_settings": {"seed": 1},
        "rollcast": rollcast,
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"actors": 0}, "actors"),
        ({"quota_steps": 0}, "quota_steps"),
        ({"checkpoint_updates": 0}, "checkpoint_updates"),
        ({"actors": 2, "actor_names": ["left"]}, "1 names for 2 actors"),
        ({"actors": 2, "actor_names": ["left", "left"]}, "must be different names"),
        ({"actors": 1, "actor_names": [""]}, "printable"),
        ({"actor": 2}, "did you mean 'actors'"),
    ],
)
def test_what_makes_no_sense_is_an_error(tmp_path: Path, block: dict[str, Any], said: str) -> None:
    """Each contradiction is refused at its line with a correction."""
    with pytest.raises(UserError, match=said) as caught:
        load_run_options(run_file(tmp_path, lockstep=block))
    assert "rollcast.lockstep" in caught.value.message


@pytest.mark.parametrize(
    ("behavior", "rollcast", "place"),
    [
        ({"threaded": True}, {}, "behaviors.CartPole.threaded"),
        ({}, {"device_ring_steps": 10**6}, "rollcast.device_ring_steps"),
    ],
)
def test_what_cannot_be_repeated_is_refused_by_name(
    tmp_path: Path, behavior: dict[str, Any], rollcast: dict[str, Any], place: str
) -> None:
    """A setting that cannot be repeated is refused in lock-step with its line."""
    with pytest.raises(UserError, match=place) as caught:
        load_run_options(run_file(tmp_path, behavior, lockstep={}, **rollcast))
    assert "lock" in caught.value.message
    load_run_options(run_file(tmp_path, behavior, **rollcast))


def test_a_seed_that_is_drawn_is_told_of(tmp_path: Path) -> None:
    """A lock-step run without a seed is a warning."""
    path = run_file(tmp_path, lockstep={})
    assert load_run_options(path).warnings == ()
    (warning,) = load_run_options(path, cli={"env_settings.seed": -1}).warnings
    assert "env_settings.seed" in warning


@pytest.mark.parametrize("saves", [False, True])
def test_a_replay_memory_that_is_not_saved_is_told_of(tmp_path: Path, *, saves: bool) -> None:
    """A lock-step run that does not save its replay memory is a warning."""
    sac = {"trainer_type": "sac", "hyperparameters": {"save_replay_buffer": saves}}
    warnings = load_run_options(run_file(tmp_path, sac, lockstep={})).warnings
    assert all("CartPole.hyperparameters.save_replay_buffer" in line for line in warnings)
    assert len(warnings) == (not saves)


def test_the_published_address_of_the_page() -> None:
    """It is a host and a port, or nothing."""
    assert ServiceSettings().page_address is None
    assert ServiceSettings.model_validate({"page_address": "train.example:443"}).page_address == "train.example:443"
    for wrong in ("train.example", "http://a:1/", ""):
        with pytest.raises(ValidationError, match="host:port"):
            ServiceSettings.model_validate({"page_address": wrong})


def test_host_names_of_the_page() -> None:
    """Host names are separated by commas; ports and addresses in brackets are refused."""
    settings = ServiceSettings.model_validate({"http_hosts": "learner, train.example"})
    assert host_names(settings.http_hosts) == ("learner", "train.example")
    assert host_names(ServiceSettings().http_hosts) == ()
    for wrong in ("learner:9464", "[::1]", "", "a,,b", "http://a"):
        with pytest.raises(ValidationError, match="host names"):
            ServiceSettings.model_validate({"http_hosts": wrong})
