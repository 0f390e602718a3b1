"""Fixtures: policy networks of every kind."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.settings.network import MemorySettings, NetworkSettings
from learner.training.networks.policy import PolicyNetwork


@dataclass(frozen=True)
class Kind:
    """A kind of network: spec and network settings."""

    observations: tuple[ObservationSpec, ...]
    action: ActionSpec = field(default_factory=lambda: ActionSpec(discrete_branches=(3,)))
    settings: dict[str, Any] = field(default_factory=dict)

    def build(self, seed: int = 0) -> PolicyNetwork:
        """Makes the network."""
        spec = BehaviorSpec("Walker", self.observations, self.action)
        settings = NetworkSettings.model_validate({"hidden_units": 16, **self.settings})
        return PolicyNetwork(spec, settings, torch.Generator().manual_seed(seed))


def vector(dtype: str = "float32", shape: tuple[int, ...] = (5,), name: str = "vector") -> ObservationSpec:
    """Makes a vector observation."""
    return ObservationSpec(name, np.dtype(dtype), shape)


def categorical(dtype: str, *categories: int) -> ObservationSpec:
    """Makes a categorical observation."""
    kind = ObservationKind.CATEGORICAL
    return ObservationSpec("categorical", np.dtype(dtype), (len(categories),), kind, categories=categories)


def image(dtype: str, shape: tuple[int, int, int], layout: ImageLayout, scale: float = 255.0) -> ObservationSpec:
    """Makes a visual observation."""
    return ObservationSpec("image", np.dtype(dtype), shape, ObservationKind.IMAGE, layout=layout, scale=scale)


HWC, CHW = ImageLayout.HWC, ImageLayout.CHW
CONTINUOUS = ActionSpec(continuous_size=3, continuous_low=(-1.0, 0.0, -np.inf), continuous_high=(1.0, 5.0, np.inf))
HYBRID = ActionSpec(continuous_size=2, discrete_branches=(2, 4))
ENTITIES = ObservationSpec("entities", np.dtype("float32"), (4, 3), ObservationKind.ENTITIES)
OTHERS = ObservationSpec("others", np.dtype("float64"), (6, 2), ObservationKind.ENTITIES, scale=2.0)
GOAL = ObservationSpec("goal", np.dtype("float32"), (3,), role=ObservationRole.GOAL)
CHOICE = ObservationSpec(
    "choice", np.dtype("int32"), (2,), ObservationKind.CATEGORICAL, ObservationRole.GOAL, categories=(2, 3)
)

KINDS = {
    "discrete": Kind((vector(),)),
    "multidiscrete": Kind((vector(),), ActionSpec(discrete_branches=(3, 1, 4))),
    "continuous": Kind((vector(),), CONTINUOUS),
    "hybrid": Kind((vector(),), HYBRID),
    "normalized": Kind((vector("float64"), vector("float32", (2,), "second")), HYBRID, {"normalize": True}),
    "tanh": Kind((vector(),), CONTINUOUS, {"activation": "tanh", "initialization": "orthogonal"}),
    **{
        kind: Kind((vector(),), CONTINUOUS, {"activation": kind, "hidden_units": [7, 5, 6]})
        for kind in ("elu", "selu", "leaky_relu", "gelu")
    },
    "deviation by state": Kind((vector(), GOAL), HYBRID, {"std": "state", "hidden_units": [9, 4]}),
    "relu, no layers to speak of": Kind((vector(),), HYBRID, {"activation": "relu", "num_layers": 1}),
    **{f"vector of {dtype}": Kind((vector(dtype),)) for dtype in ("bool", "uint8", "int8", "int16", "int32", "int64")},
    **{f"vector of {dtype}": Kind((vector(dtype),)) for dtype in ("uint16", "uint32", "uint64", "float16", "float64")},
    **{f"categories in {dtype}": Kind((categorical(dtype, 3, 5),)) for dtype in ("uint8", "int16", "int32", "int64")},
    **{f"categories in {dtype}": Kind((categorical(dtype, 3, 5),)) for dtype in ("uint16", "uint32", "uint64")},
    "one category": Kind((categorical("int64", 1),), HYBRID),
    "scalar": Kind((vector(shape=()),), HYBRID),
    "matrix": Kind((vector(shape=(3, 4)),), HYBRID),
    "entities": Kind((ENTITIES,)),
    "entities beside numbers": Kind((ENTITIES, vector("float64"), OTHERS), HYBRID, {"normalize": True}),
    "entities in small numbers": Kind((dataclasses.replace(ENTITIES, dtype=np.dtype("uint16")),), CONTINUOUS),
    "goal": Kind((vector(), GOAL), HYBRID),
    "goal alone": Kind((GOAL,), CONTINUOUS, {"num_layers": 1, "activation": "swish", "initialization": "lecun"}),
    "goal as any other": Kind((vector(), GOAL), HYBRID, {"goal_conditioning_type": "none"}),
    "goals and entities": Kind((CHOICE, ENTITIES, vector(), GOAL), HYBRID, {"normalize": True, "num_layers": 3}),
    "simple HWC": Kind((image("uint8", (20, 24, 3), HWC),), HYBRID),
    "simple CHW": Kind((image("uint8", (1, 20, 24), CHW),), CONTINUOUS),
    "nature_cnn": Kind((image("uint8", (36, 40, 3), HWC),), CONTINUOUS, {"vis_encode_type": "nature_cnn"}),
    "resnet": Kind((image("float32", (3, 16, 15), CHW, 0.0),), HYBRID, {"vis_encode_type": "resnet"}),
    "match3": Kind((image("uint16", (6, 7, 4), HWC, 0.0),), HYBRID, {"vis_encode_type": "match3"}),
    "flat image": Kind((image("uint8", (8, 8, 1), HWC),), settings={"vis_encode_type": "fully_connected"}),
    "dictionary": Kind(
        (vector("float64"), categorical("int64", 4), image("uint8", (20, 20, 3), HWC), ENTITIES, vector("int32", ())),
        HYBRID,
        {"normalize": True},
    ),
}


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    """Returns each kind of network in turn."""
    found: Kind = request.param
    return found


@pytest.fixture
def recurrent() -> PolicyNetwork:
    """Returns a policy with memory."""
    settings = NetworkSettings(hidden_units=16, memory=MemorySettings(memory_size=8, sequence_length=4))
    return PolicyNetwork(BehaviorSpec("Walker", (vector(),), HYBRID), settings)
