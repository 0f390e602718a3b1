"""Curiosity: rewards what a model of the environment does not predict (Pathak et al. 2017, arXiv:1705.05363).

| symbol | shape | meaning |
|---|---|---|
| phi(s) | [B, hidden_units] | features of an observation, by the signal's own encoders and body |
| a | [B, n + sum(branches)] | the action: draws without differences that the environment ignores, choices one-hot |
| f | | forward model: phi(s), a to a guess of phi(s') |
| g | | inverse model: phi(s), phi(s') to a guess of a |

The inverse model makes the features hold only what the agent can influence.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from learner.shared.settings.network import Activation
from learner.shared.settings.rewards import CuriositySettings
from learner.training.networks.body import Body
from learner.training.networks.dense import DenseLayers
from learner.training.networks.initializers import Initializer
from learner.training.rewards.actions import ActionNumbers
from learner.training.rewards.learned import LearnedReward, SignalSetup
from learner.training.rewards.transitions import Transitions

MODEL_UNITS = 256
"""Width of the one hidden layer of each model."""
LOSS_FACTOR = 10.0
FORWARD_SHARE = 0.2
"""Share of the forward model in the loss; the rest is the inverse model's (beta in equation 7)."""


class _Model(nn.Module):
    """A model with one hidden layer: ``[B, inputs]`` to ``[B, outputs]``."""

    def __init__(self, inputs: int, outputs: int, kind: Activation, initializer: Initializer) -> None:
        super().__init__()
        self.hidden = DenseLayers(inputs, (MODEL_UNITS,), kind, initializer)
        self.out = initializer.linear(MODEL_UNITS, outputs, 1.0)

    def forward(self, *parts: Tensor) -> Tensor:
        """Computes the model of parts ``[B, *]``, concatenated."""
        found: Tensor = self.out(self.hidden(torch.cat(parts, dim=1)))
        return found


class CuriosityNetwork(nn.Module):
    """Holds the features of observations and both models.

    Args:
        settings: Settings of the signal.
        setup: Observations and actions.
    """

    def __init__(self, settings: CuriositySettings, setup: SignalSetup) -> None:
        super().__init__()
        network = settings.network_settings.without_memory()
        initializer = Initializer(network.initialization, setup.generator)
        action, kind = setup.spec.action, network.activation
        self.body = Body(setup.spec.observations, network, initializer)
        self.actions = ActionNumbers(action, setup.squash, setup.device)
        self.inverse = _Model(2 * self.body.size, self.actions.size, kind, initializer)
        self.forecast = _Model(self.body.size + self.actions.size, self.body.size, kind, initializer)
        self._axes, self._branches = action.continuous_size, list(action.discrete_branches)

    def errors(self, transitions: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """Computes the features ``[B, h]`` before and after a step, and the forward error ``[B]``.

        The error is ``0.5 * ||f(phi(s), a) - phi(s')||^2`` (equation 6).
        """
        before, after = self.body(transitions.observations), self.body(transitions.next_observations)
        action = self.actions.of(transitions.continuous, transitions.discrete)
        return before, after, 0.5 * (self.forecast(before, action) - after).square().sum(1)

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes ``10 (0.2 forward + 0.8 inverse)``, means over the steps, and both (equation 7)."""
        before, after, errors = self.errors(transitions)
        forward, inverse = errors.mean(), self.inverse_error(transitions, before, after).mean()
        return LOSS_FACTOR * (FORWARD_SHARE * forward + (1.0 - FORWARD_SHARE) * inverse), (forward, inverse)

    def inverse_error(self, transitions: Transitions, before: Tensor, after: Tensor) -> Tensor:
        """Computes ``[B]``: squared error summed over axes, plus cross-entropy summed over branches (equation 3)."""
        guess = self.inverse(before, after)
        error = torch.zeros_like(guess[:, 0])
        if transitions.continuous is not None:
            taken = self.actions.told_apart(transitions.continuous)
            error = error + (guess[:, : self._axes] - taken).square().sum(1)
        if transitions.discrete is not None:
            scores = torch.split(guess[:, self._axes :], self._branches, dim=1)
            logs = torch.cat([torch.log_softmax(part, dim=1) for part in scores], dim=1)
            error = error - (logs * self.actions.one_hot(transitions.discrete)).sum(1)
        return error


class CuriosityReward(LearnedReward):
    """Rewards what the forward model did not predict.

    The reward is the forward error, at most ``1 / |strength|`` (so that it counts at most 1), and 0 before the first
    update, when it would be the error of random weights. The value after the end of an episode counts as if there were
    no end; otherwise a curious agent would avoid ends for their own sake.

    Args:
        settings: Settings of the signal.
        setup: The remaining arguments.
    """

    reported: tuple[str, ...] = ("Losses/Curiosity Forward Loss", "Losses/Curiosity Inverse Loss")
    ignores_ends: bool = True
    network: CuriosityNetwork

    def __init__(self, settings: CuriositySettings, setup: SignalSetup) -> None:
        super().__init__("curiosity", settings, CuriosityNetwork(settings, setup), setup)
        # With a strength near 0 the limit would exceed the range of the rewards' type.
        self._cap = 1.0 / max(abs(settings.strength), 1.0 / torch.finfo(torch.float32).max)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        if not self.optimizer.steps:
            return torch.zeros_like(transitions.reward)
        return self.network.errors(transitions)[2].clamp(max=self._cap)

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss, and its two parts; see `CuriosityNetwork.loss`."""
        return self.network.loss(transitions)
