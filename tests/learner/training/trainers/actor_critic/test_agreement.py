"""Tests how much probability a policy gives to choices that masks forbid."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from torch import Tensor

from learner.shared.settings.network import NetworkSettings
from learner.training.buffers.batches import RowSource
from learner.training.buffers.columns import ACTION_MASK, DISCRETE_ACTION, LOG_PROB
from learner.training.networks.heads import CategoricalHead
from learner.training.networks.policy import PolicyNetwork
from learner.training.trainers.actor_critic.experience import Recorded
from learner.training.trainers.actor_critic.trainer import compare

STEPS = 6


def recorded(masks: Tensor | None) -> Recorded:
    """Returns fresh steps of a behavior with branches of three and two choices."""
    columns = {
        "obs/state": torch.randn(STEPS, 4, generator=torch.Generator().manual_seed(1)),
        DISCRETE_ACTION: torch.zeros(STEPS, 2, dtype=torch.int32),
        LOG_PROB: torch.zeros(STEPS, 2),
        **({} if masks is None else {ACTION_MASK: masks}),
    }
    return Recorded(
        {name: RowSource(values) for name, values in columns.items()}, torch.zeros(STEPS, dtype=torch.int64)
    )


def forbidden(masks: Tensor | None) -> Tensor | None:
    """Returns the share of a policy whose choices are equally likely."""
    spec = BehaviorSpec(
        "Board", (ObservationSpec("state", np.dtype(np.float32), (4,)),), ActionSpec(discrete_branches=(3, 2))
    )
    policy = PolicyNetwork(spec, NetworkSettings(), torch.Generator().manual_seed(2))
    assert isinstance(policy.categorical, CategoricalHead)
    torch.nn.init.zeros_(policy.categorical.logits.weight)
    return compare(policy, recorded(masks), observations=("obs/state",), ratio="per_action", sample=100).forbidden


@pytest.mark.parametrize(
    ("row", "share"),
    [((1, 1, 1, 1, 1), 0.0), ((1, 0, 0, 1, 1), 1 / 3), ((1, 0, 0, 0, 1), (2 / 3 + 1 / 2) / 2)],
)
def test_the_share_of_forbidden_choices(row: tuple[int, ...], share: float) -> None:
    """It is the mean over branches and steps of the probability before masks."""
    found = forbidden(torch.tensor([row] * STEPS, dtype=torch.uint8))
    assert found is not None
    assert float(found) == pytest.approx(share, abs=1e-6)


def test_without_masks_there_is_none() -> None:
    """A behavior without masks forbids nothing."""
    assert forbidden(None) is None
