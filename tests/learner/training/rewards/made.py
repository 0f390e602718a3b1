"""Makes transitions of any behavior, and reward signals."""

from __future__ import annotations

from typing import Any

import torch
from rollcast.enums import ObservationKind
from rollcast.specs import BehaviorSpec, ObservationSpec
from torch import Tensor

from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.rewards import CuriositySettings, FeatureSettings, RNDSettings
from learner.training.rewards.curiosity import CuriosityReward
from learner.training.rewards.learned import LearnedReward, SignalSetup
from learner.training.rewards.rnd import RNDReward
from learner.training.rewards.transitions import Transitions
from tests.learner.training.networks.specs import behavior, entities, goal, image, vector

CPU = torch.device("cpu")
SMALL = NetworkSettings(hidden_units=16)
FEATURES = FeatureSettings(hidden_units=16)
SPECS: dict[str, BehaviorSpec] = {
    "continuous": behavior(continuous=2),
    "discrete": behavior(branches=(3,)),
    "branches": behavior(branches=(3, 2)),
    "hybrid": behavior(continuous=1, branches=(2, 4)),
    "pixels": behavior(image(), vector(), branches=(3,)),
    "entities": behavior(entities(), vector(), continuous=1, branches=(2,)),
    "goal": behavior(vector(), goal(), branches=(3,)),
    "goal and entities": behavior(entities(), goal(), continuous=2),
}


def setup(spec: BehaviorSpec, seed: int = 1, **changes: Any) -> SignalSetup:
    """Returns the setup of a signal."""
    return SignalSetup(spec, torch.Generator().manual_seed(seed), CPU, **changes)


def curiosity(spec: BehaviorSpec, seed: int = 1, **changes: Any) -> CuriosityReward:
    """Returns a small curiosity."""
    return CuriosityReward(CuriositySettings(**{"network_settings": FEATURES, **changes}), setup(spec, seed))


def rnd(spec: BehaviorSpec, seed: int = 1, **changes: Any) -> RNDReward:
    """Returns a small random network distillation."""
    return RNDReward(RNDSettings(**{"network_settings": FEATURES, **changes}), setup(spec, seed))


def observed(spec: ObservationSpec, batch: int, generator: torch.Generator) -> Tensor:
    """Returns a random observation ``[batch, *shape]``."""
    shape = (batch, *spec.shape)
    if spec.kind is ObservationKind.IMAGE:
        return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return torch.randn(shape, generator=generator)


def transitions(spec: BehaviorSpec, batch: int = 12, seed: int = 5, **changes: Any) -> Transitions:
    """Returns random transitions; ``changes`` replace fields."""
    generator = torch.Generator().manual_seed(seed)
    action = spec.action
    choices = [torch.randint(0, size, (batch,), generator=generator) for size in action.discrete_branches]
    values: dict[str, Any] = {
        "reward": torch.randn(batch, generator=generator),
        "terminated": torch.zeros(batch, dtype=torch.float64),
        "observations": [observed(each, batch, generator) for each in spec.observations],
        "next_observations": [observed(each, batch, generator) for each in spec.observations],
        "continuous": 2 * torch.randn(batch, action.continuous_size, generator=generator)
        if action.continuous_size
        else None,
        "discrete": torch.stack(choices, 1) if choices else None,
    }
    return Transitions(**{**values, **changes})


def learn(signal: LearnedReward, seen: Transitions, steps: int) -> None:
    """Takes gradient steps of a signal on the same transitions."""
    for _ in range(steps):
        signal.update(seen)


def weights(signal: LearnedReward) -> dict[str, Tensor]:
    """Returns a copy of all parameters and buffers."""
    return {name: value.clone() for name, value in signal.network.state_dict().items()}
