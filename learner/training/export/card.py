"""Describes an exported model in its own metadata, for programs that know nothing of Rollcast; see README.md of this folder."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from rollcast.descriptions import ACTION_MASKS, RECURRENT_IN, RECURRENT_OUT
from rollcast.enums import ImageLayout, ObservationKind, Squash
from rollcast.limits import MAX_MODEL_CARD_BYTES
from rollcast.specs import ActionSpec, ObservationSpec
from rollcast.transforms import CLIP

from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import squash_of

FORMAT: Final = 1
"""Number of the form of the object. Fields may be added to it; a change of their meaning raises the number."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a model comes from.

    Attributes:
        run_id: Name of the run; empty outside of a run.
        step: Steps of the trainer.
    """

    run_id: str = ""
    step: int = 0


def card_of(network: PolicyNetwork, origin: Origin) -> str:
    """Returns the description of the model that `learner.training.export.unity` makes of a network, as JSON in ASCII.

    A declaration can be so large that its description would pass `MAX_MODEL_CARD_BYTES`: then the description has null
    for the lists of observations and actions.
    """
    action = network.spec.action
    card: dict[str, Any] = {
        "format": FORMAT,
        "rollcast": version("rollcast"),
        "behavior": network.spec.name,
        "run_id": origin.run_id,
        "step": origin.step,
        "observations": [
            _observation(place, network.spec.observations[index]) for place, index in enumerate(network.reads)
        ],
        "continuous": _continuous(action, squash_of(network)) if action.continuous_size else None,
        "discrete": _discrete(action) if action.discrete_branches else None,
        "masks": {"input": ACTION_MASKS, "size": action.mask_size} if action.discrete_branches else None,
        "memory": {"input": RECURRENT_IN, "output": RECURRENT_OUT, "size": network.memory_size}
        if network.memory_size
        else None,
    }
    text = json.dumps(card, allow_nan=False)
    if len(text) > MAX_MODEL_CARD_BYTES:
        text = json.dumps({**card, "observations": None, "continuous": None, "discrete": None}, allow_nan=False)
    return text


def _observation(place: int, spec: ObservationSpec) -> dict[str, Any]:
    """Describes an input: the model takes (value in the environment - first) / divisor, as float32."""
    is_scaled = spec.kind is ObservationKind.IMAGE and spec.dtype.kind in "iu" and spec.scale
    return {
        "input": f"obs_{place}",
        "name": spec.name,
        "path": list(spec.path),
        "kind": spec.kind.name.lower(),
        "shape": list(spec.shape),
        "dtype": spec.dtype.name,
        "layout": None if spec.layout is ImageLayout.UNSPECIFIED else spec.layout.name,
        "role": spec.role.name.lower(),
        "low": None if spec.bounds is None else spec.bounds[0],
        "high": None if spec.bounds is None else spec.bounds[1],
        "categories": list(spec.categories),
        "first": list(spec.first_categories) or 0,
        "divisor": spec.scale if is_scaled else 1,
    }


def _continuous(action: ActionSpec, squash: Squash) -> dict[str, Any]:
    """Describes the axes: the environment takes output * scale + offset."""
    low = action.continuous_low or (-1.0,) * action.continuous_size
    high = action.continuous_high or (1.0,) * action.continuous_size
    maps = [_affine(bottom, top, squash) for bottom, top in zip(low, high, strict=True)]
    return {
        "most_likely": "deterministic_continuous_actions",
        "sample": "continuous_actions",
        "names": list(action.descriptions[: action.continuous_size]),
        "low": [bottom if math.isfinite(bottom) else None for bottom in low],
        "high": [top if math.isfinite(top) else None for top in high],
        "scale": [scale for scale, _ in maps],
        "offset": [offset for _, offset in maps],
        "squash": squash.name.lower(),
    }


def _affine(low: float, high: float, squash: Squash) -> tuple[float | None, float]:
    """Returns scale and offset of an axis; without bounds, those that give the draw, which for tanh is no such map."""
    if math.isfinite(low) and math.isfinite(high):
        return high / 2 - low / 2, high / 2 + low / 2
    return None if squash is Squash.TANH else CLIP, 0.0


def _discrete(action: ActionSpec) -> dict[str, Any]:
    """Describes the branches: the environment takes output + first."""
    return {
        "most_likely": "deterministic_discrete_actions",
        "sample": "discrete_actions",
        "names": list(action.descriptions[action.continuous_size :]),
        "branches": list(action.discrete_branches),
        "first": list(action.first_choices) or 0,
    }
