"""A trainer, a reward signal, a body and a policy of one's own, which own.yaml names; no package is needed."""

from __future__ import annotations

from collections.abc import Sequence

from rollcast.specs import BehaviorSpec, ObservationSpec
from torch import Generator, Tensor, nn

from learner.shared.settings.base import NonNegativeReal
from learner.shared.settings.hyperparameters import PPOHyperparameters
from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.rewards import RewardSignalSettings
from learner.training.networks.encoders import ObservationEncoder
from learner.training.networks.initializers import Initializer
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.rewards.learned import SignalSetup
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.actor_critic.loss import Batch, Coefficients, LossTerms, log_probability
from learner.training.trainers.ppo.trainer import PPOTrainer


class CautiousHyperparameters(PPOHyperparameters):
    """Hyperparameters of PPO, and one more."""

    caution: NonNegativeReal = 0.01
    """weight of the divergence from the policy that acted"""


class Cautious(PPOTrainer):
    """PPO with a penalty on the divergence beside its clip."""

    settings_model = CautiousHyperparameters

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Adds the divergence to PPO's loss, and reports it."""
        terms = super().loss(output, values, batch, coefficients)
        log_prob = log_probability(output, batch.continuous, batch.discrete, coefficients.ratio)
        log_ratio = log_prob - batch.log_prob
        divergence = (log_ratio.exp() - 1 - log_ratio).sum(1).mean()
        caution = self.own_hyperparameters(self.context, CautiousHyperparameters).caution
        return LossTerms(terms.total + caution * divergence, {**terms.scalars, "divergence": divergence})


class Upright:
    """Rewards an upright pole of CartPole, from 0 to 1, times the strength.

    Args:
        settings: The signal's block in the run file.
        setup: The behavior's spec and the device.
    """

    ignores_ends = False
    needs_observations = True

    def __init__(self, settings: RewardSignalSettings, setup: SignalSetup) -> None:
        self.gamma = settings.gamma
        self._strength = settings.strength

    def evaluate(self, transitions: Transitions) -> Tensor:
        """Computes rewards ``[B]``."""
        angle = transitions.next_observations[0][:, 2]
        return angle.double().cos() * self._strength


class Residual(nn.Module):
    """Layers with skips behind Rollcast's encoders.

    Args:
        specs: The observations.
        settings: ``network_settings`` of the run file.
        initializer: Creates layers whose weights are drawn from the run's seed.
    """

    def __init__(self, specs: tuple[ObservationSpec, ...], settings: NetworkSettings, initializer: Initializer) -> None:
        super().__init__()
        self.encoder = ObservationEncoder(specs, settings, initializer)
        width, gain = settings.widths[-1], initializer.gains.hidden
        self.enter = initializer.linear(self.encoder.size, width, gain)
        self.layers = nn.ModuleList(initializer.linear(width, width, gain) for _ in settings.widths)

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes ``[B, size]``, with any size, from ``[B, *shape]`` of each observation."""
        hidden: Tensor = self.enter(self.encoder(list(observations))).tanh()
        for layer in self.layers:
            hidden = hidden + layer(hidden).tanh()
        return hidden


class Deeper(PolicyNetwork):
    """A policy with one more layer between its body and its heads.

    Args:
        spec: Observations and actions of the behavior.
        settings: ``network_settings`` of the run file.
        generator: Draws the initial weights.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, generator: Generator | None = None) -> None:
        super().__init__(spec, settings, generator)
        initializer = Initializer(settings.initialization, generator)
        self.last = initializer.linear(self.body.size, self.body.size, initializer.gains.hidden)

    def act(self, hidden: Tensor, action_masks: Tensor | None) -> PolicyOutput:
        """Computes distribution parameters from the output of the body, ``[B, size]``."""
        return super().act(self.last(hidden).tanh(), action_masks)
