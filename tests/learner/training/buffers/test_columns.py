"""Tests the columns of the ring."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.training.buffers.columns import on_policy_columns, stored_dtype


def test_columns_follow_the_spec() -> None:
    """The columns are observations, actions, log-probabilities, rewards and versions."""
    pixels = ObservationSpec("pixels", np.dtype(np.uint8), (8, 8, 3))
    hybrid = BehaviorSpec("A", (pixels,), ActionSpec(continuous_size=2, discrete_branches=(3, 4)))
    found = {column.name: (column.dtype, column.shape, column.row_bytes) for column in on_policy_columns(hybrid)}
    assert found == {
        "obs/pixels": (torch.uint8, (8, 8, 3), 192),
        "continuous_action": (torch.float32, (2,), 8),
        "discrete_action": (torch.int64, (2,), 16),
        "action_mask": (torch.uint8, (7,), 7),
        "log_prob": (torch.float32, (4,), 16),
        "reward": (torch.float32, (), 4),
        "version": (torch.int64, (), 8),
    }
    continuous = BehaviorSpec("A", (pixels,), ActionSpec(continuous_size=1))
    assert [column.name for column in on_policy_columns(continuous)] == [
        "obs/pixels",
        "continuous_action",
        "log_prob",
        "reward",
        "version",
    ]


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "uint16", "uint32"]
)
def test_every_type_of_the_wire_can_be_stored_and_indexed(name: str) -> None:
    """The ring's types hold all wire types, and torch can index them."""
    dtype = stored_dtype(np.dtype(name))
    column = torch.zeros((4, 1), dtype=dtype)
    column.numpy()[:] = np.ones((4, 1), name)
    assert column.index_select(0, torch.tensor([2])).to(torch.float32).tolist() == [[1.0]]
