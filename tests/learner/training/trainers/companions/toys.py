"""Companions and a reward signal for tests, which run files name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from learner.shared.settings.base import PositiveWhole
from learner.shared.settings.companions import CompanionSettings
from learner.shared.settings.rewards import RewardSignalSettings
from learner.training.rewards.learned import SignalSetup
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.companions.trainer import CompanionTrainer

WORLD, READER, BROKEN, ENDLESS, PLAIN, TWIN, WIDE, SURPRISE, FORGETFUL = (
    f"{__name__}:{name}"
    for name in ("World", "Reader", "Broken", "Endless", "Plain", "Twin", "Wide", "Surprise", "Forgetful")
)


class WorldSettings(CompanionSettings):
    """Settings of `World`."""

    steps: PositiveWhole = 4
    """gradient steps of a training"""
    units: PositiveWhole = 3
    """width of its layer"""


class World(CompanionTrainer):
    """Predicts the next observation, with a layer that drops values at random."""

    settings_model = WorldSettings
    settings: WorldSettings

    def create_models(self) -> Mapping[str, nn.Module]:
        """Creates a small network."""
        (size,) = self.spec.observations[0].shape
        units = self.settings.units
        layers = nn.Sequential(nn.Linear(size, units), nn.Dropout(0.2), nn.Tanh(), nn.Linear(units, size))
        self.calls: list[str] = []
        return {"world": layers}

    def setup(self) -> None:
        """Notes the call."""
        self.calls.append("setup")

    def teardown(self) -> None:
        """Notes the call."""
        self.calls.append("teardown")

    def train(self) -> Iterator[None]:
        """Takes gradient steps."""
        world, data = self.get_training_model("world"), self.get_data_user(self.training_condition_data_user)
        for _ in range(self.settings.steps):
            steps = data.sample(16)
            loss = (world(steps.observations[0]) - steps.next_observations[0]).square().mean()
            self.optimizers["adam"].zero_grad()
            loss.backward()
            self.optimizers["adam"].step()
            self.add_stat("Losses/World", loss.item())
            self.calls.append("step")
            yield


class Reader(CompanionTrainer):
    """Has no model of its own: trains a scale for another's, and looks at all of the data."""

    def create_optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Looks for the other's model, which exists."""
        self.other = self.get_training_model("world")
        return {}

    def train(self) -> None:
        """Notes what it sees, without a yield."""
        data = self.get_data_user(self.training_condition_data_user).get_data()
        self.seen = data.reward.tolist(), data.terminated.tolist()


class Broken(Reader):
    """Fails while it trains."""

    def train(self) -> None:
        """Raises."""
        raise ArithmeticError("the world\nis flat")


class Endless(World):
    """Trains its model to numbers that are not finite."""

    def train(self) -> Iterator[None]:
        """Divides by zero."""
        with torch.no_grad():
            for value in self.get_training_model("world").parameters():
                value.mul_(float("inf"))
        yield


class Twin(World):
    """Names its model as `World` does."""


class Wide(CompanionTrainer):
    """Has a model of any size."""

    class settings_model(CompanionSettings):  # noqa: N801 - the name that run files look for
        """Settings of `Wide`."""

        units: PositiveWhole = 3
        """width of its layer"""

    settings: Any

    def create_models(self) -> Mapping[str, nn.Module]:
        """Creates a layer."""
        return {"wide": nn.Linear(self.settings.units, self.settings.units)}

    def train(self) -> None:
        """Does nothing."""


class Forgetful(CompanionTrainer):
    """Reads data that nobody has."""

    def train(self) -> None:
        """Looks for it."""
        self.get_data_user("yesterday")


class Plain:
    """Is no companion, and its maker is no class."""


class Surprise:
    """Rewards what the inference model of `World` predicts badly."""

    ignores_ends = True
    needs_observations = True

    def __init__(self, settings: RewardSignalSettings, setup: SignalSetup) -> None:
        self.gamma = settings.gamma
        self.world = setup.get_inference_model("world")

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        errors: Tensor = (self.world(transitions.observations[0]) - transitions.next_observations[0]).square().mean(1)
        return errors


def make_plain(*_: Any) -> Plain:
    """Makes an object that is no companion."""
    return Plain()
