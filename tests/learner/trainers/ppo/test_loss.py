"""The PPO loss against plain numpy and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.networks.policy import PolicyOutput
from learner.trainers.actor_critic.loss import Batch, Coefficients, Ratio
from learner.trainers.ppo.loss import ppo_loss
from tests.learner.trainers.loss_cases import BRANCHES, entropies, log_prob, make_batch, make_output


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0])
def test_the_parts_equal_the_formulas(ratio: Ratio, shift: float) -> None:
    """Clipped surrogate per factor or per action, squared error of the values, entropy."""
    output = make_output()
    batch = make_batch(output, ratio, shift)
    now = log_prob(output, batch)
    values = torch.randn(50, 1, generator=torch.Generator().manual_seed(3))
    ratios = (now if ratio == "per_action" else now.sum(1, keepdim=True)).sub(batch.log_prob).exp().numpy()
    advantage = batch.advantage.numpy()
    surrogate = np.minimum(ratios * advantage, np.clip(ratios, 0.8, 1.2) * advantage).mean()
    error = ((values - batch.returns).numpy() ** 2).mean()
    entropy = entropies(output)[0 if ratio == "per_action" else 1]
    _, diagnostics = ppo_loss(output, values, batch, Coefficients(0.2, 0.01, ratio), BRANCHES)
    assert diagnostics.policy_loss.item() == pytest.approx(-surrogate, rel=1e-4, abs=1e-5)
    assert diagnostics.value_loss.item() == pytest.approx(error, rel=1e-5)
    assert diagnostics.entropy.item() == pytest.approx(entropy, rel=1e-5)


@pytest.mark.parametrize("ratio", ["per_action", "joint"])
@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0])
def test_the_derivative_is_that_of_the_scalar_loss(ratio: Ratio, beta: float, shift: float) -> None:
    """With respect to mean, deviation, scores and values it is what autograd gives from the textbook's scalar."""
    output, batch = make_output(), make_batch(make_output(), ratio, shift)
    if output.mean is None or output.log_std is None or output.logits is None:
        raise TypeError
    leaves = [output.mean.requires_grad_(), output.log_std.requires_grad_(), output.logits.detach().requires_grad_()]
    normalized = torch.cat([torch.log_softmax(part, 1) for part in torch.split(leaves[2], list(BRANCHES), 1)], 1)
    values = torch.randn(50, 1, generator=torch.Generator().manual_seed(3)).requires_grad_()
    now = log_prob(PolicyOutput(leaves[0], leaves[1], normalized, None), batch)
    ratios = ((now if ratio == "per_action" else now.sum(1, keepdim=True)) - batch.log_prob).exp()
    surrogate = torch.minimum(ratios * batch.advantage, ratios.clamp(0.8, 1.2) * batch.advantage).mean()
    axes = leaves[1] + 0.5 * np.log(2 * np.pi * np.e)
    per_step = (axes.mean(1) if ratio == "per_action" else axes.sum(1)) - (normalized.exp() * normalized).sum(1)
    scalar = -surrogate + 0.5 * (values - batch.returns).square().mean() - beta * per_step.mean()
    expected = torch.autograd.grad(scalar, [*leaves, values])
    found, _ = ppo_loss(make_output(), values.detach(), batch, Coefficients(0.2, beta, ratio), BRANCHES)
    for theirs, ours in zip(expected, found, strict=True):
        assert ours is not None
        assert torch.allclose(theirs, ours, rtol=1e-4, atol=1e-7)


def test_a_ratio_beyond_the_clip_gives_no_gradient() -> None:
    """What has moved far enough in the direction of its advantage is not pushed further; what moved the other way is."""
    now = float(np.log(0.5))
    batch = Batch(
        None,
        torch.zeros(4, 1, dtype=torch.int64),
        torch.tensor([[now - 1.0], [now + 1.0], [now - 1.0], [now + 1.0]]),
        torch.tensor([[1.0], [1.0], [-1.0], [-1.0]]),
        torch.zeros(4, 1),
    )
    output = PolicyOutput(None, None, torch.full((4, 2), now), None)
    gradients, _ = ppo_loss(output, torch.zeros(4, 1), batch, Coefficients(0.2, 0.0, "joint"), (2,))
    assert gradients.mean is gradients.log_std is None
    assert gradients.scores is not None
    assert (gradients.scores[:, 0] != 0).tolist() == [False, True, True, False]


def test_signals_share_the_value_loss() -> None:
    """With several value heads the loss is the mean of their errors."""
    output = make_output(2)
    batch = make_batch(output, "joint")._replace(returns=torch.tensor([[0.0, 2.0], [0.0, 2.0]]))
    _, diagnostics = ppo_loss(output, torch.zeros(2, 2), batch, Coefficients(0.2, 0.0, "joint"), BRANCHES)
    assert diagnostics.value_loss.item() == pytest.approx(2.0)
