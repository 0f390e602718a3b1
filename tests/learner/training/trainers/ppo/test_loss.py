"""Compares the PPO loss with numpy and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, Ratio
from learner.training.trainers.ppo.trainer import ppo_loss
from tests.learner.training.trainers.loss_cases import (
    entropies,
    log_prob,
    make_batch,
    make_output,
    make_values,
)


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0])
def test_the_parts_equal_the_formulas(ratio: Ratio, shift: float) -> None:
    """Surrogate per factor or action, value loss and entropy equal the formulas."""
    output = make_output()
    batch = make_batch(output, ratio, shift)
    now = log_prob(output, batch)
    values = make_values()
    ratios = (now if ratio == "per_action" else now.sum(1, keepdim=True)).sub(batch.log_prob).exp().numpy()
    advantage = batch.advantage.numpy()
    surrogate = np.minimum(ratios * advantage, np.clip(ratios, 0.8, 1.2) * advantage).mean()
    error = ((values - batch.returns).numpy() ** 2).mean()
    entropy = entropies(output)[0 if ratio == "per_action" else 1]
    terms = ppo_loss(output, values, batch, Coefficients(0.2, 0.01, ratio))
    assert terms.scalars["policy_loss"].item() == pytest.approx(-surrogate, rel=1e-4, abs=1e-5)
    assert terms.scalars["value_loss"].item() == pytest.approx(error, rel=1e-5)
    assert terms.scalars["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    assert terms.total.item() == pytest.approx(-surrogate + 0.5 * error - 0.01 * entropy, rel=1e-4, abs=1e-5)


def test_a_ratio_beyond_the_clip_gives_no_gradient() -> None:
    """A ratio beyond the clip in the direction of its advantage has no gradient."""
    now = float(np.log(0.5))
    batch = Batch(
        None,
        torch.zeros(4, 1, dtype=torch.int64),
        torch.tensor([[now - 1.0], [now + 1.0], [now - 1.0], [now + 1.0]]),
        torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]),
        torch.zeros(4, 1),
    )
    logits = torch.full((4, 2), now, requires_grad=True)
    terms = ppo_loss(PolicyOutput(None, None, logits, None), torch.zeros(4, 1), batch, Coefficients(0.2, 0.0, "joint"))
    (gradients,) = torch.autograd.grad(terms.total, [logits])
    assert (gradients[:, 0] != 0).tolist() == [False, True, True, False]


def test_signals_share_the_value_loss() -> None:
    """With several signals the value loss is the mean of their errors."""
    output = make_output(2)
    batch = make_batch(output, "joint")._replace(returns=torch.tensor([[0.0, 2.0], [0.0, 2.0]]))
    terms = ppo_loss(output, torch.zeros(2, 2), batch, Coefficients(0.2, 0.0, "joint"))
    assert terms.scalars["value_loss"].item() == pytest.approx(2.0)
