"""What no trainer does yet is refused by name."""

from __future__ import annotations

import pytest

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
