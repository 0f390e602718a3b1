"""Tests that the page of reward signals agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import learner.training.rewards
from learner.shared.settings.rewards import (
    CuriositySettings,
    ExtrinsicSettings,
    GAILSettings,
    RewardSignalSettings,
    RNDSettings,
)
from learner.shared.settings.trainer import BehavioralCloningSettings
from tests.learner.training.trainers.pages import Row, range_in_words, sections

PAGE = Path(next(iter(learner.training.rewards.__path__))) / "README.md"
SIGNALS: dict[str, type[RewardSignalSettings]] = {
    "extrinsic": ExtrinsicSettings,
    "curiosity": CuriositySettings,
    "rnd": RNDSettings,
    "gail": GAILSettings,
}
GIVEN: dict[str, dict[str, Any]] = {"gail": {"demo_path": "required"}}
"""What has no default."""
NETWORK = Row("{}", "as in a behavior", "")


@pytest.mark.parametrize("name", SIGNALS)
def test_the_settings_of_a_signal_are_those_of_the_code(name: str) -> None:
    """The table of each signal has every key with default, range and text."""
    part = sections(PAGE.read_text(encoding="utf-8"))[name]
    lines = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", part, flags=re.MULTILINE)
    told = {key: Row(*rest) for key, *rest in lines}
    settings = SIGNALS[name]
    defaults = settings(**GIVEN.get(name, {})).model_dump(mode="json")
    expected = {
        key: Row(_shown(defaults[key]), range_in_words(schema), "")
        for key, schema in settings.model_json_schema()["properties"].items()
        if key != "network_settings"
    }
    assert {key: row._replace(text="") for key, row in told.items()} == {**expected, "network_settings": NETWORK}
    assert len(lines) == len(told)
    assert all(row.text for row in told.values())


def _shown(default: object) -> str:
    if isinstance(default, bool) or not isinstance(default, int | float):
        return "null" if default is None else str(default).lower()
    return f"{default:g}"


def test_the_settings_of_cloning_are_those_of_the_code() -> None:
    """The table of cloning has every key with default and text."""
    part = sections(PAGE.read_text(encoding="utf-8"))["behavioral_cloning"]
    lines = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|$", part, flags=re.MULTILINE)
    defaults = BehavioralCloningSettings(demo_path="required").model_dump(mode="json")
    assert {key: default for key, default, _ in lines} == {key: _shown(value) for key, value in defaults.items()}
    assert all(text for _, _, text in lines)
