"""Tests how the shape of run files is read from the models."""

from __future__ import annotations

import pytest

from learner.shared.settings.base import Tree
from learner.shared.settings.options import RunOptions
from learner.shared.settings.slots import slot_at

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
