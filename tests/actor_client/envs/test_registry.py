"""Tests that every environment of the families that the page names works."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from actor_client.envs.base import EnvBatch, StepResult
from actor_client.envs.factory import make_env_batch

FAMILIES = ("classic_control", "box2d", "toy_text", "mujoco")
"""The families that the page names; of MuJoCo the environments of version 5, which need no old version of MuJoCo."""


def registered() -> Sequence[EnvSpec]:
    """Returns all environments of the families."""
    return [
        spec
        for spec in gymnasium.registry.values()
        if any(f".envs.{family}." in str(spec.entry_point) for family in FAMILIES)
        and (spec.version == 5 or ".mujoco." not in str(spec.entry_point))
    ]


def step_first_choice(batch: EnvBatch) -> StepResult:
    """Steps with the first allowed choice and continuous actions of 0."""
    action, envs = batch.spec.action, batch.num_envs
    masks = batch.action_masks
    discrete = np.zeros((envs, len(action.discrete_branches)), np.int32)
    if masks is not None and discrete.shape[1] == 1:
        discrete = masks.argmax(1).astype(np.int32)[:, None]
    continuous = np.zeros((envs, action.continuous_size), np.float32)
    return batch.step(continuous if action.continuous_size else None, discrete if action.discrete_branches else None)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_environment_of_each_family_works(family: str) -> None:
    """The first environment of each family is made, reset and stepped."""
    check(next(spec.id for spec in registered() if f".envs.{family}." in str(spec.entry_point)))


@pytest.mark.nightly
@pytest.mark.parametrize("env", [spec.id for spec in registered()])
def test_every_environment_of_the_families_works_by_its_id(env: str) -> None:
    """Each environment of the families is made, reset and stepped."""
    check(env)


def check(env: str) -> None:
    """Makes, resets and steps an environment, and checks that its observations match its spec."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium's, of versions that have a newer one
        batch = make_env_batch(env, num_envs=2)
    try:
        batch.reset([1, 2])
        result = step_first_choice(batch)
    finally:
        batch.close()
    assert [values.shape[1:] for values in result.observations] == [spec.shape for spec in batch.spec.observations]
    assert np.isfinite(result.rewards).all()
