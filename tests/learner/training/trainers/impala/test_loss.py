"""Compares the V-trace actor-critic's loss with numpy, autograd and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, Ratio
from learner.training.trainers.impala.trainer import impala_loss
from tests.learner.training.trainers.loss_cases import (
    entropies,
    log_prob,
    make_batch,
    make_output,
    make_values,
)


def weights(ratio: Ratio, *, beta: float = 0.01, rho_bar: float = 1.0) -> Coefficients:
    """Returns coefficients as the trainer sets them."""
    return Coefficients(epsilon=0.0, beta=beta, ratio=ratio, rho_bar=rho_bar)


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0])
def test_the_parts_equal_the_formulas(ratio: Ratio, shift: float) -> None:
    """Policy loss, value loss and entropy equal the formulas."""
    output = make_output()
    batch = make_batch(output, ratio, shift)
    now = log_prob(output, batch)
    now = now if ratio == "per_action" else now.sum(1, keepdim=True)
    rho = np.minimum(1.5, np.exp((now - batch.log_prob).numpy()))
    values = make_values()
    terms = impala_loss(output, values, batch, weights(ratio, rho_bar=1.5))
    gain = (rho * batch.advantage.numpy() * now.numpy()).mean()
    assert terms.scalars["policy_loss"].item() == pytest.approx(-gain, rel=1e-4, abs=1e-5)
    assert terms.scalars["value_loss"].item() == pytest.approx(((values - batch.returns).numpy() ** 2).mean(), rel=1e-5)
    entropy = entropies(output)[0 if ratio == "per_action" else 1]
    assert terms.scalars["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    error = terms.scalars["value_loss"].item()
    assert terms.total.item() == pytest.approx(-gain + 0.5 * error - 0.01 * entropy, rel=1e-4, abs=1e-5)


def test_old_steps_weigh_what_they_are_worth() -> None:
    """A less likely step counts less, and a more likely one at most once."""
    now = float(np.log(0.5))
    batch = Batch(
        None,
        torch.zeros(4, 1, dtype=torch.int64),
        torch.tensor([[now], [now + np.log(2.0)], [now - 3.0], [now - 1000.0]]),
        torch.ones(4, 1),
        torch.zeros(4, 1),
    )
    logits = torch.full((4, 2), now, requires_grad=True)
    output = PolicyOutput(None, None, logits, None)
    (gradients,) = torch.autograd.grad(
        impala_loss(output, torch.zeros(4, 1), batch, weights("joint", beta=0.0)).total, [logits]
    )
    assert (gradients[:, 0] / gradients[0, 0]).tolist() == pytest.approx([1.0, 0.5, 1.0, 1.0])


def test_what_was_truncated_is_told() -> None:
    """The clipped share is that of ratios above rho_bar, or beyond epsilon in losses that clip."""
    ratios = torch.tensor([0.25, 0.5, 1.5, 1.75])
    assert weights("joint", rho_bar=1.5).is_limited(ratios).tolist() == [False, False, False, True]
    assert Coefficients(0.5, 0.0, "joint").is_limited(ratios).tolist() == [True, False, False, True]
