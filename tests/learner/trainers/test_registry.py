"""Trainers by name."""

from __future__ import annotations

import dataclasses

import pytest

from learner.common.exits import UserError
from learner.settings.hyperparameters import built_trainers
from learner.trainers.registry import build
from tests.learner.trainers.in_process import make_bench


@pytest.mark.parametrize("trainer_type", built_trainers())
def test_every_trainer_that_is_not_refused_exists(trainer_type: str) -> None:
    """What a start does not refuse can be built."""
    trainer = build(make_bench({"trainer_type": trainer_type}).context())
    assert trainer.trainer_settings.trainer_type == trainer_type
    assert type(trainer).__name__.lower() == f"{trainer_type}trainer"


def test_an_unknown_trainer_is_refused() -> None:
    """The message names the behavior, the value and what there is."""
    bench = make_bench({})
    settings = bench.behavior.settings.model_copy(update={"trainer_type": "dqn"})
    behavior = dataclasses.replace(bench.behavior, settings=settings)
    with pytest.raises(UserError, match=r"behaviors.CartPole.trainer_type names 'dqn'.*appo, .*ppo"):
        build(bench.context(behavior=behavior))
