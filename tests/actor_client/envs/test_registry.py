"""Checks the page's statement of which environments work with every installed environment."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from actor_client.envs.base import EnvBatch, StepResult
from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace
from actor_client.envs.factory import make_env_batch
from tests.actor_client.envs import toys

FAMILIES = ("classic_control", "box2d", "toy_text", "mujoco")
"""The families that the page names; of MuJoCo the environments of version 5, which need no old version of MuJoCo."""
REFUSED_OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "Text": spaces.Text(5),
    "Graph": spaces.Graph(spaces.Box(0, 1, (2,)), None),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    "Sequence": spaces.Sequence(spaces.Box(0, 1, (2,))),
}
REFUSED_ACTIONS: dict[str, spaces.Space[Any]] = {
    **REFUSED_OBSERVATIONS,
    "Tuple": spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (2,))]),
    "Dict": spaces.Dict({"walk": spaces.Discrete(2)}),
}
PAGE = Path(__file__).resolve().parents[3] / "actor_client" / "envs" / "README.md"


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


@pytest.mark.parametrize("env", [spec.id for spec in registered()])
def test_every_environment_of_the_families_works_by_its_id(env: str) -> None:
    """Each environment of the families is made, reset and stepped, and its observations match its spec."""
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


def test_the_families_are_those_of_the_page() -> None:
    """Each of the four families has environments."""
    modules = {str(spec.entry_point).split(".")[2] for spec in registered()}
    assert modules == set(FAMILIES)
    assert "classic control, Box2D, MuJoCo (version 5) and toy text" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", REFUSED_OBSERVATIONS)
def test_observations_that_the_page_excludes_are_refused_by_name(kind: str) -> None:
    """Observation spaces that the page excludes are refused by name, also within a Dict or Tuple."""
    space = REFUSED_OBSERVATIONS[kind]
    for whole in (space, spaces.Dict({"part": space}), spaces.Tuple([space])):
        with pytest.raises(UnsupportedSpace, match=f"{kind}|is a list"):
            make_env_batch(f"{toys.MODULE}:toy", num_envs=1, env_kwargs={"observation_space": whole})


@pytest.mark.parametrize("kind", REFUSED_ACTIONS)
def test_actions_that_the_page_excludes_are_refused_by_name(kind: str) -> None:
    """The error names the space and what can be chosen."""
    with pytest.raises(UnsupportedSpace, match=f"the action space is {kind}.*supported are Discrete"):
        make_env_batch(f"{toys.MODULE}:toy", num_envs=1, env_kwargs={"action_space": REFUSED_ACTIONS[kind]})


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize(("name", "interface"), [("turns", "AEC"), ("at_once", "Parallel")])
def test_pettingzoo_is_refused_by_that_name(name: str, interface: str, vector: bool) -> None:
    """PettingZoo environments are refused with one line that names the other command."""
    with pytest.raises(UnknownEnvironment) as caught:
        make_env_batch(f"{toys.MODULE}:{name}", num_envs=1, vector=vector)

    assert f"a PettingZoo environment ({interface} interface); use rollcast-actor pettingzoo" in caught.value.message
    assert "bound method" not in caught.value.message
    assert "\n" not in caught.value.message
