"""Tests what an exported model says about itself."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from rollcast.limits import MAX_CONTINUOUS_ACTIONS, MAX_MODEL_CARD_BYTES
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.settings.network import NetworkSettings
from learner.training.export.card import Origin, card_of
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import SquashedPolicyNetwork

STATE = ObservationSpec("state", np.dtype("float32"), (3,))
LIMITLESS = ActionSpec(3, (), (-np.inf, 0.0, -3e38), (1.0, 4.0, 3e38))


def told(action: ActionSpec, kind: type[PolicyNetwork] = PolicyNetwork, name: str = "B") -> dict[str, Any]:
    """Returns the description of a small network."""
    network = kind(BehaviorSpec(name, (STATE,), action), NetworkSettings(hidden_units=4, num_layers=1))
    text = card_of(network, Origin("r/u\n", 7))
    assert text.isascii()
    assert len(text) <= MAX_MODEL_CARD_BYTES
    card: dict[str, Any] = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    return card


@pytest.mark.parametrize(("kind", "scale"), [(PolicyNetwork, 3.0), (SquashedPolicyNetwork, None)])
def test_an_axis_without_bounds_gives_back_the_draw(kind: type[PolicyNetwork], scale: float | None) -> None:
    """Its bounds and, where no number does it, its scale are null; the range of float32 does not overflow."""
    axes = told(LIMITLESS, kind)["continuous"]
    assert axes["low"] == [None, 0.0, pytest.approx(-3e38)]
    assert axes["high"] == [1.0, 4.0, pytest.approx(3e38)]
    assert axes["scale"] == [scale, 2.0, pytest.approx(3e38)]
    assert axes["offset"] == [0.0, 2.0, 0.0]


def test_an_environment_that_takes_the_output_has_scale_1() -> None:
    """Unity's actors declare no bounds."""
    axes = told(ActionSpec(2))["continuous"]
    assert (axes["scale"], axes["offset"], axes["low"]) == ([1.0, 1.0], [0.0, 0.0], [-1.0, -1.0])


@pytest.mark.parametrize("name", ["\N{SNOWMAN}", 'quote"d', "back\u202eward"])
def test_odd_names_stay_ascii_in_the_file(name: str) -> None:
    """Names are escaped, and read back unchanged."""
    card = told(ActionSpec(1, (), (0.0,), (1.0,), (name,)), name=name)
    assert (card["behavior"], card["continuous"]["names"], card["run_id"]) == (name, [name], "r/u\n")


def test_a_description_beyond_the_limit_leaves_out_the_lists() -> None:
    """A hostile declaration, with the longest names in the widest script, cannot make the file larger than the limit."""
    names = ("\N{SNOWMAN}" * 128,) * MAX_CONTINUOUS_ACTIONS
    card = told(ActionSpec(MAX_CONTINUOUS_ACTIONS, (), (), (), names))
    assert (card["observations"], card["continuous"], card["behavior"], card["step"]) == (None, None, "B", 7)
    assert told(ActionSpec(MAX_CONTINUOUS_ACTIONS))["continuous"]["scale"] == [1.0] * MAX_CONTINUOUS_ACTIONS
