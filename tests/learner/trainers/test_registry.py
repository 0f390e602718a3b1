"""Trainers by name."""

from __future__ import annotations

import dataclasses

import pytest

from learner.exits import UserError
from learner.settings.unsupported import BUILT_TRAINERS
from learner.trainers.ppo.trainer import PPOTrainer
from learner.trainers.registry import build
from tests.learner.trainers.in_process import make_bench


@pytest.mark.parametrize("trainer_type", sorted(BUILT_TRAINERS))
def test_every_trainer_that_is_not_refused_exists(trainer_type: str) -> None:
    """What a start does not refuse can be built."""
    trainer = build(make_bench({"trainer_type": trainer_type}).context())
    assert isinstance(trainer, {"ppo": PPOTrainer}[trainer_type])


def test_an_unknown_trainer_is_refused() -> None:
    """The message names the behavior, the value and what there is."""
    bench = make_bench({})
    settings = bench.behavior.settings.model_copy(update={"trainer_type": "sac"})
    behavior = dataclasses.replace(bench.behavior, settings=settings)
    with pytest.raises(UserError, match=r"behaviors.CartPole.trainer_type is 'sac'; trainers that exist: ppo"):
        build(bench.context(behavior=behavior))
