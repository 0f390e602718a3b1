"""Compares action distributions with torch's."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Normal

from learner.networks.distributions import (
    branch_offsets,
    categorical_entropy,
    categorical_log_prob,
    gaussian_entropy,
    gaussian_log_prob,
)
from learner.networks.heads import CategoricalHead
from learner.networks.initializers import Initializer


def test_gaussian_factors() -> None:
    """Each axis is a normal distribution."""
    mean, log_std, draws = torch.randn(9, 3), torch.randn(9, 3), torch.randn(9, 3)
    normal = Normal(mean, log_std.exp())
    log_prob = normal.log_prob(draws)
    assert torch.allclose(log_prob, gaussian_log_prob(mean, log_std, draws), atol=1e-4)
    assert torch.allclose(normal.entropy(), gaussian_entropy(log_std), atol=1e-6)


@pytest.mark.parametrize("branches", [(4,), (2, 5, 3)])
def test_categorical_factors(branches: tuple[int, ...]) -> None:
    """Each branch is a categorical distribution over its slice of the logits."""
    raw = [torch.randn(7, size) for size in branches]
    logits = torch.cat([torch.log_softmax(part, 1) for part in raw], dim=1)
    actions = torch.stack([torch.randint(0, size, (7,)) for size in branches], dim=1)
    found = categorical_log_prob(logits, actions + branch_offsets(branches))
    entropy = categorical_entropy(logits, branches)
    for index, part in enumerate(raw):
        expected = Categorical(logits=part)
        log_prob = expected.log_prob(actions[:, index])
        assert torch.allclose(log_prob, found[:, index], atol=1e-6)
        theirs = expected.entropy()
        assert torch.allclose(theirs, entropy[:, index], atol=1e-6)


def test_forbidden_choices_have_no_probability_and_no_entropy() -> None:
    """With all choices but one forbidden, the entropy is 0 and its gradient is finite."""
    head = CategoricalHead(4, (3, 2), Initializer("kaiming"))
    masks = torch.tensor([[0, 1, 0, 1, 1]], dtype=torch.uint8)
    logits = head(torch.randn(1, 4), masks)
    entropy = categorical_entropy(logits, (3, 2))
    assert entropy[0, 0].item() == 0.0
    gradients = torch.autograd.grad(entropy.sum(), list(head.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
