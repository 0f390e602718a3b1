"""Tests minibatches as losses get them."""

from __future__ import annotations

import pytest
import torch
from rollcast.enums import Squash

from learner.training.trainers.replay_batches import BatchMaker
from tests.learner.training.trainers.sac.started import feed, make
from tests.learner.training.trainers.synthetic import HYBRID, SyntheticActor


def test_only_a_terminal_step_ends_what_is_to_come() -> None:
    """The discount is 0 at a terminal step, except for signals that ignore ends, and else gamma."""
    signals = {"extrinsic": {"gamma": 0.9}, "curiosity": {"gamma": 0.8}, "rnd": {"gamma": 0.5}}
    bench, trainer = make(reward_signals=signals, hyper={"buffer_init_steps": 1000})
    feed(bench, SyntheticActor(bench), trainer, 3)
    (part,) = trainer._batches.draw(64)
    batch, ends = trainer._batches.read(part), trainer.memory.storage["terminated"][part.places.rows].bool()
    assert 0 < int(ends.sum()) < 64
    ignoring = trainer.signals.ignores_ends
    assert ignoring.tolist() == [False, True, True]
    for discounts, is_end in zip(batch.discounts, ends, strict=True):
        expected = torch.tensor([0.9, 0.8, 0.5]) * (ignoring | ~is_end)
        torch.testing.assert_close(discounts, expected)


@pytest.mark.parametrize("squash", [Squash.TANH, Squash.CLIP3_DIV3])
def test_actions_are_what_actors_made_of_their_draws(squash: Squash) -> None:
    """Actions without tanh are clipped, and choices have the offsets of their branches."""
    bench, trainer = make(HYBRID, hyper={"buffer_init_steps": 1000})
    feed(bench, SyntheticActor(bench), trainer)
    maker = BatchMaker(HYBRID, trainer.memory, trainer.signals, squash, torch.Generator())
    (part,) = maker.draw(16)
    batch, rows = maker.read(part), part.places.rows
    draws = trainer.memory.storage["continuous_action"][rows]
    assert batch.draws is not None
    assert torch.equal(batch.draws, draws)
    expected = torch.tanh(draws) if squash is Squash.TANH else draws.clamp(-3.0, 3.0) / 3.0
    torch.testing.assert_close(batch.actions, expected)
    assert batch.choices is not None
    offsets = batch.choices - trainer.memory.storage["discrete_action"][rows]
    assert (offsets == torch.tensor([0, *HYBRID.action.discrete_branches[:-1]]).cumsum(0)).all()
