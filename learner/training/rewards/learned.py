"""Base of learned reward signals: a network, an Adam, sums of statistics, and their state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.rewards import LearnedSignalSettings
from learner.training.networks.encoders import EncoderStatistics, ObservationEncoder
from learner.training.networks.fit import require_fit
from learner.training.networks.named import NamedModels
from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.reduce import Reduce, SingleLearner
from learner.training.rewards.transitions import Transitions


class SignalNormalizers(EncoderStatistics):
    """The float64 statistics behind the normalizers of a signal's encoders, all of which see the same observations.

    Each minibatch is added before the signal learns from it.

    Args:
        encoders: Encoders of the signal.
        reduce: Merges the moments of several learners.
        device: Device of the networks.
    """

    def __init__(self, encoders: Sequence[ObservationEncoder], reduce: Reduce, device: torch.device) -> None:
        super().__init__([found for encoder in encoders for found in encoder.normalizing.items()], device)
        self._reduce = reduce

    @torch.no_grad()
    def merge(self, observations: Sequence[Tensor]) -> None:
        """Adds observations ``[B, *shape]`` and publishes the result to the networks; leaves out infinities and NaN.

        Nothing waits for the device: moments that are not finite are replaced by the moments of zero rows.
        """
        encoders = dict(self._encoders)
        for index, moments in self._moments.items():
            batch = self._reduce.moments(moments.moments(encoders[index].scaled(observations[index])))
            moments.merge(torch.where(batch.isfinite().all(), batch, torch.zeros_like(batch)))
        self.publish()


@dataclass(frozen=True, slots=True)
class SignalSetup:
    """Everything a signal is built from, in addition to its settings.

    Attributes:
        spec: Observations and actions of the behavior.
        generator: Draws the initial weights, on the CPU.
        device: Device of networks and transitions.
        reduce: Combines numbers over several learners.
        squash: How actors squash a continuous draw.
        models: Models of the behavior's companions.
    """

    spec: BehaviorSpec
    generator: torch.Generator
    device: torch.device
    reduce: Reduce = field(default_factory=SingleLearner)
    squash: Squash = Squash.CLIP3_DIV3
    models: NamedModels = field(default_factory=NamedModels)

    def get_inference_model(self, name: str) -> nn.Module:
        """Returns a companion's model, which changes only after a training.

        Raises:
            UserError: No companion has a model of this name.
        """
        return self.models.get_inference_model(name)


class LearnedReward(ABC):
    """A reward signal with a network; the algorithm defines `rewards` and `loss`.

    No step waits for the device, and nothing is random except a subclass's draws from a generator that the subclass
    saves: the same transitions in the same order give the same weights.

    Args:
        name: Name in the run file.
        settings: Settings of the signal.
        network: The network, on its device.
        setup: The remaining arguments.

    Attributes:
        name: Name in the run file.
        gamma: Discount factor.
        strength: Factor of the rewards.
        network: The network, on its device.
        optimizer: Optimizer of its parameters.
        ignores_ends: Whether the value after a terminal step counts.
        needs_observations: True.
        reported: Statistics to report, under ML-Agents' names; each is averaged over the steps.
    """

    ignores_ends: bool = False
    needs_observations: bool = True
    reported: tuple[str, ...]

    def __init__(self, name: str, settings: LearnedSignalSettings, network: nn.Module, setup: SignalSetup) -> None:
        self.name = name
        self.gamma = settings.gamma
        self.strength = settings.strength
        self.network = network.to(setup.device)
        self.optimizer = FlatAdam(self.network, settings.learning_rate, setup.reduce)
        encoders = [module for module in network.modules() if isinstance(module, ObservationEncoder)]
        self._normalizers = SignalNormalizers(encoders, setup.reduce, setup.device)
        self._sums = torch.zeros(len(self.reported), dtype=torch.float64, device=setup.device)
        self._steps_reported = self.optimizer.steps

    @abstractmethod
    def rewards(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]`` before multiplication by the strength; called under ``torch.no_grad``."""

    @abstractmethod
    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss, a scalar with a gradient, and the `reported` scalars."""

    @torch.no_grad()
    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]`` times the strength."""
        return self.rewards(transitions) * self.strength

    def update(self, transitions: Transitions) -> None:
        """Takes one gradient step; reads nothing back from the device."""
        self._normalizers.merge(transitions.next_observations)
        loss, reported = self.loss(transitions)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step(rows=len(transitions.reward))
        self._sums += torch.stack([value.detach().double() for value in reported])

    def begin_draws(self, seed: int) -> None:
        """Seeds the draws of an update of one of several learners; most signals draw nothing.

        Args:
            seed: Differs between learners and updates.
        """
        del seed

    def is_finite(self) -> Tensor:
        """Returns a scalar bool on the device: whether all learned parameters are finite."""
        return self.optimizer.is_finite()

    def statistics(self) -> Mapping[str, float]:
        """Returns the means over the steps since the last call; empty if there were none. Waits for the device."""
        steps = self.optimizer.steps - self._steps_reported
        if steps <= 0:
            return {}
        means = (self._sums / steps).tolist()
        self._forget_sums()
        return dict(zip(self.reported, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the states of network, optimizer and observation statistics."""
        return {
            "network": {name: value.clone() for name, value in self.network.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "normalizers": self._normalizers.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state and discards unreported values.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """
        require_fit(state["network"], self.network.state_dict())
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._normalizers.load_state_dict(state["normalizers"])
        self._forget_sums()

    def _forget_sums(self) -> None:
        self._sums.zero_()
        self._steps_reported = self.optimizer.steps
