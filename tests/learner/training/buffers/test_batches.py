"""Tests minibatches."""

from __future__ import annotations

import pytest
import torch

from learner.training.buffers.batches import Minibatches, RowSource


def make_sources(steps: int) -> dict[str, RowSource]:
    """Returns one column in order and one reversed; both number the steps."""
    places = torch.arange(steps).flip(0) + 5
    values = torch.zeros(steps + 10, 2)
    values[places] = torch.arange(steps, dtype=torch.float32).unsqueeze(1).repeat(1, 2)
    return {"near": RowSource(torch.arange(steps)), "far": RowSource(values, places)}


def draw(minibatches: Minibatches, steps: int) -> list[list[int]]:
    """Returns the steps of each minibatch of an epoch, after checking that both columns agree."""
    drawn = []
    for batch in minibatches.epoch(make_sources(steps), steps):
        assert batch["near"].tolist() == batch["far"][:, 0].tolist()
        drawn.append(batch["near"].tolist())
    return drawn


@pytest.mark.parametrize("block_bytes", [1, 200, 2**20])
def test_an_epoch_shares_no_step_and_drops_the_remainder(block_bytes: int) -> None:
    """An epoch has floor(n / batch) minibatches of fixed size, and no step occurs twice."""
    minibatches = Minibatches(4, torch.Generator().manual_seed(1), block_bytes)
    drawn = draw(minibatches, 23)
    assert [len(batch) for batch in drawn] == [4] * 5
    assert len({step for batch in drawn for step in batch}) == 20
    assert [step for batch in drawn for step in batch] == minibatches.order.tolist()


def test_epochs_differ_and_depend_on_the_seed_alone() -> None:
    """Each epoch has a new order, and equal seeds give equal orders."""
    first, second = (Minibatches(4, torch.Generator().manual_seed(3)) for _ in range(2))
    one, other = draw(first, 40), draw(first, 40)
    assert one != other
    assert [draw(second, 40), draw(second, 40)] == [one, other]


def test_few_steps_make_one_small_minibatch() -> None:
    """With fewer steps than a minibatch, there is one minibatch with all of them."""
    assert sorted(draw(Minibatches(100, torch.Generator()), 7)[0]) == list(range(7))


def test_buffers_are_kept() -> None:
    """Epochs of different lengths use the same memory."""
    minibatches = Minibatches(4, torch.Generator())
    pointers = set()
    for steps in (40, 39, 12, 40, 25):
        for batch in minibatches.epoch(make_sources(steps), steps):
            pointers.add(batch["far"].untyped_storage().data_ptr())
    assert len(pointers) == 1


def test_several_rows_of_each_step_are_drawn() -> None:
    """A source with m rows for each step gives ``[B, m, *shape]``, also if a later update has more steps."""
    minibatches = Minibatches(4, torch.Generator().manual_seed(1))
    values = torch.arange(40.0).reshape(20, 2)
    for steps in (12, 16, 20):
        places = torch.stack((torch.arange(steps), torch.arange(steps).flip(0)), dim=1)
        sources = {"own": RowSource(values), "mates": RowSource(values, places)}
        for batch in minibatches.epoch(sources, steps):
            own = (batch["own"][:, 0] / 2).long()
            assert batch["mates"].shape == (4, 2, 2)
            assert torch.equal(batch["mates"], values[places[own]])
