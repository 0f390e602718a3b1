"""Tests how the shape of run files is read from the models."""

from __future__ import annotations

import pytest

from learner.settings.base import Tree
from learner.settings.options import RunOptions
from learner.settings.slots import scalar_paths, slot_at

RAW: Tree = {"behaviors": {"A": {"trainer_type": "ppo"}, "B": {"trainer_type": "none such"}}}


@pytest.mark.parametrize(
    ("dotted", "kind", "nullable"),
    [
        ("debug", "leaf", False),
        ("default_settings", "model", True),
        ("behaviors", "map", False),
        ("behaviors.A", "model", False),
        ("behaviors.A.hyperparameters.beta", "leaf", False),
        ("behaviors.A.hyperparameters.max_grad_norm", "leaf", True),
        ("behaviors.A.network_settings.memory", "model", True),
        ("behaviors.A.reward_signals.curiosity.gamma", "leaf", False),
        ("behaviors.B.hyperparameters", "leaf", False),
        ("env_settings.env_args", "list", True),
        ("environment_parameters.x.sampler_type", "leaf", False),
        ("rollcast.target_return", "leaf", True),
    ],
)
def test_places_are_found(dotted: str, kind: str, nullable: bool) -> None:
    """Every key has a kind and says whether null is allowed."""
    slot = slot_at(RunOptions, RAW, tuple(dotted.split(".")))
    assert slot is not None
    assert (kind, nullable) == (slot.kind, slot.nullable)


@pytest.mark.parametrize("dotted", ["nothing", "debug.more", "behaviors.A.hyperparameters.gamma", "rollcast.adress"])
def test_places_that_do_not_exist_are_not_found(dotted: str) -> None:
    """An unknown key, or one below a single value, has no place."""
    assert slot_at(RunOptions, RAW, tuple(dotted.split("."))) is None


def test_single_values_are_listed_without_lists_and_free_keys() -> None:
    """The listed keys are those that an environment variable can set."""
    paths = set(scalar_paths(RunOptions))
    assert {("debug",), ("env_settings", "seed"), ("rollcast", "address"), ("torch_settings", "device")} <= paths
    assert ("env_settings", "env_args") not in paths
    assert not any(path[0] == "behaviors" for path in paths)
