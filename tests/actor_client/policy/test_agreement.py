"""The learner's formulas in torch and the actor's in numpy give the same numbers."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from actor_client.policy.distributions import Categorical, draw_gaussian, gaussian_log_prob
from learner.networks import distributions as learners


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_gaussians_agree(seed: int) -> None:
    """Log-probabilities of recorded draws agree to float32 rounding."""
    random = np.random.default_rng(seed)
    mean, log_std, noise = (random.normal(size=(8, 3)).astype(np.float32) for _ in range(3))
    raw = draw_gaussian(mean, log_std, noise)

    expected = learners.gaussian_log_prob(*(torch.from_numpy(part) for part in (mean, log_std, raw)))

    np.testing.assert_allclose(gaussian_log_prob(raw, mean, log_std), expected.numpy(), rtol=1e-5, atol=1e-5)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_categoricals_agree(seed: int) -> None:
    """Log-probabilities of recorded choices agree to float32 rounding, whichever side normalizes."""
    random = np.random.default_rng(seed)
    branches = (3, 2, 4)
    logits = random.normal(size=(8, 9)).astype(np.float32)
    gumbel = random.gumbel(size=(8, 9)).astype(np.float32)
    choices, log_prob = Categorical(branches, normalized=False).choose(logits, None, gumbel)

    parts = torch.tensor_split(torch.from_numpy(logits), [3, 5], dim=1)
    normalized = torch.cat([part.log_softmax(1) for part in parts], 1)
    columns = torch.from_numpy(choices).to(torch.int64) + learners.branch_offsets(branches)
    expected = learners.categorical_log_prob(normalized, columns)

    np.testing.assert_allclose(log_prob, expected.numpy(), rtol=1e-5, atol=1e-5)
