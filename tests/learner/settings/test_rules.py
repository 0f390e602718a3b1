"""Rules over a whole run file: what is not built is refused by name; what lock-step takes, and what cannot go with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from learner.common.exits import UserError
from learner.settings.check import check_config
from learner.settings.load import load_run_options
from learner.settings.rules import unsupported

from .conftest import WriteRun


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("behaviors: {A: {trainer_type: poca}}", "behaviors.A.trainer_type: poca is not built yet"),
        ("default_settings: {trainer_type: poca}", "default_settings.trainer_type: poca is not built yet"),
        ("behaviors: {A: {self_play: {}}}", "behaviors.A.self_play"),
        ("behaviors: {A: {reward_signals: {}}}", "nothing would be learned"),
        ("default_settings: {self_play: {}}", "default_settings.self_play"),
        (
            "behaviors: {A: }\nenvironment_parameters: {größe: 3}",
            "environment_parameters.größe: players read names in ASCII",
        ),
        (
            "behaviors: {A: }\nenvironment_parameters: {mass: -1.0e+39}",
            "-1e+39 in lesson 'mass' is more than players hold",
        ),
    ],
)
def test_each_feature_that_is_not_built_is_named(write_run: WriteRun, text: str, expected: str) -> None:
    """The run file is read; the run is refused with one line for each feature."""
    lines = unsupported(load_run_options(write_run(text)).options)
    assert len(lines) == 1
    assert expected in lines[0]


@pytest.mark.parametrize("trainer", ["poca"])
def test_memory_of_trainers_without_recurrent_networks_is_named(write_run: WriteRun, trainer: str) -> None:
    """Their memory is refused by its path, with the trainers that have one."""
    text = f"behaviors: {{A: {{trainer_type: {trainer}, network_settings: {{memory: {{}}}}}}}}"
    lines = [line for line in unsupported(load_run_options(write_run(text)).options) if "memory" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"behaviors.A.network_settings.memory: {trainer} has no recurrent networks, remove it")
    assert lines[0].endswith("appo, impala, ppo, sac")


@pytest.mark.parametrize("trainer", ["appo", "impala", "ppo", "sac"])
def test_memory_is_built(write_run: WriteRun, trainer: str) -> None:
    """A recurrent policy of these trainers is not refused."""
    text = f"behaviors: {{A: {{trainer_type: {trainer}, network_settings: {{memory: {{}}}}}}}}"
    assert unsupported(load_run_options(write_run(text)).options) == []


def test_what_is_built_is_not_refused(write_run: WriteRun) -> None:
    """An ordinary run has nothing to refuse."""
    text = "behaviors: {A: {trainer_type: ppo, threaded: true, network_settings: {normalize: true}}}\n"
    text += "environment_parameters: {mass: 3, wind: {sampler_type: multirangeuniform, sampler_parameters: {}}}"
    assert unsupported(load_run_options(write_run(text)).options) == []


def run_file(folder: Path, behavior: dict[str, Any] | None = None, **rollcast: Any) -> Path:
    """A run file with a seed."""
    path = folder / "run.yaml"
    document = {
        "behaviors": {"CartPole": {"trainer_type": "ppo", **(behavior or {})}},
        "env_settings": {"seed": 1},
        "rollcast": rollcast,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Without the block there is no lock-step; an empty one takes one actor and defaults."""
    assert load_run_options(run_file(tmp_path)).options.rollcast.lockstep is None
    lockstep = load_run_options(run_file(tmp_path, lockstep={})).options.rollcast.lockstep
    assert lockstep is not None
    assert (lockstep.actors, lockstep.actor_names, lockstep.quota_steps) == (1, None, None)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"actors": 0}, "actors"),
        ({"quota_steps": 0}, "quota_steps"),
        ({"checkpoint_updates": 0}, "checkpoint_updates"),
        ({"actors": 2, "actor_names": ["left"]}, "1 names for 2 actors"),
        ({"actors": 2, "actor_names": ["left", "left"]}, "no two are the same"),
        ({"actors": 1, "actor_names": [""]}, "printable"),
        ({"actor": 2}, "did you mean 'actors'"),
    ],
)
def test_what_makes_no_sense_is_an_error(tmp_path: Path, block: dict[str, Any], said: str) -> None:
    """Each is refused where it was written, with what would do."""
    with pytest.raises(UserError, match=said) as caught:
        load_run_options(run_file(tmp_path, lockstep=block))
    assert "rollcast.lockstep" in caught.value.message


@pytest.mark.parametrize(
    ("behavior", "rollcast", "place"),
    [
        ({"threaded": True}, {}, "behaviors.CartPole.threaded"),
        ({"trainer_type": "poca"}, {}, "behaviors.CartPole.trainer_type"),
        ({}, {"device_ring_steps": 10**6}, "rollcast.device_ring_steps"),
    ],
)
def test_what_cannot_be_repeated_is_refused_by_name(
    tmp_path: Path, behavior: dict[str, Any], rollcast: dict[str, Any], place: str
) -> None:
    """The setting is named with its line and what to do; without lock-step it is no error."""
    with pytest.raises(UserError, match=place) as caught:
        load_run_options(run_file(tmp_path, behavior, lockstep={}, **rollcast))
    assert "lock" in caught.value.message
    load_run_options(run_file(tmp_path, behavior, **rollcast))


def test_a_seed_that_is_drawn_is_told_of(tmp_path: Path) -> None:
    """A run in lock-step without a seed repeats nothing but itself."""
    path = run_file(tmp_path, lockstep={})
    assert load_run_options(path).warnings == ()
    (warning,) = load_run_options(path, cli={"env_settings.seed": -1}).warnings
    assert "env_settings.seed" in warning


@pytest.mark.parametrize("saves", [False, True])
def test_a_replay_memory_that_is_not_saved_is_told_of(tmp_path: Path, *, saves: bool) -> None:
    """A run that is resumed without it is another one."""
    sac = {"trainer_type": "sac", "hyperparameters": {"save_replay_buffer": saves}}
    warnings = load_run_options(run_file(tmp_path, sac, lockstep={})).warnings
    assert all("CartPole.hyperparameters.save_replay_buffer" in line for line in warnings)
    assert len(warnings) == (not saves)


def test_check_config_explains_it(tmp_path: Path) -> None:
    """The notes say how many actors, what a round is, and what a restart goes on from; without lock-step there are none."""
    output, errors = io.StringIO(), io.StringIO()
    lockstep = {"actors": 2, "actor_names": ["left", "right"], "quota_steps": 64, "checkpoint_updates": 7}
    check_config(run_file(tmp_path, lockstep=lockstep), output=output, errors=errors)
    notes = errors.getvalue()
    for part in ("2 actors (left, right)", "64 steps", "every 7 rounds", "checkpoint_seconds"):
        assert part in notes
    errors = io.StringIO()
    check_config(run_file(tmp_path), output=output, errors=errors)
    assert "lock-step" not in errors.getvalue()
