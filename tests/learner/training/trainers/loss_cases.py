"""Outputs of a policy, minibatches and the formulas of losses."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from learner.training.networks.distributions import branch_offsets
from learner.training.networks.policy import PolicyOutput
from learner.training.trainers.actor_critic.loss import Batch, Ratio

BRANCHES = (3, 2)


def make_output(batch: int = 50) -> PolicyOutput:
    """Returns parameters of a hybrid behavior with 2 axes and 2 branches."""
    generator = torch.Generator().manual_seed(1)
    mean, log_std = torch.randn(batch, 2, generator=generator), torch.randn(batch, 2, generator=generator) / 3
    return PolicyOutput(mean, log_std, normalized(torch.randn(batch, 5, generator=generator)), None)


def make_batch(output: PolicyOutput, ratio: Ratio, shift: float = 0.3) -> Batch:
    """Returns actions whose recorded log-probabilities differ by up to ``shift``."""
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


def normalized(scores: Tensor) -> Tensor:
    """Returns log-probabilities of each branch's choices."""
    return torch.cat([torch.log_softmax(part, 1) for part in torch.split(scores, list(BRANCHES), 1)], 1)


def make_values() -> Tensor:
    """Returns values of the 50 steps of `make_output`."""
    return torch.randn(50, 1, generator=torch.Generator().manual_seed(3))


def present(output: PolicyOutput) -> Tensor:
    """Returns the logits."""
    if output.logits is None:
        raise TypeError
    return output.logits


def log_prob(output: PolicyOutput, batch: Batch) -> Tensor:
    """Returns the log-probability of every factor by the formulas."""
    if output.mean is None or output.log_std is None or batch.continuous is None or batch.discrete is None:
        raise TypeError
    std = output.log_std.exp()
    density = -((batch.continuous - output.mean) ** 2) / (2 * std**2) - torch.log(std) - 0.5 * np.log(2 * np.pi)
    return torch.cat((density, present(output).gather(1, batch.discrete)), 1)


def entropies(output: PolicyOutput) -> tuple[float, float]:
    """Returns the mean entropy as ML-Agents counts it, and of the whole action."""
    if output.log_std is None:
        raise TypeError
    axes = (output.log_std + 0.5 * np.log(2 * np.pi * np.e)).numpy()
    logits = present(output).numpy()
    branches = -(np.exp(logits) * logits).sum(1)
    return float((axes.mean(1) + branches).mean()), float((axes.sum(1) + branches).mean())
