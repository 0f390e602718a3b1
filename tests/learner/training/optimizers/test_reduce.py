"""Tests that all reductions over learners use one interface."""

from __future__ import annotations

import torch

from learner.training.optimizers.reduce import SingleLearner


def test_one_learner_changes_nothing() -> None:
    """With one learner the interface is the identity."""
    single, values = SingleLearner(), torch.randn(3)
    assert single.sums(values) is single.moments(values) is values
    assert single.gather(values).tolist() == [values.tolist()]
    assert single.broadcast(b"state") == b"state"
