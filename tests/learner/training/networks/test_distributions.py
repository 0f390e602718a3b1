"""Compares action distributions with torch's."""

from __future__ import annotations

import torch

from learner.training.networks.distributions import (
    categorical_entropy,
)
from learner.training.networks.heads import CategoricalHead
from learner.training.networks.initializers import Initializer


def test_forbidden_choices_have_no_probability_and_no_entropy() -> None:
    """With all choices but one forbidden, the entropy is 0 and its gradient is finite."""
    head = CategoricalHead(4, (3, 2), Initializer("kaiming"))
    masks = torch.tensor([[0, 1, 0, 1, 1]], dtype=torch.uint8)
    logits = head(torch.randn(1, 4), masks)
    entropy = categorical_entropy(logits, (3, 2))
    assert entropy[0, 0].item() == 0.0
    gradients = torch.autograd.grad(entropy.sum(), list(head.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)
