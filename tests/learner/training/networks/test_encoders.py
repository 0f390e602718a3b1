"""Tests encoders of single observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rollcast.enums import ObservationKind
from rollcast.specs import ObservationSpec

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.encoders import CategoricalEncoder, ObservationEncoder, VectorEncoder, build_encoder
from learner.training.networks.initializers import Initializer
from tests.learner.training.networks.specs import entities, goal, image, vector

INITIALIZER = Initializer("kaiming")
SETTINGS = NetworkSettings(hidden_units=8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64", "bool"])
def test_vectors_of_any_type_become_float32(dtype: str) -> None:
    """Vectors of every wire type keep their values as float32."""
    values = torch.from_numpy(np.array([[0, 1, 1], [1, 0, 1]], dtype))
    found = VectorEncoder(vector(size=3))(values)
    assert found.dtype == torch.float32
    assert found.tolist() == [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]


def test_scale_is_seen_as_one() -> None:
    """A value equal to the declared scale becomes 1.0."""
    encoder = VectorEncoder(vector(size=2, dtype="uint8", scale=200.0))
    np.testing.assert_allclose([[1.0, 0.5]], encoder(torch.tensor([[200, 100]], dtype=torch.uint8)))


def test_odd_shapes_are_flattened() -> None:
    """Scalars and matrices are flattened without a normalizer."""
    settings = NetworkSettings(normalize=True)
    for shape, kind in (
        ((), ObservationKind.VECTOR),
        ((2, 3), ObservationKind.VECTOR),
        ((2, 2, 2, 2), ObservationKind.IMAGE),
    ):
        spec = ObservationSpec("odd", np.dtype(np.float32), shape, kind)
        encoder = build_encoder(spec, settings, INITIALIZER)
        assert isinstance(encoder, VectorEncoder)
        assert encoder.normalizer is None
        values = torch.randn(5, *shape)
        assert torch.equal(values.reshape(5, -1), encoder(values))


def test_categories_become_one_hot_blocks() -> None:
    """Each category is a one-hot block; values out of range are zeros."""
    encoder = CategoricalEncoder((2, 3))
    assert encoder.size == 5
    found = encoder(torch.tensor([[1, 2], [0, 7], [-1, 0]], dtype=torch.int8))
    assert found.tolist() == [[0, 1, 0, 0, 1], [1, 0, 0, 0, 0], [0, 0, 1, 0, 0]]


def test_observations_stand_side_by_side() -> None:
    """Observations are concatenated in order, and only vectors are normalized."""
    specs = (vector(size=3), image(), vector("other", 2))
    encoder = ObservationEncoder(specs, NetworkSettings(hidden_units=8, normalize=True), INITIALIZER)
    assert encoder.size == 3 + 8 + 2
    assert list(encoder.normalizing) == [0, 2]
    found = encoder([torch.ones(4, 3), torch.zeros(4, 24, 28, 3, dtype=torch.uint8), torch.ones(4, 2)])
    assert found.shape == (4, 13)
    assert torch.equal(found[:, :3], torch.ones(4, 3))


def test_entities_come_last() -> None:
    """The summary of a list follows all other observations, and normalizers keep their places."""
    specs = (entities(), vector(size=3), entities("others", (2, 4)), vector("other", 2))
    encoder = ObservationEncoder(specs, NetworkSettings(hidden_units=8, normalize=True), INITIALIZER)
    assert encoder.size == 3 + 2 + 128
    assert list(encoder.normalizing) == [1, 3]
    found = encoder([torch.randn(4, 5, 3), torch.ones(4, 3), torch.randn(4, 2, 4), torch.full((4, 2), 2.0)])
    assert found.shape == (4, 133)
    assert found[:, :5].tolist() == [[1.0, 1.0, 1.0, 2.0, 2.0]] * 4


def test_goals_are_told_apart_and_stay_in_place() -> None:
    """Goals are normalized in their places and returned separately as well."""
    specs = (goal("first", 2), vector(size=3), goal("second", 1))
    observations = [torch.full((4, 2), 9.0), torch.zeros(4, 3), torch.ones(4, 1)]
    encoder = ObservationEncoder(specs, NetworkSettings(hidden_units=8, normalize=True), INITIALIZER)
    values, goals = encoder.encode(observations)
    assert encoder.goal_size == 3
    assert goals is not None
    assert goals.tolist() == [[5.0, 5.0, 1.0]] * 4
    assert values.tolist() == [[5.0, 5.0, 0.0, 0.0, 0.0, 1.0]] * 4
    plain = ObservationEncoder(specs, NetworkSettings(goal_conditioning_type="none"), INITIALIZER)
    assert plain.goal_size == 0
    assert plain.encode(observations).goals is None
