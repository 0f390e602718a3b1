"""Tests trainers that only act."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import Purpose

from learner.shared.exits import ExitCode, UserError
from learner.training.curriculum.lessons import no_lessons
from learner.training.matches.frozen_trainer import FrozenTrainer
from learner.training.trainers import registry
from tests.learner.training.trainers.in_process import Bench, make_bench
from tests.learner.training.trainers.started import trained
from tests.learner.training.trainers.synthetic import CONTINUOUS, SyntheticActor

HYPERPARAMETERS = {"sac": {"buffer_size": 200, "batch_size": 16, "steps_per_update": 2}}


def bench_of(trainer_type: str, **changes: Any) -> Bench:
    """Returns a behavior with that trainer."""
    hyper = HYPERPARAMETERS.get(trainer_type, {"buffer_size": 60, "batch_size": 16, "num_epoch": 1})
    network = {"hidden_units": 16, "normalize": True}
    settings = {"trainer_type": trainer_type, "hyperparameters": hyper, "network_settings": network, "time_horizon": 20}
    return make_bench({**settings, **changes}, CONTINUOUS)


@pytest.mark.parametrize("trainer_type", sorted(registry.own_trainers()))
def test_it_publishes_what_was_trained(trainer_type: str) -> None:
    """Policy, normalizer, version and step are those of the saved trainer."""
    bench = bench_of(trainer_type)
    trainer = trained(bench)
    state = trainer.state_dict()
    networks = state["model"]["networks" if trainer_type == "sac" else "network"]
    for name in [name for name in networks if not name.startswith("policy.")]:
        del networks[name]
    other = bench_of(trainer_type)
    acting = FrozenTrainer(other.context(is_training=False, lessons=no_lessons()))
    acting.load_state_dict(state)
    acting.start()
    assert other.published.state.keys() == bench.published.state.keys()
    assert all(torch.equal(value, bench.published.state[name]) for name, value in other.published.state.items())
    assert other.published.progress[-1].version == trainer.version
    assert acting.get_step == trainer.steps_trained
    assert not acting.should_still_train


def test_it_needs_no_demonstrations_and_no_memory() -> None:
    """Demonstrations and replay memory are not needed."""
    gone = {"gail": {"demo_path": "nowhere.demo"}}
    cloning = {"demo_path": "nowhere.demo", "steps": 0}
    huge = {**HYPERPARAMETERS["sac"], "buffer_size": 2**40}
    for trainer_type, changes in (
        ("ppo", {"reward_signals": gone, "behavioral_cloning": cloning}),
        ("sac", {"hyperparameters": huge}),
    ):
        state = trained(bench_of(trainer_type)).state_dict()
        bench = bench_of(trainer_type)
        asked = bench_of(trainer_type).behavior.settings.model_validate(
            {**bench.behavior.settings.model_dump(exclude_unset=True), **changes}
        )
        bench.behavior.settings = asked
        acting = FrozenTrainer(bench.context(is_training=False))
        acting.load_state_dict(state)
        acting.start()
        with pytest.raises((UserError, RuntimeError)):
            registry.build(bench.context())


def test_a_state_that_does_not_fit_is_named() -> None:
    """A state of another trainer, or without a policy, is an error of one line."""
    state = trained(bench_of("ppo")).state_dict()
    acting = FrozenTrainer(bench_of("sac").context(is_training=False))
    with pytest.raises(UserError, match=r"of trainer ppo, not .* of trainer sac") as caught:
        acting.load_state_dict(state)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    acting = FrozenTrainer(bench_of("ppo").context(is_training=False))
    with pytest.raises(UserError, match="missing in the saved state"):
        acting.load_state_dict({**state, "model": {"network": {}}})


def test_steps_are_dropped() -> None:
    """Steps are dropped, evaluated episodes count as no training episodes, and the books balance."""
    bench = bench_of("ppo")
    acting = FrozenTrainer(bench.context(is_training=False))
    acting.start()
    actor = SyntheticActor(bench)
    columns = {
        "episode/return": np.array([3.0], np.float32),
        "episode/length": np.array([9], np.uint32),
        "episode/purpose": np.array([Purpose.EVALUATE], np.uint8),
    }
    bench.put(actor.chunk([10, 7, 3], episodes=1, columns=columns))
    assert acting.advance()
    assert not acting.advance()
    books = bench.ledger.books(CONTINUOUS.name)
    assert (books.balanced, dict(books.dropped), acting.version) == (True, {"not_training": 20}, 0)
    assert acting.mean_return() is None
