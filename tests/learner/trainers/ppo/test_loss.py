"""The PPO loss against plain numpy and known cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.networks.distributions import branch_offsets
from learner.networks.policy import PolicyOutput
from learner.trainers.actor_critic.loss import Batch, Coefficients, Ratio
from learner.trainers.ppo.loss import ppo_loss

BRANCHES = (3, 2)


def make_output(batch: int = 50) -> PolicyOutput:
    """Parameters of a hybrid behavior with 2 axes and 2 branches."""
    generator = torch.Generator().manual_seed(1)
    mean, log_std = torch.randn(batch, 2, generator=generator), torch.randn(batch, 2, generator=generator) / 3
    raw = torch.randn(batch, 5, generator=generator)
    logits = torch.cat([torch.log_softmax(part, 1) for part in torch.split(raw, list(BRANCHES), 1)], 1)
    return PolicyOutput(mean, log_std, logits, None)


def make_batch(output: PolicyOutput, ratio: Ratio, shift: float = 0.3) -> Batch:
    """Actions whose recorded log-probabilities differ from the present ones by up to ``shift``."""
    generator = torch.Generator().manual_seed(2)
    size = len(present(output))
    discrete = torch.stack([torch.randint(0, count, (size,), generator=generator) for count in BRANCHES], 1)
    batch = Batch(
        torch.randn(size, 2, generator=generator),
        discrete + branch_offsets(BRANCHES),
        torch.zeros(size, 4),
        torch.randn(size, 1, generator=generator),
        torch.randn(size, 1, generator=generator),
    )
    now = log_prob(output, batch)
    old = now + shift * (2 * torch.rand(now.shape, generator=generator) - 1)
    return batch._replace(log_prob=old if ratio == "per_action" else old.sum(1, keepdim=True))


def present(output: PolicyOutput) -> Tensor:
    """The logits, which this behavior has."""
    if output.logits is None:
        raise TypeError
    return output.logits


def log_prob(output: PolicyOutput, batch: Batch) -> Tensor:
    """Log-probability of every factor by the formulas of the textbook."""
    if output.mean is None or output.log_std is None or batch.continuous is None or batch.discrete is None:
        raise TypeError
    std = output.log_std.exp()
    density = -((batch.continuous - output.mean) ** 2) / (2 * std**2) - torch.log(std) - 0.5 * np.log(2 * np.pi)
    return torch.cat((density, present(output).gather(1, batch.discrete)), 1)


def entropies(output: PolicyOutput) -> tuple[float, float]:
    """Mean entropy as ML-Agents counts it, and of the whole action."""
    if output.log_std is None:
        raise TypeError
    axes = (output.log_std + 0.5 * np.log(2 * np.pi * np.e)).numpy()
    logits = present(output).numpy()
    branches = -(np.exp(logits) * logits).sum(1)
    return float((axes.mean(1) + branches).mean()), float((axes.sum(1) + branches).mean())


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
