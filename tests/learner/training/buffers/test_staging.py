"""Tests staging on a CPU, where the ring itself is filled."""

from __future__ import annotations

import torch

from learner.training.buffers.columns import RingColumn
from learner.training.buffers.ring import DeviceRing
from learner.training.buffers.staging import DirectStaging, staging_for


def test_on_a_cpu_nothing_is_copied() -> None:
    """An open block is a view of the ring."""
    ring = DeviceRing([RingColumn("value", torch.float32, (2,))], 10, torch.device("cpu"))
    staging = staging_for(ring, 5, torch.device("cpu"))
    assert isinstance(staging, DirectStaging)
    block = staging.open(13, 4)
    block["value"][:] = 7.0
    staging.commit()
    staging.join()
    assert ring.storage["value"][:, 0].tolist() == [0.0] * 3 + [7.0] * 4 + [0.0] * 3
