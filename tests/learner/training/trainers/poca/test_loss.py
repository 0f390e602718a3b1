"""Compares the POCA loss with numpy and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.training.trainers.actor_critic.loss import Coefficients, Ratio
from learner.training.trainers.poca.trainer import poca_loss
from learner.training.trainers.ppo.trainer import ppo_loss
from tests.learner.training.trainers.loss_cases import make_batch, make_output, make_values


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("value", [0.5, 2.0])
def test_the_parts_equal_the_formulas(ratio: Ratio, value: float) -> None:
    """The loss is PPO's, plus half the baseline loss; the baseline is clipped around its value before the update."""
    output = make_output()
    batch = make_batch(output, ratio, 0.1)
    values = make_values()
    generator = torch.Generator().manual_seed(3)
    old = batch.returns + torch.randn(batch.returns.shape, generator=generator)
    baselines = old + 0.5 * torch.randn(batch.returns.shape, generator=generator)
    coefficients = Coefficients(0.2, 0.01, ratio, value)
    terms = poca_loss(output, torch.cat((values, baselines), dim=1), batch._replace(old_baselines=old), coefficients)

    b, b_old, returns = (tensor.numpy().astype(np.float64) for tensor in (baselines, old, batch.returns))
    clipped = b_old + np.clip(b - b_old, -0.2, 0.2)
    expected = np.maximum((b - returns) ** 2, (clipped - returns) ** 2).mean()
    ppo = ppo_loss(output, values, batch, coefficients)
    assert list(terms.scalars) == ["policy_loss", "value_loss", "entropy", "baseline_loss"]
    assert terms.scalars["baseline_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert {name: terms.scalars[name].item() for name in ppo.scalars} == {
        name: scalar.item() for name, scalar in ppo.scalars.items()
    }
    assert terms.total.item() == pytest.approx(ppo.total.item() + value * 0.5 * expected, rel=1e-5)


def test_a_baseline_beyond_the_clip_gives_no_gradient() -> None:
    """A baseline that has moved further than epsilon toward its target stays; one that moved away is pulled back."""
    output = make_output()
    batch = make_batch(output, "joint", 0.0)
    rows = batch.returns.shape[0]
    batch = batch._replace(returns=torch.ones(rows, 1), old_baselines=torch.zeros(rows, 1))
    for moved, has_gradient in ((0.1, True), (0.5, False), (-0.5, True)):
        baselines = torch.full((rows, 1), moved, requires_grad=True)
        poca_loss(
            output, torch.cat((torch.zeros(rows, 1), baselines), dim=1), batch, Coefficients(0.2, 0.0, "joint")
        ).total.backward()
        assert baselines.grad is not None
        assert bool(baselines.grad.any()) == has_gradient
