"""Tests that the page about run files agrees with the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.cli.cli import main
from learner.shared.settings.base import SettingsModel
from learner.shared.settings.companions import CompanionSettings
from learner.shared.settings.hyperparameters import OWN_TRAINERS
from learner.shared.settings.options import RunOptions
from learner.shared.settings.parameters import SAMPLERS, ParameterSettings
from learner.shared.settings.slots import slot_of
from tests.learner.shared.settings.page import BLOCKS, ELSEWHERE, PAGE, filled
from tests.learner.training.trainers.pages import FOLDER


def _below(model: type[SettingsModel]) -> Iterator[type[SettingsModel]]:
    """Yields a block and those that may stand in it."""
    yield model
    for field in model.model_fields.values():
        slot = slot_of(field.annotation)
        slot = slot_of(slot.item) if slot.kind in {"map", "list"} else slot
        if slot.model is not None and slot.model.__name__ not in ELSEWHERE:
            yield from _below(slot.model)


def test_the_tables_are_those_of_the_code() -> None:
    """Each table has every key with default, range and meaning."""
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page
    assert set(re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)) >= set(BLOCKS)


def test_every_block_has_a_table() -> None:
    """Every block has a table on this page, or on those of trainers or signals."""
    named = {model.__name__ for model in _below(RunOptions)} | {model.__name__ for model in SAMPLERS.values()}
    named |= {CompanionSettings.__name__}  # below names of users
    spelled_otherwise = {ParameterSettings.__name__, "SamplerParameters"}
    assert named - spelled_otherwise == {model.__name__ for model in BLOCKS.values()}


def test_the_file_of_the_page_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's examples pass `check-config` without a warning."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks
    for block in blocks:
        (tmp_path / "run.yaml").write_text(block, encoding="utf-8")
        assert main(["check-config", str(tmp_path / "run.yaml")]) == 0
        assert capsys.readouterr().err == ""


def test_from_ppo_to_sac_names_every_key() -> None:
    """The table has every hyperparameter that ppo has and sac lacks."""
    page = (FOLDER / "sac.md").read_text(encoding="utf-8")
    table = page.partition("### From ppo to sac")[2].partition("## What to watch")[0]
    keys = re.findall(r"^\| (.*?) \| leave out", table, flags=re.MULTILINE)
    removed = set(re.findall(r"`(\w+)`", " ".join(keys)))
    ppo, sac = (set(OWN_TRAINERS[name].settings_model.model_fields) for name in ("ppo", "sac"))
    assert removed == ppo - sac
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) <= ppo & sac | {
        "trainer_type",
        "time_horizon",
        "max_steps",
    }
