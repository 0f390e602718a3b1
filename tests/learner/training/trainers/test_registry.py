"""Tests trainers by name, and their pages."""

from __future__ import annotations

import dataclasses

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.hyperparameters import OWN_TRAINERS, built_trainers
from learner.training.trainers.registry import build
from tests.learner.training.trainers.in_process import make_bench
from tests.learner.training.trainers.pages import FOLDER, rows_of_code, rows_of_page


@pytest.mark.parametrize("trainer_type", built_trainers())
def test_every_trainer_that_is_not_refused_exists(trainer_type: str) -> None:
    """Every trainer that a start accepts can be built."""
    trainer = build(make_bench({"trainer_type": trainer_type}).context())
    assert trainer.trainer_settings.trainer_type == trainer_type
    assert type(trainer).__name__.lower() == f"{trainer_type}trainer"


def test_an_unknown_trainer_is_refused() -> None:
    """An unknown trainer is refused with the behavior, the value and the known ones."""
    bench = make_bench({})
    settings = bench.behavior.settings.model_copy(update={"trainer_type": "dqn"})
    behavior = dataclasses.replace(bench.behavior, settings=settings)
    with pytest.raises(UserError, match=r"behaviors.CartPole.trainer_type names 'dqn'.*appo, .*ppo"):
        build(bench.context(behavior=behavior))


PAGES = sorted(FOLDER.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_settings_of_a_page_are_those_of_the_code(page: str) -> None:
    """The settings table has every hyperparameter with default, range and text."""
    told = rows_of_page((FOLDER / page).read_text(encoding="utf-8"))
    known = rows_of_code(OWN_TRAINERS[(FOLDER / page).stem].settings_model)
    assert set(told) == set(known)
    assert {key: row._replace(text="") for key, row in told.items()} == known
    assert all(row.text for row in told.values())
