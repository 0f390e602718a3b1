"""Random network distillation: rewards what a predictor has not learned yet (Burda et al. 2018, arXiv:1810.12894)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from learner.shared.settings.rewards import RNDSettings
from learner.training.networks.body import Body
from learner.training.networks.initializers import Initializer
from learner.training.networks.normalizer import RunningMoments
from learner.training.rewards.learned import LearnedReward, SignalSetup
from learner.training.rewards.transitions import Transitions


class RNDNetwork(nn.Module):
    """A fixed random target and a predictor of the same form.

    Args:
        settings: Settings of the signal.
        setup: Observations of the behavior.
    """

    def __init__(self, settings: RNDSettings, setup: SignalSetup) -> None:
        super().__init__()
        network = settings.network_settings.without_memory()
        initializer = Initializer(network.initialization, setup.generator)
        self.target = Body(setup.spec.observations, network, initializer).requires_grad_(False)
        self.predictor = Body(setup.spec.observations, network, initializer)

    def errors(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes ``[B]``: the squared distance between prediction and target, summed over ``hidden_units``."""
        with torch.no_grad():
            target = self.target(observations)
        errors: Tensor = (self.predictor(observations) - target).square().sum(1)
        return errors

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the mean error, which is also the reported statistic."""
        loss = self.errors(transitions.next_observations).mean()
        return loss, (loss,)


class RNDReward(LearnedReward):
    """Rewards steps that lead to rarely seen observations.

    The reward of a step is the error on the observation after it, as in the paper's algorithm 1, divided by the
    standard deviation of all errors so far (in section 2.4 of the paper, of the returns of these errors), so that a
    strength means the same for all networks and observations. The reward is 0 before the first update, when everything
    is new and nothing is normalized. Ends do not count, as with curiosity.

    Args:
        settings: Settings of the signal.
        setup: The remaining arguments.
    """

    reported: tuple[str, ...] = ("Losses/RND Loss",)
    ignores_ends: bool = True
    network: RNDNetwork

    def __init__(self, settings: RNDSettings, setup: SignalSetup) -> None:
        super().__init__("rnd", settings, RNDNetwork(settings, setup), setup)
        self._reduce = setup.reduce
        self._errors = RunningMoments(1, setup.device, spread=0.0)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        if not self.optimizer.steps:
            return torch.zeros_like(transitions.reward)
        return self.network.errors(transitions.next_observations) / self._errors.std().float()

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the mean error, and adds the errors to those that scale the rewards."""
        errors = self.network.errors(transitions.next_observations)
        batch = self._reduce.moments(self._errors.moments(errors.detach().unsqueeze(1)))
        self._errors.merge(torch.where(batch.isfinite().all(), batch, torch.zeros_like(batch)))
        loss = errors.mean()
        return loss, (loss,)

    def state_dict(self) -> dict[str, Any]:
        """Returns copies of the states of network, optimizer, observation statistics and errors."""
        return {**super().state_dict(), "errors": self._errors.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads a saved state and discards unreported values.

        Raises:
            KeyError, TypeError, ValueError, RuntimeError: The state does not fit.
        """
        super().load_state_dict(state)
        self._errors.load_state_dict(state["errors"])
