"""Random network distillation: what a predictor has not learned yet is new (Burda et al. 2018, arXiv:1810.12894)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from learner.networks.body import Body
from learner.networks.initializers import Initializer
from learner.rewards.learned import LearnedReward, SignalSetup
from learner.rewards.transitions import Transitions
from learner.settings.rewards import RNDSettings


class RNDNetwork(nn.Module):
    """A target that stays as it was drawn, and a predictor of the same form.

    Args:
        settings: of the signal.
        setup: what is seen.
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
        """Computes the mean error, which is also what is reported."""
        loss = self.errors(transitions.next_observations).mean()
        return loss, (loss,)


class RNDReward(LearnedReward):
    """Rewards steps that lead to what was seen seldom.

    The reward of a step is the error on what was observed after it, as in the paper's algorithm 1; it is 0 before the
    first update, when everything is new and nothing was normalized. Ends do not count, as with curiosity.

    Args:
        settings: of the signal.
        setup: everything else.
    """

    reported: tuple[str, ...] = ("Losses/RND Loss",)
    ignores_ends: bool = True
    network: RNDNetwork

    def __init__(self, settings: RNDSettings, setup: SignalSetup) -> None:
        super().__init__("rnd", settings, RNDNetwork(settings, setup), setup)

    def rewards(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        if not self.optimizer.steps:
            return torch.zeros_like(transitions.reward)
        return self.network.errors(transitions.next_observations)

    def loss(self, transitions: Transitions) -> tuple[Tensor, Sequence[Tensor]]:
        """Computes the loss; see `RNDNetwork.loss`."""
        return self.network.loss(transitions)
