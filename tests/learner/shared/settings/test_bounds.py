"""Tests the bounds of numbers in run files."""

from __future__ import annotations

import math

import pytest
from pydantic import ValidationError
from rollcast.v1 import session_pb2

from learner.service.calls.run_info import RunInfo
from learner.shared.settings.base import SettingsModel
from learner.shared.settings.environment import EngineSettings, EnvironmentSettings
from learner.shared.settings.load import load_run_options
from learner.shared.settings.options import RunOptions
from learner.shared.settings.service import ServiceSettings

from .conftest import WriteRun

EXTREMES = (1e300, 1e19, 2**63 - 1, 2**32, 1e-300, 1e-9, 1, 0, -1, -(2**63) + 1, math.inf, math.nan)


def _numbers(model: type[SettingsModel]) -> list[str]:
    """Returns the settings that hold a number by themselves."""
    kinds = (int, float, int | None, float | None)
    return [name for name, field in model.model_fields.items() if field.annotation in kinds]


def _accepted(model: type[SettingsModel], name: str, value: float) -> SettingsModel | None:
    try:
        return model.model_validate({name: value})
    except ValidationError:
        return None


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize(
    ("block", "model"),
    [("rollcast", ServiceSettings), ("env_settings", EnvironmentSettings), ("engine_settings", EngineSettings)],
)
def test_what_is_accepted_reaches_the_actors(block: str, model: type[SettingsModel], value: float) -> None:
    """Every accepted number fits the messages that carry it, and the lease of a session."""
    assert len(_numbers(model)) >= 5
    for name in _numbers(model):
        settings = _accepted(model, name, value)
        if settings is None:
            continue
        options = RunOptions.model_validate({block: settings})
        RunInfo.from_options(options, run_id="run", generation=1, run_seed=1)
        session_pb2.OpenSessionResponse(lease_ms=round(options.rollcast.lease_seconds * 1000))


@pytest.mark.parametrize("name", [name for name in _numbers(ServiceSettings) if name != "target_return"])
def test_every_number_of_the_service_has_an_upper_bound(name: str) -> None:
    """Every number of the service has an upper bound."""
    with pytest.raises(ValidationError, match=r"less than or equal to|exceeds max_chunk_bytes"):
        ServiceSettings.model_validate({name: 2**63 - 1})


@pytest.mark.parametrize("name", ["lease_seconds", "checkpoint_seconds", "summary_seconds"])
def test_what_happens_again_and_again_has_a_lower_bound(name: str) -> None:
    """A too short lease or interval is refused."""
    with pytest.raises(ValidationError, match="greater than or equal to"):
        ServiceSettings.model_validate({name: 1e-9})


@pytest.mark.parametrize("signal", ["curiosity", "rnd"])
def test_the_old_name_of_a_width_has_its_bound(signal: str, write_run: WriteRun) -> None:
    """A too large `encoding_size` is told of under its own key with the signal's name, and the largest width counts."""
    run = write_run(f"behaviors: {{A: {{reward_signals: {{{signal}: {{encoding_size: 2097152}}}}}}}}\n")
    loaded = load_run_options(run)
    assert f"{signal}.encoding_size: is 2097152, which is not possible here: it counts as 1048576" in loaded.warnings[0]
    signals = loaded.options.behaviors["A"].reward_signals.model_dump()
    assert signals[signal]["network_settings"]["hidden_units"] == 1048576
