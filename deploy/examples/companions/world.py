"""A world model that trains beside the policy, and a reward signal that reads it; world.yaml names both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.base import PositiveWhole
from learner.shared.settings.companions import CompanionSettings
from learner.shared.settings.rewards import RewardSignalSettings
from learner.training.rewards.actions import ActionNumbers
from learner.training.rewards.learned import SignalSetup
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.companions.trainer import CompanionTrainer


class WorldSettings(CompanionSettings):
    """Settings of every companion, and three more."""

    hidden_units: PositiveWhole = 64
    """width of the model's layers"""
    batch_size: PositiveWhole = 128
    """steps of a gradient step"""
    gradient_steps: PositiveWhole = 20
    """gradient steps of a training"""


class Dynamics(nn.Module):
    """Predicts a vector observation from the one before it and the action.

    Args:
        spec: Observations and actions of the behavior.
        units: Width of the layers.
        device: Device of the actions.
    """

    def __init__(self, spec: BehaviorSpec, units: int, device: torch.device) -> None:
        super().__init__()
        self.actions = ActionNumbers(spec.action, Squash.CLIP3_DIV3, device)
        size = spec.observations[0].shape[0]
        self.layers = nn.Sequential(nn.Linear(size + self.actions.size, units), nn.SiLU(), nn.Linear(units, size))
        self.register_buffer("trained", torch.zeros(()))

    def forward(self, steps: Transitions) -> Tensor:
        """Computes the error of each of B steps, ``[B]``."""
        before, after = steps.observations[0], steps.next_observations[0]
        action = self.actions.of(steps.continuous, steps.discrete)
        errors: Tensor = (before + self.layers(torch.cat([before, action], dim=1)) - after).square().mean(1)
        return errors


class WorldModel(CompanionTrainer):
    """Trains a model of the environment on the policy's experience."""

    settings_model = WorldSettings
    settings: WorldSettings

    def create_models(self) -> Mapping[str, nn.Module]:
        """Creates the model, which others find as ``world``."""
        return {"world": Dynamics(self.spec, self.settings.hidden_units, self.context.device)}

    def train(self) -> Iterator[None]:
        """Takes some gradient steps; after each the policy may take its turn."""
        world, adam = self.get_training_model("world"), self.optimizers["adam"]
        data = self.get_data_user("experience")
        for _ in range(self.settings.gradient_steps):
            loss = world(data.sample(self.settings.batch_size)).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            self.add_stat("Losses/World Model", loss.item())
            yield
        world.get_buffer("trained").fill_(1.0)


class Surprise:
    """Rewards steps that the world model does not predict, from 0 to 1, times the strength.

    Args:
        settings: The signal's block in the run file.
        setup: Has the models of the companions.
    """

    ignores_ends = True
    needs_observations = True

    def __init__(self, settings: RewardSignalSettings, setup: SignalSetup) -> None:
        self.gamma = settings.gamma
        self._strength = settings.strength
        self._world = setup.get_inference_model("world")

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``; 0 before the first training."""
        errors: Tensor = self._world(transitions).double() * self._world.get_buffer("trained")
        return errors.clamp(max=1.0) * self._strength
